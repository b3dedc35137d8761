"""SmallCNN and MLP: shapes, first loss, and what importing them costs."""

import math
import subprocess
import sys

import pytest
import torch
from torch.nn import functional

import torchlite.models
from torchlite.errors import UserError
from torchlite.models import MLP, SmallCNN

NORMS = ["batch", "group", "layer"]


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("size", [(8, 8), (9, 13), (28, 28), (32, 32), (70, 64)])
@pytest.mark.parametrize("norm", NORMS)
def test_small_cnn_takes_any_size(size: tuple[int, int], norm: str) -> None:
    logits = SmallCNN(num_classes=7, in_chans=2, norm=norm)(torch.randn(3, 2, *size))
    assert logits.shape == (3, 7)
    logits.sum().backward()


def test_small_cnn_has_the_parameters_it_says() -> None:
    assert count(SmallCNN(num_classes=10, in_chans=1)) == 65_962


def test_small_cnn_may_be_deeper_than_the_image_can_be_halved() -> None:
    assert SmallCNN(num_classes=2, in_chans=1, widths=[8] * 6)(torch.randn(2, 1, 8, 8)).shape == (2, 2)


def test_small_cnn_refuses_no_blocks() -> None:
    with pytest.raises(UserError, match=r"model\.widths"):
        SmallCNN(num_classes=2, in_chans=1, widths=[])


@pytest.mark.parametrize("norm", [None, *NORMS])
@pytest.mark.parametrize("widths", [[], [16], [16, 12]])
def test_mlp_has_the_layers_it_is_given(norm: str | None, widths: list[int]) -> None:
    model = MLP(num_classes=5, in_chans=3, image_size=6, widths=widths, norm=norm, dropout=0.1)
    assert model(torch.randn(4, 3, 6, 6)).shape == (4, 5)
    layers = [layer for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
    assert [layer.out_features for layer in layers] == [*widths, 5]


@pytest.mark.parametrize("model", [SmallCNN(10, 1), MLP(10, 1, 28)], ids=["small_cnn", "mlp"])
def test_first_loss_is_that_of_a_guess(model: torch.nn.Module) -> None:
    loss = functional.cross_entropy(model(torch.randn(256, 1, 28, 28)), torch.arange(256) % 10)
    assert loss.item() == pytest.approx(math.log(10), abs=0.1)


def test_weights_are_a_function_of_the_seed() -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(SmallCNN(10, 1).state_dict())
    assert all(torch.equal(first, second) for first, second in zip(*(s.values() for s in states), strict=True))


def test_dropout_stands_before_the_last_layer() -> None:
    model = SmallCNN(10, 1, dropout=1.0).train()
    assert torch.equal(model(torch.randn(4, 1, 8, 8)), model.head.bias.expand(4, 10))


def test_names_are_those_of_the_package() -> None:
    assert set(torchlite.models.__all__) <= set(dir(torchlite.models))
    for name in torchlite.models.__all__:
        assert getattr(torchlite.models, name).__name__ == name
    with pytest.raises(AttributeError, match="ResNet"):
        torchlite.models.ResNet  # noqa: B018


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        ("import torchlite.models", ["torch", "torchvision", "timm"]),
        ("from torchlite.models import SmallCNN, MLP; SmallCNN(10, 1); MLP(10, 1, 8)", ["torchvision", "timm"]),
        ("from torchlite.models import resnet18, torchvision_model; import torchlite.optim", ["torchvision", "timm"]),
    ],
)
def test_nothing_is_imported_before_it_is_needed(statement: str, absent: list[str]) -> None:
    report = f"{statement}; import sys; print([name for name in {absent} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
