"""The networks a config can name; each is imported when it is first asked for.

`import torchlite.models` imports neither torch nor torchvision nor timm. `SmallCNN`, `SmallResNet` and `MLP` need torch alone;
`resnet18` and `torchvision_model` import torchvision (4 s on a small machine) when they are called.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchlite.models.mlp import MLP
    from torchlite.models.recompute import recompute_activations
    from torchlite.models.small_cnn import SmallCNN
    from torchlite.models.small_resnet import SmallResNet
    from torchlite.models.torchvision_models import resnet18, torchvision_model
    from torchlite.models.weights import load_weights

__all__ = [
    "MLP",
    "SmallCNN",
    "SmallResNet",
    "load_weights",
    "recompute_activations",
    "resnet18",
    "torchvision_model",
]

_FILES = {
    "MLP": "mlp",
    "SmallCNN": "small_cnn",
    "SmallResNet": "small_resnet",
    "load_weights": "weights",
    "recompute_activations": "recompute",
    "resnet18": "torchvision_models",
    "torchvision_model": "torchvision_models",
}


def __getattr__(name: str) -> Any:
    if name not in _FILES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_FILES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
