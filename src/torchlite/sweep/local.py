"""Jobs in processes of their own on this machine, shared with whoever else runs the same sweep."""

import collections
import contextlib
import dataclasses
import os
import signal
import time
from collections.abc import Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import Any

from torchlite.errors import DONE
from torchlite.record import FAILED, FINISHED, STOPPED
from torchlite.stopping import EXIT_CODES
from torchlite.sweep import processes
from torchlite.sweep.jobs import CUT_OFF, ELSEWHERE, RUNNING, Job
from torchlite.sweep.slots import Slot, Slots
from torchlite.sweep.table import Watcher

POLL_SECONDS = 0.05


@dataclasses.dataclass
class _Started:
    job: Job
    process: BaseProcess
    slot: Slot
    output: Path


class Runner:
    """Runs jobs until each is finished or has failed, whoever computes it.

    A job that another process holds is waited for; when that process is gone and left the job unfinished, it runs here.

    Args:
        fail_fast: the first failure stops the jobs at work, which can go on later, and starts no more.
    """

    def __init__(self, jobs: Sequence[Job], slots: Slots, fail_fast: bool, watcher: Watcher) -> None:
        self.slots, self.fail_fast, self.watcher = slots, fail_fast, watcher
        self.waiting = collections.deque(job for job in jobs if job.state != FINISHED)
        self.elsewhere: list[Job] = []
        self.running: list[_Started] = []
        self.signals: list[int] = []
        self.has_failed = self.is_stopping = self.is_lost = False  # lost: who should have said how jobs end was killed
        self.began = time.time()

    def run(self) -> list[int]:
        """Run them all; the signals that ended the sweep, if any did."""
        with self._listening(), self.watcher.shown():
            context = processes.preload()
            while self.waiting or self.running or self.elsewhere:
                self._reap()
                if self.signals or (self.fail_fast and self.has_failed):
                    self._stop()
                if len(self.signals) > 1:  # at once
                    self._send(signal.SIGKILL)
                    return self.signals
                self._look_elsewhere()
                self._start(context)
                self.watcher.draw([started.job for started in self.running])
                time.sleep(POLL_SECONDS)
        return self.signals

    def _start(self, context: Any) -> None:
        while self.waiting:
            slot = self.slots.take()
            if slot is None:
                if not self.running and not self.elsewhere:
                    self.watcher.say_once("waiting for a GPU: other sweeps have them all")
                return
            job = self.waiting.popleft()
            state = job.look()
            if state == FINISHED or (state == FAILED and self._ended_since(job)):  # by another launch, meanwhile
                self._end(job, state)
            elif state == ELSEWHERE:
                self._pass_on(job)
            else:
                output = processes.output_of(job.directory)
                environment = {**os.environ, **slot.environment}
                process = context.Process(target=processes.job, args=(job.composed, environment, output))
                try:
                    process.start()
                except (OSError, EOFError):
                    if not processes.server_is_gone():
                        raise
                    slot.give_back()
                    return self._lose()
                job.state, job.reason = RUNNING, ""
                self.running.append(_Started(job, process, slot, output))
                self.watcher.started(job)
                continue
            slot.give_back()

    def _reap(self) -> None:
        for started in [started for started in self.running if not started.process.is_alive()]:
            self.running.remove(started)
            started.process.join()
            started.slot.give_back()
            code, job = started.process.exitcode, started.job
            status = job.result.get("status") if self._wrote_result(job) else None
            if code == processes.LOST and processes.server_is_gone():
                self._lose()
                # Still at work, it saves and stops once this process is gone or has forgotten it
                self._end(job, FINISHED if status == FINISHED else CUT_OFF)
            elif code == processes.BUSY:
                self._pass_on(job)
            elif code == DONE or status == FINISHED:
                self._end(job, FINISHED)
            elif code in EXIT_CODES.values() or (self.is_stopping and code == -signal.SIGTERM):
                self._end(job, STOPPED)
            else:
                if status != FAILED:  # killed, or refused before it had a result: the log is to say so
                    job.reason = processes.reason(code, started.output)
                    with (
                        contextlib.suppress(OSError),
                        open(job.directory / "train.log", "a", encoding="utf-8") as file,
                    ):
                        file.write(f"{processes.tail(started.output)}\n{job.reason}\n")
                self._end(job, FAILED)
            started.output.unlink(missing_ok=True)

    def _lose(self) -> None:
        """Start no more."""
        self.is_lost = True
        self.waiting.clear()
        self.elsewhere.clear()

    def _wrote_result(self, job: Job) -> bool:
        """Whether its result is of this launch, not of an earlier one."""
        path = job.directory / "result.json"
        return path.exists() and path.stat().st_mtime >= self.watcher.started_at(job)

    def _end(self, job: Job, state: str) -> None:
        job.state = state
        self.has_failed |= state == FAILED
        self.watcher.ended(job)

    def _pass_on(self, job: Job) -> None:
        job.state = ELSEWHERE
        if not self.is_stopping and not self.is_lost:
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
        # A closed terminal stops it too; nohup does not want that
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, note)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self) -> None:
        """Tell the jobs at work, once, and start no more."""
        if not self.is_stopping:
            self.is_stopping = True
            self.waiting.clear()
            self.elsewhere.clear()
            self._send(signal.SIGTERM)

    def _send(self, number: int) -> None:
        for started in self.running:
            with contextlib.suppress(ProcessLookupError):
                if started.process.pid is not None and started.process.is_alive():
                    os.kill(started.process.pid, number)
