"""One run, from composed config to result: the only place where all rooms meet. Read `train` from the top."""

import logging
import math
import sys
import traceback
from pathlib import Path
from typing import Any

from torchlite import build, randomness, record
from torchlite.callbacks import Hooks
from torchlite.config import Composed
from torchlite.errors import FAULT, INTERRUPTED, MISTAKE, UserError
from torchlite.optim import ScheduleStepper, linear_lr, parameter_groups
from torchlite.record import Record
from torchlite.trainer import Trainer

log = logging.getLogger("torchlite")


def run(composed: Composed) -> float | None:
    """Check, claim a directory, train, test; returns the monitored score of the best weights, for whoever sweeps.

    A single run ends with its exit code. In a sweep a job that fails returns NaN, so that the others go on.
    """
    try:
        return _run(composed)
    except UserError as error:
        print(error, file=sys.stderr)
        code = MISTAKE
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except Exception:
        traceback.print_exc()
        code = FAULT
    if composed.sweep_directory is not None:
        return math.nan
    raise SystemExit(code)


def _run(composed: Composed) -> float | None:
    trainer, task = check(composed)
    if composed.sweep_directory is None:
        directory = record.claim(Path("outputs").resolve(), composed.name, composed.identity)
    else:
        directory = record.claim_job(composed.sweep_directory, composed.overrides, composed.identity)
        result = record.read_result(directory)
        if result.get("status") == record.FINISHED:
            log.info(f"already finished: {directory}")
            return result["best"].get(trainer.monitor, math.nan)
    with Record(directory, composed.record).open() as rec:
        return train(composed, trainer, task, rec)


def check(composed: Composed) -> tuple[Trainer, Any]:
    """The trainer and the task, when nothing is wrong with the config. Raises UserError with all problems; creates nothing."""
    config = composed.config
    problems = build.check(config)
    if not problems:
        try:
            trainer: Trainer = build.build(config["trainer"], "trainer")
            task = build.build(config["task"], "task")
            trainer.check_monitor(task.metrics)
        except UserError as error:
            problems.append(str(error))
        problems += build.check_together(config)
    if problems:
        raise UserError("\n".join(problems))
    return trainer, task


def train(composed: Composed, trainer: Trainer, task: Any, rec: Record) -> float:
    """Build everything, train, test once with the best weights."""
    config = composed.config
    randomness.set_determinism(trainer.deterministic)
    choices = trainer.prepare()

    randomness.seed_everything(config["seed"])
    model = build.build(config["model"], "model").to(trainer.device_used)
    if trainer.channels_last:
        model = model.to(memory_format=_channels_last())
    data = build.data(config["data"], seed=config["seed"], device=trainer.device_used)
    optimizer = _optimizer(config, trainer, model, data.batch_size, choices)
    schedule = build.build(
        config["scheduler"],
        "scheduler",
        optimizer=optimizer,
        total_updates=trainer.max_epochs * len(data.train),
        updates_per_epoch=len(data.train),
        mode=trainer.monitor_direction,
    )
    hooks = Hooks(build.callbacks(config["callbacks"]))
    rec.describe(_facts(composed, data, choices | data.choices))
    log.info(f"{composed.name}: {_size(model)} parameters, {_sizes(data)}; writing to {_shown(rec.directory)}")

    randomness.seed_everything(config["seed"])  # again: whatever building the data drew must not reach dropout
    try:
        trainer.fit(
            model=model,
            task=task,
            data=data,
            optimizer=optimizer,
            schedule=ScheduleStepper(schedule, trainer.monitor_direction),
            hooks=hooks,
            record=rec,
        )
        return _finish(trainer, data, hooks, rec)
    finally:
        hooks.close()


def _optimizer(config: dict[str, Any], trainer: Trainer, model: Any, batch_size: int, choices: dict[str, Any]) -> Any:
    """The optimizer over parameter groups without decay on biases and norms; by the linear rule when that is asked for."""
    node = dict(config["optimizer"])
    if trainer.lr_reference_batch_size is not None:
        node["lr"] = choices["lr"] = linear_lr(node["lr"], batch_size, trainer.lr_reference_batch_size)
    if trainer.fused_optimizer and "fused" not in node:
        choices["fused_optimizer"] = build.takes_fused(node, trainer.device_used)
        if choices["fused_optimizer"]:
            node["fused"] = True
    groups = parameter_groups(model, decay_norm_and_bias=trainer.decay_norm_and_bias)
    return build.build(node, "optimizer", params=groups)


def _finish(trainer: Trainer, data: Any, hooks: Hooks, rec: Record) -> float:
    """Read the test set, once; write the result and say where it lies."""
    best, last = dict(trainer.progress.best), dict(trainer.progress.last)
    test = trainer.evaluate(data.test, "test") if data.test is not None else {}
    hooks.call("on_fit_end", trainer, {k: v for k, v in best.items() if "/" in k} | test)
    rec.finish(best=best, last=last, test=test, best_is_last=data.val is None, updates=trainer.progress.update)
    if data.val is None:
        log.info("there is no validation part, so the last weights count as the best")
    scores = "  ".join(f"{name} {value:.4f}" for name, value in test.items())
    log.info(f"best: update {best['update']:.0f}, epoch {best['epoch']:.0f}" + (f"; {scores}" if scores else ""))
    log.info(f"the whole record is in {_shown(rec.directory)}")
    return best.get(trainer.monitor, math.nan)


def _facts(composed: Composed, data: Any, choices: dict[str, Any]) -> dict[str, Any]:
    """What run.json says of this run besides what the record finds out by itself."""
    return {
        "name": composed.name,
        "identity": composed.identity,
        "options": composed.choices,
        "overrides": list(composed.overrides),
        "choices": choices,
        "data": {
            "fingerprint": data.fingerprint,
            "split": data.split,
            "classes": data.class_names,
            "data_dir": str(Path(composed.config["data_dir"]).absolute()),
            "root": None if data.root is None else str(Path(data.root).absolute()),
        },
    }


def _channels_last() -> Any:
    import torch

    return torch.channels_last


def _size(model: Any) -> str:
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count / 1e3:.1f} k"


def _sizes(data: Any) -> str:
    parts = {"train": data.train, "val": data.val, "test": data.test}
    return ", ".join(f"{part.num_samples} {name}" for name, part in parts.items() if part is not None) + " images"


def _shown(directory: Path) -> str:
    """As short as it can be typed from here."""
    return str(directory.relative_to(Path.cwd())) if directory.is_relative_to(Path.cwd()) else str(directory)
