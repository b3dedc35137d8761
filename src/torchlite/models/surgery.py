"""Exchanging the first and the last layer of a ready-made network."""

from torch import nn

from torchlite.errors import UserError
from torchlite.models.initialization import initialize, initialize_head


def replace_input(model: nn.Module, in_chans: int, keep_weights: bool) -> None:
    """Afterwards the first convolution takes `in_chans` channels; nothing is touched where it already does.

    With `keep_weights` its response to a gray image is what it was: each new channel gets the sum of the old weights
    over their input channels, divided by `in_chans`. Otherwise the new layer is initialized.
    """
    name, old = next((name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Conv2d))
    if old.in_channels == in_chans:
        return
    new = nn.Conv2d(
        in_chans,
        old.out_channels,
        kernel_size=old.kernel_size,  # type: ignore[arg-type]  # torch types it as a tuple of any length
        stride=old.stride,  # type: ignore[arg-type]
        padding=old.padding,  # type: ignore[arg-type]
        bias=old.bias is not None,
    )
    initialize(new)
    if keep_weights:
        new.weight.data.copy_(old.weight.data.sum(dim=1, keepdim=True) / in_chans)
        if new.bias is not None and old.bias is not None:
            new.bias.data.copy_(old.bias.data)
    model.set_submodule(name, new)


def replace_head(model: nn.Module, num_classes: int, keep_weights: bool) -> None:
    """Afterwards the last linear layer, or convolution as in SqueezeNet, makes `num_classes` logits.

    It is new and initialized; but with `keep_weights` a head that already makes so many is left as it is.

    Raises:
        UserError: the network has no such layer.
    """
    layers = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, (nn.Linear, nn.Conv2d))]
    if not layers:
        raise UserError(f"{type(model).__name__} has no linear layer or convolution to make {num_classes} classes with")
    name, old = layers[-1]
    new: nn.Linear | nn.Conv2d
    if isinstance(old, nn.Linear):
        if keep_weights and old.out_features == num_classes:
            return
        new = nn.Linear(old.in_features, num_classes)
    else:
        if keep_weights and old.out_channels == num_classes:
            return
        new = nn.Conv2d(old.in_channels, num_classes, kernel_size=1)
    initialize_head(new)
    model.set_submodule(name, new)
