"""Epochs that are shorter than the pause between checkpoints: what waits in memory is neither lost nor wrong."""

import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import Typed
from tests.runs import BASE, assert_same_run, result, state, the_run
from tests.test_stopping import signal_at
from torchlite import checkpoint
from torchlite.errors import UserError
from torchlite.options import TrainerOptions

LONG = [
    word for word in BASE if not word.startswith("trainer.save_pause_seconds")
]  # 17 updates an epoch, in milliseconds


def of(value: float) -> dict[str, Any]:
    return {"model": {"w": torch.full((100,), float(value))}}


def found(directory: Path) -> dict[str, float]:
    return {path.stem: checkpoint.load(path)["model"]["w"].mean().item() for path in directory.glob("*.pt")}


def test_what_may_wait_is_written_after_the_pause_or_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now)
    last, best, synced = tmp_path / "last.pt", tmp_path / "best.pt", []
    writer = checkpoint.Writer(pause_seconds=10)

    def save(value: float, *paths: Path, may_wait: bool = True) -> None:
        writer.save(dict.fromkeys(paths, of(value)), sync=lambda: synced.append(value), may_wait=may_wait)
        writer.finish()

    save(1, last, best)  # the first, at once
    now = 105.0
    save(2, last, best)
    save(3, last)  # the best stays that of 2
    save(4, last)
    assert found(tmp_path) == {"last": 1, "best": 1} and synced == [1]
    now = 110.0
    save(5, last)
    assert found(tmp_path) == {"last": 5, "best": 2, "previous": 1} and synced == [1, 5]
    save(6, last)
    save(7, last, may_wait=False)  # somebody asked for it
    assert found(tmp_path) == {"last": 7, "best": 2, "previous": 5} and synced == [1, 5, 7]
    save(8, last, best)
    writer.wait()
    assert found(tmp_path) == {"last": 8, "best": 8, "previous": 7} and synced == [1, 5, 7, 8]


def test_the_pause_is_no_less_than_nothing() -> None:
    with pytest.raises(UserError, match="save_pause_seconds=-1"):
        TrainerOptions(max_epochs=1, save_pause_seconds=-1)


def test_a_fault_leaves_the_newest_checkpoint(typed: Typed, tmp_path: Path) -> None:
    done = typed(*LONG, "+callbacks.it={_target_: tests.strangers.Explodes, update: 40}")
    assert done.code == 1 and "boom" in done.text
    run = the_run(tmp_path / "outputs")
    assert state(run)["progress"]["update"] == 34 and state(run, "best")["scores"]


@pytest.mark.parametrize("call", [5, 34, 45])
def test_a_kill_costs_a_little_more_and_no_bit(typed: Typed, tmp_path: Path, call: int) -> None:
    """E01: the first epoch's end is on disk, later ones were in memory."""
    assert typed(*LONG, "name=straight").code == 0
    straight = the_run(shutil.move(tmp_path / "outputs" / "straight", tmp_path / "straight"))
    child = os.fork()
    if child == 0:
        with signal_at("torchlite.update.Updater.apply", signal.SIGKILL, call):
            typed(*LONG, "name=cut")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    run = the_run(tmp_path / "outputs" / "cut")
    assert result(run)["status"] == "running"
    if (run / "checkpoints" / "last.pt").exists():  # else its thread had not come so far
        assert state(run)["progress"]["update"] == 17 < call
    assert typed(*LONG, "name=cut", "resume=auto").code == 0
    assert_same_run(straight, run)
