"""Columns that differ, seeds folded, the best marked, a baseline tested, and what has to be said about it."""

from pathlib import Path

import pytest

from tests.compare import made
from torchlite.compare.report import Asked, NothingToCompare, Report, explained, report
from torchlite.compare.table import verdict
from torchlite.errors import UserError


def compare(root: Path, **asked: object) -> Report:
    return report([str(root)], Asked(**asked))  # type: ignore[arg-type]


def labels(found: Report) -> list[str]:
    return [group.label for group in found.groups]


def test_only_what_differs_is_a_column(tmp_path: Path) -> None:
    """`optimizer.betas` follows from the optimizer; the rate was swept; workers, names and the seed change no result."""
    made.sweep(tmp_path)
    found = compare(tmp_path)
    assert found.columns == ["optimizer", "optimizer.lr"]
    assert labels(found)[0] == "adamw, lr 0.003" and labels(found)[-1] == "rmsprop, lr 0.01"
    assert [len(group.runs) for group in found.groups] == [3] * 6
    assert found.notes == [] and found.unfit == []


def test_a_difference_nobody_typed_is_shown(tmp_path: Path) -> None:
    """A yaml that was edited between runs; its copy in another group follows and is not."""
    made.run(tmp_path / "a")
    made.run(tmp_path / "b", data__num_classes=7, task__num_classes=7, model__num_classes=7)
    made.run(tmp_path / "c", model__widths=[16, 32])
    assert compare(tmp_path).columns == ["data.num_classes", "model.widths"]


def test_what_only_logs_or_places_is_no_column(tmp_path: Path) -> None:
    made.run(tmp_path / "a", data_dir="/here", data__root="/here")
    made.run(tmp_path / "b", seed=1, callbacks={"tensorboard": None}, name="x", data__num_workers=3)
    found = compare(tmp_path)
    assert found.columns == [] and len(found.groups) == 1 and found.groups[0].mean("val/acc1").n == 2


def test_the_mean_and_the_best(tmp_path: Path) -> None:
    for seed, (one, other) in enumerate([(0.90, 0.95), (0.92, 0.91), (0.94, 0.93)]):
        made.run(tmp_path / f"a{seed}", one, "sgd", seed)
        made.run(tmp_path / f"b{seed}", other, "adamw", seed)
    found = compare(tmp_path)
    assert [group.mean("val/acc1").mean for group in found.groups] == pytest.approx([0.93, 0.92])
    assert [group.label for group in found.best] == ["adamw"] and found.metric == "val/acc1"
    assert found.beside == ["test/acc1", "seconds"]


def test_equal_bests_are_both_best(tmp_path: Path) -> None:
    made.run(tmp_path / "a", 0.9), made.run(tmp_path / "b", 0.9, "adamw"), made.run(tmp_path / "c", 0.8, "rmsprop")
    assert [group.label for group in compare(tmp_path).best] == ["sgd", "adamw"]


@pytest.mark.parametrize(
    ("asked", "best"),
    [
        ({"metric": "val/loss"}, "low"),
        ({"metric": "test/acc1"}, "high"),
        ({"metric": "test/acc1", "better": "min"}, "low"),
        ({"metric": "seconds"}, "low"),
    ],
)
def test_the_direction_is_the_scores_own(tmp_path: Path, asked: dict[str, str], best: str) -> None:
    values = {"low": 0.2, "high": 0.8}
    for name, optimizer in (("low", "sgd"), ("high", "adamw")):
        score = {"update": 30, "val/loss": values[name], "val/acc1": 0.9}
        path = made.run(
            tmp_path / name, 0.9, optimizer, test=values[name], seconds=values[name], result={"best": score}
        )
        (path / "metrics.jsonl").unlink()
    found = compare(tmp_path, **asked)
    assert [group.runs[0].directory.name for group in found.best] == [best] and found.groups[0] in found.best


@pytest.mark.parametrize(
    ("name", "better"),
    [("acc1", "max"), ("accuracy_5", "max"), ("aux_loss", "min"), ("Loss2", "min"), ("rmse", "min"), ("fid", "min")]
    + [(name, None) for name in ("confidence", "receptive_field", "fidelity", "error_recall", "lossless", "paired")],
)
def test_a_direction_is_told_by_whole_words_or_asked_for(tmp_path: Path, name: str, better: str | None) -> None:
    for index, optimizer in enumerate(("sgd", "adamw")):
        made.run(tmp_path / optimizer, 0.9, optimizer, result={"test": {f"test/{name}": 0.1 + index / 2}})
    if better is None:
        with pytest.raises(UserError, match=rf"test/{name}: .*Say --better max or --better min.$"):
            compare(tmp_path, metric=f"test/{name}")
    for asked in ("max", "min"):
        found = compare(tmp_path, metric=f"test/{name}", better=None if asked == better else asked)
        assert [group.label for group in found.best] == ["adamw" if asked == "max" else "sgd"]


def test_a_monitored_score_of_any_name_has_the_direction_it_was_trained_by(tmp_path: Path) -> None:
    for score, optimizer in ((0.2, "sgd"), (0.4, "adamw")):
        choices = {"device": "cpu", "num_threads": 1, "monitor_mode": "min"}
        made.run(tmp_path / optimizer, score, optimizer, monitor="val/confidence", facts={"choices": choices})
    assert [group.label for group in compare(tmp_path).best] == ["sgd"]


def test_a_monitored_loss_is_better_when_lower(tmp_path: Path) -> None:
    made.run(tmp_path / "a", 0.5, monitor="val/loss")
    made.run(tmp_path / "b", 0.4, "adamw", monitor="val/loss")
    found = compare(tmp_path)
    assert (found.metric, found.less_is_better, labels(found)[0]) == ("val/loss", True, "adamw")


def test_conditions_choose_runs(tmp_path: Path) -> None:
    made.sweep(tmp_path)
    assert compare(tmp_path, where=["optimizer=sgd"]).columns == ["optimizer.lr"]
    assert len(compare(tmp_path, where=["optimizer=sgd,adamw", "optimizer.lr<=0.01"]).groups) == 3
    assert len(compare(tmp_path, where=["optimizer!=sgd"]).groups) == 4
    assert labels(compare(tmp_path, where=["optimizer.lr=3e-3"])) == ["made"]
    assert compare(tmp_path, where=["seed=0,2"]).groups[0].mean("val/acc1").n == 2


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"where": ["optimzer=sgd"]}, "optimzer: no run has such a key. Did you mean optimizer?"),
        ({"where": ["lr=0.1"]}, "lr: no run has such a key. Did you mean optimizer.lr?"),
        ({"where": ["optimizer"]}, "optimizer: not a condition; write key=value"),
        ({"where": ["optimizer.lr<high"]}, "'high' is no number"),
        ({"where": ["optimizer=lion"]}, "No finished run has optimizer=lion."),
        ({"by": ["optimiser"]}, "optimiser: no run has such a key. Did you mean optimizer?"),
        ({"metric": "val/acc"}, "--metric val/acc: no run has this score; the scores are: val/loss, val/acc1"),
        ({"sort": "optimizer.mom"}, "optimizer.mom: no run has such a key"),
        ({"baseline": "optimizer=sgd"}, "--baseline optimizer=sgd: fits 2 rows (sgd, lr 0.01; sgd, lr 0.1); say more"),
        ({"baseline": "optimizer=lion"}, "--baseline optimizer=lion: fits no row."),
        ({"baseline": "nowhere"}, "--baseline nowhere: none of the compared runs"),
    ],
)
def test_wrong_words_are_refused_with_the_right_one(tmp_path: Path, asked: dict[str, object], words: str) -> None:
    made.sweep(tmp_path, num_seeds=1)
    with pytest.raises(UserError) as refused:
        compare(tmp_path, **asked)
    assert words in str(refused.value)


def test_pooled_rows_count_seeds(tmp_path: Path) -> None:
    made.sweep(tmp_path, num_seeds=4)
    found = compare(tmp_path, by=["optimizer"])
    assert found.columns == ["optimizer"] and len(found.groups) == 3
    assert all(len(group.runs) == 8 and group.mean("val/acc1").n == 4 for group in found.groups)
    assert "pools runs that differ in optimizer.lr" in found.notes[0]


def test_the_baseline_is_tested_on_common_seeds(tmp_path: Path) -> None:
    made.sweep(tmp_path, num_seeds=6)
    made.run(tmp_path / "alone", 0.99, "sgd", 77, optimizer__lr=0.5, typed=("optimizer.lr=0.5",))
    found = compare(tmp_path, baseline="optimizer=sgd optimizer.lr=0.1")
    by_label = {group.label: group.paired for group in found.groups}
    assert by_label["sgd, lr 0.1"] is None and found.baseline is not None and found.num_tests == 5
    assert by_label["adamw, lr 0.003"].claimed and by_label["rmsprop, lr 0.01"].claimed
    assert not by_label["adamw, lr 0.001"].claimed
    assert by_label["sgd, lr 0.5"].why_not == "no seed in common"
    assert "paired t-test on common seeds, p corrected by Holm for 5 comparison(s)" in " ".join(explained(found))
    directory = str(found.baseline.runs[2].directory)
    assert labels_of(compare(tmp_path, baseline=directory).baseline) == "sgd, lr 0.1"


def labels_of(group: object) -> str:
    return group.label  # type: ignore[attr-defined]


def test_unfinished_runs_are_never_averaged_in(tmp_path: Path) -> None:
    made.sweep(tmp_path)
    before = {group.label: group.mean("val/acc1").mean for group in compare(tmp_path).groups}
    made.run(
        tmp_path / "failed", 0.0, "sgd", 7, optimizer__lr=0.1, result={"status": "failed", "failure": {"message": "m"}}
    )
    made.run(tmp_path / "stopped", 0.0, "sgd", 8, optimizer__lr=0.1, result={"status": "stopped"})
    found = compare(tmp_path)
    assert {group.label: group.mean("val/acc1").mean for group in found.groups} == before
    assert [one.directory.name for one in found.unfit] == ["failed", "stopped"]


def test_nothing_to_compare_says_so(tmp_path: Path) -> None:
    with pytest.raises(NothingToCompare):
        compare(tmp_path)
    made.run(tmp_path / "a", result={"status": "failed", "failure": {"message": "m"}})
    with pytest.raises(NothingToCompare) as nothing:
        compare(tmp_path)
    assert [one.reason for one in nothing.value.unfit] == ["failed: m"]


def test_a_test_on_fewer_seeds_than_either_has_says_so(tmp_path: Path) -> None:
    for seed in range(5):
        made.run(tmp_path / f"a{seed}", 0.5 + seed / 100, "sgd", seed)
        made.run(tmp_path / f"b{seed}", 0.9 + seed / 90, "adamw", seed + 2)
    found = compare(tmp_path, baseline="optimizer=sgd")
    assert verdict(found.groups[0], found) == "better on 3 common seeds"


def test_runs_that_monitor_different_scores_ask_for_one(tmp_path: Path) -> None:
    made.run(tmp_path / "a"), made.run(tmp_path / "b", 0.4, monitor="val/loss")
    with pytest.raises(UserError, match=r"different scores: val/acc1 \(1\), val/loss \(1\). Choose one with --metric"):
        compare(tmp_path)
    found = compare(tmp_path, metric="val/acc1")
    assert len(found.groups) == 1 and found.unfit[0].reason.startswith("has no val/acc1; it has val/loss")


def test_sorting(tmp_path: Path) -> None:
    made.sweep(tmp_path, num_seeds=1)
    rates = [group.values["optimizer.lr"] for group in compare(tmp_path, sort="optimizer.lr").groups]
    assert rates == sorted(rates)
    assert labels(compare(tmp_path, sort="test/acc1"))[-1] == "adamw, lr 0.003"
    assert labels(compare(tmp_path, reverse=True))[-1] == "adamw, lr 0.003"


def test_lists_true_and_one_are_kept_apart(tmp_path: Path) -> None:
    made.run(tmp_path / "a", optimizer__nesterov=True)
    made.run(tmp_path / "b", optimizer__nesterov=1)
    made.run(tmp_path / "c", optimizer__nesterov="true")
    assert len(compare(tmp_path).groups) == 3


def test_a_baseline_that_is_the_best_row_is_tested_as_one_of_all_pairs(tmp_path: Path) -> None:
    """Whoever picks it for being best has looked at every pair; for another baseline, only its own tests count."""
    made.sweep(tmp_path, num_seeds=5)
    best = compare(tmp_path, baseline="optimizer=adamw optimizer.lr=0.003")
    said = " ".join(explained(best))
    assert (best.num_tests, best.family) == (5, 15)
    assert "for all 15 pairs of rows, since the baseline is the best" in said
    tests = sorted((g.paired for g in best.groups if g.paired), key=lambda test: test.p)
    assert tests[0].p_holm == pytest.approx(15 * tests[0].p) and tests[1].p_holm >= 14 * tests[1].p * (1 - 1e-9)
    other = compare(tmp_path, baseline="optimizer=sgd optimizer.lr=0.1")
    assert other.family == other.num_tests == 5 and "pairs of rows" not in " ".join(explained(other))
    assert "rough estimate" in " ".join(explained(other))


def test_a_number_longer_than_any_float_is_a_value_like_others(tmp_path: Path) -> None:
    for index, size in enumerate((10**400, 3, 1)):
        made.run(tmp_path / str(index), data__batch_size=size, trainer__limit_eval_batches=10**400)
    assert len(compare(tmp_path, sort="data.batch_size", where=["data.batch_size>2"]).groups) == 2
