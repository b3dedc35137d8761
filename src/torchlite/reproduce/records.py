"""A run as its record tells it. Whoever wrote the record is a stranger: what names a file or a program is judged here."""

import functools
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchlite.errors import UserError
from torchlite.naming import GROUPS
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
HEX, WORD = re.compile(r"[0-9a-f]{1,128}"), re.compile(r"[\x20-\x7e]{1,200}")
NUMBER = (int, float, None)
SCORES = ({str: NUMBER}, None)
# What is read of a record, as `has_shape` understands it; a key that ends in ? may be missing, one follows those it is in
RUN: dict[str, Any] = {
    "config": dict,
    **{f"config.{group}": dict for group in GROUPS},
    "config.callbacks": {str: (dict, None)},
    "config.data_dir": str,
    "config.seed": int,
    "config.trainer.monitor": WORD,
    "options": dict,
    "overrides": [str],
    "command?": (str, None),
    "choices": dict,
    "choices.num_threads": int,
    "choices.device?": (WORD, None),
    "code": dict,
    "code.modules?": {str: dict},
    "code.not_recorded?": ([str], None),
    "data": dict,
    "data.fingerprint?": (HEX, None),
    "data.split?": (dict, None),
    **{f"data.split.{part}?": int for part in ("train", "val", "test")},
    "data.classes?": (list, None),
    "data.data_dir?": (str, None),
    "data.root?": (str, None),
    "packages": {str: (str, None)},
    "hardware": dict,
    "hardware.gpus?": [str],
}
RESULT: dict[str, Any] = {"status": WORD, "best?": SCORES, "last?": SCORES, "test?": SCORES, "updates?": int}
RESULT |= {"seconds?": (int, float), "not_deterministic?": [str], "micro_batch_size?": (int, None)}
DIGEST: dict[str, Any] = {"update": int, "every?": int, "ids?": HEX, "targets?": HEX, "images?": HEX, "weights?": HEX}
DIGEST |= {"loss?": NUMBER, "grad_norm?": NUMBER, "lr?": NUMBER}


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
        names = self.facts["code"].get("modules", {})
        return {name: _text(plain_file(self.directory / "modules" / f"{name}.py")) for name in names}

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
    def every(self) -> int:
        """Every how many updates one is digested."""
        return max(1, self.digests.get(0, {}).get("every", 1))

    @property
    def fingerprint(self) -> str | None:
        """Of the data's content."""
        return self.facts["data"].get("fingerprint")

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


def without_record(where: str) -> list[str]:
    """The jobs of a sweep that got no record: they failed while they were built, or never began."""
    path = Path(where, "sweep.json")
    if not path.is_file():
        return []
    plan = read_json(plain_file(path))
    check_shape(path, plan, {"jobs": [dict]})
    for number, job in enumerate(plan["jobs"]):
        check_shape(path, job, {"directory": str}, f"jobs[{number}].")
    names = [job["directory"] for job in plan["jobs"]]
    return [name for name in names if not (path.parent / Path(name).name / "run.json").is_file()]


def read(directory: Path) -> Past:
    """The record in a run directory. Raises UserError, naming file and key, for one that is damaged or not what it claims."""
    path = plain_file(directory / "run.json")
    facts, result = read_json(path), read_json(plain_file(directory / "result.json"))
    check_shape(path, facts, RUN)
    check_shape(directory / "result.json", result, RESULT)
    for key, pattern in WORDS.items():
        if not isinstance(facts.get(key), str) or not pattern.fullmatch(facts[key]):
            raise UserError(f"{path}: {key}={facts.get(key)!r} is no {key} that torchlite writes; refused.")
    code = facts["code"]
    if code.get("commit") is not None and not has_shape(code["commit"], COMMIT):
        raise UserError(f"{path}: code.commit={code['commit']!r} is no commit; refused.")
    for name, module in code.get("modules", {}).items():
        if not MODULE.fullmatch(name):
            raise UserError(f"{path}: code.modules names {name!r}, which is no module; refused.")
        check_shape(path, module, {"sha256": str}, f"code.modules.{name}.")
    if (directory / "modules").is_symlink():
        raise UserError(f"{directory / 'modules'} is a link; a run cannot be repeated from that.")
    for name in ("source.patch", "metrics.jsonl", "digests.jsonl"):
        plain_file(directory / name, may_be_missing=True)
    past = Past(directory, facts, result)
    for number, line in enumerate(_lines(directory / "digests.jsonl"), 1):
        check_shape(directory / "digests.jsonl", line, DIGEST, f"line {number}: ")
    for number, line in enumerate(past.metrics, 1):
        if not has_shape(line, {str: NUMBER}):
            raise UserError(
                f"{directory / 'metrics.jsonl'}: line {number} holds what is no number: the file is damaged."
            )
    _ = past.modules
    return past


def check_shape(path: Path, value: dict[str, Any], shapes: dict[str, Any], within: str = "") -> None:
    """Raise UserError, naming file and key, where an object has not the shape that is written."""
    for key, shape in shapes.items():
        *parents, last = key.removesuffix("?").split(".")
        holder = functools.reduce(lambda node, name: node.get(name) or {}, parents, value)
        if last not in holder:
            if key.endswith("?"):
                continue
            raise UserError(f"{path}: {within}{key} is missing, so the run cannot be repeated.")
        if not has_shape(holder[last], shape):
            found = json.dumps(holder[last])
            shown = found if len(found) <= 40 else f"{found[:40]}…"
            raise UserError(
                f"{path}: {within}{key.removesuffix('?')} is damaged ({shown}), so the run cannot be repeated."
            )


def has_shape(value: Any, shape: Any) -> bool:
    """Whether a value of JSON is of a type, None, a pattern's text, `[…]` of such, `{str: …}` to such, or one of a tuple."""
    if isinstance(shape, tuple):
        return any(has_shape(value, one) for one in shape)
    if isinstance(shape, list):
        return isinstance(value, list) and all(has_shape(item, shape[0]) for item in value)
    if isinstance(shape, dict):
        whole = isinstance(value, dict) and all(name.isprintable() for name in value)
        return whole and all(has_shape(item, shape[str]) for item in value.values())
    if isinstance(shape, re.Pattern):
        return isinstance(value, str) and shape.fullmatch(value) is not None
    return value is None if shape is None else isinstance(value, shape) and not isinstance(value, bool)


def plain_file(path: Path, may_be_missing: bool = False) -> Path:
    """The path of a file that can be read whole, not of a link that leads to something else."""
    if path.is_symlink() or not (path.is_file() or may_be_missing and not path.exists()):
        raise UserError(
            f"{path} is {'a link' if path.is_symlink() else 'missing'}; a run cannot be repeated from that."
        )
    if path.exists() and path.stat().st_size > LARGEST[path.suffix] * 2**20:
        raise UserError(f"{path} is larger than {LARGEST[path.suffix]} MB, as no record's is; refused.")
    return path


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from error


def _parsed(path: Path, text: str, where: str = "") -> Any:
    """What a text of JSON says; numbers that JSON does not have are null, as everywhere in a record."""
    try:
        return json.loads(text, parse_constant=lambda _: None, parse_int=_int)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}{where} cannot be read: {error}.") from error


def _int(digits: str) -> int | None:
    """The number, but for one that no float could hold, which is none that torchlite writes."""
    return int(digits) if len(digits) < 300 else None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file. Raises UserError for one that cannot be read."""
    value = _parsed(path, _text(path))
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
    lines = [_parsed(path, line, f", line {number},") for number, line in enumerate(_text(path).splitlines(), 1)]
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or not has_shape(line.get("update"), int) or line["update"] < 0:
            raise UserError(f"{path}: line {number} is no object with an `update`; this file is damaged.")
    return lines
