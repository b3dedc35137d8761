"""Where a run stands, and the state that a resumed run needs: all of it, so that the two are the same to the bit."""

import logging
from dataclasses import dataclass, field, fields
from typing import Any

from torchlite import checkpoint, randomness
from torchlite.errors import UserError

log = logging.getLogger("torchlite")


@dataclass
class Progress:
    """Counters and scores. `update` counts applied updates and is the x-axis of everything."""

    epoch: int = 0  # epochs finished
    batch: int = 0  # batches of the unfinished epoch that are done
    update: int = 0  # updates applied
    lines: int = 0  # lines in metrics.jsonl
    # {"update", "epoch", "val/acc1", …} of the best validation so far
    best: dict[str, float] = field(default_factory=dict)
    last: dict[str, float] = field(default_factory=dict)  # the same of the latest validation
    recent: list[dict[str, float]] = field(default_factory=list)  # the validations that a smoothed score averages
    epoch_seconds: float = 0.0  # spent on the unfinished epoch
    seconds: float = 0.0  # spent training, attempts that were cut off included as far as their checkpoint
    stop_reason: str | None = None  # a callback's, for good; a signal's is not kept


def sentence(trainer: Any, line: dict[str, float]) -> str:
    """The line of the log about the epoch that has just ended.

    Args:
        line: what metrics.jsonl says of it.
    """
    progress = trainer.progress
    scores = progress.last if progress.last.get("update") == progress.update else {}
    shown = {k: v for k, v in {**line, **scores}.items() if k not in ("lr", "seconds/epoch", "update", "epoch")}
    numbers = "  ".join(f"{name} {value:.4f}" for name, value in shown.items())
    epoch = f"epoch {progress.epoch:>{len(str(trainer.max_epochs))}}/{trainer.max_epochs}"
    return f"{epoch}  {numbers}  lr {trainer.lr:.2e}  {line['seconds/epoch']:.1f} s"


def weights(trainer: Any) -> dict[str, Any]:
    """What a file of weights holds: those that are scored, what they scored, and the config and classes they belong to."""
    return {
        "model": trainer.scored_model.state_dict(),
        "weights_are": "raw" if trainer.scored_model is trainer.model else trainer.average.name,
        "scores": dict(trainer.progress.last),
        "config": trainer.record.config_json,
        "classes": list(trainer.data.class_names),
        "split": dict(trainer.data.split),
    }


def state(trainer: Any) -> dict[str, Any]:
    """Everything that is needed to go on from here, as tensors and plain types."""
    return weights(trainer) | {
        "model": trainer.model.state_dict(),
        "weights_are": "raw",
        "optimizer": trainer.optimizer.state_dict(),
        "schedule": trainer.schedule.state_dict(),
        "scaler": trainer.updater.scaler.state_dict(),
        "average": None if trainer.average is None else trainer.average.state_dict(),
        "callbacks": trainer.hooks.state_dict(),
        "progress": dict(vars(trainer.progress)),
        "sums": [trainer.epoch_averages.state_dict(), trainer.updater.averages.state_dict()],
        "skipped": trainer.updater.skipped,
        "micro_batch_size": trainer.updater.micro_batch_size,
        "lr": trainer.lr,
        "generators": randomness.generators(),
    }


STATE = (
    *("model", "weights_are", "scores", "config", "classes", "split", "optimizer", "schedule", "scaler", "average"),
    *("callbacks", "progress", "sums", "skipped", "micro_batch_size", "lr", "generators"),
)
COUNTERS = ("epoch", "batch", "update", "lines")


def is_whole(saved: dict[str, Any]) -> bool:
    """Whether what was read from a file is what `state` makes, and not something else that holds weights."""
    progress = saved.get("progress")
    if set(saved) != set(STATE) or not isinstance(progress, dict) or not isinstance(saved["config"], str):
        return False
    counters = [progress.get(name) for name in COUNTERS]
    seconds = [progress.get(name) for name in ("seconds", "epoch_seconds")]
    counted = all(type(count) is int and count >= 0 for count in counters)
    return set(progress) == {f.name for f in fields(Progress)} and counted and all(type(s) is float for s in seconds)


def restore(trainer: Any, saved: dict[str, Any]) -> None:
    """Put a trainer, freshly built from the same config, where `state` found it. Raises UserError for another model."""
    try:
        trainer.model.load_state_dict(saved["model"])
        trainer.optimizer.load_state_dict(saved["optimizer"])
        for group in trainer.optimizer.param_groups:  # of this device, not of the one before
            if "fused" in group:
                group["fused"] = trainer.optimizer.defaults["fused"]
        trainer.schedule.load_state_dict(saved["schedule"])
        trainer.updater.scaler.load_state_dict(saved["scaler"])
        if trainer.average is not None:
            trainer.average.load_state_dict(saved["average"])
        trainer.epoch_averages.load_state_dict(saved["sums"][0])
        trainer.updater.averages.load_state_dict(saved["sums"][1])
        randomness.restore_generators(saved["generators"])
    except (RuntimeError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"The checkpoint is of another model or optimizer than this config's: {reason}") from error
    # Or torch warns, at a cut before an epoch's end, that the schedule steps first
    trainer.optimizer._opt_called = True
    trainer.hooks.load_state_dict(saved["callbacks"])
    trainer.progress = Progress(**saved["progress"])
    trainer.updater.skipped = saved["skipped"]
    if trainer.updater.halving:
        trainer.updater.micro_batch_size = saved["micro_batch_size"]
    trainer.lr = saved["lr"]
    _mend_best(trainer)


def _mend_best(trainer: Any) -> None:
    """Make progress and best.pt agree: a kill may have come between last.pt, which is written first, and best.pt; and a run
    that went back to an older checkpoint has a best.pt from later on, which counts as long as nothing beats it.
    """
    path, progress = trainer.record.checkpoint("best"), trainer.progress
    try:
        scores = checkpoint.load(path).get("scores")
    except UserError:
        scores = None
    there = scores.get("update", -1) if isinstance(scores, dict) else -1
    if there >= progress.update:  # a deterministic run will come to it again, and the first of equals stays
        progress.best = scores
        return
    if not progress.best or there == progress.best["update"]:
        return
    if progress.best["update"] != progress.update:  # else it is these weights
        log.warning(
            f"{path} is missing or damaged, and with it the best weights so far, of update {progress.best['update']}: "
            "the best is chosen anew from here on"
        )
        progress.best = dict(progress.last) if progress.last.get("update") == progress.update else {}
    if progress.best:
        checkpoint.save(path, weights(trainer))


def load_best(trainer: Any) -> str:
    """Put the best weights into the model, and say what they are: "raw", "ema" or "swa".

    Without a validation the last are the best, and are saved as such.
    """
    path = trainer.record.checkpoint("best")
    if trainer.data.val is None or not trainer.progress.best:
        trainer.progress.best = {"update": trainer.progress.update, "epoch": trainer.progress.epoch}
        last = weights(trainer)
        checkpoint.save(path, last)
        trainer.model.load_state_dict(last["model"])
        return str(last["weights_are"])
    saved = checkpoint.load(path)
    if saved["scores"].get("update") != trainer.progress.best["update"]:
        raise UserError(f"{path} is not of update {trainer.progress.best['update']}, the best; was it replaced?")
    trainer.model.load_state_dict(saved["model"])
    return str(saved["weights_are"])
