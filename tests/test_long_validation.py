"""A stop in the midst of a validation that takes long."""

import shutil
import signal
from pathlib import Path

import pytest

from tests.conftest import Typed
from tests.runs import BASE, assert_same_run, result, state, the_run
from tests.test_stopping import signal_at

STEP = "torchlite.tasks.Classification.evaluation_step"
WORDS = (*BASE, "trainer.validate_every_updates=5", "trainer.ema_decay=0.9", "callbacks=early_stopping",
         "scheduler=plateau", "data.eval_batch_size=100", "model.dropout=0.2", "trainer.save_every_updates=7")  # fmt: skip


@pytest.mark.parametrize(
    ("call", "update", "epoch"),
    [
        pytest.param(2, 5, 0, id="within an epoch"),
        pytest.param(7, 15, 0, id="its first batch", marks=pytest.mark.slow),
        pytest.param(10, 17, 0, id="an epoch's end"),
        pytest.param(12, 17, 0, id="the last batch", marks=pytest.mark.slow),
        pytest.param(23, 34, 1, id="a later epoch's", marks=pytest.mark.slow),
        pytest.param(38, 51, 2, id="the last epoch's", marks=pytest.mark.slow),
    ],
)
def test_a_stop_need_not_wait_for_it_and_a_resumed_run_begins_with_it(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int, update: int, epoch: int
) -> None:
    """Of three batches each: at every fifth update, and at the end of each epoch of 17."""
    assert typed(*WORDS, "name=straight").code == 0
    straight = the_run(shutil.move(tmp_path / "outputs" / "straight", tmp_path / "straight"))

    monkeypatch.setattr("torchlite.trainer.LONG", 0.0)
    with signal_at(STEP, signal.SIGTERM, call=call):
        done = typed(*WORDS, "name=cut")
    assert done.code == 143, done.text
    run = the_run(tmp_path / "outputs" / "cut")
    progress = state(run)["progress"]
    assert (progress["update"], progress["epoch"]) == (update, epoch) and progress["last"].get("update") != update
    assert result(run)["status"] == "stopped"

    done = typed(*WORDS, "name=cut", "resume=auto")
    assert done.code == 0, done.text
    assert_same_run(straight, run)


@pytest.mark.slow
def test_one_longer_than_the_time_limit_is_not_begun_for_ever(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchlite.trainer.LONG", 0.0)
    words = [*WORDS, "trainer.max_epochs=1", "name=cut", "resume=auto"]
    with signal_at(STEP, signal.SIGTERM, call=2):
        assert typed(*words).code == 143
    run = the_run(tmp_path / "outputs")
    for _ in range(40):
        done = typed(*words, "trainer.max_minutes=0.00001")
        if done.code == 0:
            break
        assert done.code == 75, done.text
    assert result(run)["status"] == "finished"


def test_a_stop_waits_for_a_short_one(typed: Typed, tmp_path: Path) -> None:
    with signal_at(STEP, signal.SIGTERM, call=2):
        assert typed(*WORDS, "name=cut").code == 143
    progress = state(the_run(tmp_path / "outputs"))["progress"]
    assert progress["update"] == progress["last"]["update"] == 5
