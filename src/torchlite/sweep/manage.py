"""What `python sweep.py` does to sweeps that are there."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from torchlite import stopping
from torchlite.errors import DONE, UserError, printable, refuse
from torchlite.record import FINISHED, Record
from torchlite.sweep import command, jobs, plan, table
from torchlite.sweep.jobs import Job
from torchlite.sweep.slots import Slots


def ended(command: Callable[[], int]) -> int:
    """The exit code of a command; a mistake of the user and a stop are said in a line."""
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")  # as in command_line.command

    def refused() -> int:
        try:
            return command()
        except UserError as error:
            return refuse(error)

    return stopping.ended(refused)


def status(name: str | None) -> int:
    """Print every job of a sweep, or a line for each sweep in ./outputs."""
    console = Console(highlight=False)
    if name is not None:
        table.summary(jobs.of_sweep(_directory(name)), console)
        return DONE
    shown = Table(box=None, pad_edge=False)
    for column in ("sweep", "jobs", "states", "command"):
        shown.add_column(column, overflow="fold")
    for path in sorted(Path("outputs").glob(f"*/{jobs.FILE}")):
        try:
            found = jobs.of_sweep(path.parent)
        except UserError as error:
            console.print(printable(error), markup=False, soft_wrap=True)
            continue
        states = ", ".join(f"{count} {state}" for state, count in Counter(job.state for job in found).items())
        shown.add_row(path.parent.name, str(len(found)), states, found[0].composed.command if found else "")
    if shown.row_count:
        console.print(shown, markup=False)
    else:
        console.print("no sweep in ./outputs; python train.py -m seed=0,1,2 makes one")
    return DONE


def retry(name: str, num_jobs: int) -> int:
    """Run a sweep's unfinished jobs as they were planned, from sweep.json alone; the exit code."""
    if num_jobs < 1:
        raise UserError(f"--num-jobs {num_jobs}: give 1 or more.")
    console = Console(highlight=False)
    directory = _directory(name)
    found = jobs.of_sweep(directory)
    left = [job for job in found if job.state != FINISHED]
    if not left:
        console.print(f"all {len(found)} jobs are finished", markup=False)
        return DONE
    slots = Slots(num_jobs, [job.composed.config["trainer"]["device"] for job in left])
    plan.check_all([job.composed for job in left])
    plan.check_data(left)
    plan.show(left, directory, slots.num_jobs, console)
    return command.run_here(left, slots, fail_fast=False, console=console)


def clean(name: str, keep: int) -> int:
    """Delete the checkpoints of every finished job but the `keep` best by the monitored score; records stay."""
    if keep < 0:
        raise UserError(f"--keep {keep}: give 0 or more.")
    found = jobs.of_sweep(_directory(name))
    finished = [job for job in found if job.state == FINISHED]
    ranked = sorted(finished, key=_score, reverse=True) if keep else finished
    freed = 0
    for job in ranked[keep:]:
        with Record(job.directory, {}).hold():
            checkpoints = job.directory / "checkpoints"
            freed += sum(file.stat().st_size for file in checkpoints.rglob("*") if file.is_file())
            shutil.rmtree(checkpoints, ignore_errors=True)
    kept = "; ".join(job.label for job in ranked[:keep]) or "none"
    Console(highlight=False).print(
        f"{freed / 1e6:.1f} MB freed; checkpoints kept of: {kept}", markup=False, soft_wrap=True
    )
    return DONE


def _score(job: Job) -> float:
    """The monitored score of the best weights, higher for better. Raises UserError where there is none."""
    monitor = job.composed.config["trainer"]["monitor"]
    value = job.result["best"].get(monitor)
    if value is None:
        raise UserError(
            f"{job.label} has no {monitor}, so the best jobs are not known; --keep 0 deletes all checkpoints."
        )
    try:
        facts = json.loads((job.directory / "run.json").read_text(encoding="utf-8"))
        sign = -1 if facts["choices"]["monitor_mode"] == "min" else 1
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{job.directory}/run.json cannot be read ({error}), so the best jobs are not known."
        ) from error
    return float(sign * value)


def _directory(name: str) -> Path:
    path = Path(name)
    return path.resolve() if (path / jobs.FILE).is_file() else Path(os.getcwd(), "outputs", name)
