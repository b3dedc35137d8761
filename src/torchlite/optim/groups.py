"""Which parameters are decayed."""

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from torchlite.errors import UserError

NORM_LAYERS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)


def parameter_groups(
    model: nn.Module, weight_decay: float | None = None, decay_norm_and_bias: bool = False
) -> list[dict[str, Any]]:
    """Groups for a torch optimizer: first the decayed parameters, then, with a weight decay of 0, those that are not.

    Not decayed are biases and other vectors and scalars, the parameters of norm layers, and what a module lists in
    `no_weight_decay()`, as timm's do. Each trainable parameter is in exactly one group, a shared one once, in the order
    of `model.named_parameters()`; a group that would be empty is left out. Parameters come with their names, which
    torch keeps in `param_names` of the group and of the optimizer's state.

    Args:
        weight_decay: of the first group; None leaves it to the `weight_decay` that the optimizer is given.
        decay_norm_and_bias: decay everything, in one group.

    Raises:
        UserError: no parameter is trainable.
    """
    undecayed = set() if decay_norm_and_bias else _undecayed_ids(model)
    trainable = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not trainable:
        raise UserError(f"{type(model).__name__} has no trainable parameter: unfreeze some, or choose another model")
    decayed: dict[str, Any] = {"params": [pair for pair in trainable if id(pair[1]) not in undecayed]}
    if weight_decay is not None:
        decayed["weight_decay"] = weight_decay
    rest = {"params": [pair for pair in trainable if id(pair[1]) in undecayed], "weight_decay": 0.0}
    return [group for group in (decayed, rest) if group["params"]]


def _undecayed_ids(model: nn.Module) -> set[int]:
    """Identities, not names: a shared parameter has several names and is listed under one."""
    undecayed = {id(parameter) for parameter in model.parameters() if parameter.ndim <= 1}
    for module in model.modules():
        if isinstance(module, NORM_LAYERS):  # a LayerNorm over [C, H, W] has weights of three dimensions
            undecayed.update(id(parameter) for parameter in module.parameters(recurse=False))
        list_names = getattr(module, "no_weight_decay", None)
        if callable(list_names):
            listed = set(list_names())
            undecayed.update(
                id(parameter) for name, parameter in module.named_parameters(remove_duplicate=False) if name in listed
            )
    return undecayed
