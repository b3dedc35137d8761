"""A sweep whose processes are killed with -9 at random moments gives what an undisturbed one gives."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT, USER_ENVIRONMENT
from tests.runs import assert_same_run, result

WORDS = ("model=mlp", "model.widths=[32]", "trainer.max_epochs=12", "optimizer=sgd,adamw", "seed=range(0,6)")


def launch(cwd: Path, name: str) -> "subprocess.Popen[bytes]":
    words = [*WORDS, f"name={name}", "hydra/launcher=local", "trainer.save_every_updates=5"]
    environment = {**USER_ENVIRONMENT, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "train.py"), "-m", *words]
    return subprocess.Popen(command, cwd=cwd, env=environment, process_group=0, stdout=subprocess.DEVNULL)


@pytest.mark.slow
def test_twelve_jobs_killed_three_times_equal_undisturbed_ones(tmp_path: Path) -> None:
    """C10"""
    chance = random.Random(5)
    outputs = tmp_path / "outputs"
    finished: dict[Path, int] = {}
    for _ in range(3):
        process = launch(tmp_path, "cut")
        ended = len(finished)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:  # until another job or two are through, or nearly
            if sum(result(path.parent)["status"] == "finished" for path in outputs.glob("cut/*/result.json")) > ended:
                break
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 1))
        os.killpg(process.pid, signal.SIGKILL)
        for path in outputs.glob("cut/*/result.json"):  # jobs are in groups of their own
            if result(path.parent)["status"] == "running":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(result(path.parent)["process"], signal.SIGKILL)
        process.wait()
        for path in outputs.glob("cut/*/result.json"):
            if result(path.parent)["status"] == "finished":
                finished.setdefault(path, path.stat().st_mtime_ns)
    assert launch(tmp_path, "cut").wait(timeout=300) == 0
    assert launch(tmp_path, "straight").wait(timeout=300) == 0
    assert 1 <= len(finished) < 12
    assert all(path.stat().st_mtime_ns == before for path, before in finished.items())  # none ran twice
    cut = {path.parent.name: path.parent for path in outputs.glob("cut/*/result.json")}
    straight = {path.parent.name: path.parent for path in outputs.glob("straight/*/result.json")}
    assert len(cut) == len(straight) == 12 and cut.keys() == straight.keys()
    for name in cut:
        assert_same_run(cut[name], straight[name])
