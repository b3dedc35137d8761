"""Nodes of a config that are sound one by one and contradict each other."""

import copy
from typing import Any

from torchlite.check import locate
from torchlite.errors import UserError

PREPROCESS = "torchlite.data.preprocess.Preprocess"


def check_together(config: dict[str, Any]) -> list[str]:
    """Contradictions between the nodes of a config whose every node is sound, a line each."""
    data, trainer, scheduler = config["data"], config["trainer"], config["scheduler"]
    has_no_validation = data.get("val_fraction") == 0 and data.get("val") is None
    problems = _needing_validation(config) if has_no_validation else []
    preprocess = data.get("preprocess")
    if "channels" in data and isinstance(preprocess, dict) and preprocess["_target_"] == PREPROCESS:
        for key in {"mean", "std"} & preprocess.keys():
            numbers, channels = len(preprocess[key]), data["channels"]
            if numbers != channels:
                problems.append(
                    f"data.preprocess.{key} has {numbers} numbers but data.channels={channels}: one a channel."
                )
    warmup, epochs = scheduler.get("warmup_epochs"), trainer["max_epochs"]
    if isinstance(warmup, int | float) and warmup > epochs:
        problems.append(f"scheduler.warmup_epochs={warmup} is longer than trainer.max_epochs={epochs}.")
    if trainer.get("lr_reference_batch_size") is not None and "lr" not in config["optimizer"]:
        problems.append("trainer.lr_reference_batch_size scales optimizer.lr; give that a value.")
    return problems


def check_against(data: Any, config: dict[str, Any], model: Any) -> None:
    """Raise UserError for what the data, now that it is read, turns out not to have.

    That is a validation part, where something needs one, or a second sample in the smallest batch, where the model does.
    """
    if data.val is None and (problems := _needing_validation(config)):
        raise UserError("\n".join(problems))
    if getattr(data.train, "smallest", 0) == 1:
        _check_lone_sample(data, copy.deepcopy(model).train())


def _check_lone_sample(data: Any, model: Any) -> None:
    """As at the end of the first epoch, after which it would be a pity."""
    import torch

    from torchlite.update import NO_STATISTICS, TOO_FEW_VALUES

    device = next((parameter.device for parameter in model.parameters()), None)
    try:
        with torch.no_grad():
            model(torch.zeros(1, data.channels, data.image_size, data.image_size, device=device))
    except Exception as error:  # of another kind: it comes, or does not, with real images
        if TOO_FEW_VALUES in str(error):
            raise UserError(NO_STATISTICS) from error


def _needing_validation(config: dict[str, Any]) -> list[str]:
    nodes = {"scheduler": config["scheduler"], **{f"callbacks.{k}": node for k, node in config["callbacks"].items()}}
    return [
        f"{path} needs a validation part; set data.val_fraction above 0 or choose another."
        for path, node in nodes.items()
        if node is not None and _needs_validation(locate(node["_target_"]))
    ]


def _needs_validation(target: Any) -> bool:
    from torchlite.optim import needs_validation

    is_schedule = getattr(target, "__module__", "").startswith(("torchlite.optim", "torch.optim"))
    return bool(getattr(target, "needs_validation", False)) or (is_schedule and needs_validation(target))
