"""Is the repetition the same run? Where it is not: from which update on, in what, and is the result as good all the same?"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from torchlite.reproduce.records import Past

IDENTICAL, EQUIVALENT, DIFFERENT = "identical", "equivalent", "different"
# In the order in which an update makes them; what differs first is where to look
STAGES = {
    "ids": "the order of the samples",
    "targets": "the labels, or how samples are mixed",
    "images": "the images: decoding, augmentation or normalization",
    "loss": "the forward pass or the loss",
    "grad_norm": "the backward pass",
    "lr": "the schedule of the learning rate",
    "weights": "the optimizer's step: its arguments, clipping, or what it does",
}
ROUNDING = 1e-4  # relative; more is no matter of rounding within a few updates


@dataclass(frozen=True)
class Parting:
    """The first thing that differs."""

    update: int
    quantity: str  # a key of STAGES, or a score of metrics.jsonl or result.json
    was: Any
    now: Any
    since: int | None  # the last update known to be the same; None where none is
    stage: str  # what makes that quantity, in words

    def __str__(self) -> str:
        gap = (
            "" if self.since is None or self.since >= self.update - 1 else f" (nothing is recorded after {self.since})"
        )
        size = relative(self.was, self.now)
        by = "" if size is None else f", by {size:.1e} of it" + (": rounding" if size < ROUNDING else "")
        return f"update {self.update}{gap}: {self.quantity} was {self.was}, is {self.now}{by}. Look at {self.stage}."


@dataclass(frozen=True)
class Spread:
    """Where a repetition's score is as good as the recorded one."""

    low: float
    high: float
    of: str  # in words


@dataclass(frozen=True)
class Verdict:
    """What `reproduce.py` says of one run."""

    verdict: str
    run: str
    parting: Parting | None
    metric: str
    was: float | None
    now: float | None
    spread: Spread | None
    compared: str  # in words
    updates: int  # digested in both
    repetition: str

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def judge(past: Past, new: Past, spread: Spread | None, updates: int | None = None) -> Verdict:
    """The verdict on a repetition.

    Args:
        spread: a final score within it is as good; None where nothing says.
        updates: only so many were run again, so that nothing is known of final scores.
    """
    parting = first_digest(past, new, updates)
    common = [update for update in past.digests if update in new.digests]
    if updates is None:
        parting = parting or first_metric(past, new) or first_score(past, new)
    was, now = past.scores.get(past.metric), new.scores.get(past.metric)
    whole = updates is None and was is not None and now is not None
    if parting is None and common:
        verdict = IDENTICAL
    elif parting is None and updates is None:
        verdict = EQUIVALENT  # every number of the metrics is the same, but weights and samples were not recorded
    elif whole and spread is not None and spread.low <= now <= spread.high:  # type: ignore[operator]
        verdict = EQUIVALENT
    else:
        verdict = DIFFERENT
    compared = "order of samples, inputs, losses, gradients, weights" if common else "metrics alone: it has no digests"
    if updates is not None:
        compared += f" of the first {updates} updates"
    else:
        compared += ", metrics" if common else ""
    return Verdict(
        verdict=verdict,
        run=str(past.directory),
        parting=parting,
        metric=past.metric,
        was=was,
        now=now if updates is None else None,
        spread=spread,
        compared=compared,
        updates=len(common),
        repetition=str(new.directory),
    )


def first_digest(past: Past, new: Past, updates: int | None) -> Parting | None:
    """The first difference in digests.jsonl, in the order in which things are computed."""
    last_same: int | None = None
    weights_known: int | None = None  # the last update after which the weights are known to be the same
    reached = max(new.digests, default=0)
    for update in sorted(past.digests):
        if updates is not None and update > updates:
            break
        if update > reached and updates is None:
            stage = "the number of samples, batches or epochs, or what stops early"
            return Parting(update, "length", "trained", "not reached", last_same, stage)
        then, now = past.digests[update], new.digests.get(update)
        if now is None:  # the two may not digest the same ones
            continue
        for quantity, stage in STAGES.items():
            if quantity in then and quantity in now and then[quantity] != now[quantity]:
                stage = _stage(quantity, update, stage, weights_known)
                return Parting(update, quantity, then[quantity], now[quantity], last_same, stage)
        last_same = update
        weights_known = update if "weights" in then and "weights" in now else weights_known
    return None


def _stage(quantity: str, update: int, stage: str, weights_known: int | None) -> str:
    if quantity == "weights" and update == 0:
        return "how the weights begin: the model, its initialization, the seed"
    if quantity == "loss" and weights_known != update - 1:
        return f"the optimizer's step in update {update - 1}, if the forward pass and the loss are the same"
    return stage


def first_metric(past: Past, new: Past) -> Parting | None:
    """The first number of metrics.jsonl that differs, where all the digests are the same."""
    now = {_key(line): line for line in new.metrics}
    for line in past.metrics:
        other = now.get(_key(line), {})
        for name, value in line.items():
            if value != other.get(name):
                stage = "the scoring" if "val/" in name else "what is averaged for the log"
                return Parting(line["update"], name, value, other.get(name), None, stage)
    return None


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    """Which of several lines about one update: those that hold the same scores belong together."""
    return (line["update"], "update/loss" in line, "train/loss" in line)


def first_score(past: Past, new: Past) -> Parting | None:
    """The first of the final scores that differs."""
    for part in ("best", "last", "test"):
        then, now = past.result.get(part) or {}, new.result.get(part) or {}
        for name, value in then.items():
            if value != now.get(name):
                update = int((past.result.get("best") or {}).get("update", 0))
                return Parting(update, name, value, now.get(name), None, f"the {part} score")
    return None


def relative(was: Any, now: Any) -> float | None:
    """How far two numbers are apart, of the larger one; None for what is no number."""
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in (was, now)):
        return None
    return abs(was - now) / (max(abs(was), abs(now)) or 1.0)


def sampling_spread(past: Past) -> Spread | None:
    """Where nothing is published, twice the standard error of an accuracy over the images it was taken of."""
    value, split = past.scores.get(past.metric), past.facts["data"].get("split") or {}
    count = split.get(past.metric.partition("/")[0])
    if value is None or not count or "acc" not in past.metric:
        return None
    half = 2 * math.sqrt(max(value * (1 - value), 1 / count) / count)
    return Spread(value - half, value + half, f"twice the standard error of an accuracy over {count} images")
