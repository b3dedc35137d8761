"""A run as its record tells it. Whoever wrote the record is a stranger: what names a file or a program is judged here."""

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchlite.config import GROUPS
from torchlite.errors import UserError
from torchlite.record import SINGLE_RUN

NEVER_EQUAL = ("seconds/epoch", "images_per_second", "seconds")  # durations
WORDS = {  # of run.json that become part of a path or of a command
    "name": re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,120}"),
    "identity": re.compile(r"[0-9a-f]{12}"),
}
LARGEST = {".json": 64, ".jsonl": 256, ".patch": 64, ".py": 4}  # MB of a file that is read whole
DEEPEST = 64  # objects and lists inside one another; a config has eight
COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclass(frozen=True)
class Past:
    """One run, read from its directory."""

    directory: Path
    facts: dict[str, Any]  # run.json
    result: dict[str, Any]  # result.json

    @property
    def commit(self) -> str | None:
        return self.facts["code"].get("commit")

    @functools.cached_property
    def patch(self) -> str:
        """The changes against the commit that the run was made with; empty for none."""
        path = self.directory / "source.patch"
        return path.read_text(encoding="utf-8", errors="surrogateescape") if path.exists() else ""

    @functools.cached_property
    def modules(self) -> dict[str, str]:
        """The text of each module of the user's own that came with the record, `{"nets": "import torch…"}`."""
        return {
            name: _plain_file(self.directory / "modules" / f"{name}.py").read_text(encoding="utf-8")
            for name in self.facts["code"].get("modules", {})
        }

    @functools.cached_property
    def metrics(self) -> list[dict[str, Any]]:
        """metrics.jsonl less the durations."""
        lines = _lines(self.directory / "metrics.jsonl")
        return [{name: value for name, value in line.items() if name not in NEVER_EQUAL} for line in lines]

    @functools.cached_property
    def digests(self) -> dict[int, dict[str, Any]]:
        """What digests.jsonl says of each update."""
        found: dict[int, dict[str, Any]] = {}
        for line in _lines(self.directory / "digests.jsonl"):
            found.setdefault(line["update"], {}).update(line)
        return found

    @property
    def metric(self) -> str:
        """The score that tells whether a repetition is as good: the monitored one on the test set, else on validation."""
        monitor = str(self.facts["config"]["trainer"]["monitor"])
        tested = f"test/{monitor.removeprefix('val/').removesuffix('_smooth')}"
        return tested if tested in self.scores else monitor

    @property
    def scores(self) -> dict[str, float]:
        """Test scores, and those of the best validation."""
        return {**(self.result.get("best") or {}), **(self.result.get("test") or {})}


def found(where: str) -> list[Path]:
    """The run directories that a word names: a run, a sweep, or an entry of the ledger. Raises UserError for none."""
    place = Path(where)
    for folder in (place, place / "runs"):
        if (folder / "run.json").is_file():
            return [folder]
        runs = sorted(path.parent for path in folder.glob("*/run.json"))
        jobs = [run for run in runs if not SINGLE_RUN.match(run.name)]
        if jobs or runs:
            return jobs or runs
    if not place.is_dir():
        raise UserError(f"{where}: there is no such directory; give a run, a sweep or an entry of experiments/.")
    raise UserError(f"{where} holds no run (no run.json).")


def read(directory: Path) -> Past:
    """The record in a run directory. Raises UserError, naming the key, for one that is damaged or not what it claims."""
    path = _plain_file(directory / "run.json")
    facts, result = _json(path), _json(_plain_file(directory / "result.json"))
    kinds = {"config": dict, "options": dict, "overrides": list, "choices": dict, "code": dict, "data": dict}
    kinds |= {"packages": dict, "hardware": dict}
    for key, kind in kinds.items():
        if not isinstance(facts.get(key), kind):
            raise UserError(f"{path}: {key} is missing or damaged, so the run cannot be repeated.")
    for key, pattern in WORDS.items():
        if not isinstance(facts.get(key), str) or not pattern.fullmatch(facts[key]):
            raise UserError(f"{path}: {key}={facts.get(key)!r} is no {key} that torchlite writes; refused.")
    code = facts["code"]
    if code.get("commit") is not None and not (isinstance(code["commit"], str) and COMMIT.fullmatch(code["commit"])):
        raise UserError(f"{path}: code.commit={code['commit']!r} is no commit; refused.")
    _check_config(path, facts)
    for name in code.get("modules", {}):
        if not MODULE.fullmatch(name):
            raise UserError(f"{path}: code.modules names {name!r}, which is no module; refused.")
    if (directory / "modules").is_symlink():
        raise UserError(f"{directory / 'modules'} is a link; a run cannot be repeated from that.")
    for name in ("source.patch", "metrics.jsonl", "digests.jsonl"):
        _plain_file(directory / name, may_be_missing=True)
    return Past(directory, facts, result)


def _check_config(path: Path, facts: dict[str, Any]) -> None:
    """Raise UserError for a config without the parts that every run has."""
    made = facts["config"]
    whole = all(isinstance(made.get(group), dict) for group in GROUPS) and isinstance(made.get("data_dir"), str)
    if not whole or "monitor" not in made["trainer"]:
        raise UserError(f"{path}: config is damaged: each of {', '.join(GROUPS)} and data_dir have to be there.")
    if not all(isinstance(word, str) for word in facts["overrides"]):
        raise UserError(f"{path}: overrides is damaged: a list of words is wanted.")
    if not isinstance(facts["choices"].get("num_threads"), int):
        raise UserError(f"{path}: choices.num_threads is missing, so the run cannot be repeated.")


def _plain_file(path: Path, may_be_missing: bool = False) -> Path:
    """The path of a file that can be read whole, not of a link that leads to something else."""
    if path.is_symlink() or not (path.is_file() or may_be_missing and not path.exists()):
        raise UserError(
            f"{path} is {'a link' if path.is_symlink() else 'missing'}; a run cannot be repeated from that."
        )
    if path.exists() and path.stat().st_size > LARGEST[path.suffix] * 2**20:
        raise UserError(f"{path} is larger than {LARGEST[path.suffix]} MB, as no record's is; refused.")
    return path


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} is no record.")
    if _is_deep(value):
        raise UserError(f"{path} holds objects inside one another, deeper than any record's; refused.")
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        nested = [outer for outer in level if isinstance(outer, dict | list)]
        level = [inner for outer in nested for inner in (outer.values() if isinstance(outer, dict) else outer)]
    return bool(level)


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from error
    if not all(isinstance(line, dict) and isinstance(line.get("update"), int) and not _is_deep(line) for line in lines):
        raise UserError(f"{path}: every line is an object with an `update`; this file is damaged.")
    return lines
