"""Networks of torchvision, fitted to the channels and classes of the data."""

from difflib import get_close_matches
from functools import partial
from typing import Any

from torch import nn

from torchlite.errors import UserError
from torchlite.models.initialization import initialize, initialize_head
from torchlite.models.norms import Norm, norm_2d
from torchlite.models.surgery import replace_head, replace_input

# In training these two return tuples with the logits of side branches, unless told otherwise.
WITH_SIDE_BRANCHES = ("googlenet", "inception_v3")


def torchvision_model(model_name: str, num_classes: int, in_chans: int, pretrained: bool = False) -> nn.Module:
    """Any classification network of torchvision by name, with logits [B, num_classes] of images [B, in_chans, H, W].

    The least image size is the network's own: 224 exactly for `vit_*`, 32 or so for most. With `pretrained` (ImageNet
    weights, downloaded once) only a layer that does not fit is new: the head, and the first convolution's weights are
    spread over the channels.

    Raises:
        UserError: no network of that name; the message has the closest.
        OSError: its weights cannot be had.
    """
    import torchvision.models

    known = torchvision.models.list_models(module=torchvision.models)
    if model_name not in known:
        closest = get_close_matches(model_name.lower(), known, n=3, cutoff=0.0)
        raise UserError(
            f"model.model_name={model_name}: torchvision has no such classification network; "
            f"the closest are {', '.join(closest)}"
        )
    options: dict[str, Any] = {}
    if model_name in WITH_SIDE_BRANCHES:
        options["aux_logits"] = False
        if not pretrained:
            options["init_weights"] = True  # torchvision warns when it is not said
    model = torchvision.models.get_model(model_name, weights="DEFAULT" if pretrained else None, **options)
    if getattr(model, "transform_input", False) and in_chans != 3:
        model.transform_input = False  # a change of RGB statistics that only three channels have
    replace_input(model, in_chans, keep_weights=pretrained)
    replace_head(model, num_classes, keep_weights=pretrained)
    return model


def resnet18(
    num_classes: int,
    in_chans: int,
    small_images: bool = True,
    norm: Norm = "batch",
    pretrained: bool = False,
) -> nn.Module:
    """torchvision's ResNet-18, 11 million parameters, with logits [B, num_classes] of images [B, in_chans, H, W].

    `small_images` is the form used for CIFAR: a new 3x3 stem of stride 1 and no max pooling, so that a 32 x 32 image
    ends as a 4 x 4 map and not as one pixel. Source: He et al., "Deep Residual Learning for Image Recognition", 2016.

    Raises:
        UserError: `pretrained` with a norm other than `batch`.
        OSError: the weights cannot be had.
    """
    import torchvision.models

    if pretrained and norm != "batch":
        raise UserError(f"model.norm={norm} has no pretrained weights: set model.norm=batch or model.pretrained=false")
    weights = "DEFAULT" if pretrained else None
    model = torchvision.models.resnet18(weights=weights, norm_layer=partial(norm_2d, norm))
    if small_images:
        model.conv1 = nn.Conv2d(in_chans, 64, kernel_size=3, padding=1, bias=False)
        model.maxpool = nn.Identity()
        initialize(model.conv1)
    else:
        replace_input(model, in_chans, keep_weights=pretrained)
    replace_head(model, num_classes, keep_weights=pretrained)
    if not pretrained:
        initialize(model)
        initialize_head(model.fc)
    return model
