"""Runs that are killed, and runs that are told to stop."""

import json
import os
import random
import runpy
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT, Typed
from tests.runs import BASE, assert_same_run, result, state, the_run
from tests.test_stopping import signal_at


def killed_at_random(words: list[str], cwd: Path, seconds: float) -> None:
    """Run `train.py` in a fork of this process, and kill -9 it after so many seconds of training."""
    log = cwd / "log"
    started = len(log.read_text()) if log.exists() else 0
    child = os.fork()
    if child == 0:
        os.chdir(cwd)
        descriptor = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1), os.dup2(descriptor, 2)
        sys.argv = [str(ROOT / "train.py"), *words]
        try:
            runpy.run_path(str(ROOT / "train.py"), run_name="__main__")
        except SystemExit as ended:
            os._exit(ended.code or 0)
        os._exit(0)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (log.exists() and "writing to" in log.read_text()[started:]):
        if os.waitpid(child, os.WNOHANG) != (0, 0):
            return
        time.sleep(0.002)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_killed_at_random_moments_equals_straight(typed: Typed, tmp_path: Path, part: int) -> None:
    """E01: 50 kills in all, with a checkpoint at every other update so that many fall into a save; some runs are hit often."""
    words = ["model=small_cnn", "model.widths=[8,16]", "model.dropout=0.2", "trainer.max_epochs=4", "trainer.ema_decay=0.9",
             "data.drop_last=false", "trainer.micro_batch_size=40", "trainer.save_every_updates=2", "callbacks=early_stopping",
             "trainer.num_threads=1", "trainer.log_every_updates=3"]  # fmt: skip
    assert typed(*words, "name=straight").code == 0
    # Away from where resume=auto would find it
    straight = the_run(shutil.move(tmp_path / "outputs" / "straight", tmp_path / "straight"))
    chance = random.Random(part)
    kills = 0
    while kills < 10:
        killed_at_random([*words, "name=cut", "resume=auto"], tmp_path, chance.uniform(0, 0.7))
        kills += 1
        runs = (
            [path for path in (tmp_path / "outputs" / "cut").iterdir()]
            if (tmp_path / "outputs" / "cut").exists()
            else []
        )
        if runs and result(runs[0])["status"] == "finished":
            assert_same_run(straight, runs[0])
            shutil.rmtree(runs[0])
    done = typed(*words, "name=cut", "resume=auto")
    assert done.code == 0, done.text
    run = the_run(tmp_path / "outputs" / "cut")
    assert_same_run(straight, run)
    left = {path.name.removeprefix(".").removesuffix(".partial") for path in (run / "checkpoints").iterdir()}
    assert left <= {"last.pt", "best.pt", "previous.pt", "best.safetensors"}


SAVING = {  # what is called in a save, in the checkpoint's thread, and which call of a run is the kill's
    "nothing written yet": ("torch.save", 8),
    "written, not on disk": ("os.fsync", 20),
    "on disk, the one before not kept": ("torchlite.checkpoint._keep", 3),
    "the one before kept, not renamed": ("os.replace", 17),
    "renamed, not on disk": ("torchlite.checkpoint._sync_directory", 5),
    "last.pt there, best.pt not": ("torchlite.checkpoint.Writer._drop_old", 6),
}


@pytest.mark.slow
@pytest.mark.parametrize("place", SAVING)
def test_killed_within_a_save_equals_straight(typed: Typed, tmp_path: Path, place: str) -> None:
    """E01, at each step of it."""
    words = [*BASE, "trainer.save_every_updates=2"]
    assert typed(*words, "name=straight").code == 0
    straight = the_run(shutil.move(tmp_path / "outputs" / "straight", tmp_path / "straight"))
    step, call = SAVING[place]
    child = os.fork()
    if child == 0:
        with signal_at(step, signal.SIGKILL, call, thread="checkpoint writer"):
            typed(*words, "name=cut")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    run = the_run(tmp_path / "outputs" / "cut")
    assert result(run)["status"] == "running"
    assert typed(*words, "name=cut", "resume=auto").code == 0
    assert_same_run(straight, run)


# Signals


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGUSR1, 75)])
def test_a_signal_finishes_the_update_and_writes_a_checkpoint(
    stopped: Typed, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """P01"""
    done = stopped(10, *BASE, number=number)
    assert done.code == code, done.text
    run = the_run(tmp_path / "outputs")
    assert result(run)["status"] == "stopped" and number.name in result(run)["stopped"]
    assert state(run)["progress"]["update"] == 10


def test_a_time_limit_stops_the_run_to_be_resumed(typed: Typed, tmp_path: Path) -> None:
    done = typed(*BASE, "trainer.max_minutes=0.00001")
    assert done.code == 75 and "trainer.max_minutes" in done.stderr
    assert state(the_run(tmp_path / "outputs"))["progress"]["update"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_two_signals_end_the_process_at_once(tmp_path: Path, number: signal.Signals) -> None:
    """P01: as a shell sees it, `python train.py && touch done`; the second signal ends it within 5 s."""
    words = [sys.executable, str(ROOT / "train.py"), "trainer.max_epochs=1000", "model=mlp"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch"):
            break
    process.send_signal(number)
    process.send_signal(number)
    sent = time.monotonic()
    process.stdout.close()
    assert process.wait(timeout=30) == 128 + number
    assert time.monotonic() - sent < 5


@pytest.mark.slow
def test_jobs_of_a_sweep_that_were_told_to_stop_go_on(stopped: Typed, tmp_path: Path) -> None:
    """C10: the signal came to each job alone, so each stops, and the sweep waits to be gone on with."""
    assert stopped(None, "-m", *BASE, "seed=0,1", "name=straight").code == 0
    done = stopped(20, "-m", *BASE, "seed=0,1", "name=cut")
    assert done.code == 75 and "2 jobs in outputs/cut: 2 new" in done.stdout
    done = stopped(None, "-m", *BASE, "seed=0,1", "name=cut")
    assert done.code == 0 and "2 jobs in outputs/cut: 2 stopped" in done.stdout, done.text
    for one in (tmp_path / "outputs" / "straight").iterdir():
        if one.is_dir():
            other = tmp_path / "outputs" / "cut" / one.name
            assert "going on after update 20" in (other / "train.log").read_text()
            assert_same_run(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("goes_on", [True, False])
def test_a_sweeps_job_that_the_machine_failed_goes_on(stopped: Typed, tmp_path: Path, goes_on: bool) -> None:
    assert stopped(20, "-m", *BASE, "name=s").code == 75
    run = the_run(tmp_path / "outputs")
    failure = {"type": "WorkerDiedError", "goes_on": goes_on, "message": "m"}
    (run / "result.json").write_text(json.dumps({"status": "failed", "failure": failure}))
    assert stopped(None, "-m", *BASE, "name=s").code == 0
    assert ("going on after update 20" in (run / "train.log").read_text()) == goes_on


def test_a_resume_on_another_machine_keeps_the_number_of_threads(stopped: Typed, tmp_path: Path) -> None:
    assert stopped(20, "model=mlp", "trainer.max_epochs=2").code == 143
    facts = json.loads((the_run(tmp_path / "outputs") / "run.json").read_text())
    assert facts["choices"]["num_threads"] == torch.get_num_threads() == 1


@pytest.mark.slow
def test_a_sweeps_job_that_was_refused_once_keeps_what_it_has_trained(stopped: Typed, tmp_path: Path) -> None:
    """Other data was there for a while, say: the third launch goes on where the first was stopped."""
    assert stopped(20, "-m", *BASE, "name=s").code == 75
    run = the_run(tmp_path / "outputs")
    text = (run / "run.json").read_text()
    facts = json.loads(text)
    facts["data"]["fingerprint"] = "0" * 64
    (run / "run.json").write_text(json.dumps(facts))
    done = stopped(None, "-m", *BASE, "name=s")
    assert done.code == 1 and "the data is not what it was" in done.text, done.text
    (run / "run.json").write_text(text)
    done = stopped(None, "-m", *BASE, "name=s")
    assert done.code == 0 and "going on after update 20" in (run / "train.log").read_text(), done.text


@pytest.mark.slow
@pytest.mark.parametrize("call", [7, 8, 9, 10, 11])
def test_a_kill_costs_no_numbered_checkpoint(typed: Typed, tmp_path: Path, call: int) -> None:
    words = [*BASE, "trainer.save_every_epochs=1", "trainer.keep_epochs=2", "name=cut", "resume=auto"]
    child = os.fork()
    if child == 0:
        with signal_at("os.replace", signal.SIGKILL, call, thread="checkpoint writer"):
            typed(*words)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert typed(*words).code == 0
    names = {path.name for path in (the_run(tmp_path / "outputs") / "checkpoints").iterdir()}
    assert names == {"last.pt", "previous.pt", "best.pt", "best.safetensors", "epoch-0002.pt", "epoch-0003.pt"}
