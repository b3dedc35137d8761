"""Stopping on request. In the loop a signal or a time limit ends the run after the update at hand, with a checkpoint; anywhere
else, as while data is read or the test set scored, a signal ends it where it stands.
"""

import atexit
import contextlib
import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from torchlite.errors import INTERRUPTED, TERMINATED, WAITING, refuse

EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGUSR1: WAITING}
PATIENCE = 2.0  # seconds that a run has left after a second signal


class Stopped(BaseException):
    """The run ended on request and can be resumed; `code` is the process's exit code.

    No `Exception`, as KeyboardInterrupt is none: what copes with faults, such as an image that cannot be read, lets it pass.
    """

    def __init__(self, reason: str, code: int) -> None:
        super().__init__(reason)
        self.code = code


class _First:
    """A handler that notes the first signal, and raises Stopped where the program then is if it is to end at once."""

    def __init__(self, at_once: bool) -> None:
        self.at_once = at_once
        self.signal: signal.Signals | None = None
        self.is_ending = False  # for a signal that came before this was installed

    def __call__(self, number: int, frame: FrameType | None) -> None:
        # Those after the first are for `_second_ends`: what is being written at the end is not to be cut off again
        if self.signal is None and not self.is_ending:
            self.signal = signal.Signals(number)
            if self.at_once:
                raise self.stopped()

    def stopped(self) -> Stopped:
        assert self.signal is not None
        return Stopped(f"{self.signal.name} received", EXIT_CODES[self.signal])

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Be asked first while this holds; only a main thread can."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self) for number in EXIT_CODES}
        outer = [handler for handler in before.values() if isinstance(handler, _First)]
        self.is_ending = any(handler.signal or handler.is_ending for handler in outer)
        try:
            yield
        finally:
            for handler in outer:
                handler.signal = handler.signal or self.signal
            for number, before_this in before.items():
                signal.signal(number, before_this)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """While this holds, SIGINT, SIGTERM and SIGUSR1 raise Stopped, and a second one ends the process within seconds."""
    with _second_ends(), _First(at_once=True).installed():
        yield


def ended(command: Callable[[], int]) -> int:
    """The exit code of a command, or of the signal that ended it, which is said in a line."""
    try:
        with at_once():
            return command()
    except Stopped as stopped:
        print(f"stopped: {stopped}", file=sys.stderr)
        return stopped.code


@contextlib.contextmanager
def loading() -> Iterator[None]:
    """While this holds, a signal ends the process with a line: for imports before there is anything to lose.

    Exits where the working directory is gone. What a signal raises in the midst of an import may be caught by what is imported,
    or land where Python drops it.
    """
    try:
        os.getcwd()
    except FileNotFoundError:
        raise SystemExit(refuse("The folder you are in has been deleted or moved; cd to one that is there.")) from None
    # At its end Python searches all that is imported here for garbage once more, with torch for 0.7 s: not what is frozen
    atexit.register(gc.freeze)
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, _end) for number in EXIT_CODES}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> None:
    name = signal.Signals(number).name
    os.write(2, f"stopped: {name} received, before anything was started\n".encode())
    os._exit(EXIT_CODES[signal.Signals(number)])


def raise_if_noted() -> None:
    """Raise Stopped where a signal came and what it raised then got lost on the way."""
    handler = signal.getsignal(signal.SIGINT)
    if isinstance(handler, _First) and handler.signal is not None:
        raise handler.stopped()


@contextlib.contextmanager
def after_this() -> Iterator[None]:
    """Signals wait until this ends, and raise Stopped then; for what must not be cut in two."""
    first = _First(at_once=False)
    with first.installed():
        yield
    if first.signal is not None:
        raise first.stopped()


class StopRequest:
    """Whether the run is to stop: a signal came, or its time is up."""

    def __init__(self, max_minutes: float | None = None) -> None:
        self.deadline = None if max_minutes is None else time.monotonic() + 60 * max_minutes
        self.max_minutes = max_minutes
        self._first = _First(at_once=False)

    @contextlib.contextmanager
    def listening(self) -> Iterator["StopRequest"]:
        """Note SIGINT, SIGTERM and SIGUSR1 while this holds; one that came after the last `check` raises Stopped at the end."""
        with self._first.installed():
            yield self
        if self._first.signal is not None:
            raise self._first.stopped()

    @property
    def is_signalled(self) -> bool:
        return self._first.signal is not None

    def check(self) -> Stopped | None:
        """The reason to stop now, or None."""
        if self._first.signal is not None:
            return self._first.stopped()
        if self.deadline is not None and time.monotonic() > self.deadline:
            return Stopped(f"trainer.max_minutes={self.max_minutes:g} are over", WAITING)
        return None


@contextlib.contextmanager
def _second_ends() -> Iterator[None]:
    """While this holds, the process ends PATIENCE seconds after a second signal, and at once after a third.

    Python's own handlers wait until the main thread is back from what it does outside Python, and a backward pass may take
    minutes; so the signals are counted by a thread, to which the interpreter writes each as it arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_count, args=(reading,), name="signals", daemon=True)
    if before == -1:  # else somebody around this one counts, or has a use of their own for it
        thread.start()
    else:
        signal.set_wakeup_fd(before)
    try:
        yield
    finally:
        if before == -1:
            signal.set_wakeup_fd(-1)
        writing.shutdown(socket.SHUT_WR)  # the thread's end; closing would not do, as forked children hold it open
        if before == -1:
            thread.join()
        writing.close()
        reading.close()


def _count(numbers: socket.socket) -> None:
    code = None
    count = 0
    with contextlib.suppress(TimeoutError):
        while received := numbers.recv(64):
            for number in received:
                if number in EXIT_CODES:
                    code, count = code or EXIT_CODES[signal.Signals(number)], count + 1
            if count > 2:
                break
            if count == 2:
                numbers.settimeout(PATIENCE)
        else:
            return
    os._exit(code or INTERRUPTED)  # the last whole checkpoint stays, the lock goes with the process


# A child that is forked has handlers of its own; its signals are not to be counted as this process's
os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
