"""Config to objects: the only place where Hydra's instantiate is called."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from torchlite.check import LIBRARIES, locate, signature, weights_are_ours
from torchlite.errors import UserError
from torchlite.naming import LOGGING_CALLBACKS

# Networks that are others without pretrained weights, in more than these
ALTERED_BY_WEIGHTS = re.compile(r"googlenet|inception_v3|vit_h_14|fbnetc.*")

# Networks of no other library, built in no time
QUICK_MODELS = ("torchlite.models.SmallCNN", "torchlite.models.MLP", "torchlite.models.SmallResNet")


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
        return _instantiate({**node, "_partial_": True})(**accepted)
    except (ValueError, TypeError, RuntimeError) as error:
        of_library = getattr(target, "__module__", "").partition(".")[0] in LIBRARIES
        if (
            not of_library
            or isinstance(error, UserError | NotImplementedError)
            or "OutOfMemory" in type(error).__name__
        ):
            raise
        raise UserError(f"{path}: {target.__name__} refuses its arguments: {error}") from error


def _instantiate(node: dict[str, Any]) -> Any:
    """What Hydra makes of a node; an error is the one that was raised, not Hydra's about it."""
    try:
        return instantiate(node, _convert_="all")
    except InstantiationException as error:
        raise (error.__cause__ or error) from None


def model(node: dict[str, Any], is_resumed: bool = False) -> Any:
    """The network of a node, with the weights in the file `weights` names, unless a checkpoint is about to give it others."""
    arguments = dict(node)
    path = arguments.pop("weights", None) if weights_are_ours(locate(node["_target_"])) else None
    try:
        network = build(arguments, "model")
    except Exception as error:
        if not arguments.get("pretrained") or isinstance(error, UserError):
            raise
        if is_resumed and not ALTERED_BY_WEIGHTS.fullmatch(str(arguments.get("model_name")).rpartition("/")[2]):
            return model({**node, "pretrained": False}, is_resumed)  # the checkpoint has its weights
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:160]
        raise UserError(
            f"model.pretrained=true: the weights could not be had: {reason}\n"
            "They are downloaded once and need a network; without one give a file: model.weights=FILE model.pretrained=false"
        ) from error
    from torch import nn

    if not isinstance(network, nn.Module):
        raise UserError(f"model: a {type(network).__name__} is no torch.nn.Module.")
    if path is not None and not is_resumed:
        from torchlite.models import load_weights

        load_weights(network, path)
    return network


def data(node: dict[str, Any], **runtime: Any) -> Any:
    """The data set of a node; files that are not there end in one message that says what to put where."""
    from torchlite.data.sources import missing_data, no_empty_folders

    parts = {}
    for part in ("train", "val", "test"):
        if isinstance(node.get(part), dict):
            target, root = node[part]["_target_"], node.get("root")
            try:
                with no_empty_folders(target, root):
                    parts[part] = _instantiate(node[part])
            except Exception as error:
                raise missing_data(target, root, error) or error from None
    return build({key: value for key, value in node.items() if key not in parts}, "data", **parts, **runtime)


def callbacks(nodes: dict[str, Any]) -> dict[str, Any]:
    """The callbacks by name; those set to null are left out."""
    from torchlite.callbacks import Callback

    built = {name: build(node, f"callbacks.{name}") for name, node in nodes.items() if node is not None}
    for name, callback in built.items():
        if not isinstance(callback, Callback):
            raise UserError(f"callbacks.{name}: a {type(callback).__name__} is no torchlite.callbacks.Callback.")
    return built


def try_out(config: dict[str, Any], trainer: Any, is_resumed: bool = False) -> Iterator[str]:
    """What model, optimizer, schedule and callbacks of ours or of a library refuse, found without data, before a run."""
    import torch

    weights = config["model"].get("weights") if weights_are_ours(locate(config["model"]["_target_"])) else None
    if weights is not None and not is_resumed and not Path(weights).is_file():
        yield f"model.weights={weights}: there is no such file."
    updates = 100
    try:
        if _is_library(config["optimizer"]):
            optimizer = build(config["optimizer"], "optimizer", params=[torch.nn.Parameter(torch.zeros(1))])
            if _is_library(config["scheduler"]):
                facts = {"total_updates": updates * trainer.max_epochs, "updates_per_epoch": updates}
                mode = trainer.monitor_direction
                build(config["scheduler"], "scheduler", optimizer=optimizer, monitor_mode=mode, **facts)
        if config["model"]["_target_"] in QUICK_MODELS:
            with torch.device("meta"):
                model(config["model"], is_resumed=True)  # so that no weights are read
        for name, node in config["callbacks"].items():
            if node is not None and _is_library(node) and not only_logs(node):  # those open files
                build(node, f"callbacks.{name}")
    except UserError as error:
        yield str(error)


def only_logs(node: Any) -> bool:
    """Whether a node makes one of our callbacks that only show numbers or send them somewhere, whatever path names it."""
    target = node.get("_target_") if isinstance(node, dict) else None
    if not isinstance(target, str) or not target.startswith("torchlite."):  # nothing else is imported for this
        return False
    try:
        found = locate(target)
    except UserError:  # the check says so
        return False
    return isinstance(found, type) and issubclass(found, tuple(locate(logger) for logger in LOGGING_CALLBACKS))


def _is_library(node: dict[str, Any]) -> bool:
    return node["_target_"].partition(".")[0] in (*LIBRARIES, "torchlite")


def takes_fused(node: dict[str, Any], device: Any) -> bool:
    """Whether the optimizer has a fused kernel for this device."""
    target = locate(node["_target_"])
    if "fused" not in signature(target) or node.get("foreach") or node.get("differentiable"):
        return False
    kernels = ("SGD", "Adam", "AdamW", "Adagrad") if device.type == "cpu" else ("SGD", "Adam", "AdamW")
    return device.type in ("cpu", "cuda") and target.__name__ in kernels
