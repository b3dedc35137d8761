"""The verdict from two records: what counts, in which order, and what is as good."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from torchlite.reproduce.entry import groups
from torchlite.reproduce.records import Past, found, read
from torchlite.reproduce.verdict import Spread, judge, relative, sampling_spread

FACTS: dict[str, Any] = {
    "name": "a",
    "identity": "0123456789ab",
    "config": {"trainer": {"monitor": "val/acc1"}, "seed": 0},
    "overrides": ["optimizer=sgd", "seed=0"],
    "code": {"commit": None},
    "data": {"split": {"train": 100, "val": 20, "test": 400}},
}
RESULT = {"best": {"update": 4, "val/acc1": 0.9}, "last": {"val/acc1": 0.9}, "test": {"test/acc1": 0.8}, "seconds": 2.0}
LINE = {"ids": "a", "targets": "b", "images": "c", "loss": 1.0, "grad_norm": 2.0, "lr": 0.1}
DIGESTS: list[dict[str, Any]] = [
    {"every": 1, "update": 0, "weights": "w0"},
    {"update": 1, **LINE, "weights": "w1"},
    {"update": 2, **LINE},
    {"update": 3, **LINE},
    {"update": 4, **LINE},
    {"update": 4, "epoch": 1, "weights": "w4"},
]
METRICS = [{"update": 2, "update/loss": 1.0}, {"update": 4, "train/loss": 1.0, "val/acc1": 0.9, "seconds/epoch": 3.0}]


def past(
    folder: Path, digests: Any = DIGESTS, metrics: Any = METRICS, result: Any = RESULT, facts: Any = FACTS
) -> Past:
    folder.mkdir(exist_ok=True)
    for name, lines in (("digests.jsonl", digests), ("metrics.jsonl", metrics)):
        if lines is not None:
            (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return Past(folder, facts, result)


def changed(line: int, **values: Any) -> list[dict[str, Any]]:
    lines = copy.deepcopy(DIGESTS)
    lines[line] |= values
    return lines


def test_equal_records_are_identical(tmp_path: Path) -> None:
    slower = [{**line, "seconds/epoch": 9.0} if "seconds/epoch" in line else line for line in METRICS]
    verdict = judge(past(tmp_path / "a"), past(tmp_path / "b", metrics=slower), None)
    assert (verdict.verdict, verdict.parting, verdict.updates) == ("identical", None, 5)


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
}


@pytest.mark.parametrize("case", FIRST)
def test_what_differs_first_is_named(tmp_path: Path, case: str) -> None:
    digests, quantity, update, word = FIRST[case]
    verdict = judge(past(tmp_path / "a"), past(tmp_path / "b", digests), Spread(0.7, 0.9, "x"))
    assert verdict.parting is not None and verdict.verdict == "equivalent"
    assert (verdict.parting.quantity, verdict.parting.update) == (quantity, update)
    assert word in verdict.parting.stage


def test_scores_and_metrics_count_where_the_digests_are_equal(tmp_path: Path) -> None:
    one = past(tmp_path / "a")
    verdict = judge(one, past(tmp_path / "b", metrics=[METRICS[0], {**METRICS[1], "val/acc1": 0.8}]), None)
    assert verdict.parting is not None and (verdict.parting.quantity, verdict.parting.update) == ("val/acc1", 4)
    assert "scoring" in verdict.parting.stage
    verdict = judge(one, past(tmp_path / "c", result={**RESULT, "test": {"test/acc1": 0.7}}), None)
    assert verdict.parting is not None and verdict.parting.quantity == "test/acc1" and verdict.verdict == "different"


@pytest.mark.parametrize(
    ("now", "verdict"), [(0.8, "equivalent"), (0.75, "equivalent"), (0.749, "different"), (0.86, "different")]
)
def test_as_good_is_within_the_spread(tmp_path: Path, now: float, verdict: str) -> None:
    new = past(tmp_path / "b", changed(2, loss=1.5), result={**RESULT, "test": {"test/acc1": now}})
    assert judge(past(tmp_path / "a"), new, Spread(0.75, 0.85, "x")).verdict == verdict
    assert judge(past(tmp_path / "a"), new, None).verdict == "different"


def test_of_some_updates_nothing_is_known_of_the_score(tmp_path: Path) -> None:
    stopped = {"status": "stopped"}
    one, wide = past(tmp_path / "a"), Spread(0.0, 1.0, "x")
    assert judge(one, past(tmp_path / "b", DIGESTS[:3], [], stopped), wide, updates=2).verdict == "identical"
    verdict = judge(one, past(tmp_path / "c", changed(2, loss=1.5)[:3], [], stopped), wide, updates=2)
    assert verdict.verdict == "different" and verdict.now is None and verdict.parting is not None
    assert (
        judge(one, past(tmp_path / "d", changed(3, loss=1.5)[:4], [], stopped), wide, updates=2).verdict == "identical"
    )


def test_a_thinned_record_says_since_when_it_does_not_know(tmp_path: Path) -> None:
    thin = [line for line in DIGESTS if line["update"] != 3]
    verdict = judge(past(tmp_path / "a", thin), past(tmp_path / "b", changed(4, loss=1.5)), None)
    assert verdict.parting is not None and (verdict.parting.update, verdict.parting.since) == (4, 2)
    assert "update 4 (nothing is recorded after 2): loss was 1.0, is 1.5, by 3.3e-01 of it. Look at" in str(
        verdict.parting
    )


def test_a_record_without_digests_is_never_called_identical(tmp_path: Path) -> None:
    verdict = judge(past(tmp_path / "a", None), past(tmp_path / "b"), None)
    assert verdict.verdict == "equivalent" and verdict.compared == "metrics alone: it has no digests"


def test_rounding_is_called_so(tmp_path: Path) -> None:
    verdict = judge(past(tmp_path / "a"), past(tmp_path / "b", changed(1, loss=1.0000001)), None)
    assert "by 1.0e-07 of it: rounding" in str(verdict.parting)
    assert relative("a", "b") is None and relative(0.0, 0.0) == 0 and relative(float("nan"), 1.0) is None


def test_the_spread_of_a_single_accuracy(tmp_path: Path) -> None:
    spread = sampling_spread(past(tmp_path / "a"))
    assert spread is not None and (spread.low, spread.high) == (pytest.approx(0.76), pytest.approx(0.84))
    assert "400 images" in spread.of
    by_loss = {**FACTS, "config": {"trainer": {"monitor": "val/loss"}}}
    assert sampling_spread(past(tmp_path / "b", facts=by_loss)) is None


def test_the_spread_of_seeds_is_where_one_more_is_expected(tmp_path: Path) -> None:
    """For 0.80, 0.82, 0.84: t(1 - 0.05/6, 2) * 0.02 * sqrt(4/3), three runs within it at 95 %."""
    from scipy.stats import t

    runs = []
    for seed, score in enumerate((0.80, 0.82, 0.84)):
        facts = {**FACTS, "config": {**FACTS["config"], "seed": seed}, "overrides": ["optimizer=sgd", f"seed={seed}"]}
        runs.append(past(tmp_path / f"{seed}", result={**RESULT, "test": {"test/acc1": score}}, facts=facts))
    (group,) = groups(runs)
    half = t.ppf(1 - 0.05 / 6, 2) * 0.02 * (4 / 3) ** 0.5
    assert group["spread"][:2] == [pytest.approx(0.82 - half), pytest.approx(0.82 + half)]
    assert (group["words"], group["seeds"], group["mean"]) == ("optimizer=sgd", [0, 1, 2], pytest.approx(0.82))
    same = [past(tmp_path / f"{seed}", facts=run.facts) for seed, run in enumerate(runs)]
    (group,) = groups(same)
    assert group["spread"][:2] == [pytest.approx(0.8 - 1 / 400), pytest.approx(0.8 + 1 / 400)]  # one image more or less


def test_a_sweep_is_its_jobs_and_not_the_single_runs_beside_them(recorded: Path, tmp_path: Path) -> None:
    import shutil

    sweep = tmp_path / "sweep"
    shutil.copytree(recorded, sweep / "seed-1-0123456789ab")
    shutil.copytree(recorded, sweep / "20260101-000000-0123456789ab")
    assert [run.name for run in found(str(sweep))] == ["seed-1-0123456789ab"]
    shutil.rmtree(sweep / "seed-1-0123456789ab")
    assert [run.name for run in found(str(sweep))] == ["20260101-000000-0123456789ab"]
    assert read(found(str(sweep))[0]).metric == "test/acc1"
