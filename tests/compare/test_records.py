"""Run directories found and read; those that are no whole, finished run are named with the reason."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.compare import made
from torchlite.compare import finding, records
from torchlite.compare.finding import Unfit
from torchlite.compare.records import Run
from torchlite.errors import UserError


def reason(directory: Path) -> str:
    found = records.read(directory)
    assert isinstance(found, Unfit) and found.directory == directory and "\n" not in found.reason
    return found.reason


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_whole_run_is_read(tmp_path: Path) -> None:
    run = records.read(made.run(tmp_path / "a", 0.93, "adamw", 3, test=0.91, typed=("+model.norm=batch",)))
    assert isinstance(run, Run)
    assert run.scores == pytest.approx(
        {"val/acc1": 0.93, "val/loss": 1 / 3, "test/acc1": 0.91, "test/loss": 0.4, "seconds": 2.5, "updates": 30}
    )
    assert (run.seed, run.monitor, run.better, run.best_update) == ("3", "val/acc1", "max", 30)
    assert run.typed == {"optimizer", "seed", "model.norm"}
    assert run.values["optimizer"] == "adamw" and run.values["optimizer.lr"] == 0.003
    assert run.values["code"] == "a" * 10 and run.better == "max"


def test_a_setting_is_the_config_less_seed_and_place(tmp_path: Path) -> None:
    one = records.read(made.run(tmp_path / "a", seed=0))
    same = [
        records.read(made.run(tmp_path / "b", seed=1)),
        records.read(made.run(tmp_path / "c", name="other", data__num_workers=2)),
        records.read(made.run(tmp_path / "d", data_dir="/elsewhere", data__root="/elsewhere")),
    ]
    other = records.read(made.run(tmp_path / "e", optimizer__lr=0.2))
    assert all(isinstance(run, Run) for run in [one, *same, other])
    assert {run.setting for run in same} == {one.setting} != {other.setting}


UNFIT = {
    "no result": (lambda d: (d / "result.json").unlink(), "no result.json: the run was cut off before"),
    "no run.json": (lambda d: (d / "run.json").unlink(), "no run.json"),
    "half a result": (lambda d: (d / "result.json").write_text('{"status": "fin'), "result.json is not JSON (line 1)"),
    "half a run.json": (lambda d: (d / "run.json").write_text('{"config":\n {"a'), "run.json is not JSON (line 2)"),
    "bytes": (lambda d: (d / "run.json").write_bytes(b"\xff\x00"), "run.json is not JSON"),
    "a list": (lambda d: (d / "result.json").write_text("[1]"), "result.json holds a list where a mapping belongs"),
    "deep": (lambda d: (d / "result.json").write_text("[" * 200_000), "result.json is not JSON"),
    "a pipe": (lambda d: ((d / "result.json").unlink(), os.mkfifo(d / "result.json")), "result.json is no file"),
    "a folder": (lambda d: ((d / "run.json").unlink(), (d / "run.json").mkdir()), "run.json is no file"),
    "failed": (
        lambda d: edit(d / "result.json", status="failed", failure={"type": "E", "message": "out of\nmemory"}),
        "failed: out of",
    ),
    "failed oddly": (lambda d: edit(d / "result.json", status="failed", failure=3), "failed: 3"),
    "stopped": (
        lambda d: edit(d / "result.json", status="stopped", stopped="SIGTERM"),
        "stopped: SIGTERM; it can go on",
    ),
    "cut off": (lambda d: edit(d / "result.json", status="running"), "cut off while it ran; it can go on"),
    "no status": (lambda d: (d / "result.json").write_text('{"accuracy": 1}'), "result.json has no status"),
    "odd status": (lambda d: edit(d / "result.json", status="done"), "result.json has the status 'done'"),
    "score is text": (
        lambda d: edit(d / "result.json", best={"update": 30, "val/acc1": "0.99"}),
        'val/acc1 is "0.99", which is no number',
    ),
    "score is null": (
        lambda d: edit(d / "result.json", test={"test/acc1": None}),
        "test/acc1 is null, which is no number",
    ),
    "score is true": (lambda d: edit(d / "result.json", test={"test/acc1": True}), "test/acc1 is true"),
    "score is huge": (lambda d: edit(d / "result.json", test={"test/acc1": 10**400}), "which is no number"),
    "best is a number": (lambda d: edit(d / "result.json", best=3), "best is a int where a dict belongs"),
    "no best": (lambda d: edit(d / "result.json", best=None), "best is nothing"),
    "score edited": (
        lambda d: edit(d / "result.json", best={"update": 30, "val/acc1": 0.999}),
        "result.json says val/acc1 0.999 at update 30, metrics.jsonl 0.9: edited by hand",
    ),
    "no seed": (lambda d: edit(d / "run.json", config={"model": {}}), "config has no seed"),
    "config is text": (lambda d: edit(d / "run.json", config="x"), "config is a str where a dict belongs"),
    "odd shape": (
        lambda d: edit(d / "run.json", config={"seed": 0, "data": 3, "callbacks": 4}),
        "has not the shape of one",
    ),
    "config edited": (
        lambda d: edit(d / "run.json", config=made.config("sgd", optimizer__lr=0.5)),
        "its config does not give the identity it has (",
    ),
    "seed edited": (lambda d: edit(d / "run.json", config=made.config("sgd", 5)), "does not give the identity"),
    "no identity": (lambda d: edit(d / "run.json", identity=None), "does not give the identity"),
    "test share above 1": (
        lambda d: edit(d / "result.json", test={"test/acc1": 1.5}),
        "test/acc1 is 1.5, not 0 to 1: edited by hand",
    ),
    "share below 0": (lambda d: edit(d / "result.json", test={"test/accuracy_5": -0.1}), "is -0.1, not 0 to 1"),
    "val share above 1": (lambda d: edit(d / "result.json", best={"update": 7, "val/acc1_smooth": 97}), "is 97, not"),
    "negative seconds": (lambda d: edit(d / "result.json", seconds=-5), "seconds is -5, not 0 to inf"),
}


@pytest.mark.parametrize("kind", UNFIT)
def test_what_is_no_whole_run_is_named_with_its_reason(tmp_path: Path, kind: str) -> None:
    spoil, words = UNFIT[kind]
    directory = made.run(tmp_path / "a")
    spoil(directory)
    assert words in reason(directory)


def test_a_run_that_lives_is_told_from_one_that_was_cut_off(tmp_path: Path) -> None:
    import filelock

    directory = made.run(tmp_path / "a", result={"status": "running"})
    with filelock.FileLock(directory / ".lock"):
        assert reason(directory) == "still running"
    assert reason(directory).startswith("cut off")


def test_an_unreadable_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = made.run(tmp_path / "a")

    def refused(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refused)  # root may read everything
    assert reason(directory) == "result.json cannot be read: Permission denied"


def test_an_identity_that_cannot_be_told_from_the_config_is_no_reason(tmp_path: Path) -> None:
    """Paths below data_dir may have been typed or have followed from it; the environment's values are in no record."""
    place = {"data_dir": "/d", "data__root": "/d", "model__weights": "/d/w.pt", "task__prior": ["/d/p.npy"]}
    typed = made.run(tmp_path / "typed", **place)
    partly = {**place, "data__root": "${data_dir}", "task__prior": ["${data_dir}/p.npy"]}
    edit(typed / "run.json", identity=made.identity(made.config(**partly)))
    secret = made.run(tmp_path / "secret", model__weights="${oc.env:WEIGHTS}")
    edit(secret / "run.json", identity=made.identity(made.config(model__weights="/home/w.pt")))
    moved = made.run(tmp_path / "moved", data__root="${data_dir}", typed=("data.root=${data_dir}",))
    edit(moved / "run.json", identity=made.identity(made.config(data__root="/elsewhere")))
    assert all(isinstance(records.read(directory), Run) for directory in (typed, secret, moved))
    edit(typed / "run.json", config=made.config(**place, optimizer__lr=0.5))
    assert "does not give the identity" in reason(typed)


def test_what_an_unfinished_run_was_told_is_read_as_far_as_it_was_written(tmp_path: Path) -> None:
    fit = records.read(made.run(tmp_path / "fit"))
    begun = made.run(tmp_path / "begun", seed=1, result={"status": "failed"})
    (begun / "run.json").rename(begun / ".begun.json")
    (tmp_path / "never").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "sweep.json").write_text(json.dumps({"jobs": [{"directory": "never", "config": made.config(seed=2)}]}))
    found = [records.read(directory) for directory in finding.find([str(tmp_path)])[0]]
    assert [one.directory.name for one in found] == ["begun", "fit", "never", "other"]
    told = [one.told for one in found if isinstance(one, Unfit)]
    assert isinstance(fit, Run) and [(one.setting, one.seed) for one in told[:2]] == [
        (fit.setting, "1"),
        (fit.setting, "2"),
    ]
    assert told[2] is None
    edited = made.run(tmp_path / "edited", result={"test": {"test/acc1": 3}})
    assert records.read(edited).told is None  # it has finished


def names(found: list[Path]) -> list[str]:
    return [path.name for path in found]


def test_runs_are_found_below_whatever_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("s/x_seed-10-a", "s/x_seed-9-a", "t/20260101-000000-b"):
        made.run(Path("outputs", name))
    made.run(Path("experiments/entry/runs/job"))
    Path("experiments/entry/result.json").write_text("{}")  # an entry's own summary makes the entry no run
    (Path("outputs") / "s" / "plots").mkdir()
    found, unfit = finding.find(["outputs", "outputs/s/*9*", "outputs/s"])
    assert names(found) == ["x_seed-9-a", "x_seed-10-a", "20260101-000000-b"]
    assert [one.directory.name for one in unfit] == ["plots"] and "no run" in unfit[0].reason
    assert names(finding.find(["s"])[0]) == names(finding.find(["outputs/s"])[0])
    assert names(finding.find(["entry"])[0]) == ["job"]
    assert names(finding.find(["outputs/s/x_seed-9-a"])[0]) == ["x_seed-9-a"]


@pytest.mark.parametrize("stray", ["config.yaml", "metrics.jsonl", ".lock", "result.json"])
def test_a_stray_file_hides_no_runs(tmp_path: Path, stray: str) -> None:
    made.run(tmp_path / "s" / "a")
    made.run(tmp_path / "s" / "more" / "b")
    (tmp_path / "s" / stray).write_text("{}")
    assert names(finding.find([str(tmp_path)])[0]) == ["a", "b"]
    (tmp_path / "cut" / "checkpoints").mkdir(parents=True)
    (tmp_path / "cut" / "notes").mkdir()
    (tmp_path / "cut" / stray).write_text("{}")  # with no run below, it is what is left of one
    assert names(finding.find([str(tmp_path / "cut")])[0]) == ["cut"]


def test_links_are_followed_but_in_no_circle(tmp_path: Path) -> None:
    made.run(tmp_path / "far" / "a")
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "far").symlink_to(tmp_path / "far")
    (tmp_path / "far" / "back").symlink_to(tmp_path / "s")
    assert names(finding.find([str(tmp_path / "s"), str(tmp_path / "far")])[0]) == ["a"]


def test_other_things_are_named_and_wrong_words_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made.run(Path("outputs/digits/a"))
    Path("notes.txt").write_text("x")
    Path("dangling").symlink_to("nowhere")
    found, unfit = finding.find(["notes.txt", "dangling", "outputs"])
    assert names(found) == ["a"] and [one.directory.name for one in unfit] == ["notes.txt", "dangling"]
    with pytest.raises(UserError, match="digts: there is no such directory. Did you mean digits?"):
        finding.find(["outputs/digts"])
    with pytest.raises(UserError, match="nothing matches"):
        finding.find(["outputs/nothing*"])
    shutil.rmtree("outputs")
    assert finding.find(["."])[0] == []


def test_names_with_any_character_are_read(tmp_path: Path) -> None:
    odd = os.fsdecode(b"a\xff\n[b] $(c) <b>") + "1²2"
    made.run(tmp_path / odd)
    found, _ = finding.find([str(tmp_path)])
    assert isinstance(records.read(found[0]), Run)
