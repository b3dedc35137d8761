"""What makes a comparison less sure than its numbers look is said; what cannot be trusted is not averaged in."""

import itertools
import json
import os
import re
from pathlib import Path

import pytest

from tests.compare import made
from tests.compare.test_report import compare, labels
from torchlite.compare import page
from torchlite.compare.report import Report


def test_without_validation_the_test_score_is_compared(tmp_path: Path) -> None:
    for name, optimizer in (("a", "sgd"), ("b", "adamw")):
        path = made.run(
            tmp_path / name, 0.9, optimizer, result={"best": {"update": 30, "epoch": 3}, "best_is_last": True}
        )
        (path / "metrics.jsonl").unlink()
    found = compare(tmp_path)
    assert found.metric == "test/acc1"
    assert found.notes[0].startswith("No run has a val/acc1, so the rows are ranked by the test part: test/acc1 of")
    assert not any("test part" in note for note in compare(tmp_path, metric="test/acc1").notes)


def test_seconds_of_unlike_machines_are_noted_where_they_decide(tmp_path: Path) -> None:
    for name, cpu in (("a", "fast"), ("b", "slow")):
        made.run(tmp_path / name, optimizer="sgd" if name == "a" else "adamw", facts={"hardware": {"cpu": cpu}})
    said = "The runs are of 2 kinds of hardware, so their seconds do not compare: fast (1), slow (1)."
    assert said in compare(tmp_path, metric="seconds").notes and said in compare(tmp_path, sort="seconds").notes
    assert said not in compare(tmp_path).notes


def unfinish(*directories: Path) -> None:
    for directory in directories:
        (directory / "result.json").write_text('{"status": "running"}')


def test_a_setting_with_unfinished_seeds_says_so(tmp_path: Path) -> None:
    """The best row is starred for one seed of five: that has to be seen."""
    made.sweep(tmp_path, num_seeds=5)
    unfinish(*(tmp_path / f"adamw_lr-0.003_seed-{seed}" for seed in (0, 1, 3, 4)))
    found = compare(tmp_path)
    assert [group.finished("val/acc1") for group in found.groups] == ["1 of 5 seeds finished", *[""] * 5]
    assert found.best == found.groups[:1] and len(found.unfit) == 4
    assert "The best row (adamw, lr 0.003) has 1 seed(s), others have up to 5: it may be best by luck." in found.notes
    assert page.contents(found)["groups"][0]["finished"] == "1 of 5 seeds finished"
    pooled = compare(tmp_path, by=["optimizer"])  # where every seed finished with the other rate
    assert [group.finished("val/acc1") for group in pooled.groups] == [""] * 3
    some = compare(tmp_path, where=["seed=0,2,9", "optimizer=adamw,rmsprop"])
    assert [group.finished("val/acc1") for group in some.groups][0] == "1 of 2 seeds finished"


@pytest.mark.parametrize(("seeds", "doubted"), [(1, True), (2, True), (3, False)])
def test_a_best_row_of_few_seeds_is_doubted(tmp_path: Path, seeds: int, doubted: bool) -> None:
    for seed in range(3):
        made.run(tmp_path / f"a{seed}", 0.5, "sgd", seed)
        if seed < seeds:
            made.run(tmp_path / f"b{seed}", 0.9 + seed / 90, "adamw", seed)
    assert any("may be best by luck" in note for note in compare(tmp_path).notes) == doubted


def test_a_best_row_is_doubted_where_no_row_has_two_seeds(tmp_path: Path) -> None:
    made.sweep(tmp_path, num_seeds=1)
    assert compare(tmp_path).notes == ["The best row (adamw, lr 0.003) has 1 seed(s): it may be best by luck."]


def test_rows_that_pool_unlike_runs_say_so(tmp_path: Path) -> None:
    """Two rates a row and seed, and so equal counts; but not the same two."""
    rates = {"sgd": (0.1, 0.01), "adamw": (0.1, 0.01)}

    def made_of(root: Path) -> Report:
        for optimizer, pair in rates.items():
            for seed, lr in itertools.product(range(2), pair):
                words = {"optimizer__lr": lr, "typed": ("optimizer.lr=1",)}
                made.run(root / f"{optimizer}{lr}{seed}", 0.5 + lr, optimizer, seed, **words)
        return compare(root, by=["optimizer"])

    assert not any("balanced" in note for note in made_of(tmp_path / "alike").notes)
    rates["adamw"] = (0.1, 0.2)
    (note,) = [note for note in made_of(tmp_path / "unlike").notes if "balanced" in note]
    assert note.endswith("unlike runs: sgd, seed 0, has optimizer.lr 0.01; adamw, seed 0, has not.")
    (tmp_path / "alike" / "sgd0.11" / "result.json").unlink()
    assert any("balanced" in note for note in compare(tmp_path / "alike", by=["optimizer"]).notes)


def test_a_repeated_seed_counts_once(tmp_path: Path) -> None:
    """The last by its directory's name, which has date and time; a copy's files are all as new as the copying."""
    names = ("20260101-090000-x", "20260101-100000-x", "20260101-100000-x-2", "20260101-100000-x-10")
    for place, (name, score) in enumerate(zip(names, (0.5, 0.8, 0.85, 0.9), strict=True)):
        path = made.run(tmp_path / name, score)
        os.utime(path / "result.json", (2000 - place, 2000 - place))
    made.run(tmp_path / "other", 0.8, seed=1)
    found = compare(tmp_path)
    assert found.groups[0].seeds("val/acc1") == {"0": 0.9, "1": 0.8}
    assert found.notes[0].startswith(
        "3 run(s) of a setting and seed that ran again are left out (the last by name is kept)"
    )
    assert "3 with other scores (--diff" in found.notes[0] and found.notes[0].endswith("--by code keeps code apart.")


def test_the_words_that_keep_code_apart_keep_settings_apart(tmp_path: Path) -> None:
    made.sweep(tmp_path, num_seeds=2)
    made.run(tmp_path / "z", 0.5, "sgd", 0, optimizer__lr=0.1, facts={"code": {"commit": "b" * 40}})
    (words,) = re.findall(r"--by (\S+) keeps code apart", " ".join(compare(tmp_path).notes))
    assert words == "optimizer,optimizer.lr,code"
    apart = compare(tmp_path, by=words.split(","))
    assert len(apart.groups) == 7 and not any("pools" in note or "ran again" in note for note in apart.notes)


def test_runs_of_two_codes_are_told_apart_when_asked(tmp_path: Path) -> None:
    made.run(tmp_path / "a", 0.8)
    made.run(tmp_path / "b", 0.9, facts={"code": {"commit": "b" * 40, "dirty": True}})
    assert any("2 versions of the code: " in note for note in compare(tmp_path).notes)
    found = compare(tmp_path, by=["code"])
    assert labels(found) == ["code bbbbbbbbbb+changes", "code aaaaaaaaaa"]


def test_scores_of_other_images_are_not_ranked(tmp_path: Path) -> None:
    made.run(tmp_path / "a", 0.8)
    other = {"data": {"fingerprint": "0" * 64, "split": {}}, "options": {"data": "mnist", "optimizer": "sgd"}}
    made.run(tmp_path / "b", 0.9, facts=other, data__num_classes=7)
    found = compare(tmp_path, baseline=str(tmp_path / "a"))
    assert found.best == [] and all(group.paired is None for group in found.groups)
    assert "2 different sets of images" in " ".join(found.notes) and "--where data=" in " ".join(found.notes)


def test_scores_of_a_part_of_the_images_are_not_ranked_with_whole_ones(tmp_path: Path) -> None:
    made.run(tmp_path / "a", 0.8, trainer__limit_eval_batches=None, data__eval_batch_size=100)
    made.run(tmp_path / "b", 0.9, trainer__limit_eval_batches=3, data__eval_batch_size=100)  # 300 of 287: all of them
    assert compare(tmp_path).best != []
    made.run(tmp_path / "c", 0.9, trainer__limit_eval_batches=2, data__eval_batch_size=100)
    found = compare(tmp_path)
    assert found.best == [] and "2 different sets of images" in found.notes[0]


def test_an_edited_record_is_listed_and_never_averaged_in(tmp_path: Path) -> None:
    """Neither a config that is not the one that ran, nor a score that none can have, decides anything."""
    for seed in range(3):
        made.run(tmp_path / f"a{seed}", 0.9, seed=seed)
        made.run(tmp_path / f"b{seed}", 0.8, "adamw", seed)
    path = made.run(tmp_path / "config", 0.99, seed=3)
    facts = json.loads((path / "run.json").read_text())
    facts["config"]["optimizer"]["lr"] = 0.5
    (path / "run.json").write_text(json.dumps(facts))
    made.run(tmp_path / "score", 0.8, "adamw", 3, test=1.5)
    for metric in ("val/acc1", "test/acc1"):
        found = compare(tmp_path, metric=metric)
        assert [len(group.runs) for group in found.groups] == [3, 3]
        assert {one.directory.name: one.reason.partition(":")[0] for one in found.unfit} == {
            "config": "run.json",
            "score": "result.json",
        }
    assert {group.mean("test/acc1").mean for group in found.groups} == {0.88}
