"""Whether a set is kept in memory, and how it gets there."""

import contextlib
import hashlib
import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from torchlite.data import cache
from torchlite.data.decode import Opened, gather
from torchlite.data.fingerprint import file_contents, file_paths
from torchlite.data.loader import Kept
from torchlite.data.memory import available
from torchlite.data.pixels import SizesDifferError
from torchlite.errors import UserError

log = logging.getLogger("torchlite")
Fit = Callable[[Tensor], Tensor]
FORMAT = 1  # of decoded sets on the disk; another number leaves those of before alone


def kept_size(part: Opened, fit: Fit | None) -> tuple[int, int] | None:
    """(height, width) in which the images of a part would be kept; None where they differ."""
    if fit is not None:
        probe = fit(torch.zeros((part.channels, *(part.size or (64, 48))), dtype=torch.uint8))
        other = fit(torch.zeros((part.channels, 48, 64), dtype=torch.uint8))
        if part.size is None and probe.shape != other.shape:
            return None
        return probe.shape[1], probe.shape[2]
    return part.size


def in_memory(
    asked: bool | Literal["auto"],
    parts: Mapping[str, Opened],
    fits: Mapping[str, Fit | None],
    memory_share: float,
    device: torch.device,
) -> bool:
    """Whether all parts are kept in memory: if asked, or if they can be and take `memory_share` of what is free.

    Raises:
        UserError: they are to be and cannot.
    """
    if asked is False:
        return False
    for name, part in parts.items():
        reason = None
        if part.varies:
            reason = "two readings of one sample differ, so its random transforms would be frozen"
        elif kept_size(part, fits[name]) is None:
            reason = (
                "its images differ in size; data.preprocess.resize and data.preprocess.crop would bring them to one"
            )
        if reason and asked is True:
            raise UserError(f"data.in_memory=true: {part.name} cannot be kept: {reason}. Set data.in_memory=auto.")
        if reason:
            return False
    return asked is True or sum(num_bytes(parts[name], fits[name]) for name in parts) <= memory_share * available(
        device
    )


def num_bytes(part: Opened, fit: Fit | None) -> int:
    """Bytes that a part takes when it is kept, besides what its source holds already."""
    if part.images is not None and fit is None and not getattr(part.source, "files", None):
        return 0
    height, width = kept_size(part, fit) or (0, 0)
    return len(part) * part.channels * height * width


def kept(part: Opened, fit: Fit | None, fit_key: str) -> Kept:
    """A part decoded into memory; of files once for all runs and processes, by way of a file in the user's cache.

    Args:
        fit_key: says what `fit` does, for the name of that file.
    """
    paths = file_paths(part) if getattr(part.source, "plain_files", False) else None
    size = kept_size(part, fit)
    if paths is None or size is None:
        return Kept(gather(part, fit))
    shape = (len(part), part.channels, *size)
    content = file_contents(paths, images=True)
    key = hashlib.sha256(f"{FORMAT} {content} {shape} {fit_key}".encode()).hexdigest()
    path = cache.folder() / "decoded" / key
    differ = path.with_suffix(".differ")  # what an earlier run found out, decoding perhaps all of them
    try:
        if differ.exists():
            raise SizesDifferError(differ.read_text(encoding="utf-8", errors="replace"))
        return Kept(cache.mapped(_made(path, part, fit, shape), shape), path)
    except SizesDifferError as error:
        with contextlib.suppress(OSError):
            differ.write_text(str(error), encoding="utf-8")
        raise
    except OSError as error:
        log.warning(f"{part.name}: decoded again in every run, since {path.parent} cannot hold it: {error}")
        return Kept(gather(part, fit))


def _made(path: Path, part: Opened, fit: Fit | None, shape: tuple[int, ...]) -> Path:
    if path.exists() and path.stat().st_size != math.prod(shape):
        path.unlink()
    if not path.exists():
        log.info(f"{part.name}: decoding {len(part)} images, {math.prod(shape) / 2**20:.0f} MB, once for all runs")
    return cache.made_once(path, lambda new: gather(part, fit, out=new))
