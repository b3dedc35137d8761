"""Checkpoints that are whole or not there: written aside, synced, renamed; read back only if every byte is as written.

A run's `checkpoints/` holds `last.pt` (all that is needed to go on), `previous.pt` (the one before, should `last.pt` be
damaged), `best.pt` (the weights that scored best; `best.safetensors` has them alone) and, when asked for, `epoch-0005.pt` and
so on. All hold tensors and plain types only and open with `torch.load(path, weights_only=True)`, which is the only way they
are ever opened.
"""

import contextlib
import errno
import logging
import math
import os
import re
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlite.errors import MachineError, UserError

log = logging.getLogger("torchlite")
# What `weights_only` reads back beside tensors, and what holds them
PLAIN = (type(None), bool, int, float, complex, str, bytes, bytearray, set, torch.dtype, torch.device)


def save(path: Path, state: dict[str, Any], keep_previous: bool = False) -> None:
    """Write `state` to `path`; whatever happens meanwhile, `path` holds the old or the new state, whole.

    torch.save stores a CRC-32 for every tensor and for the structure, which `load` checks. With `keep_previous` the old
    file stays beside it as `previous.pt`.
    """
    aside = path.with_name(f".{path.name}.partial")  # one name per target, so a kill leaves one leftover, not many
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(aside, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        if keep_previous and path.exists():
            _keep(path, path.with_name("previous.pt"))
        os.replace(aside, path)
        _sync_directory(path.parent)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        raise _unwritten(path, aside, error) from error


def _keep(path: Path, previous: Path) -> None:
    """Leave what is at `path` as `previous` too: no moment without a whole one."""
    linked = previous.with_name(f".{previous.name}.partial")
    linked.unlink(missing_ok=True)
    try:
        os.link(path, linked)
    except OSError:  # a file system without hard links, such as a mounted bucket: for a moment there is only `previous`
        linked = path
    os.replace(linked, previous)


def _unwritten(path: Path, aside: Path, error: Exception) -> MachineError:
    with contextlib.suppress(OSError):
        aside.unlink(missing_ok=True)
    is_full = not isinstance(error, OSError) or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return MachineError(f"could not write the checkpoint {path}: {error}." + (" Make room." if is_full else ""))


def save_safetensors(path: Path, weights: dict[str, Tensor]) -> None:
    """Write weights alone, for use elsewhere; replaced in one step."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    aside = path.with_name(f".{path.name}.partial")
    try:
        # safetensors refuses tensors that share memory, as tied weights do: each gets its own
        aside.touch()  # with the rights that files get here: safetensors makes one that nobody else may read
        rights = aside.stat().st_mode
        save_file({name: value.detach().cpu().contiguous().clone() for name, value in weights.items()}, aside)
        aside.chmod(rights)
        os.replace(aside, path)
    except (OSError, SafetensorError) as error:
        raise _unwritten(path, aside, error) from error


def load(path: Path) -> dict[str, Any]:
    """The state saved at `path`, on the CPU. Raises UserError for a missing, damaged or foreign file; runs nothing in it."""
    if not path.is_file():
        raise UserError(f"There is no checkpoint {path}.")
    damaged = f"The checkpoint {path} is damaged, or is no checkpoint of ours"
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                raise UserError(f"{damaged}.")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except UserError:
        raise
    except Exception as error:  # zipfile, pickle and torch each have their own way to say "not readable"
        raise UserError(f"{damaged}.") from error
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise UserError(f"{path} holds no weights under the key `model`, so it is no checkpoint of ours.")
    return state


def candidates(directory: Path) -> list[Path]:
    """The checkpoints of a run that hold everything to go on, newest first."""
    own = (directory / "last.pt", directory / "previous.pt")
    return [path for path in own if path.exists()] + numbered(directory)[::-1]


def numbered(directory: Path) -> list[Path]:
    """The checkpoints kept at the end of epochs, oldest first."""
    found = {path: re.fullmatch(r"epoch-(\d+)\.pt", path.name) for path in directory.glob("epoch-*.pt")}
    return sorted((path for path, match in found.items() if match), key=lambda path: int(found[path][1]))  # type: ignore[index]


def newest(directory: Path) -> dict[str, Any] | None:
    """The newest whole state of a run, or None when it has none yet; says so when a damaged one is passed over.

    Raises UserError when there are checkpoints and none can be read.
    """
    damaged = []
    for path in candidates(directory):
        try:
            state = load(path)
        except UserError as error:
            damaged.append(path)
            log.warning(f"{error} Going on to the one before.")
            continue
        if damaged:
            log.warning(f"going on from {path}, at update {state['progress']['update']}")
            for bad in damaged:  # or the next save would put a damaged one in the place of the whole one before
                bad.unlink()
        return state
    if damaged:
        raise UserError(
            f"No checkpoint in {directory} can be read; move {directory.parent} away and start the run again."
        )
    return None


class Writer:
    """Writes checkpoints in a thread of its own: the loop waits for a copy in memory, not for the disk.

    Args:
        keep_epochs: how many numbered checkpoints stay; None for all.
        pause_seconds: what may wait is written no sooner after the last write.
    """

    def __init__(self, keep_epochs: int | None = None, pause_seconds: float = 0.0) -> None:
        self.keep_epochs, self.pause_seconds = keep_epochs, pause_seconds
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._tensors: list[Tensor] = []  # of the latest snapshot
        self._waiting: dict[Path, dict[str, Any]] = {}  # snapshots not yet written
        self._sync: Callable[[], None]
        self._began = -math.inf  # the last write, in seconds of time.monotonic

    def save(
        self, jobs: dict[Path, dict[str, Any]], sync: Callable[[], None] = lambda: None, may_wait: bool = False
    ) -> bool:
        """Write states in the order given, after those given before. Returns whether the write has begun, or they wait.

        Args:
            sync: called before; puts on disk what the states count.
            may_wait: within `pause_seconds` of the last write they are kept in memory, until `wait` or the next save that is
                written; a later state of the same path takes the place of one that waits.

        Raises:
            MachineError: an earlier write failed; what waits is let go.
        """
        self.finish()
        others = {path: state for path, state in self._waiting.items() if path not in jobs}
        needed = {id(tensor) for tensor in _tensors(others)}
        copies, self._tensors = snapshot(jobs, [tensor for tensor in self._tensors if id(tensor) not in needed])
        self._waiting, self._sync = others | copies, sync
        begins = not may_wait or time.monotonic() - self._began >= self.pause_seconds
        if begins:
            self._begin()
        return begins

    @contextlib.contextmanager
    def flushed(self) -> Iterator[None]:
        """Everything is on disk after this, also what waits. What fails then is logged where something else has failed."""
        try:
            yield
        except BaseException:
            try:
                self.wait()
            except Exception as failure:
                log.error(f"{failure}")
            raise
        self.wait()

    def _begin(self) -> None:
        jobs, self._waiting, self._began = self._waiting, {}, time.monotonic()
        self._thread = threading.Thread(target=self._write, args=(jobs, self._sync), name="checkpoint writer")
        self._thread.start()

    def _write(self, jobs: dict[Path, dict[str, Any]], sync: Callable[[], None]) -> None:
        try:
            sync()
            for path, state in jobs.items():
                save(path, state, keep_previous=path.name == "last.pt")
                self._drop_old(path)
        except BaseException as error:  # raised again where the loop waits
            self._failure = error

    def _drop_old(self, path: Path) -> None:
        if self.keep_epochs is not None and path.name.startswith("epoch-"):
            kept = numbered(path.parent)
            # Not those of later epochs, which a run that went back has left there
            for old in kept[: max(0, kept.index(path) + 1 - self.keep_epochs)]:
                old.unlink()

    def wait(self) -> None:
        """Return when everything is on disk, also what waits; raises what made a write fail."""
        self.finish()
        if self._waiting:
            self._begin()
            self.finish()

    def finish(self) -> None:
        """Return when the write that has begun is done; raises what made it fail."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure, self._waiting = self._failure, None, {}
            raise failure


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors within."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def snapshot(state: Any, old: list[Tensor] | None = None) -> tuple[Any, list[Tensor]]:
    """A copy on the CPU that later updates do not change, and its tensors; one met twice is copied once.

    Raises UserError for what could not be read back.

    Args:
        old: the tensors of a snapshot that is no longer needed: their memory is used again where it fits, which spares the
            kernel from handing out fresh pages and makes the copy several times faster.
    """
    copies: dict[int, Tensor] = {}
    spare: dict[Any, list[Tensor]] = {}
    for tensor in old or []:
        spare.setdefault((tensor.shape, tensor.dtype, tensor.stride()), []).append(tensor)

    def copy(value: Any, key: Any = "") -> Any:
        if isinstance(value, np.generic):  # which no `weights_only` reads back; numpy's cosines make some
            return value.item()
        if isinstance(value, Tensor):
            if id(value) not in copies:
                fitting = spare.get((value.shape, value.dtype, value.stride()))  # an optimizer needs its strides back
                target = fitting.pop() if fitting else torch.empty_like(value, device="cpu", requires_grad=False)
                copies[id(value)] = target.copy_(value.detach())
            return copies[id(value)]
        if isinstance(value, dict):
            plain = ((name.item() if isinstance(name, np.generic) else name, item) for name, item in value.items())
            return {name: copy(item, name) for name, item in plain}
        if isinstance(value, list | tuple | range):
            items = [copy(item, key) for item in value]
            return tuple(items) if isinstance(value, tuple) else items
        if type(value) not in PLAIN:
            raise UserError(f"The state to save holds a {type(value).__name__} ({key}): give plain types and tensors.")
        return value

    return copy(state), list(copies.values())


def _sync_directory(directory: Path) -> None:
    """Make a rename last through a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
