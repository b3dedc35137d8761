"""Stopping on request: signals and a time limit end the run after the update at hand, with a checkpoint."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

from torchlite.errors import INTERRUPTED, TERMINATED, WAITING

EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGUSR1: WAITING}


class Stopped(Exception):
    """The run ended on request and can be resumed; `code` is the process's exit code."""

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


class StopRequest:
    """Whether the run is to stop: a signal came, or its time is up. A second signal ends the process at once."""

    def __init__(self, max_minutes: float | None = None) -> None:
        self.deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self.max_minutes = max_minutes
        self._signal: signal.Signals | None = None

    @contextlib.contextmanager
    def listening(self) -> Iterator["StopRequest"]:
        """Handle SIGINT, SIGTERM and SIGUSR1 while this holds; only a main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = {number: signal.signal(number, self._note) for number in EXIT_CODES}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._signal is not None:
            os._exit(
                EXIT_CODES[signal.Signals(number)]
            )  # the last whole checkpoint stays, the lock goes with the process
        self._signal = signal.Signals(number)

    def check(self) -> Stopped | None:
        """The reason to stop now, or None."""
        if self._signal is not None:
            return Stopped(f"{self._signal.name} received", EXIT_CODES[self._signal])
        if self.deadline is not None and time.monotonic() > self.deadline:
            return Stopped(f"trainer.max_minutes={self.max_minutes:g} are over", WAITING)
        return None
