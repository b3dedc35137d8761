"""Epochs that are shorter than the pause between checkpoints: what waits in memory is neither lost nor wrong."""

import errno
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
from torchlite.errors import MachineError, UserError
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


def test_a_best_that_waited_is_written_before_the_newer_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a cut between the two would leave a last.pt that tells of best weights which are gone."""
    order: list[str] = []
    plain = checkpoint.save

    def noted(path: Path, *arguments: Any, **options: Any) -> None:
        order.append(path.stem)
        plain(path, *arguments, **options)

    monkeypatch.setattr(checkpoint, "save", noted)
    writer = checkpoint.Writer(pause_seconds=1000)
    last, best = tmp_path / "last.pt", tmp_path / "best.pt"
    weights = torch.zeros(100)
    for value, paths in enumerate([(last, best), (last, best), (last,), (last,)]):
        weights.fill_(value)  # as an optimizer does, in place
        writer.save(dict.fromkeys(paths, {"model": {"w": weights}}), may_wait=True)
    writer.wait()
    assert order == ["last", "best", "best", "last"]
    assert found(tmp_path) == {"last": 3, "best": 1, "previous": 0}


def test_a_write_that_fails_at_the_end_hides_no_other_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = checkpoint.Writer(pause_seconds=1000)
    with pytest.raises(ValueError, match="the fault"), writer.flushed():
        writer.save({tmp_path / "last.pt": of(1)})
        writer.finish()
        monkeypatch.setattr(torch, "save", full)
        assert not writer.save({tmp_path / "last.pt": of(2)}, may_wait=True)
        raise ValueError("the fault")
    assert "could not write the checkpoint" in caplog.text
    with pytest.raises(MachineError, match="could not write"), writer.flushed():
        writer.save({tmp_path / "last.pt": of(3)})
    writer.wait()  # what could not be written is not tried for ever


def test_the_pause_is_no_less_than_nothing() -> None:
    with pytest.raises(UserError, match="save_pause_seconds=-1"):
        TrainerOptions(max_epochs=1, save_pause_seconds=-1)


def test_what_waits_does_not_put_off_the_save_by_the_clock(typed: Typed, tmp_path: Path) -> None:
    """Half a second after the first epoch's end, which is written, the third of 0.34 s is under way; the second's end waits."""
    slow = "+callbacks.it={_target_: tests.strange_callbacks.Slow, seconds: 0.02}"
    died = "+callbacks.end={_target_: tests.strange_callbacks.Killed, update: 50}"
    words = [*LONG, "trainer.save_every_minutes=0.0083", "trainer.save_pause_seconds=1000"]
    child = os.fork()
    if child == 0:
        typed(*words, slow, died)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert state(the_run(tmp_path / "outputs"))["progress"]["update"] > 17


def test_a_fault_leaves_the_newest_checkpoint(typed: Typed, tmp_path: Path) -> None:
    done = typed(*LONG, "+callbacks.it={_target_: tests.strangers.Explodes, update: 40}")
    assert done.code == 1 and "boom" in done.text
    run = the_run(tmp_path / "outputs")
    assert state(run)["progress"]["update"] == 34 and state(run, "best")["scores"]


@pytest.mark.slow
@pytest.mark.parametrize("call", range(3, 8))
def test_killed_while_what_waited_is_written_equals_straight(typed: Typed, tmp_path: Path, call: int) -> None:
    """The best is of an update within an epoch, and waits with the epoch's end, of which the first is on disk."""
    words = [*LONG, "trainer.validate_every_updates=5", "optimizer.lr=0.3", "trainer.max_epochs=2"]
    assert typed(*words, "name=straight").code == 0
    straight = the_run(shutil.move(tmp_path / "outputs" / "straight", tmp_path / "straight"))
    child = os.fork()
    if child == 0:
        with signal_at("os.replace", signal.SIGKILL, call, thread="checkpoint writer"):
            typed(*words, "name=cut")
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == (-signal.SIGKILL if call < 6 else 0)
    assert typed(*words, "name=cut", "resume=auto").code == 0
    assert_same_run(straight, the_run(tmp_path / "outputs" / "cut"))


@pytest.mark.parametrize(
    "call", [pytest.param(5, marks=pytest.mark.slow), 34, pytest.param(45, marks=pytest.mark.slow)]
)
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
