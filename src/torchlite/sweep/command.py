"""A sweep from its words to its summary. Read `sweep` from the top."""

import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from typing import Any

from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from hydra_plugins import torchlite_sweep
from torchlite import command_line, stopping
from torchlite.config import Composed
from torchlite.data.cores import num_cores
from torchlite.errors import DONE, FAULT, WAITING, UserError, refuse
from torchlite.record import FAILED, FINISHED, STOPPED
from torchlite.stopping import EXIT_CODES
from torchlite.sweep import jobs as sweep_jobs
from torchlite.sweep import local, plan, processes, table
from torchlite.sweep.jobs import ELSEWHERE, Job
from torchlite.sweep.slots import Slots


def sweep(master: DictConfig, launcher: Launcher, arguments: Sequence[str], parts: dict[str, Any]) -> None:
    """Plan, run and sum up a sweep. Ends the process unless every job finished."""
    try:
        code = _sweep(master, launcher, arguments, parts)
    except UserError as error:
        code = refuse(error)
    except Exception:  # Hydra would shorten it
        traceback.print_exc()
        code = FAULT
    if code:
        raise SystemExit(code)


def _sweep(master: DictConfig, launcher: Launcher, arguments: Sequence[str], parts: dict[str, Any]) -> int:
    console = Console(highlight=False)
    directory, composed = plan.compose_all(master, arguments, parts)
    # By the module, not by a name imported from it: Hydra has executed that file anew
    local_launcher = launcher if isinstance(launcher, torchlite_sweep.Local) else None
    if local_launcher:
        processes.preload(_libraries(composed))  # imports torch beside this process, which is about to do the same
    plan.check_all(composed)
    devices = [job.config["trainer"]["device"] for job in composed]
    slots = Slots(local_launcher.num_jobs, devices) if local_launcher else None
    at_a_time = slots.num_jobs if slots else _jobs_of(master)
    jobs = [sweep_jobs.planned(directory, one) for one in composed]
    sweep_jobs.label_all(jobs)
    if composed[0].config["dry_run"]:
        plan.show(jobs, directory, at_a_time, console)
        return DONE
    plan.check_data(jobs)
    jobs = sweep_jobs.settle(directory, composed, threads(at_a_time), command_line.typed_command())
    plan.show(jobs, directory, at_a_time, console)
    if slots:
        return run_here(jobs, slots, composed[0].config["fail_fast"], console)
    before = dict(os.environ)
    os.environ["TORCHLITE_CORES"] = str(max(1, num_cores() // at_a_time))  # for the processes of other launchers
    try:
        stopped_with = _launch_elsewhere(launcher, jobs)
    finally:
        os.environ.pop("TORCHLITE_CORES")
        os.environ.update(before)
    table.summary(jobs, console)
    return stopped_with or exit_code(jobs)


def run_here(jobs: Sequence[Job], slots: Slots, fail_fast: bool, console: Console) -> int:
    """Run the jobs in processes of this machine and sum them up; the exit code."""
    stopping.raise_if_noted()  # some library may have swallowed it
    watcher = table.Watcher(jobs, console, slots.num_jobs)
    runner = local.Runner(jobs, slots, fail_fast, watcher)
    signals = runner.run()
    if runner.is_lost:
        said = "the process that jobs are forked from was killed, maybe because memory ran out"
        print(f"{said}: jobs at work save and stop, and the same command goes on", file=sys.stderr, flush=True)
    if signals:
        print("the sweep was stopped; the same command goes on", file=sys.stderr, flush=True)
        code = {**EXIT_CODES, signal.SIGHUP: 129}[signal.Signals(signals[0])]
        if len(signals) > 1:  # somebody is in a hurry
            os._exit(code)
    for job in jobs:
        if job.state != FINISHED and job.look() == FINISHED:  # by another launch, after it had failed here
            job.state = FINISHED
    table.summary(jobs, console)
    return code if signals else FAULT if runner.is_lost else exit_code(jobs)


def _launch_elsewhere(launcher: Launcher, jobs: Sequence[Job]) -> int | None:
    """Hand the jobs to another launcher of Hydra's, and wait for those that another process holds.

    Returns:
        the exit code when a job ended the sweep: a signal, or a failure with `fail_fast`.
    """
    left = [job for job in jobs if job.state != FINISHED]
    stopped_with = None
    try:
        results = launcher.launch([list(job.composed.overrides) for job in left], initial_job_idx=0) if left else []
        for result in results:
            result.return_value  # noqa: B018 - raises what the job raised
    except SystemExit as ended:
        stopped_with = int(ended.code or 0) or None
    for job in left:
        while (state := job.look()) == ELSEWHERE and not stopped_with:
            time.sleep(1)
        job.state = state
        if state not in (FINISHED, STOPPED, FAILED) and not stopped_with:
            job.state, job.reason = FAILED, "its process ended without a result; the same command goes on"
    return stopped_with


def exit_code(jobs: Sequence[Job]) -> int:
    """0 when every job is finished; 1 when one failed; 75 when some merely wait to be continued."""
    states = {job.state for job in jobs}
    return FAULT if FAILED in states else DONE if states <= {FINISHED} else WAITING


def threads(at_a_time: int) -> int:
    """Threads for each of so many jobs at a time, so that together they are no more than the cores."""
    from torchlite import machine

    return min(machine.DEFAULT_THREADS, max(1, num_cores() // at_a_time))


def _libraries(composed: Sequence[Composed]) -> set[str]:
    """The slow ones that the jobs name."""
    text = "".join(str(job.config) for job in composed)
    return {name for name in ("torchvision", "timm") if f"'_target_': '{name}." in text}


def _jobs_of(master: DictConfig) -> int:
    """How many jobs another launcher runs at a time, where it says so as joblib's does."""
    asked = OmegaConf.select(master, "hydra.launcher.n_jobs", default=1)
    return num_cores() if not isinstance(asked, int) or asked < 1 else asked
