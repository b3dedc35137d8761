"""One run, from composed config to result: the only place where all rooms meet. Read `train` from the top."""

import logging
import math
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

from torchlite import build, checkpoint, logs, machine, randomness, record, resume, stopping
from torchlite.callbacks import Hooks
from torchlite.check import check_nodes
from torchlite.config import Composed
from torchlite.contradictions import check_against, check_together
from torchlite.digests import NAME, Digests, lines_kept
from torchlite.errors import DONE, FAULT, INTERRUPTED, TERMINATED, UserError, refuse
from torchlite.models import recompute_activations
from torchlite.optim import ScheduleStepper, linear_lr, parameter_groups
from torchlite.record import Busy, Record
from torchlite.stopping import Stopped
from torchlite.trainer import Trainer
from torchlite.update import ADVICE, NotFiniteError

log = logging.getLogger("torchlite")


def run(composed: Composed) -> float | None:
    """Check, claim a directory, train, test; returns the monitored score of the best weights, for whoever sweeps.

    A single run ends with its exit code. In a sweep a job that fails returns NaN, so that the others go on.
    """
    try:
        score, code = attempt(composed)
    except Busy as error:
        score, code = None, refuse(error)
    others_go_on = composed.sweep_directory is not None and not composed.config["fail_fast"]
    if code and (code in (INTERRUPTED, TERMINATED) or not others_go_on):  # a time limit is each job's own
        raise SystemExit(code)
    return math.nan if code else score


def attempt(composed: Composed) -> tuple[float | None, int]:
    """The score of `run` and an exit code; what went wrong is said. Raises Busy when another process writes this run."""
    try:
        with stopping.at_once():
            return _run(composed), DONE
    except Busy:
        raise
    except UserError as error:
        return None, refuse(error)
    except Stopped as stopped:
        print(f"stopped: {stopped}; go on with{resume.way(composed)}", file=sys.stderr)
        return None, stopped.code
    except (Exception, SystemExit) as error:  # something of the user's that exits has failed too
        in_short = resume.in_short(error)  # where the machine is at fault; the traceback is in train.log
        print(in_short, file=sys.stderr) if in_short else traceback.print_exc()
        return None, FAULT


def _run(composed: Composed) -> float | None:
    directory, file = None, None
    if composed.sweep_directory is None:  # a sweep's jobs go on by themselves
        directory, file = resume.target(composed, Path("outputs").resolve())
    facts = None if directory is None else resume.facts(directory)
    if facts is not None:
        composed = resume.continued(composed, facts)
    elif directory is not None and composed.identity not in directory.name:
        raise UserError(f"{directory} was cut off before it wrote down what it is; start it again without resume.")
    trainer, task = check(composed, is_resumed=facts is not None)
    if composed.config["dry_run"]:
        words = " ".join(composed.overrides) or "the defaults"
        return print(f"would run {composed.name} ({composed.identity}): {words}")
    is_new = directory is None and composed.sweep_directory is None
    if directory is None:
        directory = claim(composed)
    with Record(directory, composed.record, words_of(composed), composed.code).hold() as rec:
        result = record.read_result(directory)
        if result.get("status") == record.FINISHED and isinstance(result.get("best"), dict):
            others = resume.what_is_not_the_same(directory, composed.config)
            print(f"already finished{f' ({others})' if others else ''}, nothing to train: {_shown(directory)}")
            return result["best"].get(trainer.monitor, math.nan)
        saved, early = None, []
        failure = result.get("failure") or {}
        goes_on = failure.get("goes_on", failure.get("type") == "MachineError")
        if composed.sweep_directory is None or goes_on or result.get("status") != record.FAILED:
            facts = resume.facts(directory)
            with logs.kept_back() as early:  # train.log is not open yet
                saved = resume.state(directory, file, facts["config"]) if facts is not None else None
        if saved:
            rec.seconds_before = saved["progress"]["seconds"] + saved["progress"]["epoch_seconds"]
            checkpoint.save(rec.checkpoint("last"), saved)
            if file is not None:  # the run stands at an older one now
                rec.checkpoint("previous").unlink(missing_ok=True)
        chosen = facts["choices"] if saved and facts else None
        refused = resume.forgotten_if_refused(directory, forget=is_new)
        with refused, rec.open(*lines_kept(saved)), resume.way_on(Path(_shown(directory)), composed):
            for message in early:
                log.handle(message)
            return train(composed, trainer, task, rec, saved, chosen)


def claim(composed: Composed) -> Path:
    """A new directory for a single run; for a sweep's job the one that its identity names, which may be there already."""
    if composed.sweep_directory is None:
        return record.claim(Path("outputs").resolve(), composed.name, composed.identity)
    return record.claim_job(composed.sweep_directory, composed.overrides, composed.identity)


def check(composed: Composed, is_resumed: bool = False) -> tuple[Trainer, Any]:
    """The trainer and the task, when nothing is wrong with the config. Raises UserError with all problems; creates nothing."""
    config, sweep = composed.config, composed.sweep_directory
    is_resumed = is_resumed or (sweep is not None and record.find(sweep, composed.identity) is not None)
    problems = check_nodes(config, composed.trusted)
    if not problems:
        try:
            trainer: Trainer = build.build(config["trainer"], "trainer")
            task = build.build(config["task"], "task")
            for name in ("metrics", "training_step", "evaluation_step"):
                if not hasattr(task, name):
                    raise UserError(f"task: a {type(task).__name__} has no {name}; see torchlite.tasks.Classification.")
            trainer.check_monitor(task.metrics)
        except UserError as error:
            problems.append(str(error))
        problems += check_together(config)
        if not problems:
            problems += build.try_out(config, trainer, is_resumed)
    if problems:
        raise UserError("\n".join(problems))
    return trainer, task


def train(
    composed: Composed,
    trainer: Trainer,
    task: Any,
    rec: Record,
    saved: dict[str, Any] | None = None,
    chosen: dict[str, Any] | None = None,
) -> float:
    """Build everything, train, test once with the best weights.

    Args:
        saved: the state to go on from.
        chosen: what `auto` became when the run began, which it keeps.
    """
    config = composed.config
    randomness.set_determinism(trainer.deterministic)
    machine.keep_freed_memory()
    before = chosen or {}
    device = machine.find_device(trainer.device, before.get("device"))
    threads = machine.set_threads(trainer.num_threads, composed.num_threads, before.get("num_threads"))

    randomness.seed_everything(config["seed"])
    model, formats = _network(config, trainer, device, chosen, saved)
    data = build.data(config["data"], seed=config["seed"], device=device)
    check_against(data, config, model)
    choices = {"device": str(device), "num_threads": threads, **formats, **data.choices}
    choices |= {"monitor_mode": trainer.monitor_direction, **randomness.determinism()}
    resume.check_data(rec, saved, data, choices)
    optimizer = _optimizer(config, trainer, model, data.batch_size, choices, device)
    schedule = build.build(
        config["scheduler"],
        "scheduler",
        optimizer=optimizer,
        total_updates=trainer.max_epochs * trainer.updates_per_epoch(data),
        updates_per_epoch=trainer.updates_per_epoch(data),
        monitor_mode=trainer.monitor_direction,
    )
    hooks = Hooks({NAME: Digests(), **build.callbacks(config["callbacks"])})
    if saved is None:
        rec.describe(_facts(composed, data, choices))
    _greet(composed, trainer, model, data, formats, rec, saved)

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
            device=device,
            precision=formats["precision"],
            compile=formats["compile"],
            saved=saved,
        )
        return _finish(trainer, data, hooks, rec)
    finally:
        hooks.close()


def _network(
    config: dict[str, Any], trainer: Trainer, device: Any, chosen: dict[str, Any] | None, saved: Any
) -> tuple[Any, Any]:
    """The model on its device, and the number formats it computes in."""
    model = build.model(config["model"], is_resumed=saved is not None).to(device)
    wishes = trainer.precision, trainer.channels_last, trainer.compile
    formats = machine.choose_formats(model, device, *wishes, before=chosen)
    if formats["channels_last"]:
        model = model.to(memory_format=torch.channels_last)
    if trainer.activation_checkpointing:
        recompute_activations(model)
    return model, formats


def _greet(
    composed: Composed, trainer: Trainer, model: Any, data: Any, formats: dict[str, Any], rec: Record, saved: Any
) -> None:
    """The first lines of the log."""
    log.info(f"{composed.name}: {_size(model)} parameters, {_sizes(data)}; writing to {_shown(rec.directory)}")
    chosen = [f"{name} {value}" for name, value in formats.items() if getattr(trainer, name) == "auto"]
    if chosen:
        log.info("auto chose " + ", ".join(chosen))
    if trainer.monitor_is_odd:
        log.warning(f"trainer.monitor_mode={trainer.monitor_mode} keeps the worst {trainer.monitor}")
    if saved is not None:
        log.info(f"going on after update {saved['progress']['update']}")


def _optimizer(
    config: dict[str, Any], trainer: Trainer, model: Any, batch_size: int, choices: dict[str, Any], device: Any
) -> Any:
    """The optimizer over parameter groups without decay on biases and norms; by the linear rule when that is asked for."""
    node = dict(config["optimizer"])
    if trainer.lr_reference_batch_size is not None:
        node["lr"] = choices["lr"] = linear_lr(node["lr"], batch_size, trainer.lr_reference_batch_size)
    if trainer.fused_optimizer and "fused" not in node:
        choices["fused_optimizer"] = build.takes_fused(node, device)
        if choices["fused_optimizer"]:
            node["fused"] = True
    groups = parameter_groups(model, decay_norm_and_bias=trainer.decay_norm_and_bias)
    return build.build(node, "optimizer", params=groups)


def _finish(trainer: Trainer, data: Any, hooks: Hooks, rec: Record) -> float:
    """Read the test set, once; write the result and say where it lies."""
    best, last = dict(trainer.progress.best), dict(trainer.progress.last)
    test = trainer.evaluate(data.test, "test", trainer.model) if data.test is not None else {}
    bad = [name for name, value in test.items() if not math.isfinite(value)]
    if bad:
        raise NotFiniteError(f"{bad[0]} of the best weights (update {best['update']:.0f}) is not finite. {ADVICE}")
    unscored = not any("/" in name for name in best)
    rec.finish(best=best, last=last, test=test, best_is_last=unscored, updates=trainer.progress.update)
    rec.finish(skipped_updates=trainer.updater.skipped, micro_batch_size=trainer.updater.micro_batch_size)
    checkpoint.save_safetensors(rec.checkpoint("best").with_suffix(".safetensors"), trainer.model.state_dict())
    rec.finish(weights=trainer.weights_are)
    hooks.call("on_fit_end", trainer, {k: v for k, v in best.items() if "/" in k} | test)
    if unscored:
        log.info("nothing was validated, so the last weights count as the best")
    scores = "  ".join(f"{name} {value:.4f}" for name, value in test.items())
    log.info(f"best: update {best['update']:.0f}, epoch {best['epoch']:.0f}" + (f"; {scores}" if scores else ""))
    log.info(f"the whole record is in {_shown(rec.directory)}")
    return best.get(trainer.monitor, math.nan)


def words_of(composed: Composed) -> dict[str, Any]:
    """What run.json says of the words typed."""
    return {
        "name": composed.name,
        "identity": composed.identity,
        "options": composed.choices,
        "overrides": list(composed.overrides),
        "command": composed.command,
        **({} if composed.num_threads is None else {"num_threads": composed.num_threads}),
    }


def _facts(composed: Composed, data: Any, choices: dict[str, Any]) -> dict[str, Any]:
    """What it says of what became of them, besides what the record finds out by itself."""
    return {
        "choices": choices,
        "data": {
            "fingerprint": data.fingerprint,
            "split": data.split,
            "classes": data.class_names,
            "data_dir": str(Path(composed.config["data_dir"]).absolute()),
            "root": None if data.root is None else str(Path(data.root).absolute()),
        },
    }


def _size(model: Any) -> str:
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    return f"{count / 1e6:.1f} M" if count >= 1e6 else f"{count / 1e3:.1f} k"


def _sizes(data: Any) -> str:
    parts = {"train": data.train, "val": data.val, "test": data.test}
    return ", ".join(f"{part.num_samples} {name}" for name, part in parts.items() if part is not None) + " images"


def _shown(directory: Path) -> str:
    """As short as it can be typed from here."""
    return str(directory.relative_to(Path.cwd())) if directory.is_relative_to(Path.cwd()) else str(directory)
