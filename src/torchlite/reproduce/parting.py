"""The first thing in which two records differ: from which update on, in what, and where to look."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from torchlite.reproduce.records import Past

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
OF_THE_UPDATE_ALONE = ("ids", "targets", "images", "lr")  # whatever the weights are
ROUNDING = 1e-4  # relative; more is no matter of rounding within a few updates
MISSING = "not there"


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
        gap = self.since is not None and self.since < self.update - 1
        where = f"between update {self.since} and {self.update}" if gap else f"at update {self.update}"
        size = relative(self.was, self.now)
        by = "" if size is None else f", by {size:.1e} of it" + (": rounding" if size < ROUNDING else "")
        was, now = ("not finite" if value is None else value for value in (self.was, self.now))
        return f"{where}: {self.quantity} was {was}, is {now}{by}. Look at {self.stage}."


def first_digest(past: Past, new: Past, updates: int | None) -> Parting | None:
    """The first difference in digests.jsonl, in the order in which things are computed."""
    if not new.digests:
        return None
    since: int | None = None
    settled: int | None = None  # the last update after which the weights are known to be the same
    end = max(new.digests)
    for update in sorted(past.digests):
        if updates is not None and update > updates:
            break
        if update > end and updates is None:
            return _other_length(update, "trained", "not reached", since)
        then, now = past.digests[update], new.digests.get(update)
        if now is None:  # the two may not digest the same ones
            continue
        equal: set[str] = set()
        for quantity in STAGES:
            if quantity not in then or quantity not in now:
                continue
            if then[quantity] != now[quantity]:
                stage = _stage(quantity, update, since, settled, equal)
                return Parting(update, quantity, then[quantity], now[quantity], since, stage)
            equal.add(quantity)
        if equal:
            since = update
        settled = update if "weights" in equal else settled
    was, now_made = past.result.get("updates"), new.result.get("updates")
    if updates is None and was is not None and now_made is not None and was != now_made:
        longer = ("trained", "not reached") if was > now_made else ("not reached", "trained")
        return _other_length(min(was, now_made) + 1, *longer, since)
    return None


def _other_length(update: int, was: str, now: str, since: int | None) -> Parting:
    stage = "the number of samples, batches or epochs, or what stops early"
    return Parting(update, "length", was, now, since, stage)


def _stage(quantity: str, update: int, since: int | None, settled: int | None, equal: Collection[str]) -> str:
    """What makes a quantity that differs, in words that hold for all updates in which it may have begun.

    Args:
        settled: the last update after which the weights are known to be the same.
        equal: the quantities of this update that are the same.
    """
    if quantity == "weights" and update == 0:
        return "how the weights begin: the model, its initialization, the seed"
    if quantity in OF_THE_UPDATE_ALONE or settled == update - 1 or "loss" in equal:
        return STAGES[quantity]
    if quantity == "loss" and since == update - 1:
        return f"the optimizer's step in update {since}, if the forward pass and the loss are the same"
    # The step of the last that is the same may differ
    first = 1 if since is None else max(1, since + (settled == since))
    return (
        f"all that updates {first} to {update} do, as not each is digested: inputs, forward, backward, optimizer's step"
    )


def first_metric(past: Past, new: Past) -> Parting | None:
    """The first number of metrics.jsonl that differs, where all the digests are the same."""
    now = {key(line): line for line in new.metrics}
    for line in past.metrics:
        if key(line) not in now:
            return Parting(
                line["update"], "a line of metrics.jsonl", "there", MISSING, None, "what is logged, and how often"
            )
        other = now[key(line)]
        for name, value in line.items():
            if value != other.get(name, MISSING):
                stage = "the scoring" if "val/" in name else "what is averaged for the log"
                return Parting(line["update"], name, value, other.get(name, MISSING), None, stage)
    return None


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    """Which of several lines about one update: those that hold the same scores belong together."""
    return (line["update"], "update/loss" in line, "train/loss" in line)


def first_score(past: Past, new: Past) -> Parting | None:
    """The first of the final scores that differs."""
    for part in ("best", "last", "test"):
        then, now = past.result.get(part) or {}, new.result.get(part) or {}
        for name, value in then.items():
            if value != now.get(name, MISSING):
                update = int((past.result.get("best") or {}).get("update") or 0)
                return Parting(update, name, value, now.get(name, MISSING), None, f"the {part} score")
    return None


def relative(was: Any, now: Any) -> float | None:
    """How far two numbers are apart, of the larger one; None for what is no number."""
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in (was, now)):
        return None
    return abs(was - now) / (max(abs(was), abs(now)) or 1.0)
