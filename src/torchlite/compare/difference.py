"""Two runs side by side: what differs in config, code, packages, hardware and data, and where their metrics part."""

import difflib
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torchlite.compare import curves, finding
from torchlite.compare.columns import ABSENT, flattened, shown
from torchlite.errors import UserError

PATCH_LINES = 30  # of the difference between two patches


def difference(one: str, other: str) -> dict[str, Any]:
    """`{"config": {key: [a, b]}, "code": …, "metrics": {…}}`: only what differs. Unfinished runs may be set side by side too.

    Raises UserError for a word that leads to no single run directory, or to one whose run.json cannot be read.
    """
    sides = [_directory(one), _directory(other)]
    facts = [_facts(side) for side in sides]

    def parted(*names: str) -> dict[str, list[Any]]:
        return _parted(*({name: fact.get(name) for name in names} for fact in facts))

    return {
        "runs": [str(side) for side in sides],
        "config": _parted(*(_mapping(fact, "config") for fact in facts)),
        "chosen at run time": _parted(*(_mapping(fact, "choices") for fact in facts)),
        "code": _parted(*(_mapping(fact, "code") for fact in facts)) | _patches(*sides),
        "packages": _parted(*(_mapping(fact, "packages") for fact in facts)),
        "hardware": _parted(*(_mapping(fact, "hardware") for fact in facts)),
        "data": _parted(*(_mapping(fact, "data") for fact in facts)),
        "how it was started": parted("command", "working_directory"),
        "result": _parted(*(_result(side) for side in sides)),
        "metrics": _metrics(*sides),
    }


def _directory(word: str) -> Path:
    found, _ = finding.find([word])
    if len(found) != 1:
        raise UserError(f"--diff {word}: holds {len(found) or 'no'} runs; name one run directory.")
    return found[0]


def _facts(directory: Path) -> dict[str, Any]:
    try:
        facts = json.loads((directory / "run.json").read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or "it is not JSON"
        raise UserError(f"{directory}/run.json cannot be read: {reason}.") from error
    if not isinstance(facts, dict):
        raise UserError(f"{directory}/run.json holds no mapping.")
    return facts


def _mapping(facts: Mapping[str, Any], name: str) -> dict[str, Any]:
    part = facts.get(name)
    return part if isinstance(part, dict) else {}


def _parted(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, list[Any]]:
    """`{key: [a, b]}` where the flattened two differ; a missing key counts as "–"."""
    flat = flattened(one), flattened(other)
    keys = dict.fromkeys([*flat[0], *flat[1]])
    pairs = {key: [side.get(key, ABSENT) for side in flat] for key in keys}
    return {key: pair for key, pair in pairs.items() if shown(pair[0]) != shown(pair[1])}


def _result(directory: Path) -> dict[str, Any]:
    from torchlite.record import read_result

    result = read_result(directory)
    return {
        name: result[name] for name in ("status", "best", "test", "updates", "weights", "failure") if name in result
    }


def _patches(one: Path, other: Path) -> dict[str, list[str]]:
    """The uncommitted changes, when they differ: their hashes, and the lines that are in one alone."""
    texts = []
    for side in (one, other):
        path = side / "source.patch"
        texts.append(path.read_text(encoding="utf-8", errors="replace") if path.is_file() else "")
    if texts[0] == texts[1]:
        return {}
    hashes = [hashlib.sha256(text.encode()).hexdigest()[:12] if text else "none" for text in texts]
    changed = difflib.unified_diff(texts[0].splitlines(), texts[1].splitlines(), "A", "B", lineterm="", n=0)
    lines = [line for line in changed if not line.startswith(("---", "+++", "@@"))]
    if len(lines) > PATCH_LINES:
        lines = [*lines[:PATCH_LINES], f"… and {len(lines) - PATCH_LINES} lines more"]
    return {"source.patch": hashes, "lines of source.patch in A (-) or B (+)": lines}


def _metrics(one: Path, other: Path) -> dict[str, Any]:
    """Where metrics.jsonl part: the first update, by what, and how far they agree before. Durations are not compared."""
    sides = [_points(one), _points(other)]
    common = [point for point in sides[0] if point in sides[1]]
    if not common:
        why = "one has no metrics" if not all(sides) else "they were never logged at the same update"
        return {"verdict": f"nothing to compare: {why}"}
    unequal = [point for point in common if sides[0][point] != sides[1][point]]  # None, not NaN: equal to itself
    found: dict[str, Any] = {"compared": len(common)}
    if not unequal:
        ends = [max(update for update, _ in side) for side in sides]
        longer = "" if ends[0] == ends[1] else f"; A ends at update {ends[0]:g}, B at {ends[1]:g}"
        return found | {"verdict": f"equal wherever both were logged, up to update {min(ends):g}{longer}"}
    update = min(update for update, _ in unequal)
    before = [u for u, _ in common if u < update]
    values = {n: [sides[0][u, n], sides[1][u, n]] for u, n in unequal if u == update}
    until = f"equal up to update {max(before):g}" if before else "nothing was logged before"
    verdict = f"they part at update {update:g}, the first that was logged and differs ({until})"
    return found | {"first_update": int(update), "values": values, "verdict": verdict}


def _points(directory: Path) -> dict[tuple[float, str], float | None]:
    """Every number by update and name, None where it was not finite."""
    points = {}
    for line in curves.lines(directory):
        for name, value in line.items():
            if name != "update" and not name.startswith(curves.TIMES):
                points[line["update"], name] = value if math.isfinite(value) else None
    return points


def as_text(found: Mapping[str, Any]) -> str:
    """The difference for people, a line each; A is the first run."""
    one, other = found["runs"]
    text = [f"A  {shown(one)}", f"B  {shown(other)}"]
    same = []
    for title, part in found.items():
        if title in ("runs", "metrics"):
            continue
        if not part:
            same.append(title)
            continue
        text += ["", title]
        for key, pair in part.items():
            if key.startswith("lines of"):
                text += [f"  {key}", *(f"    {shown(line)}" for line in pair)]
            else:
                text.append(f"  {shown(key)}: {_value(pair[0])} | {_value(pair[1])}")
    metrics = found["metrics"]
    text += ["", "metrics", f"  {metrics['verdict']}"]
    for name, (a, b) in metrics.get("values", {}).items():
        by = "" if a is None or b is None else f"  ({b - a:+.2g})"
        text.append(f"  {shown(name)}: {' | '.join('not finite' if v is None else repr(v) for v in (a, b))}{by}")
    if same:
        text += ["", f"the same: {', '.join(same)}"]
    return "\n".join(text) + "\n"


def _value(value: Any, most: int = 100) -> str:
    text = shown(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"
