"""Is the repetition the same run? Where it is not: where do they part, and is the result as good all the same?"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchlite import scores
from torchlite.record import FINISHED
from torchlite.reproduce.evidence import common_updates, lacking
from torchlite.reproduce.parting import ROUNDING, STAGES, Parting, first_digest, first_metric, first_score, relative
from torchlite.reproduce.records import Past

IDENTICAL, EQUIVALENT, DIFFERENT, NOT_KNOWN = "identical", "equivalent", "different", "not known"
INPUTS = ("ids", "targets", "images")
DECODERS = ("pillow", "simplejpeg", "torchvision", "webdataset", "numpy")
COARSE = 100  # times less exact are numbers of 16 bits, and products in tf32
SMALL_LOSS = 0.1  # below it a loss is the difference of larger numbers, and so are its last digits


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
    why: str | None  # in a line, where neither parting nor score tells
    run: str
    parting: Parting | None
    metric: str
    was: float | None
    now: float | None
    spread: Spread | None
    same_data: bool | None  # by fingerprint; None where one of the two has none
    differences: list[str]  # of code, data, libraries and machine, a line each
    compared: str  # in words
    updates: int  # digested in both, the initial weights counted
    repetition: str

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def judge(
    past: Past, new: Past, spread: Spread | None, updates: int | None = None, differences: Sequence[str] = ()
) -> Verdict:
    """The verdict on a repetition.

    Args:
        spread: a final score within it is as good; None where nothing says.
        updates: only so many were run again, so that nothing is known of final scores.
        differences: what else is known to differ, for whoever reads the verdict.
    """
    parting = first_digest(past, new, updates)
    if updates is None:
        parting = parting or first_metric(past, new) or first_score(past, new)
    common = common_updates(past, new, updates)
    was, now = past.scores.get(past.metric), new.scores.get(past.metric) if updates is None else None
    same_data = None if None in (past.fingerprint, new.fingerprint) else past.fingerprint == new.fingerprint
    why = None
    if parting is not None:
        finished = past.result.get("status") == new.result.get("status") == FINISHED
        as_good = None not in (was, now, spread) and spread.low <= now <= spread.high  # type: ignore[union-attr, operator]
        why = beyond_rounding(past, new, parting, bool(same_data))
        verdict = EQUIVALENT if finished and as_good and why is None else DIFFERENT
        if why is None and updates is not None:
            why = "they part, and after --updates no final score tells whether it is as good"
        elif why is None and not (finished and now is not None):
            why = "no final score of both tells whether it is as good"
        elif why is None and spread is None:
            why = "nothing says how near a score is as good: add --tolerance, or repeat a published entry"
    elif why := lacking(past, new, updates):
        verdict = NOT_KNOWN
    elif same_data is False:
        why = "the data is not the recorded one, although nothing that was compared differs"
        verdict = EQUIVALENT if updates is None else NOT_KNOWN
    else:  # without digests every number is the same, but nothing is known of weights and samples
        verdict = IDENTICAL if common else EQUIVALENT
    return Verdict(
        verdict=verdict,
        why=why,
        run=str(past.directory),
        parting=parting,
        metric=past.metric,
        was=was,
        now=now,
        spread=spread,
        same_data=same_data,
        differences=list(differences),
        compared=_compared(past, new, common, updates),
        updates=len(common),
        repetition=str(new.directory),
    )


def _compared(past: Past, new: Past, common: list[int], updates: int | None) -> str:
    """What a verdict rests on."""
    if not common:
        return "metrics alone: it has no digests"
    count = sum(update > 0 for update in common)
    total = updates or max(run.result.get("updates", max(run.digests)) for run in (past, new))
    what = ", metrics" if updates is None else f" of the first {updates} updates"
    thinned = f" ({count} of {total} updates digested in both)" if count < total else ""
    return f"order of samples, inputs, losses, gradients, weights{what}{thinned}"


def beyond_rounding(past: Past, new: Past, parting: Parting, same_data: bool) -> str | None:
    """Why two runs that part before the second update compute different things; None where it may be rounding.

    Only on the same inputs: then nothing but rounding comes from another machine or library. Later on rounding has grown.
    And not on another kind of device, whose generator draws other masks of dropout.
    """
    devices = {str(run.facts.get("choices", {}).get("device")).partition(":")[0] for run in (past, new)}
    if parting.quantity not in STAGES or parting.update > 1 or len(devices) > 1:
        return None
    if parting.quantity == "ids":
        return "the order of the samples differs from the first update on, on the same data" if same_data else None
    after_a_step = (parting.quantity, parting.update) == ("weights", 1)
    update = 2 if after_a_step else 1
    then, now = past.digests.get(update, {}), new.digests.get(update, {})
    others = [name for name in INPUTS if then.get(name) != now.get(name)]
    if others and (not same_data or (others == ["images"] and _decoded_otherwise(past, new))):
        return None
    for quantity in ("loss",) if after_a_step else ("lr", "loss", "grad_norm"):
        if quantity in then and quantity in now and not is_rounding(quantity, then[quantity], now[quantity], past):
            size = relative(then[quantity], now[quantity])
            by = "" if size is None else f" by {size:.1e}"
            return f"{quantity} differs{by} in update {update} on the same data, which no rounding does"
    return None


def _decoded_otherwise(past: Past, new: Past) -> bool:
    """Whether a library that makes images of files has another version."""
    then, now = (run.facts.get("packages", {}) for run in (past, new))
    return any(then.get(name) != now.get(name) for name in DECODERS)


def is_rounding(quantity: str, was: Any, now: Any, past: Past) -> bool:
    """Whether two numbers of an update from the same weights may be one number, rounded differently."""
    if was is None or now is None:
        return was is now
    choices = past.facts.get("choices", {})
    coarse = choices.get("precision") in ("bf16", "fp16") or bool(choices.get("tf32"))
    most = ROUNDING * (COARSE if coarse and quantity != "lr" else 1) * (10 if quantity == "grad_norm" else 1)
    return abs(was - now) <= most * max(abs(was), abs(now), SMALL_LOSS if quantity == "loss" else 0.0)


def sampling_spread(past: Past) -> Spread | None:
    """Where nothing is published, twice the standard error of an accuracy over the images it was taken of."""
    value, count = past.scores.get(past.metric), num_scored(past)
    if value is None or not count or not is_share(past.metric, value):
        return None
    half = 2 * math.sqrt(max(value * (1 - value), 1 / count) / count)
    words = f"twice the standard error of an accuracy over {count} images"
    return Spread(max(0.0, value - half), min(1.0, value + half), words)


def num_scored(past: Past) -> int | None:
    """How many images the final score is of."""
    part, config = past.metric.partition("/")[0], past.facts["config"]
    whole = (past.facts["data"].get("split") or {}).get(part)
    batches, size = config["trainer"].get("limit_eval_batches"), config.get("data", {}).get("eval_batch_size")
    if not isinstance(whole, int) or not isinstance(batches, int) or not isinstance(size, int):
        return whole
    return min(whole, batches * size)


def is_share(metric: str, value: float) -> bool:
    """Whether a score is an accuracy, which lies between 0 and 1."""
    return scores.is_share(metric) and 0 <= value <= 1
