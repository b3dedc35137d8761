"""What is worth computing once for all runs: where it is kept, and how two processes may want it at the same time."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor


def folder() -> Path:
    """The user's cache of torchlite; everything in it can be deleted at any time. TORCHLITE_CACHE names another."""
    own = os.environ.get("TORCHLITE_CACHE")
    if own:
        return Path(own)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torchlite"
    except RuntimeError:  # a user without a home, as in containers: nothing can be kept
        return Path(os.devnull) / "torchlite"


def mapped(path: Path, shape: tuple[int, ...]) -> Tensor:
    """A file of bytes as uint8 of that shape, read as it is used and shared with every process that maps it.

    What is written to the tensor stays with its process, and the file as it was.
    """
    return torch.from_numpy(np.memmap(path, dtype=np.uint8, mode="c", shape=shape))


def made_once(path: Path, fill: Callable[[Callable[[tuple[int, ...]], Tensor]], Tensor]) -> Path:
    """The path of a file of bytes that `fill` has made, now or in an earlier run; whoever comes second waits.

    Args:
        fill: gets a function that makes the tensor of a shape, in a file aside, and fills it.

    Raises:
        OSError: there is no place for it.
    """
    if path.exists():
        os.utime(path)  # so that the oldest by time are those not used
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):
        if path.exists():
            return path
        aside = path.with_name(f"{path.name}.part")
        with contextlib.suppress(FileNotFoundError):
            aside.unlink()  # of a process that was killed: the lock is ours, so nobody writes it
        try:
            fill(lambda shape: _new(aside, shape))
            with open(aside, "rb+") as file:
                os.fsync(file.fileno())
            aside.rename(path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                aside.unlink()
            raise
    return path


def _new(path: Path, shape: tuple[int, ...]) -> Tensor:
    """Bytes of a new file, whose room on the disk is taken now: a disk that fills up later would end the process."""
    size = int(np.prod(shape))
    with open(path, "xb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
        else:
            file.truncate(size)
    return torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8).view(shape)
