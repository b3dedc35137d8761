"""The processes of jobs: forked from a server that has imported everything once, each in a session of its own."""

import contextlib
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Iterable
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

from torchlite import stopping
from torchlite.config import Composed
from torchlite.record import Busy
from torchlite.stopping import EXIT_CODES, Stopped

BUSY = 9  # a job's exit code when another process holds its directory
LOST = 255  # what multiprocessing says of a process when the server that forked it is gone
# Imported late by a run, or by torch in its first update
USED_BY_RUNS = ("torch._dynamo", "torch.utils.tensorboard", "safetensors.torch", "numpy.random", "PIL.Image")
PACKAGE = Path(__file__).resolve().parents[1]
ROOMS_OF_RUNS = ("data", "models", "optim", "tasks", "callbacks")


def preload(libraries: Iterable[str] = ()) -> Any:
    """The context that jobs are started from: a server process that has imported torch and `libraries` once, and forks.

    It has torchlite whole as well, so that a job runs the code of the sweep's start, whatever is edited later.
    """
    context = multiprocessing.get_context("forkserver")
    rooms = [
        f"torchlite.{path.parent.name}.{path.stem}" for room in ROOMS_OF_RUNS for path in (PACKAGE / room).glob("*.py")
    ]
    own = [name.removesuffix(".__init__") for name in sorted(rooms)]
    context.set_forkserver_preload(["__main__", __name__, "torchlite.run", *own, *USED_BY_RUNS, *libraries])
    # What is sent to the whole process group is for this process, which tells the jobs. The mask is inherited: a job gets what
    # it was sent as soon as it can listen
    before = signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_CODES)
    try:
        resource_tracker.ensure_running()  # which the server would start, and then unblock what is blocked here
        signal.pthread_sigmask(signal.SIG_BLOCK, EXIT_CODES)
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return context


def server_is_gone() -> bool:
    """Whether the process that jobs are forked from was killed: nobody reads from the pipe that tells it to stay."""
    alive = select.poll()
    alive.register(forkserver._forkserver._forkserver_alive_fd, 0)  # type: ignore[attr-defined]
    return bool(alive.poll(0))


def job(composed: Composed, environment: dict[str, str], output: Path) -> None:
    """What a job's process does; ends it with the run's exit code."""
    os.setsid()
    multiprocessing.set_start_method(None, force=True)  # of loader workers: as in a run that is typed alone
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    from torchlite import run

    for number in EXIT_CODES:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        with stopping.at_once():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, EXIT_CODES)
            _end_with_the_sweep()
            code = run.attempt(composed)[1]
    except Busy:
        code = BUSY
    except Stopped as stopped:
        code = stopped.code
    sys.exit(code)


def _end_with_the_sweep() -> None:
    """Send SIGTERM to this process when the sweep's has gone, as when it was killed: the run saves and stops."""
    sweep = multiprocessing.parent_process()
    assert sweep is not None

    def wait() -> None:
        sweep.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="sweep", daemon=True).start()


def reason(code: int | None, output: Path) -> str:
    """Why a process ended without a result, in one line."""
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        hint = ", maybe because memory ran out" if name == "SIGKILL" else ""
        return f"the process was killed by {name}{hint}; the same command goes on from its last checkpoint"
    lines = [line for line in tail(output).splitlines() if line.strip()]
    return lines[-1] if lines else f"the process ended with code {code}"


def output_of(directory: Path) -> Path:
    """Where the process of a job writes what is no log: beside its directory, since a machine tidies /tmp under long sweeps."""
    for left in directory.parent.glob(f".{directory.name}-*"):  # of a sweep that was killed
        try:
            os.kill(int(left.name.rpartition("-")[2]), 0)
        except (ProcessLookupError, ValueError):
            left.unlink(missing_ok=True)
        except OSError:  # somebody else's
            continue
    return directory.with_name(f".{directory.name}-{os.getpid()}")


def tail(output: Path, most: int = 4000) -> str:
    """The last `most` bytes that a process wrote."""
    with contextlib.suppress(OSError):
        return output.read_bytes()[-most:].decode(errors="replace")
    return ""
