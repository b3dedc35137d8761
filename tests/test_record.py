"""The run directory: one run's alone, complete, and readable with nothing but the standard library."""

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT, Command, Typed
from torchlite import naming, provenance, record
from torchlite.errors import UserError
from torchlite.record import Record


def only_run(outputs: Path) -> Path:
    (found,) = [path.parent for path in outputs.rglob("result.json")]
    return found


def test_a_run_leaves_its_whole_record(typed: Typed, tmp_path: Path) -> None:
    done = typed("trainer=smoke", "optimizer=sgd", "seed=3")
    assert done.code == 0, done.text
    run = only_run(tmp_path / "outputs")
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{12}", run.name)
    assert run.parent.name == "digits-small_cnn-sgd-smoke"
    facts = json.loads((run / "run.json").read_text())
    assert facts["overrides"] == ["trainer=smoke", "optimizer=sgd", "seed=3"]
    assert facts["options"]["optimizer"] == "sgd"
    assert facts["config"] == yaml.safe_load((run / "config.yaml").read_text())
    assert facts["config"]["seed"] == 3
    assert facts["choices"]["device"] == "cpu" and facts["choices"]["num_threads"] >= 1
    assert re.fullmatch("[0-9a-f]{64}", facts["data"]["fingerprint"])
    assert facts["data"]["classes"] == [str(digit) for digit in range(10)]
    assert facts["data"]["split"]["split_seed"] == 0
    assert facts["data"]["data_dir"] == str(tmp_path / "data")
    assert {"torch", "hydra-core", "python"} <= facts["packages"].keys()
    assert facts["hardware"]["num_cores"] == os.cpu_count()
    assert "train.py trainer=smoke optimizer=sgd seed=3" in facts["command"]
    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "finished"
    assert set(result["best"]) == {"update", "epoch", "val/loss", "val/acc1", "val/acc5"}
    assert set(result["test"]) == {"test/loss", "test/acc1", "test/acc5"}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["update"] for line in lines] == [10, 17]
    assert {"update/loss", "update/acc1", "lr", "grad_norm", "images_per_second"} <= lines[0].keys()
    assert {"train/loss", "val/loss", "val/acc1", "lr", "seconds/epoch"} <= lines[1].keys()
    assert {path.name for path in (run / "checkpoints").iterdir()} == {"best.pt", "best.safetensors", "last.pt"}
    assert len(list((run / "tensorboard").iterdir())) == 1
    log = (run / "train.log").read_text()
    assert "train/loss" in log and "INFO" in log
    assert str(run.relative_to(tmp_path)) in done.stdout


def test_no_secret_of_the_environment_is_written(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = f"{uuid.uuid4().hex}.txt"
    monkeypatch.setenv("MY_SECRET_FILE", secret)
    done = typed("trainer=smoke", "+callbacks.spy={_target_:tests.strangers.Spy,file:'${oc.env:MY_SECRET_FILE}'}")
    assert done.code == 0, done.text
    assert (tmp_path / secret).exists()
    for path in (tmp_path / "outputs").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path


@pytest.mark.slow
def test_runs_started_at_once_get_a_directory_each(command: Command, tmp_path: Path) -> None:
    """B01"""
    words = ["model=mlp", "trainer=smoke", "trainer.num_threads=1", "name=same"]
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda seed: command("train.py", *words, f"seed={seed}", timeout=280), range(8)))
    assert [run.code for run in done] == [0] * 8, [run.text for run in done]
    runs = sorted((tmp_path / "outputs" / "same").iterdir())
    assert len(runs) == 8
    seeds = []
    for run in runs:
        seeds.append(json.loads((run / "run.json").read_text())["config"]["seed"])
        assert len(list((run / "tensorboard").iterdir())) == 1
        import torch

        state = torch.load(run / "checkpoints" / "best.pt", weights_only=True)
        assert json.loads(state["config"])["seed"] == seeds[-1]
    assert sorted(seeds) == list(range(8))


def test_a_claim_never_gives_a_directory_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record.time, "strftime", lambda _: "20260101-000000")
    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(lambda _: record.claim(tmp_path, "name", "abcdef01"), range(40)))
    assert len(set(claimed)) == 40
    assert tmp_path / "name" / "20260101-000000-abcdef01-40" in claimed


@pytest.mark.slow
@pytest.mark.parametrize("chdir", ["true", "false"])
@pytest.mark.parametrize("sweep", [[], ["-m"]], ids=["single", "sweep"])
def test_relative_paths_are_the_callers(typed: Typed, tmp_path: Path, chdir: str, sweep: list[str]) -> None:
    """B03"""
    done = typed(*sweep, "trainer=smoke", "model=mlp", "data.root=./mydata", f"hydra.job.chdir={chdir}")
    assert done.code == 0, done.text
    facts = json.loads((only_run(tmp_path / "outputs") / "run.json").read_text())
    assert facts["data"]["root"] == str(tmp_path / "mydata")
    assert facts["config"]["data"]["root"] == "./mydata"


def test_job_names_are_flat_short_and_readable() -> None:
    """B06"""
    name = naming.job_name(["optimizer=sgd", "optimizer.lr=0.1", "seed=3"], "1a2b3c4d")
    assert name == "sgd_lr-0.1_seed-3-1a2b3c4d"
    long = naming.job_name(["data.root=/a/b, c=d", *(f"model.widths=[{i},{i}]" for i in range(40))], "1a2b3c4d")
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,120}", long) and long.endswith("-1a2b3c4d")
    assert naming.job_name([], "1a2b3c4d") == "default-1a2b3c4d"


def test_odd_and_long_overrides_give_one_flat_directory_each(typed: Typed, tmp_path: Path) -> None:
    """B06"""
    fill = [f"+callbacks.spy{i}=null" for i in range(25)]
    done = typed("-m", "trainer=smoke", "model=mlp", "data.root=/a/b,/c/d", "name=s", *fill)
    assert done.code == 0, done.text
    jobs = [path for path in (tmp_path / "outputs" / "s").iterdir() if path.is_dir()]
    assert len(jobs) == 2
    roots = {json.loads((job / "run.json").read_text())["config"]["data"]["root"] for job in jobs}
    assert roots == {"/a/b", "/c/d"}
    assert all(len(job.name.encode()) <= 120 for job in jobs)


def test_a_failure_is_in_the_log_and_in_the_result(typed: Typed, tmp_path: Path) -> None:
    done = typed("trainer=smoke", "+callbacks.bad={_target_:tests.strangers.Explodes,update:3}")
    assert done.code == 1
    assert "RuntimeError: boom" in done.stderr
    run = only_run(tmp_path / "outputs")
    result = json.loads((run / "result.json").read_text())
    assert result["status"] == "failed"
    assert result["failure"]["message"] == "boom" and "on_batch_end" in result["failure"]["traceback"]
    assert "on_batch_end" in (run / "train.log").read_text()


def test_metrics_hold_no_number_that_json_lacks(tmp_path: Path) -> None:
    with Record(tmp_path, {}).open() as rec:
        rec.log({"update": 1, "update/loss": float("nan"), "grad_norm": float("inf")})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"update": 1, "update/loss": null, "grad_norm": null}\n'


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    with Record(tmp_path, {}).hold() as rec, rec.open():
        assert record.is_locked(tmp_path)
        match = f"is being written by process {os.getpid()}"
        with pytest.raises(UserError, match=match), Record(tmp_path, {}).hold():
            pass
    assert not record.is_locked(tmp_path)


@pytest.mark.slow
def test_a_killed_run_says_running_and_leaves_its_lock_free(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "train.py"), "trainer.max_epochs=1000", "model=mlp"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        for _ in range(600):
            if any((tmp_path / "outputs").rglob("last.pt")):
                break
            time.sleep(0.1)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    run = only_run(tmp_path / "outputs")
    assert record.read_result(run)["status"] == "running"
    assert not record.is_locked(run)


def test_uncommitted_changes_are_recorded_untracked_files_included(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "a.py").write_text("one = 1\n")
    git("add", ".")
    git("commit", "-qm", "first")
    monkeypatch.setattr(provenance, "SOURCE", tmp_path)
    state, patch = provenance.git_state()
    assert len(state["commit"]) == 40 and not state["dirty"] and patch == ""
    (tmp_path / "a.py").write_text("one = 2\n")
    (tmp_path / "new.py").write_text("two = 2\n")
    (tmp_path / "new.yaml").write_text("three: 3\n")
    (tmp_path / "huge.bin").write_bytes(b"\0" * 100)
    state, patch = provenance.git_state()
    assert state["dirty"]
    assert "+one = 2" in patch and "+two = 2" in patch and "+three: 3" in patch and "huge" not in patch
    staged = subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True, text=True).stdout
    assert "?? new.py" in staged, "the user's own index was touched"
    (tmp_path / "a.py").write_text("one = 1\n")
    (tmp_path / "new.py").unlink()
    (tmp_path / "new.yaml").unlink()
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch.encode(), check=True)
    assert (tmp_path / "new.py").read_text() == "two = 2\n"


def test_the_patch_does_not_depend_on_the_users_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*run, *words], cwd=tmp_path, check=True)
    (tmp_path / "a.py").write_text("one = 1\n")
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    subprocess.run([*run, "commit", "-qm", "second"], cwd=tmp_path, check=True)
    (tmp_path / "a.py").write_text("one = 2\n")
    monkeypatch.setattr(provenance, "SOURCE", tmp_path)
    _, plain = provenance.git_state()
    for key, value in (("color.ui", "always"), ("diff.noprefix", "true"), ("diff.external", "true")):
        subprocess.run(["git", "config", key, value], cwd=tmp_path, check=True)
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    state, patch = provenance.git_state()
    assert patch == plain and "+one = 2" in patch and state["dirty"] is True


def test_what_is_published_is_no_change_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    (tmp_path / "experiments").mkdir()
    for name in ("a.py", "experiments/README.md"):
        (tmp_path / name).write_text("one = 1\n")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*run, *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "SOURCE", tmp_path)
    (tmp_path / "experiments" / "README.md").write_text("two\n")
    (tmp_path / "experiments" / "config.yaml").write_text("new: 1\n")
    state, patch = provenance.git_state()
    assert not patch and state["dirty"] is False
    for words in (["add", "."], ["commit", "-qm", "published"]):
        subprocess.run([*run, *words], cwd=tmp_path, check=True)
    assert provenance.git_state() == (state, "")
    (tmp_path / "a.py").write_text("one = 2\n")
    dirty, patch = provenance.git_state()
    assert "+one = 2" in patch and "two" not in patch and "new: 1" not in patch
    assert dirty == {"commit": state["commit"], "dirty": True}
    subprocess.run([*run, "commit", "-qam", "changed"], cwd=tmp_path, check=True)
    assert provenance.git_state()[0]["commit"] != state["commit"]


def test_an_unreadable_name_in_a_failure_is_recorded_all_the_same(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Record(tmp_path, {}).open():
        raise RuntimeError("file \udcff.png")
    assert record.read_result(tmp_path)["status"] == "failed"
    assert "udcff" in (tmp_path / "train.log").read_text()


def test_outputs_that_cannot_be_written_are_one_line(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "outputs").write_text("a file")
    done = typed("trainer=smoke")
    assert done.code == 2 and "cannot be written" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_closed_terminal_does_not_stop_a_run(tmp_path: Path) -> None:
    words = (
        f"{shlex.quote(sys.executable)} {shlex.quote(str(ROOT / 'train.py'))} trainer.max_epochs=3 model=mlp | head -1"
    )
    subprocess.run(words, shell=True, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL, timeout=120)
    for _ in range(300):
        if record.read_result(only_run(tmp_path / "outputs"))["status"] != "running":
            break
        time.sleep(0.1)
    assert record.read_result(only_run(tmp_path / "outputs"))["status"] == "finished"


def test_without_git_a_hash_of_the_source_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("one = 1\n")
    monkeypatch.setattr(provenance, "SOURCE", tmp_path)
    before, patch = provenance.git_state()
    assert before["commit"] is None and patch == ""
    (tmp_path / "a.py").write_text("one = 2\n")
    assert provenance.git_state()[0]["source_sha256"] != before["source_sha256"]


def test_files_of_ones_own_are_recorded_wherever_they_lie(tmp_path: Path) -> None:
    """Also within this clone, as a repetition finds only what is in `src` or installed; a change is seen without importing."""
    import tests.strangers

    named = {name: {"_target_": name} for name in ("tests.strangers.Spy", "torchlite.models.MLP", "torch.nn.Linear")}
    found = provenance.modules(named)
    assert list(found) == ["tests.strangers"] and found["tests.strangers"][0]["file"] == tests.strangers.__file__
    file = tmp_path / "not_imported.py"
    file.write_text("a = 1\n")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    facts = {"code": {"commit": "c", "modules": {"not_imported": {"file": str(file), "sha256": digest}}}}
    now = {"commit": "c"}, ""
    assert not provenance.is_other_code(tmp_path, facts, {}, now)
    file.write_text("a = 2\n")
    assert provenance.is_other_code(tmp_path, facts, {}, now)
    assert provenance.is_other_code(tmp_path, {"code": {"commit": "b", "modules": {}}}, {}, now)
