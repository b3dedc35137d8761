"""An entry of the ledger as numbers: which jobs are seeds of one another, and what spread they have."""

import math
import re
import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchlite.errors import UserError
from torchlite.reproduce.records import Past, check_shape, plain_file, read_json
from torchlite.reproduce.verdict import Spread, is_share, num_scored, sampling_spread

CONFIDENCE = 0.95  # that all jobs of an entry fall within their spreads when nothing but chance differs
MOST_DEVIATIONS = 5.0  # that a score is as good within; for two seeds Student's t says 31, in which anything is
PLAIN = re.compile(r"[\w@%+=:,./\[\]-]+")  # a word that every shell takes as it is, or says that it does not
NOT_SHOWN = ("seed", "name", "data_dir", "data.root", "dry_run", "resume", "fail_fast")  # of what tells groups apart


def groups(runs: Sequence[Past]) -> list[dict[str, Any]]:
    """The runs by what was typed besides the seed, each with mean, standard deviation and spread of its score."""
    by_words: dict[str, list[Past]] = {}
    for past in runs:
        by_words.setdefault(words(past), []).append(past)
    settings: dict[str, list[list[float]]] = {}
    for members in by_words.values():
        settings.setdefault(members[0].metric, []).append(_scores(members))
    pooled = {metric: _pooled(scores) for metric, scores in settings.items()}
    return [_group(typed, members, *pooled[members[0].metric], len(runs)) for typed, members in by_words.items()]


def _scores(members: Sequence[Past]) -> list[float]:
    return [past.scores[past.metric] for past in members]


def _pooled(settings: Sequence[Sequence[float]]) -> tuple[float, float, int]:
    """The standard deviation of seeds over all settings, their median, and the degrees of freedom; of single seeds zeros."""
    several = [scores for scores in settings if len(scores) > 1]
    freedom = sum(len(scores) - 1 for scores in several)
    if not freedom:
        return 0.0, 0.0, 0
    squares = sum((score - statistics.fmean(scores)) ** 2 for scores in several for score in scores)
    return math.sqrt(squares / freedom), statistics.median_low(map(statistics.stdev, several)), freedom


def words(past: Past) -> str:
    """What was typed, as a shell takes it, less what does not tell one job's results from another's."""
    typed = [word for word in past.facts["overrides"] if word.lstrip("+~").partition("=")[0] not in NOT_SHOWN]
    return " ".join(word if PLAIN.fullmatch(word) else shlex.quote(word) for word in typed)


def _group(typed: str, members: list[Past], pooled: float, usual: float, freedom: int, num_jobs: int) -> dict[str, Any]:
    scores = _scores(members)
    monitor = members[0].facts["config"]["trainer"]["monitor"]
    spread = _predicted(members, pooled, usual, freedom, num_jobs) if freedom else sampling_spread(members[0])
    return {
        "words": typed,
        "jobs": [past.directory.name for past in members],
        "seeds": [past.facts["config"]["seed"] for past in members],
        "mean": statistics.fmean(scores),
        "standard_deviation": statistics.stdev(scores) if len(scores) > 1 else None,
        "spread": None if spread is None else [spread.low, spread.high, spread.of],
        "val": None
        if None in (best := [past.result["best"].get(monitor) for past in members])
        else statistics.fmean(best),
        "seconds": statistics.fmean(past.result["seconds"] for past in members),
    }


def _predicted(members: list[Past], pooled: float, usual: float, freedom: int, num_jobs: int) -> Spread:
    """Where one more seed of a setting is to be expected; wide enough for its own seeds, and for all jobs together at 95 %.

    Args:
        pooled, usual: the deviation over all settings, and the median one: a setting that diverged makes no other's wide.
    """
    try:
        from scipy.stats import t
    except ImportError as error:
        raise UserError("the spread of seeds needs scipy; in the clone: pip install -e '.[ledger]'") from error
    scores, metric = _scores(members), members[0].metric
    mean, count = statistics.fmean(scores), len(scores)
    half = t.ppf(1 - (1 - CONFIDENCE) / (2 * num_jobs), freedom) * pooled * math.sqrt(1 + 1 / count)
    half = min(float(half), MOST_DEVIATIONS * min(pooled, usual or pooled))
    images = num_scored(members[0])
    least = max(1 / images if images else 0.0, *(abs(score - mean) for score in scores))  # seeds that happen to agree
    half = max(half, least)
    low, high = mean - half, mean + half
    if all(is_share(metric, score) for score in scores):
        low, high = max(0.0, low), min(1.0, high)
    return Spread(low, high, f"where one more of the {count} seeds is expected, {mean:.4f} ± {half:.4f}")


def spread(past: Past) -> Spread | None:
    """The published spread for a run; None for one that is in no entry, or where its entry says nothing."""
    place = past.directory.resolve()
    folder = place.parent.parent
    if place.parent.name != "runs" or not (folder / "entry.json").is_file():
        return None
    for group in load(folder)["groups"]:
        if place.name in group["jobs"] and group["spread"] is not None:
            return Spread(*group["spread"])
    return None


def load(directory: Path) -> dict[str, Any]:
    """entry.json of an entry. Raises UserError, naming file and key, for one that is damaged."""
    path = directory / "entry.json"
    found = read_json(plain_file(path))
    check_shape(path, found, {"groups": [dict]})
    for number, group in enumerate(found["groups"]):
        check_shape(path, group, {"jobs": [str], "spread": (list, None)}, f"groups[{number}].")
        match group["spread"]:
            case None:
                continue
            case [int() | float(), int() | float(), str(text)] if text.isprintable():
                continue
        raise UserError(f"{path}: groups[{number}].spread is no [low, high, words]; publish the entry again.")
    return found
