"""Config to objects: what may be named, whether its keys fit, and the only call of Hydra's instantiate."""

import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from torchlite.annotations import closest, fits, shown
from torchlite.errors import UserError

# Arguments that only a run knows, given by name to the group's own node; a config that sets one is refused
RUNTIME = {
    "data": ("seed", "device"),
    "optimizer": ("params",),
    "scheduler": ("optimizer", "total_updates", "updates_per_epoch", "mode"),
}
# What a group's own node must be: a class of this kind, or one of these factories. Rooms of torchlite may name all they hold.
KINDS = {
    "data": ((), ("torchlite.data",)),
    "model": (("torch.nn.Module",), ("torchlite.models", "timm.create_model", "torchvision.models")),
    "optimizer": (("torch.optim.Optimizer",), ("torchlite.optim",)),
    "scheduler": (("torch.optim.lr_scheduler.LRScheduler",), ("torchlite.optim",)),
    "trainer": ((), ("torchlite.trainer",)),
    "task": ((), ("torchlite.tasks",)),
    "callbacks": (("torchlite.callbacks.Callback",), ("torchlite.callbacks",)),
}
# What a node inside another may be besides
INNER_KINDS = ("torch.nn.Module", "torch.utils.data.Dataset", "torch.utils.data.Sampler")
INNER_PLACES = ("torchlite.data", "torchlite.models", "torchvision.transforms")
NOT_A_USERS = {
    *sys.stdlib_module_names,
    "torch",
    "torchvision",
    "timm",
    "torchlite",
    "numpy",
    "hydra",
    "omegaconf",
    "PIL",
}


def check(config: dict[str, Any], trusted: tuple[str, ...] | None = None) -> list[str]:
    """What is wrong with the nodes of a resolved config, a line each; imports what they name and builds nothing.

    Args:
        trusted: top-level modules of the user that may be named; None, for a config typed here, allows any that is installed.
    """
    problems = []
    for group in KINDS:
        node = config.get(group)
        if isinstance(node, dict):
            children = node.items() if group == "callbacks" else [(None, node)]
            for name, child in children:
                path = group if name is None else f"{group}.{name}"
                if child is None and name is not None:  # a callback switched off
                    continue
                if not isinstance(child, dict) or "_target_" not in child:
                    problems.append(f"{path}: a node with `_target_` is wanted; `--help` lists the options of {group}.")
                else:
                    problems += _check_node(child, path, group, trusted)
    return problems


def _check_node(node: dict[str, Any], path: str, group: str | None, trusted: tuple[str, ...] | None) -> Iterator[str]:
    """Problems of one node and of those inside it. `group` is None for an inner node."""
    target = node["_target_"]
    inner = [found for key, value in node.items() for found in _nodes(value, f"{path}.{key}")]
    try:
        found = locate(target)
    except UserError as error:
        yield f"{path}._target_={target}: {error}"
        found = None
    if found is not None:
        reason = refusal(found, group, trusted)
        if reason:
            yield f"{path}._target_={target}: {reason}"
        else:
            yield from _check_arguments(node, path, found, RUNTIME.get(group or "", ()))
    for child, child_path in inner:
        yield from _check_node(child, child_path, None, trusted)


def _nodes(value: Any, path: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The outermost nodes inside a value."""
    if isinstance(value, dict):
        if "_target_" in value:
            yield value, path
        else:
            for key, item in value.items():
                yield from _nodes(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _nodes(item, f"{path}[{index}]")


def _check_arguments(node: dict[str, Any], path: str, target: Any, runtime: tuple[str, ...]) -> Iterator[str]:
    """Keys against the target's signature: known, of the right type, all there, none that only the run knows."""
    parameters = signature(target)
    named = [n for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and n not in runtime]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for key, value in node.items():
        if key == "_target_" or (key == "_partial_" and isinstance(value, bool)):
            continue
        if key in runtime:
            yield f"{path}.{key}: only the run knows this; take it out of the config."
        elif key in named:
            annotation = parameters[key].annotation
            if value == "None" and not fits("None", annotation):
                yield f"{path}.{key}=None: write null."
            elif annotation is not inspect.Parameter.empty and not fits(value, annotation):
                yield f"{path}.{key}={value}: {shown(annotation)} is wanted, not {shown(type(value))}."
        elif not takes_any or key.startswith("_"):
            yield f"{path}.{key}: {_name(target)} takes no such key.{closest(key, named)} It takes: {', '.join(named)}."
    missing = [n for n in named if parameters[n].default is inspect.Parameter.empty and n not in node]
    if missing and not node.get("_partial_"):
        yield f"{path}: {_name(target)} needs {', '.join(missing)}; give {path}.{missing[0]}=…"


@functools.cache
def locate(target: str) -> Any:
    """The object a dotted path names. Raises UserError that says which part of it does not exist."""
    parts = target.split(".") if isinstance(target, str) else [""]
    if not all(part.isidentifier() for part in parts):
        raise UserError("write the dotted import path of a class or function.")
    for cut in range(len(parts), 0, -1):
        module_name = ".".join(parts[:cut])
        try:
            found = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
                raise UserError(f"importing it failed: {error}.") from error
            continue
        for part in parts[cut:]:
            if not hasattr(found, part):
                where = getattr(found, "__name__", module_name)
                raise UserError(f"{where} has no {part}.{closest(part, dir(found))}")
            found = getattr(found, part)
        return found
    raise UserError(f"there is no module {parts[0]}.{closest(parts[0], NOT_A_USERS)}")


@functools.cache
def signature(target: Any) -> dict[str, inspect.Parameter]:
    """Parameters by name, annotations evaluated where they can be."""
    try:
        found = inspect.signature(target, eval_str=True)
    except Exception:  # an annotation that only a type checker can evaluate
        found = inspect.signature(target)
    return dict(found.parameters)


def refusal(found: Any, group: str | None, trusted: tuple[str, ...] | None) -> str | None:
    """Why this object may not be named at this place, or None; judged on the object, not on the path that led to it."""
    kinds, places = KINDS[group] if group else (INNER_KINDS, INNER_PLACES)
    if not callable(found):
        return "this is no class or function."
    if isinstance(found, type) and any(issubclass(found, locate(kind)) for kind in kinds):
        return None
    home = f"{getattr(found, '__module__', None) or ''}.{getattr(found, '__qualname__', '')}"
    if any(_belongs(found, home, place) for place in places):
        return None
    root = home.partition(".")[0]
    if root and root not in NOT_A_USERS and (trusted is None or root in trusted):
        return None
    wanted = ", ".join([*(kind.rpartition(".")[2] + " classes" for kind in kinds), *places])
    return f"not allowed here; allowed: {wanted}" + (", your own modules." if trusted is None else ".")


def _belongs(found: Any, home: str, place: str) -> bool:
    """Whether an object defined at `home` counts as one of those that `place` stands for."""
    if not f"{home}.".startswith(f"{place}."):
        package, _, name = place.rpartition(".")  # a single function, such as timm.create_model, wherever it is defined
        return package in sys.modules and found is getattr(sys.modules[package], name, None)
    if place == "torchvision.models":  # its builders, which are registered under their names
        return found.__name__ in (*importlib.import_module(place).list_models(), "get_model")
    return isinstance(found, type) or place.startswith("torchlite.")


def _name(target: Any) -> str:
    return f"{target.__module__}.{target.__qualname__}"


# Building


def build(node: dict[str, Any], path: str, **runtime: Any) -> Any:
    """The object a checked node describes; of `runtime` the target gets by name what its signature takes.

    Raises UserError, naming `path`, where a library refuses a value.
    """
    target = locate(node["_target_"])
    parameters = signature(target)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    accepted = {name: value for name, value in runtime.items() if name in parameters or takes_any}
    try:
        # As a partial, so that Hydra builds what is nested but never sees, and so never copies, what the run adds
        return instantiate({**node, "_partial_": True}, _convert_="all")(**accepted)
    except Exception as error:
        cause = (error.__cause__ or error) if isinstance(error, InstantiationException) else error
        librarys = getattr(target, "__module__", "").partition(".")[0] in NOT_A_USERS
        if librarys and isinstance(cause, ValueError | RuntimeError) and not isinstance(cause, UserError):
            raise UserError(f"{path}: {target.__name__} refuses its arguments: {cause}") from error
        raise cause from None


def data(node: dict[str, Any], **runtime: Any) -> Any:
    """The data set of a node; files that are not there end in one message that says what to put where."""
    from torchlite.data.sources import missing_data

    parts = {}
    for part in ("train", "val", "test"):
        if isinstance(node.get(part), dict):
            try:
                parts[part] = instantiate(node[part], _convert_="all")
            except Exception as error:
                cause = (error.__cause__ or error) if isinstance(error, InstantiationException) else error
                raise missing_data(node[part]["_target_"], node.get("root"), cause) or cause from None
    return build({key: value for key, value in node.items() if key not in parts}, "data", **parts, **runtime)


def callbacks(nodes: dict[str, Any]) -> dict[str, Any]:
    """The callbacks by name; those set to null are left out."""
    return {name: build(node, f"callbacks.{name}") for name, node in nodes.items() if node is not None}


def takes_fused(node: dict[str, Any], device: Any) -> bool:
    """Whether the optimizer has a fused kernel for this device."""
    target = locate(node["_target_"])
    if "fused" not in signature(target) or node.get("foreach") or node.get("differentiable"):
        return False
    return device.type == "cuda" or (device.type == "cpu" and target.__name__ in ("SGD", "Adam", "AdamW", "Adagrad"))


# Checks that need two nodes at once, and no data


def check_together(config: dict[str, Any]) -> list[str]:
    """Contradictions between the nodes of a config whose every node is sound, a line each."""
    data, trainer, scheduler = config["data"], config["trainer"], config["scheduler"]
    problems = []
    if data.get("val") is None and data.get("val_fraction", 1) == 0:
        for path, node in {"scheduler": scheduler, **config["callbacks"]}.items():
            if node is not None and _needs_validation(locate(node["_target_"])):
                place = path if path == "scheduler" else f"callbacks.{path}"
                problems.append(f"{place} needs a validation part; set data.val_fraction above 0 or choose another.")
    channels = data.get("channels")
    preprocess = data.get("preprocess") or {}
    for key in ("mean", "std"):
        numbers = preprocess.get(key)
        if isinstance(numbers, list) and channels is not None and len(numbers) != channels:
            problems.append(
                f"data.preprocess.{key} has {len(numbers)} numbers but data.channels={channels}: give one a channel."
            )
    warmup, epochs = scheduler.get("warmup_epochs", 0), trainer["max_epochs"]
    if warmup > epochs:
        problems.append(f"scheduler.warmup_epochs={warmup} is longer than trainer.max_epochs={epochs}.")
    return problems


def _needs_validation(target: Any) -> bool:
    from torchlite.optim import needs_validation

    is_schedule = getattr(target, "__module__", "").startswith(("torchlite.optim", "torch.optim"))
    return bool(getattr(target, "needs_validation", False)) or (is_schedule and needs_validation(target))
