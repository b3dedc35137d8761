"""Run directories found below whatever was named."""

import difflib
import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchlite.compare.columns import Value
from torchlite.errors import UserError

NO_RUNS_IN = {"checkpoints", "tensorboard", "modules", "__pycache__"}
SIGNS_OF_A_RUN = {"result.json", "metrics.jsonl", "config.yaml", ".lock"}  # where no runs lie below


@dataclass(frozen=True, eq=False)
class Told:
    """What a run was told, whatever became of it."""

    setting: str  # identity of its config without the seed: equal for two runs of one setting
    seed: str
    values: dict[str, Value]  # what was chosen, by the words one types, and where it ran


@dataclass(frozen=True)
class Unfit:
    """A directory that cannot be compared, and why, in one line."""

    directory: Path
    reason: str
    told: Told | None = None  # where it has only not finished, and what it was told is known


def find(words: Sequence[str]) -> tuple[list[Path], list[Unfit]]:
    """All run directories below what was named (paths, globs, names of sweeps or ledger entries), each once; and what is none.

    Raises UserError for a word that leads nowhere.
    """
    seen: set[tuple[int, int]] = set()
    found = [one for word in words for path in _paths(word) for one in _below(path, seen)]
    runs = [one for one in found if isinstance(one, Path)]
    return sorted(runs, key=natural), [one for one in found if isinstance(one, Unfit)]


def _paths(word: str) -> list[Path]:
    path = Path(word)
    if os.path.lexists(path):
        return [path]
    for place in ("outputs", "experiments"):
        if word.strip("./") and not path.is_absolute() and Path(place, word).is_dir():
            return [Path(place, word)]
    if glob.has_magic(word):
        matches = [Path(match) for match in sorted(glob.glob(word, recursive=True))]
        if matches:
            return matches
        raise UserError(f"{word}: nothing matches this pattern.")
    near = [*_names(path.parent), *_names(Path("outputs")), *_names(Path("experiments"))]
    close = difflib.get_close_matches(path.name, near, 1)
    raise UserError(f"{word}: there is no such directory." + (f" Did you mean {close[0]}?" if close else ""))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _below(path: Path, seen: set[tuple[int, int]]) -> Iterator[Path | Unfit]:
    """Run directories in `path`, itself included; directories that lead to none are named. Each once."""
    try:
        if not path.is_dir():
            yield Unfit(path, "is no directory; name run directories, sweeps or ledger entries")
            return
        status = path.stat()
        if (status.st_dev, status.st_ino) in seen:
            return
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(path) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        yield Unfit(path, f"cannot be read: {error.strerror}")
        return
    names = {entry.name for entry in entries}
    if "run.json" in names:
        yield path
        return
    folders = [e.path for e in entries if e.name not in NO_RUNS_IN and not e.name.startswith(".") and e.is_dir()]
    below = [found for folder in folders for found in _below(Path(folder), seen)]
    is_job = not entries and (path.parent / "sweep.json").is_file()  # of a sweep that did not come to it
    if is_job or (names & SIGNS_OF_A_RUN and not any(isinstance(found, Path) for found in below)):
        yield path
    elif not folders:
        yield Unfit(path, "holds no run.json and no result.json, so it is no run")
    else:
        yield from below


def natural(name: object) -> list[tuple[int, str]]:
    """Sorts seed-9 before seed-10."""
    parts = re.split(r"([0-9]+)", str(name))
    return [(int(part), "") if place % 2 else (-1, part) for place, part in enumerate(parts)]
