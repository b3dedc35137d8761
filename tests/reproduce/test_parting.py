"""Where two records part: what counts, in which order, and where to look."""

import math
from pathlib import Path

import pytest

from tests.reproduce.made import DIGESTS, LINE, METRICS, RESULT, changed, every, past
from torchlite.reproduce.parting import relative
from torchlite.reproduce.verdict import Spread, judge

FIRST = {  # what is changed, and what is named: quantity, update, a word of where to look
    "the order before the images": (changed(2, ids="x", images="x", loss=9.0), "ids", 2, "order"),
    "labels": (changed(3, targets="x", loss=9.0), "targets", 3, "labels"),
    "images": (changed(2, images="x", loss=9.0, grad_norm=9.0), "images", 2, "augmentation"),
    "loss, weights known": (changed(2, loss=1.5), "loss", 2, "forward"),
    "loss, weights not known": (changed(3, loss=1.5), "loss", 3, "the optimizer's step in update 2"),
    "loss in the first update": (changed(1, loss=1.5), "loss", 1, "forward"),
    "gradient": (changed(2, grad_norm=2.5), "grad_norm", 2, "backward"),
    "schedule": (changed(2, lr=0.2), "lr", 2, "schedule"),
    "weights": (changed(1, weights="x"), "weights", 1, "optimizer"),
    "initial weights": (changed(0, weights="x"), "weights", 0, "initialization"),
    "an earlier update before an earlier quantity": (
        changed(2, grad_norm=9.0)[:3] + changed(3, ids="x")[3:],
        "grad_norm",
        2,
        "",
    ),
    "fewer updates": (DIGESTS[:3], "length", 3, "stops early"),
    "more updates": ([*DIGESTS, {"update": 5, **LINE}], "length", 5, "stops early"),
}


@pytest.mark.parametrize("case", FIRST)
def test_what_differs_first_is_named(tmp_path: Path, case: str) -> None:
    digests, quantity, update, word = FIRST[case]
    result = {**RESULT, "updates": 5 if len(digests) > len(DIGESTS) else 4}
    verdict = judge(past(tmp_path / "a"), past(tmp_path / "b", digests, result=result), Spread(0.7, 0.9, "x"))
    assert verdict.parting is not None
    assert verdict.verdict == ("different" if (quantity, update) == ("loss", 1) else "equivalent")
    assert (verdict.parting.quantity, verdict.parting.update) == (quantity, update)
    assert word in verdict.parting.stage


def test_scores_and_metrics_count_where_the_digests_are_equal(tmp_path: Path) -> None:
    one = past(tmp_path / "a")
    verdict = judge(one, past(tmp_path / "b", metrics=[METRICS[0], {**METRICS[1], "val/acc1": 0.8}]), None)
    assert verdict.parting is not None and (verdict.parting.quantity, verdict.parting.update) == ("val/acc1", 4)
    assert "scoring" in verdict.parting.stage
    verdict = judge(one, past(tmp_path / "c", result={**RESULT, "test": {"test/acc1": 0.7}}), None)
    assert verdict.parting is not None and verdict.parting.quantity == "test/acc1" and verdict.verdict == "different"


def test_a_thinned_record_says_between_which_updates_they_part(tmp_path: Path) -> None:
    thin = [line for line in DIGESTS if line["update"] != 3]
    verdict = judge(past(tmp_path / "a", thin), past(tmp_path / "b", changed(4, loss=1.5)), None)
    assert verdict.parting is not None and (verdict.parting.update, verdict.parting.since) == (4, 2)
    assert "between update 2 and 4: loss was 1.0, is 1.5, by 3.3e-01 of it. Look at" in str(verdict.parting)


GAPS = {  # what differs from update 21 on, of which every 10th is digested: where to look holds for updates 21 to 30
    "ids": ({"ids": "x", "images": "x", "loss": 9.0}, "the order of the samples"),
    "images": ({"images": "x", "loss": 9.0}, "augmentation"),
    "lr": ({"lr": 0.2}, "the schedule"),
    "loss": ({"loss": 9.0}, "all that updates 20 to 30 do, as not each is digested: inputs, forward"),
    "grad_norm": ({"grad_norm": 9.0}, "the backward pass"),
    "weights": ({"weights": "x"}, "all that updates 40 to 45 do, as not each is digested: inputs, forward"),
}


@pytest.mark.parametrize("quantity", GAPS)
def test_where_to_look_holds_for_all_updates_between_two_digests(tmp_path: Path, quantity: str) -> None:
    values, words = GAPS[quantity]
    result = {**RESULT, "updates": 45}
    old = past(tmp_path / "a", every(10, 45), result=result)
    verdict = judge(old, past(tmp_path / "b", every(10, 45, **values), result=result), None)
    assert verdict.parting is not None and verdict.parting.quantity == quantity
    since, update = (40, 45) if quantity == "weights" else (20, 30)
    assert f"between update {since} and {update}: {quantity} was" in str(verdict.parting)
    assert words in verdict.parting.stage


def test_rounding_is_called_so(tmp_path: Path) -> None:
    verdict = judge(past(tmp_path / "a"), past(tmp_path / "b", changed(1, loss=1.0000001)), None)
    assert "by 1.0e-07 of it: rounding" in str(verdict.parting)
    assert relative("a", "b") is None and relative(0.0, 0.0) == 0 and relative(float("nan"), 1.0) is None


def test_numbers_that_are_not_finite_are_compared(tmp_path: Path) -> None:
    """A record has null for them; one that says NaN is read as if it had."""
    digests, metrics = changed(3, loss=None), [METRICS[0], {**METRICS[1], "val/acc1": None}]
    old = past(tmp_path / "a", digests, metrics)
    assert judge(old, past(tmp_path / "b", digests, metrics), None).verdict == "identical"
    new = past(tmp_path / "c", changed(3, loss=math.nan), [METRICS[0], {**METRICS[1], "val/acc1": math.nan}])
    assert judge(old, new, None).verdict == "identical"
    verdict = judge(old, past(tmp_path / "d"), None)
    assert "at update 3: loss was not finite, is 1.0. Look at" in str(verdict.parting)
    verdict = judge(old, past(tmp_path / "e", digests), None)
    assert "at update 4: val/acc1 was not finite, is 0.9. Look at the scoring" in str(verdict.parting)
