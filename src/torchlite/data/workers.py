"""Loader processes: they answer in order, leave the global generators alone, and their death is explained."""

import contextlib
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from torchlite.data.loader import Request
from torchlite.errors import MachineError, UserError

StartMethod = Literal["fork", "spawn", "forkserver"]


class WorkerDiedError(MachineError):
    """A loader worker was killed, or there is no more of what workers share."""


class _Requests:
    """A sampler whose content changes from epoch to epoch, under a loader that keeps its workers."""

    def __init__(self) -> None:
        self.waiting: list[Request] = []

    def __iter__(self) -> Iterator[Request]:
        return iter(self.waiting)

    def __len__(self) -> int:
        return len(self.waiting)


class AnyReader(Protocol):
    """What answers requests: `Reader`, or `streams.StreamReader`."""

    targets: np.ndarray  # int64 [N]

    def __getitem__(self, request: Request, /) -> Tensor | tuple[Tensor, Tensor] | UserError: ...


class Workers:
    """Loader processes that answer requests in order.

    Args:
        reader: what each of them holds.
        num_workers: processes, 1 or more.
        start_method: how they start; None for Python's default.
        keep: they wait for the next epoch instead of ending.
        pin: batches come in pinned memory, for copies to a GPU that wait for nothing.
    """

    def __init__(
        self, reader: AnyReader, num_workers: int, start_method: StartMethod | None, keep: bool, pin: bool
    ) -> None:
        self.reader = reader
        self.num_workers = num_workers
        self.start_method = start_method
        self.keep = keep
        self.pin = pin
        self._busy = False
        self._kept: tuple[DataLoader[Any], _Requests] | None = None

    def answers(self, requests: list[Request]) -> Iterator[Any]:
        """What `reader[request]` is for each request, in order.

        Raises:
            UserError: of the reader's.
            WorkerDiedError: a worker was killed; says what may help.
        """
        again = self._busy  # an epoch of the same part is being read: its workers are not to be disturbed
        with _quietly():
            loader, sampler = (None if again else self._kept) or self._started(keep=self.keep and not again)
        if self.keep and not again:
            self._kept = loader, sampler
        sampler.waiting = requests
        self._busy = True
        answers = None
        try:
            with _quietly():
                answers = iter(loader)
            for answer in answers:
                if isinstance(answer, UserError):
                    raise answer
                yield answer
        except GeneratorExit:  # the reader of this epoch left it: nothing is wrong with the workers
            raise
        except BaseException as error:
            self._kept = None
            what = _what_gave_out(error)
            if what is None:
                raise
            # Without its frames, which hold the loader: workers are to end here, not when garbage is collected
            raise WorkerDiedError(f"{what} {self._advice()}") from error.with_traceback(None)
        finally:
            self._busy = again
            answers = loader = None  # type: ignore[assignment]

    def _started(self, keep: bool) -> tuple[DataLoader[Any], _Requests]:
        sampler = _Requests()
        loader: DataLoader[Any] = DataLoader(
            self.reader,  # type: ignore[arg-type]
            batch_size=None,
            sampler=sampler,
            num_workers=self.num_workers,
            collate_fn=_as_it_is,
            pin_memory=self.pin,
            persistent_workers=keep,
            worker_init_fn=_prepare_worker,
            multiprocessing_context=self.start_method,
            generator=torch.Generator(),  # else each epoch would move torch's global generator
        )
        return loader, sampler

    def _advice(self) -> str:
        free = f" ({shutil.disk_usage('/dev/shm').free >> 20} MB are free)" if os.path.isdir("/dev/shm") else ""
        return (
            f"Most often memory or shared memory, /dev/shm{free}, ran out: use fewer workers "
            f"(data.num_workers={self.num_workers // 2}), a smaller data.batch_size, or more shared memory "
            "(docker run --shm-size=8g)."
        )


def _what_gave_out(error: BaseException) -> str | None:
    """What happened to a worker, in a sentence; None where the error is of the code it ran."""
    text = str(error)
    if not isinstance(error, RuntimeError | OSError | EOFError):
        return None
    if "exited unexpectedly" in text:
        return f"{text.splitlines()[0]}: it was killed."
    if not isinstance(error, RuntimeError) and "in DataLoader worker process" not in text:
        return f"A loader worker has gone while it handed over its batch ({type(error).__name__}): it was killed."
    for sign in (
        "shared memory",
        "unable to mmap",
        "unable to resize",
        "Cannot allocate memory",
        "Too many open files",
    ):
        if sign in text:
            return f"A loader worker could not hand over its batch ({sign})."
    return None


def _as_it_is(answer: Any) -> Any:
    return answer


def _prepare_worker(_: int) -> None:
    """Signals that stop a run are the main process's to answer; it ends its workers when it is done."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """No warning of too many workers, which has been given in fewer words, and no handler for children that have died.

    With torch's handler the death of a worker raises wherever the program then is. Without it the death is noticed,
    within seconds, where the worker's batch is missing: an update is never cut in two.
    """
    main = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGCHLD")
    before = signal.getsignal(signal.SIGCHLD) if main else None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        yield
    if before is not None:
        signal.signal(signal.SIGCHLD, before)
