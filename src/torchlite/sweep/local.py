"""Jobs in processes of their own on this machine: several at a time, shared with whoever else runs the same sweep."""

import collections
import contextlib
import ctypes
import dataclasses
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

import filelock

from torchlite.config import Composed
from torchlite.data.memory import num_cores
from torchlite.errors import UserError
from torchlite.record import FAILED, FINISHED, STOPPED, Busy
from torchlite.stopping import EXIT_CODES
from torchlite.sweep.jobs import ELSEWHERE, RUNNING, Job
from torchlite.sweep.table import Watcher

BUSY = 9  # a job's exit code when another process holds its directory
POLL_SECONDS = 0.05
# Imported late by a run, or by torch in its first update
USED_BY_RUNS = (
    "torchlite.run",
    "torch._dynamo",
    "torch.utils.tensorboard",
    "safetensors.torch",
    "numpy.random",
    "PIL.Image",
)
SHOWN_OUTPUT = 4000  # bytes of what a killed process wrote, kept in its train.log


@dataclasses.dataclass(frozen=True)
class Slot:
    """Room for one job at a time: cores, and a GPU when there are any."""

    num_cores: int
    gpu: str | None = None  # as CUDA_VISIBLE_DEVICES takes it
    lock: Path | None = None  # held while a job uses the GPU, machine-wide


def visible_gpus() -> list[str]:
    """Names of the GPUs that this process may use, as CUDA_VISIBLE_DEVICES takes them."""
    import torch

    asked = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    names = [name.strip() for name in asked.split(",")] if asked else [str(index) for index in range(count)]
    return names[:count]


def slots(num_jobs: int | str, on_cpu: bool) -> list[Slot]:
    """As many as jobs may run at a time, each with its share of the cores.

    Args:
        num_jobs: "auto": one on each GPU, or where there is none one for every 4 cores, but at least 2.
        on_cpu: the jobs use no GPU, though there may be some.

    Raises:
        UserError: a number below 1.
    """
    gpus = [] if on_cpu else visible_gpus()
    if num_jobs == "auto":
        num_jobs = len(gpus) or max(2, num_cores() // 4)
    if not isinstance(num_jobs, int) or isinstance(num_jobs, bool) or num_jobs < 1:
        raise UserError(f"hydra.launcher.num_jobs={num_jobs}: give a whole number from 1 upwards, or auto.")
    share = max(1, num_cores() // num_jobs)
    if not gpus:
        return [Slot(share)] * num_jobs
    locks = Path(tempfile.gettempdir()) / f"torchlite-gpus-{os.getuid()}"
    locks.mkdir(mode=0o700, exist_ok=True)
    shared = math.ceil(num_jobs / len(gpus))  # jobs on one GPU
    places = [(gpu, place) for place in range(shared) for gpu in gpus]
    return [Slot(share, gpu, locks / f"{gpu.replace('/', '-')}-{place}") for gpu, place in places[:num_jobs]]


def preload(libraries: Iterable[str] = ()) -> Any:
    """The context that jobs are started from: a server process that has imported torch and `libraries` once, and forks."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "torchlite.sweep.local", *USED_BY_RUNS, *libraries])
    from multiprocessing import forkserver

    # What is sent to the whole process group is for this process, which tells the jobs; ignoring is inherited
    before = {number: signal.signal(number, signal.SIG_IGN) for number in EXIT_CODES}
    try:
        forkserver.ensure_running()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return context


@dataclasses.dataclass
class _Started:
    job: Job
    process: BaseProcess
    slot: Slot
    output: Path
    held: contextlib.ExitStack


class Launcher:
    """Runs jobs until each is finished or has failed, whoever computes it.

    A job that another process holds is waited for; when that process is gone and left the job unfinished, it runs here.

    Args:
        fail_fast: the first failure stops the jobs at work, which can go on later, and starts no more.
    """

    def __init__(self, jobs: Sequence[Job], slots: Sequence[Slot], fail_fast: bool, watcher: Watcher) -> None:
        self.jobs, self.slots, self.fail_fast, self.watcher = jobs, slots, fail_fast, watcher
        self.waiting = collections.deque(job for job in jobs if job.state != FINISHED)
        self.elsewhere: list[Job] = []
        self.running: list[_Started] = []
        self.signals: list[int] = []
        self.began = time.time()

    def run(self) -> list[int]:
        """Run them all; the signals that ended the sweep, if any did."""
        with tempfile.TemporaryDirectory(prefix="torchlite-sweep-") as outputs, self._listening(), self.watcher.shown():
            context, told = preload(), False
            while self.waiting or self.running or self.elsewhere:
                self._reap()
                stopping = bool(self.signals) or (self.fail_fast and any(job.state == FAILED for job in self.jobs))
                if stopping and not told:
                    told = True
                    self.waiting.clear()
                    self.elsewhere.clear()
                    self._send(signal.SIGTERM)
                if len(self.signals) > 1:  # at once
                    self._send(signal.SIGKILL)
                    return self.signals
                self._look_elsewhere()
                self._start(context, Path(outputs))
                self.watcher.draw([started.job for started in self.running])
                time.sleep(POLL_SECONDS)
            self._reap()
        return self.signals

    def _start(self, context: Any, outputs: Path) -> None:
        for slot in self.slots:
            if not self.waiting:
                return
            if sum(started.slot is slot for started in self.running) >= self.slots.count(slot):
                continue
            job = self.waiting.popleft()
            state = job.look()
            if state == FINISHED or (state == FAILED and self._ended_since(job)):  # by another launch, meanwhile
                self._end(job, state)
                continue
            if state == ELSEWHERE:
                self._pass_on(job)
                continue
            held = contextlib.ExitStack()
            if slot.lock is not None:
                try:
                    held.enter_context(filelock.FileLock(slot.lock, blocking=False).acquire())
                except filelock.Timeout:  # another sweep has the GPU
                    self.waiting.appendleft(job)
                    continue
            self._start_one(context, job, slot, outputs / job.composed.identity, held)

    def _start_one(self, context: Any, job: Job, slot: Slot, output: Path, held: contextlib.ExitStack) -> None:
        environment = {**os.environ, "TORCHLITE_CORES": str(slot.num_cores)}
        if slot.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = slot.gpu
        process = context.Process(target=_job, args=(job.composed, environment, output), daemon=False)
        process.start()
        job.state = RUNNING
        self.running.append(_Started(job, process, slot, output, held))
        self.watcher.started(job)

    def _reap(self) -> None:
        for started in [started for started in self.running if not started.process.is_alive()]:
            self.running.remove(started)
            started.process.join()
            started.held.close()
            code = started.process.exitcode
            if code == BUSY:
                self._pass_on(started.job)
                continue
            status = started.job.result.get("status")
            if status in (FINISHED, FAILED, STOPPED) and code is not None and code >= 0:
                self._end(started.job, status)
            else:  # killed, or refused before it had a result
                started.job.reason = _reason(code, started.output)
                _keep(started.job, started.output)
                self._end(started.job, FAILED)

    def _end(self, job: Job, state: str) -> None:
        job.state = state
        self.watcher.ended(job)

    def _pass_on(self, job: Job) -> None:
        job.state = ELSEWHERE
        self.elsewhere.append(job)
        self.watcher.started(job)

    def _look_elsewhere(self) -> None:
        for job in list(self.elsewhere):
            state = job.look()
            if state == ELSEWHERE:
                continue
            self.elsewhere.remove(job)
            if state == FINISHED or (state == FAILED and self._ended_since(job)):
                self._end(job, state)
            else:  # stopped or killed there
                job.state = state
                self.waiting.append(job)

    def _ended_since(self, job: Job) -> bool:
        return (job.directory / "result.json").stat().st_mtime >= self.began

    # Signals: jobs are in sessions of their own, so that what is sent to the whole group reaches them once, from here

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        def note(number: int, frame: FrameType | None) -> None:
            self.signals.append(number)

        before = {number: signal.signal(number, note) for number in EXIT_CODES}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _send(self, number: int) -> None:
        for started in self.running:
            with contextlib.suppress(ProcessLookupError):
                if started.process.pid is not None and started.process.is_alive():
                    os.kill(started.process.pid, number)


def _job(composed: Composed, environment: dict[str, str], output: Path) -> None:
    """What a job's process does."""
    os.setsid()
    for number in EXIT_CODES:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _end_with_parent()
    multiprocessing.set_start_method(None, force=True)  # of loader workers: as in a run that is typed alone
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(file, stream.fileno() if stream.fileno() in (1, 2) else 1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    from torchlite import run

    try:
        code = run.attempt(composed)[1]
    except Busy:
        code = BUSY
    sys.exit(code)


def _end_with_parent() -> None:
    """Be sent SIGTERM when the server that forked this process is gone, as it is when the sweep was killed; on Linux."""
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG of prctl.h
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
        if os.getppid() == 1:  # it went before this
            sys.exit(EXIT_CODES[signal.SIGTERM])


def _reason(code: int | None, output: Path) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = ", maybe because memory ran out" if name == "SIGKILL" else ""
        return f"the process was killed by {name}{hint}; the same command goes on from its last checkpoint"
    lines = _tail(output).strip().splitlines()
    return lines[-1] if lines else f"the process ended with code {code}"


def _tail(output: Path) -> str:
    try:
        return output.read_bytes()[-SHOWN_OUTPUT:].decode(errors="replace")
    except OSError:
        return ""


def _keep(job: Job, output: Path) -> None:
    """Put what the process wrote last, and how it ended, into the job's log."""
    with contextlib.suppress(OSError), open(job.directory / "train.log", "a", encoding="utf-8") as file:
        file.write(f"{_tail(output)}\n{job.reason}\n")
