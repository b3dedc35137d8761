"""The verdict from two records: what is as good, and what is not whatever the score."""

from pathlib import Path

import pytest

from tests.reproduce.made import DIGESTS, FACTS, METRICS, RESULT, STOPPED, changed, past
from torchlite.reproduce.verdict import Spread, judge, sampling_spread


@pytest.mark.parametrize(
    ("now", "verdict"), [(0.8, "equivalent"), (0.75, "equivalent"), (0.749, "different"), (0.86, "different")]
)
def test_as_good_is_within_the_spread(tmp_path: Path, now: float, verdict: str) -> None:
    new = past(tmp_path / "b", changed(2, loss=1.5), result={**RESULT, "test": {"test/acc1": now}})
    assert judge(past(tmp_path / "a"), new, Spread(0.75, 0.85, "x")).verdict == verdict
    assert judge(past(tmp_path / "a"), new, None).verdict == "different"


EARLY = {  # in the first update, on the same data: more than rounding
    "the loss": (changed(1, loss=1.001), "loss differs by 1.0e-03 in update 1 on the same data"),
    "the loss, rounded": (changed(1, loss=1.00001), None),
    "the loss is not finite": (changed(1, loss=None), "loss differs in update 1"),
    "the schedule": (changed(1, lr=0.11), "lr differs by 9.1e-02 in update 1"),
    "the schedule, rounded": (changed(1, lr=0.1 + 1e-12), None),
    "the gradient": (changed(1, grad_norm=2.1), "grad_norm differs"),
    "the gradient, rounded": (changed(1, grad_norm=2.0001), None),
    "the order": (changed(1, ids="x"), "the order of the samples differs from the first update on"),
    "the images": (changed(1, images="x", loss=1.1), "loss differs"),
    "the images, rounded": (changed(1, images="x", loss=1.000001), None),
    "the initial weights": ([{"update": 0, "weights": "x"}, *changed(1, loss=1.1)[1:]], "loss differs"),
    "the step": (changed(1, weights="x")[:2] + changed(2, loss=1.01)[2:], "loss differs by 9.9e-03 in update 2"),
    "the step, rounded": (changed(1, weights="x")[:2] + changed(2, loss=1.00001)[2:], None),
    "later on": (changed(2, loss=1.5), None),
}


@pytest.mark.parametrize("case", EARLY)
def test_what_is_more_than_rounding_at_first_is_different_whatever_the_score(tmp_path: Path, case: str) -> None:
    digests, why = EARLY[case]
    facts = {**FACTS, "data": {**FACTS["data"], "fingerprint": "f" * 64}}
    verdict = judge(
        past(tmp_path / "a", facts=facts), past(tmp_path / "b", digests, facts=facts), Spread(0.0, 1.0, "x")
    )
    assert verdict.verdict == ("equivalent" if why is None else "different"), verdict
    assert verdict.why is None if why is None else why in (verdict.why or "")


def test_numbers_of_16_bits_round_more(tmp_path: Path) -> None:
    for choices, verdict in (
        ({"precision": "fp32", "tf32": False}, "different"),
        ({"precision": "bf16"}, "equivalent"),
    ):
        new = past(tmp_path / "b", changed(1, loss=1.003))
        assert (
            judge(past(tmp_path / "a", facts={**FACTS, "choices": choices}), new, Spread(0, 1, "x")).verdict == verdict
        )


def test_images_decoded_by_another_library_leave_it_to_the_score(tmp_path: Path) -> None:
    facts = {**FACTS, "data": {**FACTS["data"], "fingerprint": "f" * 64}, "packages": {"pillow": "11.0", "rich": "1"}}
    then = past(tmp_path / "a", facts=facts)
    for packages, verdict in (({"pillow": "11.0", "rich": "2"}, "different"), ({"pillow": "12.0"}, "equivalent")):
        new = past(tmp_path / "b", changed(1, images="x", loss=1.1), facts={**facts, "packages": packages})
        assert judge(then, new, Spread(0, 1, "x")).verdict == verdict


def test_without_a_yardstick_it_says_so(tmp_path: Path) -> None:
    verdict = judge(past(tmp_path / "a"), past(tmp_path / "b", changed(2, loss=1.0000001)), None)
    assert verdict.verdict == "different" and "add --tolerance" in (verdict.why or "")


def test_another_kind_of_device_draws_other_masks_of_dropout(tmp_path: Path) -> None:
    then = past(tmp_path / "a", facts={**FACTS, "choices": {"device": "cuda:0"}})
    for device, verdict in (("cuda:1", "different"), ("cpu", "equivalent")):
        new = past(tmp_path / "b", changed(1, loss=1.5), facts={**FACTS, "choices": {"device": device}})
        assert judge(then, new, Spread(0, 1, "x")).verdict == verdict


def test_other_data_is_said_and_never_identical(tmp_path: Path) -> None:
    """Where the images of the first update are others the score decides; where they are not, rounding is all there can be."""
    one, other = ({**FACTS, "data": {**FACTS["data"], "fingerprint": digit * 64}} for digit in "ab")
    old, wide = past(tmp_path / "a", facts=one), Spread(0.0, 1.0, "x")
    verdict = judge(old, past(tmp_path / "b", facts=other), None, differences=["data: x"])
    assert (verdict.verdict, verdict.same_data, verdict.differences) == ("equivalent", False, ["data: x"])
    assert "the data is not the recorded one" in (verdict.why or "")
    stopped = past(tmp_path / "c", DIGESTS[:3], [], STOPPED, other)
    assert judge(old, stopped, wide, updates=2).verdict == "not known"
    assert judge(old, past(tmp_path / "d", changed(1, images="x", loss=2.0), facts=other), wide).verdict == "equivalent"
    assert judge(old, past(tmp_path / "e", changed(1, loss=2.0), facts=other), wide).verdict == "different"
    assert judge(old, past(tmp_path / "f", changed(1, ids="x"), facts=other), wide).verdict == "equivalent"
    assert judge(old, past(tmp_path / "g", facts=FACTS), wide).same_data is None


def test_without_validation_the_test_score_counts_and_without_both_all_the_rest(tmp_path: Path) -> None:
    metrics = [METRICS[0], {"update": 4, "train/loss": 1.0}]
    for result in (
        {"best": {"update": 4}, "last": {}, "test": RESULT["test"]},
        {"best": {"update": 4}, "last": {}, "test": {}},
    ):
        made = {"metrics": metrics, "result": {"status": "finished", "updates": 4, **result}}
        old = past(tmp_path / "a", **made)
        assert judge(old, past(tmp_path / "b", **made), sampling_spread(old)).verdict == "identical"
        verdict = judge(old, past(tmp_path / "c", changed(2, loss=1.5), **made), sampling_spread(old))
        assert verdict.verdict == ("equivalent" if result["test"] else "different")
        assert (verdict.why or "").startswith("" if result["test"] else "no final score of both")


def test_a_record_that_does_not_repeat_is_judged_by_its_score(tmp_path: Path) -> None:
    facts = {**FACTS, "choices": {"deterministic": False, "precision": "fp32"}}
    old = past(tmp_path / "a", facts=facts)
    new = past(tmp_path / "b", changed(1, loss=1.000001, weights="x"), facts=facts)
    assert judge(old, new, sampling_spread(old)).verdict == "equivalent"


def test_the_spread_of_a_single_accuracy(tmp_path: Path) -> None:
    spread = sampling_spread(past(tmp_path / "a"))
    assert spread is not None and (spread.low, spread.high) == (pytest.approx(0.76), pytest.approx(0.84))
    assert "400 images" in spread.of
    by_loss = {**FACTS, "config": {"trainer": {"monitor": "val/loss"}}}
    assert sampling_spread(past(tmp_path / "b", facts=by_loss)) is None
