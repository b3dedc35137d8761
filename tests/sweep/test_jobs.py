"""A sweep's jobs: each in its own directory, none touched by the one before, one failure stopping no other."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

from tests.conftest import Typed
from torchlite.sweep import command, local
from torchlite.sweep import jobs as sweep_jobs
from torchlite.sweep.slots import Slots

WORDS = ("trainer=smoke", "model=mlp", "+model.norm=batch", "model.dropout=0.3", "name=s")
TIMES = {"seconds/epoch", "images_per_second"}


def jobs(tmp_path: Path) -> dict[str, Path]:
    """Job directories of the sweep `s` by what they are called, the hash left out."""
    return {path.name.rpartition("-")[0]: path for path in (tmp_path / "outputs" / "s").iterdir() if path.is_dir()}


def numbers(run: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in lines]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints" / "last.pt", weights_only=True)["model"]


@pytest.mark.slow
def test_the_second_job_equals_the_same_run_alone(typed: Typed, tmp_path: Path) -> None:
    """C07, T13: nothing leaks from one job of a process into the next."""
    words = [word for word in WORDS if word != "+model.norm=batch"]
    assert typed("-m", *words, "seed=1,2").code == 0
    assert typed(*words, "seed=2", "name=alone").code == 0
    (alone,) = (tmp_path / "outputs" / "alone").iterdir()
    second = next(path for name, path in jobs(tmp_path).items() if "seed-2" in name)
    first = next(path for name, path in jobs(tmp_path).items() if "seed-1" in name)
    assert numbers(second) == numbers(alone)
    ours, others = weights(second), weights(alone)
    assert ours.keys() == others.keys() and all(torch.equal(ours[key], others[key]) for key in ours)
    assert not all(torch.equal(ours[key], weights(first)[key]) for key in ours)
    for run in (first, second, alone):
        assert len(list((run / "tensorboard").iterdir())) == 1
        log = (run / "train.log").read_text().splitlines()
        assert len([line for line in log if "writing to" in line]) == 1
        assert len(log) == len(set(log)) == 4


def test_each_record_names_its_own_choice(typed: Typed, tmp_path: Path) -> None:
    """C06"""
    done = typed("-m", "trainer=smoke", "model=mlp,small_cnn", "name=s")
    assert done.code == 0, done.text
    for path in jobs(tmp_path).values():
        facts = json.loads((path / "run.json").read_text())
        choice = facts["options"]["model"]
        assert path.name.startswith(choice) or f"_{choice}" in path.name
        assert f"model={choice}" in facts["overrides"] and facts["command"].startswith("python train.py -m")
        target = f"torchlite.models.{ {'mlp': 'MLP', 'small_cnn': 'SmallCNN'}[choice] }"
        shown = EventAccumulator(str(path / "tensorboard")).Reload().SummaryMetadata("_hparams_/session_start_info")
        hparams = HParamsPluginData.FromString(shown.plugin_data.content).session_start_info.hparams
        said = [facts["config"], yaml.safe_load((path / "config.yaml").read_text())]
        said.append(json.loads(torch.load(path / "checkpoints" / "best.pt", weights_only=True)["config"]))
        assert [made["model"]["_target_"] for made in said] == [target] * 3
        assert hparams["model._target_"].string_value == target


@pytest.mark.slow
def test_lists_and_lists_of_choices_are_told_apart(typed: Typed, tmp_path: Path) -> None:
    """C03"""
    base = ["trainer=smoke", "model=mlp"]
    assert typed(*base, "model.widths=[8,16]", "name=one").code == 0
    assert typed("-m", *base, "model.widths=[8,16],[16,32]", "name=two").code == 0
    assert typed("-m", *base, "model.widths=[8,16]", "name=three").code == 0
    found = {}
    for name in ("one", "two", "three"):
        runs = [path for path in (tmp_path / "outputs" / name).iterdir() if path.is_dir()]
        found[name] = sorted(json.loads((run / "run.json").read_text())["config"]["model"]["widths"] for run in runs)
    assert found == {"one": [[8, 16]], "two": [[8, 16], [16, 32]], "three": [[8, 16]]}


def test_one_failing_job_stops_no_other_and_is_named_at_the_end(typed: Typed, tmp_path: Path) -> None:
    """C01"""
    bad = "+callbacks.bad={_target_:tests.strangers.Explodes,update:3,message:%s}"
    choices = ",".join(["{_target_:tests.strangers.Spy}"] + [bad.partition("=")[2] % word for word in ("one", "two")])
    done = typed("-m", *WORDS[:2], "name=s", f"+callbacks.bad={choices}")
    assert done.code == 1, done.text
    assert "2 of 3 jobs failed" in done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("failed: ")]
    assert failed == ["failed: RuntimeError: one", "failed: RuntimeError: two"]
    results = [json.loads((path / "result.json").read_text()) for path in jobs(tmp_path).values()]
    assert sorted(result["status"] for result in results) == ["failed", "failed", "finished"]
    for path in jobs(tmp_path).values():
        status = json.loads((path / "result.json").read_text())["status"]
        assert ("Traceback" in (path / "train.log").read_text()) == (status == "failed")


def test_the_same_command_again_skips_what_is_finished(typed: Typed, tmp_path: Path) -> None:
    assert typed("-m", *WORDS[:2], "name=s", "seed=0,1").code == 0
    before = {path: (path / "result.json").stat().st_mtime_ns for path in jobs(tmp_path).values()}
    done = typed("-m", *WORDS[:2], "name=s", "seed=0,1,2")
    assert done.code == 0, done.text
    after = {path: (path / "result.json").stat().st_mtime_ns for path in jobs(tmp_path).values()}
    assert len(after) == 3 and before.items() <= after.items()


@pytest.mark.slow
def test_the_same_command_again_needs_no_weights_that_have_gone(typed: Typed, tmp_path: Path) -> None:
    """What it began with is in each job's checkpoint; a new job is refused before anything is run."""
    words = ["-m", "model=mlp", "trainer.max_epochs=1", "name=s", "model.weights=pre.pt"]
    assert typed("model=mlp", "trainer.max_epochs=1", "name=pre").code == 0
    (best,) = (tmp_path / "outputs" / "pre").rglob("best.pt")
    best.rename(tmp_path / "pre.pt")
    assert typed(*words, "seed=0,1").code == 0
    (tmp_path / "pre.pt").unlink()
    done = typed(*words, "seed=0,1")
    assert done.code == 0, done.text
    done = typed(*words, "optimizer.lr=0.001,0.002")
    assert done.code == 2 and "model.weights=pre.pt: there is no such file" in done.stderr
    assert len(jobs(tmp_path)) == 2


def test_a_key_of_the_swept_options_need_not_be_the_defaults(typed: Typed, tmp_path: Path) -> None:
    done = typed("-m", *WORDS[:2], "name=s", "optimizer=sgd,rmsprop", "optimizer.momentum=0.5")
    assert done.code == 0, done.text
    configs = [json.loads((path / "run.json").read_text())["config"] for path in jobs(tmp_path).values()]
    assert [config["optimizer"]["momentum"] for config in configs] == [0.5, 0.5]


@pytest.mark.slow
def test_a_sweep_leaves_single_runs_alone(typed: Typed, tmp_path: Path) -> None:
    assert typed(*WORDS[:2], "name=s").code == 0
    (single,) = (tmp_path / "outputs" / "s").iterdir()
    before = {path: path.stat().st_mtime_ns for path in single.rglob("*")}
    assert typed("-m", *WORDS[:2], "name=s", "seed=0,1").code == 0
    assert len([path for path in (tmp_path / "outputs" / "s").iterdir() if path.is_dir()]) == 3
    assert before == {path: path.stat().st_mtime_ns for path in single.rglob("*")}


@pytest.mark.slow
def test_skipping_says_so_and_says_when_the_code_was_another(typed: Typed, tmp_path: Path) -> None:
    words = [
        "-m",
        "trainer=smoke",
        "callbacks=none",
        "+callbacks.mine._target_=callback_of_mine.Mine",
        "name=s",
        "seed=0,1",
    ]
    (tmp_path / "callback_of_mine.py").write_text("from tests.strangers import Spy\nclass Mine(Spy): ...\n")
    assert typed(*words).code == 0
    job = next(iter(jobs(tmp_path).values()))
    assert (job / "modules" / "callback_of_mine.py").read_text().startswith("from tests")
    done = typed(*words)
    assert done.code == 0 and "2 jobs in outputs/s: 2 finished" in done.stdout and "other code" not in done.stdout
    (tmp_path / "callback_of_mine.py").write_text("from tests.strangers import Spy\nclass Mine(Spy): pass\n")
    done = typed(*words)
    assert done.code == 0 and "2 jobs were computed by other code than now's" in done.stdout


def test_what_another_launch_finished_meanwhile_has_not_failed(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed("-m", *WORDS[:2], "name=s").code == 0
    (job,) = sweep_jobs.of_sweep(tmp_path / "outputs" / "s")
    job.state, job.reason = "failed", "the process was killed"
    monkeypatch.setattr(local.Runner, "run", lambda self: [])
    assert command.run_here([job], Slots(1, ["cpu"]), False, Console()) == 0


@pytest.mark.slow
def test_fail_fast_ends_a_sweep_at_its_first_failure(typed: Typed, tmp_path: Path) -> None:
    done = typed("-m", *WORDS[:2], "name=s", "model.in_chans=3,1", "fail_fast=true")
    assert done.code == 1
    assert len(list((tmp_path / "outputs").rglob("result.json"))) == 1
    (failed,) = (tmp_path / "outputs").rglob("result.json")
    before = failed.stat().st_mtime_ns
    done = typed("-m", *WORDS[:2], "name=s", "model.in_chans=3,1", "fail_fast=true")
    assert done.code == 1 and failed.stat().st_mtime_ns > before  # tried again, not given up for the failure of before


def test_a_dry_run_creates_nothing(typed: Typed, tmp_path: Path) -> None:
    done = typed("dry_run=true", "optimizer=sgd")
    assert done.code == 0 and "would run digits-small_cnn-sgd" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_fault_while_a_sweep_is_planned_starts_no_job(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "broken_of_mine.py").write_text("def (:\n")
    done = typed("-m", "+callbacks.mine._target_=broken_of_mine.Mine", "seed=0,1")
    assert done.code == 2 and "importing it failed: SyntaxError" in done.stderr
    assert not (tmp_path / "outputs").exists()


@pytest.mark.slow
def test_a_sweep_in_an_odd_directory(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "o'brien, a=b 100% \\ ü"
    odd.mkdir()
    monkeypatch.chdir(odd)
    done = typed("-m", *WORDS[:2], "seed=0,1")
    assert done.code == 0, done.text
    assert len(list((odd / "outputs").rglob("result.json"))) == 2


@pytest.mark.slow
def test_settings_of_one_job_do_not_reach_the_next(typed: Typed, tmp_path: Path) -> None:
    """C07: threads, precision and determinism, not only seeds."""
    words = ["trainer.max_epochs=1", "model=small_cnn", "model.widths=[4]"]
    assert typed("-m", *words, "name=s", "trainer=fast,default").code == 0
    assert typed(*words, "name=alone").code == 0
    (alone,) = (tmp_path / "outputs" / "alone").iterdir()
    second = next(path for path in jobs(tmp_path).values() if "default" in path.name)
    assert numbers(second) == numbers(alone)
    ours, others = weights(second), weights(alone)
    assert all(torch.equal(ours[key], others[key]) for key in ours)
