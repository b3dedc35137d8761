"""Where messages and warnings go while a run lives: to train.log and to the terminal."""

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from torchlite.errors import printable

log = logging.getLogger("torchlite")


@contextlib.contextmanager
def written(directory: Path, console: Console, result: dict[str, Any]) -> Iterator[None]:
    """Send log messages and warnings to train.log and the terminal, for this run alone.

    What PyTorch warns has no deterministic form is noted in `result`, under `not_deterministic`.
    """
    noted = _Nondeterministic(result)
    logging.getLogger("py.warnings").addHandler(noted)
    file = logging.FileHandler(directory / "train.log", encoding="utf-8", errors="backslashreplace")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%d %H:%M:%S"))
    root, terminal = logging.getLogger(), _Terminal(console)
    level = log.level
    log.setLevel(logging.INFO)
    for handler in (file, terminal):
        root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        with warnings.catch_warnings():  # so that a warning an earlier job has met is given again
            yield
    finally:
        logging.captureWarnings(False)
        logging.getLogger("py.warnings").removeHandler(noted)
        for handler in (file, terminal):
            root.removeHandler(handler)
            handler.close()
        log.setLevel(level)


@contextlib.contextmanager
def kept_back() -> Iterator[list[logging.LogRecord]]:
    """Messages meanwhile, for `log.handle` once there is a place for them; after an exception they are given at once."""
    handler = _Keeping()
    propagates, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield handler.kept
    except BaseException:
        told, handler.kept = handler.kept, []
        raise
    else:
        told = []
    finally:
        log.removeHandler(handler)
        log.propagate = propagates
        for record in told:  # there will be no place
            log.handle(record)


class _Keeping(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record)


class _Nondeterministic(logging.Handler):
    """Notes in the result which operations PyTorch warned have no deterministic form."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__()
        self.result = result

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        operation = None
        if "does not have a deterministic implementation" in message:
            operation = message.split(" does not have")[0].rpartition(" ")[2]
        elif "defaults to a non-deterministic algorithm" in message:  # of attention, on CUDA
            operation = message.split(" defaults to")[0].rpartition(": ")[2]
        if operation is not None:
            known = self.result.setdefault("not_deterministic", [])
            if operation not in known:
                known.append(operation)


class _Terminal(logging.Handler):
    """Prints messages above a live progress bar, or as plain lines."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        label = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        text = printable(f"{label}{record.getMessage()}", keep="\n\t")
        text = text.encode(self.console.encoding, "backslashreplace").decode(self.console.encoding)
        with contextlib.suppress(OSError, SystemExit):  # nobody reads any more (`| head`): the run goes on
            self.console.print(text, markup=False)
