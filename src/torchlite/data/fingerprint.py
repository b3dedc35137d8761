"""The identity of data by content; names, sizes and times of files only say whether it was computed before."""

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from torchlite.data import cache
from torchlite.data.cores import num_cores
from torchlite.data.decode import Opened
from torchlite.data.pixels import ROWS_AT_ONCE, BadFilesError, read, shown
from torchlite.data.seeds import own_seeds, reseed
from torchlite.errors import UserError

MOST_ITEMS = 1000  # read of a set that is neither files nor in memory
BLOCK = 1 << 20
MOST_PIXELS = 1 << 27  # of an image that is taken to be whole without being decoded; Pillow refuses some more
_COMPUTED: dict[str, str] = {}  # by this process, which asks again where the cache on the disk could not take it
# How the files begin that Pillow knows and that are seldom cut off unnoticed: GIF, BMP, TIFF, WebP, PNM
BEGINNINGS = (b"GIF8", b"BM", b"II*\0", b"MM\0*", b"RIFF", b"P1", b"P2", b"P3", b"P4", b"P5", b"P6")


class Fingerprint(NamedTuple):
    """A SHA-256 as hexadecimal digits, and what it was taken of: "files", "pixels", or "1000 items"."""

    digest: str
    of: str


def fingerprint(part: Opened) -> Fingerprint:
    """The identity of one part: of its labels, and of its files, its array of pixels, or, without either, some of its items.

    It is the same whether the part is kept in memory or not, which depends on how much is free.

    Raises:
        BadFilesError: files that are cut off or no images.
    """
    digest = hashlib.sha256()
    paths = file_paths(part)
    if paths is not None:
        of = "files"
        digest.update(file_contents(paths, images=not getattr(part.source, "files", None)).encode())
    elif part.images is not None:
        of = "pixels"
        digest.update(f"{list(part.images.shape)}\n".encode())
        for images in part.images.split(ROWS_AT_ONCE):
            digest.update(images.contiguous().numpy().data)
    else:
        ids = sorted({index * len(part) // MOST_ITEMS for index in range(MOST_ITEMS)} & set(range(len(part))))
        of = f"{len(ids)} items"
        for image in _items(part, ids):
            digest.update(f"{list(image.shape)}\n".encode() + image.contiguous().numpy().tobytes())
    digest.update(part.targets.numpy().data)
    return Fingerprint(digest.hexdigest(), of)


def together(parts: dict[str, Fingerprint]) -> str:
    """One SHA-256 of those of all parts."""
    return hashlib.sha256(json.dumps({name: part.digest for name, part in parts.items()}).encode()).hexdigest()


def _items(part: Opened, ids: Sequence[int]) -> Iterator[Tensor]:
    with own_seeds():
        for index in ids:
            reseed(index)
            yield part.read(index)


def file_paths(part: Opened) -> list[tuple[str, str]] | None:
    """(name that counts, path) of each file of a part, or None where it is not made of files."""
    source: Any = part.source
    if getattr(source, "files", None):
        return [("", path) for path in source.files]
    if getattr(source, "plain_files", False):
        return [(shown(os.fsdecode(bytes(source.names[i]))), source.path(i)) for i in range(len(source))]
    samples, root = getattr(source, "samples", None), getattr(source, "root", None)
    if not isinstance(samples, list) or len(samples) != len(part) or not isinstance(root, str | os.PathLike):
        return None
    if not all(isinstance(entry, tuple) and isinstance(entry[0], str) for entry in samples):
        return None
    return [(shown(os.path.relpath(entry[0], root)), entry[0]) for entry in samples]  # torchvision's ImageFolder


def check_files(parts: Mapping[str, Opened]) -> None:
    """Raise BadFilesError with the image files of all parts that are cut off, are no images or cannot be opened."""
    problems = []
    for part in parts.values():
        paths = file_paths(part)
        if paths is not None and not getattr(part.source, "files", None):
            try:
                file_contents(paths, images=True)
            except BadFilesError as error:
                problems += error.problems
    if problems:
        raise BadFilesError(problems)


def file_contents(paths: Sequence[tuple[str, str]], images: bool) -> str:
    """SHA-256 of names and contents. Computed once: found again by path, size and times, in the user's cache.

    Args:
        images: the files are images, and those that are none, or cut off, raise BadFilesError.
    """
    known, gone = hashlib.sha256(), []
    for name, path in paths:
        try:
            status = os.stat(path)
        except OSError as error:
            gone.append(f"{shown(path)} cannot be read: {error.strerror}.")
            continue
        key = (name, shown(os.path.abspath(path)), status.st_size, status.st_mtime_ns, status.st_ctime_ns, images)
        known.update(repr(key).encode())
    if gone:
        raise BadFilesError(gone)
    place = cache.folder() / "fingerprints" / known.hexdigest()
    found = _COMPUTED.get(known.hexdigest()) or _stored(place)
    if found is not None:
        return found
    digest, bad = hashlib.sha256(), []
    for (name, _), (content, problem) in zip(paths, _hashed([path for _, path in paths], images), strict=True):
        digest.update(f"{name}\n{content}\n".encode())
        if problem:
            bad.append(problem)
    if bad:
        raise BadFilesError(bad)
    _COMPUTED[known.hexdigest()] = digest.hexdigest()
    _store(place, digest.hexdigest())
    return digest.hexdigest()


def _hashed(paths: Sequence[str], images: bool) -> Iterator[tuple[str, str]]:
    """(SHA-256, what is wrong) of each file, in order."""

    def one(path: str) -> tuple[str, str]:
        digest = hashlib.sha256()
        try:
            with open(path, "rb") as file:
                content = block = file.read(BLOCK if not images else -1)
                while block:
                    digest.update(block)
                    block = b"" if images else file.read(BLOCK)
        except OSError as error:
            return "", f"{shown(path)} cannot be read: {error.strerror}."
        return digest.hexdigest(), "" if not images or _looks_whole(content) else _problem(content, shown(path))

    with ThreadPoolExecutor(num_cores()) as pool:
        for first in range(0, len(paths), ROWS_AT_ONCE):
            yield from pool.map(one, paths[first : first + ROWS_AT_ONCE])


def _looks_whole(content: bytes) -> bool:
    """Whether an image file begins and ends as it should; decoding only the others costs next to nothing."""
    if content[:2] == b"\xff\xd8":
        return b"\xff\xd9" in content[-64:]
    if content[:8] == b"\x89PNG\r\n\x1a\n":
        pixels = int.from_bytes(content[16:20], "big") * int.from_bytes(content[20:24], "big")
        return b"IEND" in content[-64:] and 0 < pixels < MOST_PIXELS
    return content.startswith(BEGINNINGS)


def _problem(content: bytes, where: str) -> str:
    try:
        read(content, where)
    except UserError as error:
        return str(error)
    return ""


def _stored(place: Path) -> str | None:
    try:
        text = place.read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    return text if re.fullmatch("[0-9a-f]{64}", text) else None


def _store(place: Path, text: str) -> None:
    aside = place.with_name(f"{place.name}.{os.getpid()}")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text)
        aside.rename(place)
    except OSError:  # no place for a cache: it is computed again next time
        pass
