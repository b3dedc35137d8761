"""An entry of the ledger as numbers: which jobs are seeds of one another, and what spread they have."""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchlite.errors import UserError
from torchlite.reproduce.records import Past
from torchlite.reproduce.verdict import Spread, sampling_spread

CONFIDENCE = 0.95  # that all jobs of an entry fall within their spreads when nothing but chance differs
NOT_SHOWN = ("seed", "name", "data_dir", "data.root", "dry_run", "resume", "fail_fast")  # of what tells groups apart


def groups(runs: Sequence[Past]) -> list[dict[str, Any]]:
    """The runs by what was typed besides the seed, each with mean, standard deviation and spread of its score."""
    by_words: dict[str, list[Past]] = {}
    for past in runs:
        by_words.setdefault(words(past), []).append(past)
    return [_group(typed, members, len(runs)) for typed, members in by_words.items()]


def words(past: Past) -> str:
    """What was typed, less what does not tell one job's results from another's."""
    typed = [word for word in past.facts["overrides"] if word.lstrip("+~").partition("=")[0] not in NOT_SHOWN]
    return " ".join(typed)


def _group(typed: str, members: list[Past], num_jobs: int) -> dict[str, Any]:
    scores = [past.scores[past.metric] for past in members]
    monitor = members[0].facts["config"]["trainer"]["monitor"]
    mean = statistics.fmean(scores)
    deviation = statistics.stdev(scores) if len(scores) > 1 else None
    spread = _predicted(mean, deviation, members, num_jobs) if deviation is not None else sampling_spread(members[0])
    return {
        "words": typed,
        "jobs": [past.directory.name for past in members],
        "seeds": [past.facts["config"]["seed"] for past in members],
        "mean": mean,
        "standard_deviation": deviation,
        "spread": None if spread is None else [spread.low, spread.high, spread.of],
        "val": statistics.fmean(past.result["best"].get(monitor, math.nan) for past in members),
        "seconds": statistics.fmean(past.result["seconds"] for past in members),
    }


def _predicted(mean: float, deviation: float, members: list[Past], num_jobs: int) -> Spread:
    """Where one more seed is to be expected, by Student's t; wide enough that all jobs together are within it at 95 %."""
    try:
        from scipy.stats import t
    except ImportError as error:
        raise UserError("the spread of seeds needs scipy: pip install 'torchlite[ledger]'") from error
    count = len(members)
    half = t.ppf(1 - (1 - CONFIDENCE) / (2 * num_jobs), count - 1) * deviation * math.sqrt(1 + 1 / count)
    split = members[0].facts["data"].get("split") or {}
    images = split.get(members[0].metric.partition("/")[0])
    half = max(half, 1 / images if images else 0.0)  # seeds that happen to agree
    return Spread(mean - half, mean + half, f"where one more of the {count} seeds is expected, {mean:.4f} ± {half:.4f}")


def spread(past: Past) -> Spread | None:
    """The published spread for a job of an entry; None where the entry says nothing."""
    for group in load(past.directory.parents[1])["groups"]:
        if past.directory.name in group["jobs"] and group["spread"] is not None:
            low, high, of = group["spread"]
            return Spread(float(low), float(high), str(of))
    return None


def load(directory: Path) -> dict[str, Any]:
    """entry.json of an entry. Raises UserError for one that cannot be read."""
    path = directory / "entry.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not all(isinstance(group["jobs"], list) for group in found["groups"]):
            raise ValueError("a group without jobs")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error}); publish the entry again.") from error
    return dict(found)
