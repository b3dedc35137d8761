"""Starting from weights that were trained before."""

import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from torchlite.errors import UserError
from torchlite.models.initialization import initialize_head

log = logging.getLogger("torchlite")
PREFIXES = ("module.", "_orig_mod.")  # what DistributedDataParallel and torch.compile put before a name


def load_weights(model: nn.Module, path: str) -> None:
    """Put the weights in `path` into `model`, and log how many matched, and which are missing or unexpected.

    Reads a checkpoint of ours, a plain state dict (`.pt`, `.pth`) or `.safetensors`. A last layer of another size is
    initialized anew, since a head for other classes is useless.

    Raises:
        UserError: the file cannot be read safely, no tensor matches, or one that is not the head's has another shape.
    """
    found = _stripped(read_weights(path))
    wanted = model.state_dict()
    shared = [name for name in wanted if name in found]
    other_shape = [name for name in shared if found[name].shape != wanted[name].shape]
    head = _head(model)
    # A head of another size starts anew as a whole, so that no old bias meets a new weight
    new_head = any(name.rpartition(".")[0] == head for name in other_shape)
    taken = [name for name in shared if not (new_head and name.rpartition(".")[0] == head)]
    if not taken:
        raise UserError(
            f"model.weights={path}: 0 of its {len(found)} tensors match this model's {len(wanted)}: another architecture? "
            f"It has {_some(list(found))}; the model has {_some(list(wanted))}."
        )
    wrong = [name for name in other_shape if name in taken]
    if wrong:
        shapes = f"{list(found[wrong[0]].shape)} in the file, {list(wanted[wrong[0]].shape)} in the model"
        raise UserError(f"model.weights={path}: {wrong[0]} has another shape: {shapes}.")
    if new_head:
        initialize_head(model.get_submodule(head))  # type: ignore[arg-type]
        log.info(f"model.weights: the head {head} has another size in {path}, so it starts anew")
    model.load_state_dict({name: found[name] for name in taken}, strict=False)
    missing = [name for name in wanted if name not in found]
    unexpected = [name for name in found if name not in wanted]
    log.info(f"model.weights: {len(taken)} of {len(wanted)} tensors taken from {path}")
    for what, names in (("not in the file", missing), ("not in the model", unexpected)):
        if names:
            log.warning(f"model.weights: {len(names)} {what}: {_some(names)}")


def read_weights(path: str) -> dict[str, Tensor]:
    """The tensors in a file, on the CPU, by name; nothing in the file is run. Raises UserError where it cannot be read."""
    if not Path(path).is_file():
        raise UserError(f"model.weights={path}: there is no such file.")
    try:
        if path.endswith(".safetensors"):
            from safetensors.torch import load_file

            state: Any = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each format has its own ways to say "not readable"
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise UserError(f"model.weights={path}: not a file of weights that can be read safely: {reason}") from error
    for key in ("model", "state_dict"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    tensors = (
        {name: value for name, value in state.items() if isinstance(value, Tensor)} if isinstance(state, dict) else {}
    )
    if not tensors:
        raise UserError(f"model.weights={path}: there are no tensors in it.")
    return tensors


def _stripped(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same without what wrappers put before the names."""
    for prefix in PREFIXES * 2:
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _head(model: nn.Module) -> str:
    """The name of the last linear layer, or of the last convolution where there is none."""
    for kinds in (nn.Linear, nn.Conv2d):
        names = [name for name, layer in model.named_modules() if isinstance(layer, kinds)]
        if names:
            return names[-1]
    return ""


def _some(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f", … ({len(names)} in all)" if len(names) > 4 else "")
