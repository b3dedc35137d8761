"""The check of a config's nodes: what they name exists and is allowed, and their keys fit. Nothing is built."""

import functools
import importlib
import inspect
import math
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from torchlite.annotations import closest, fits, unfit
from torchlite.errors import UserError, printable

# Arguments that only a run knows, given by name to the group's own node; a config that sets one is refused
RUNTIME = {
    "data": ("seed", "device"),
    "optimizer": ("params",),
    "scheduler": ("optimizer", "total_updates", "updates_per_epoch", "monitor_mode"),
}
# What a group's own node must be: a class of this kind, or one of these factories. Rooms of torchlite may name all they hold.
KINDS = {
    "data": ((), ("torchlite.data",)),
    "model": (("torch.nn.Module",), ("torchlite.models", "timm.create_model", "torchvision.models")),
    "optimizer": (("torch.optim.Optimizer",), ("torchlite.optim",)),
    "scheduler": (("torch.optim.lr_scheduler.LRScheduler",), ("torchlite.optim",)),
    "trainer": (("torchlite.trainer.Trainer",), ()),
    "task": ((), ("torchlite.tasks",)),
    "callbacks": (("torchlite.callbacks.Callback",), ()),
}
# What a node inside another may be besides
INNER_KINDS = ("torch.nn.Module", "torch.utils.data.Dataset", "torch.utils.data.Sampler")
INNER_PLACES = ("torchlite.data", "torchlite.models", "torchvision.transforms")
LIBRARIES = ("torch", "torchvision", "timm")
# Whatever file their arguments name, so a record may not name them
UNPICKLES = ("torchvision.datasets.lsun", "torch.utils.data.datapipes", "timm.data")
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


def check_nodes(config: dict[str, Any], trusted: tuple[str, ...] | None = None) -> list[str]:
    """What is wrong with the nodes of a resolved config, a line each; imports what they name and builds nothing.

    Args:
        trusted: top-level modules of the user that may be named; None, for a config typed here, allows any that is installed.
    """
    problems = [*_left_open(config), *_not_finite(config)]
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
    return [printable(problem) for problem in problems]


def foreign_nodes(config: dict[str, Any], trusted: tuple[str, ...]) -> list[str]:
    """What a config that came from elsewhere names and may not, a line each; keys that this version lacks are let pass.

    This is the half of `check_nodes` that holds for the config of any version of torchlite.
    """
    problems = list(_left_open(config))
    for group, node in config.items():
        for inner, path in _nodes(node, group):
            own = group in KINDS and (path == group or group == "callbacks" and path.count(".") == 1)
            problems += _foreign_node(inner, path, group if own else None, trusted)
    return problems


def _foreign_node(node: dict[str, Any], path: str, group: str | None, trusted: tuple[str, ...]) -> Iterator[str]:
    target = node["_target_"]
    reason = _foreign(target, trusted)
    own = isinstance(target, str) and target.partition(".")[0] in trusted  # which is never imported here
    if reason is None and not own:
        try:
            reason = refusal(locate(target), group, trusted)
        except UserError as error:
            gone = isinstance(target, str) and target.startswith("torchlite.")  # by now; its own version judges it
            reason = None if gone else str(error)
    if reason is not None:
        yield f"{path}._target_={target}: {reason}"
    for key, value in node.items():
        if key.startswith("_") and key not in ("_target_", "_partial_"):
            yield f"{path}.{key}: not allowed here: the config comes from a record, where arguments have names."
        for inner, inner_path in _nodes(value, f"{path}.{key}"):
            yield from _foreign_node(inner, inner_path, None, trusted)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What is neither a dict nor a list, each with its dotted path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def _left_open(config: dict[str, Any]) -> Iterator[str]:
    """Text that would be taken for an interpolation when objects are built, and so escape this check."""
    for path, value in _leaves(config, ""):
        if isinstance(value, str) and "${" in value:
            yield f"{path}: an interpolation inside an interpolation, or an escaped one, is not allowed."


def _not_finite(config: dict[str, Any]) -> Iterator[str]:
    """Every NaN, and infinite numbers in the groups where nothing can be computed with them; a library's own may take some."""
    for path, value in _leaves(config, ""):
        computed_with = path.startswith(("optimizer.", "scheduler.", "trainer.", "task."))
        if isinstance(value, float) and (math.isnan(value) or (math.isinf(value) and computed_with)):
            yield f"{path}={value}: give a finite number, or null where none is meant."


def _check_node(node: dict[str, Any], path: str, group: str | None, trusted: tuple[str, ...] | None) -> Iterator[str]:
    """Problems of one node and of those inside it. `group` is None for an inner node."""
    target = node["_target_"]
    inner = [found for key, value in node.items() for found in _nodes(value, f"{path}.{key}")]
    found, reason = None, _foreign(target, trusted)  # before anything is imported
    if reason is None:
        try:
            found = locate(target)
            reason = refusal(found, group, trusted)
        except UserError as error:
            reason = str(error)
    if reason is not None:
        yield f"{path}._target_={target}: {reason}"
    else:
        yield from _check_arguments(node, path, found, RUNTIME.get(group or "", ()))
    for child, child_path in inner:
        yield from _check_node(child, child_path, None, trusted)


def _foreign(target: Any, trusted: tuple[str, ...] | None) -> str | None:
    """Why a module may not even be imported, where the config came from elsewhere."""
    if trusted is None:
        return None
    root, _, rest = target.partition(".") if isinstance(target, str) else ("", "", "")
    here = "not allowed here: the config comes from a record, and"
    if root not in (*LIBRARIES, "torchlite", *trusted):
        return f"{here} {root} is no module it may name."
    if root not in trusted and "._" in f".{rest}":  # of use to a stranger alone
        return f"{here} a name that begins with _ is private."
    return None


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
        if path == "model" and key == "weights" and weights_are_ours(target):
            if not fits(value, str | None):
                yield f"model.weights={value}: a file of weights or null is wanted."
            continue
        if key in runtime:
            yield f"{path}.{key}: only the run knows this; take it out of the config."
        elif key in named:
            annotation = parameters[key].annotation
            if value == "None" and not fits("None", annotation):
                yield f"{path}.{key}=None: write null."
            elif annotation is not inspect.Parameter.empty and not fits(value, annotation):
                yield f"{path}.{key}={value}: {unfit(value, annotation)}."
        elif not takes_any or key.startswith("_"):
            yield f"{path}.{key}: {_name(target)} takes no such key.{closest(key, named)} It takes: {', '.join(named)}."
    missing = [n for n in named if parameters[n].default is inspect.Parameter.empty and n not in node]
    if missing and not node.get("_partial_"):
        yield f"{path}: {_name(target)} needs {', '.join(missing)}; give {path}.{missing[0]}=…"


def locate(target: Any) -> Any:
    """The object a dotted path names. Raises UserError that says which part of it does not exist."""
    if not isinstance(target, str):
        raise UserError("write the dotted import path of a class or function.")
    return _locate(target)


@functools.cache
def _locate(target: str) -> Any:
    """By the same steps as Hydra, which builds it: an attribute comes before a module of that name."""
    parts = target.split(".")
    if not all(part.isidentifier() for part in parts):
        raise UserError("write the dotted import path of a class or function.")
    found = _imported(parts[0])
    if found is None:
        near = closest(parts[0], (*LIBRARIES, "torchlite"))
        raise UserError(f"there is no module {parts[0]} in this folder or among the installed ones.{near}")
    for index, part in enumerate(parts[1:], 2):
        inner = getattr(found, part, None)
        if inner is None and isinstance(found, ModuleType):
            inner = _imported(".".join(parts[:index]))
        if inner is None:
            raise UserError(f"{getattr(found, '__name__', parts[index - 2])} has no {part}.{closest(part, dir(found))}")
        found = inner
    return found


def _imported(name: str) -> ModuleType | None:
    """The module, or None where there is none of this name. Raises UserError for one that does not import."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name == name:
            return None
        raise UserError(f"importing it failed: {error}.") from error
    except Exception as error:  # a fault in a module of the user's
        raise UserError(f"importing it failed: {type(error).__name__}: {error}.") from error


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
    home = f"{getattr(found, '__module__', None) or ''}.{getattr(found, '__qualname__', '')}"
    root = home.partition(".")[0]
    if trusted is not None and home.startswith(UNPICKLES):
        return "not allowed here: it would unpickle a file, which can run anything."
    users = bool(root) and root not in NOT_A_USERS and (trusted is None or root in trusted)
    if isinstance(found, type) and any(issubclass(found, locate(kind)) for kind in kinds):
        return None if users or root in (*LIBRARIES, "torchlite") else "not allowed here: its module is not trusted."
    if users or any(_belongs(found, home, place) for place in places):
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


def weights_are_ours(target: Any) -> bool:
    """Whether `model.weights` means a file to start from, since the target has no argument of that name."""
    return "weights" not in signature(target)
