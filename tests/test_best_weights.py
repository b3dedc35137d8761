"""Which weights are validated, kept as best, and tested: those that are scored, averages included, and the best of them."""

from pathlib import Path

import pytest

from tests.conftest import Typed
from tests.runs import BASE, lines, result, state, the_run


@pytest.mark.parametrize(
    ("words", "kind"),
    [([], "raw"), (["trainer.ema_decay=0.5"], "ema")],
)
def test_the_best_weights_are_tested_not_the_last(typed: Typed, tmp_path: Path, words: list[str], kind: str) -> None:
    ruin = "+callbacks.ruin={_target_:tests.strangers.Ruin,epoch:3}"
    assert typed(*BASE, "trainer.max_epochs=6", ruin, "name=ruined", *words).code == 0
    run = the_run(tmp_path / "outputs" / "ruined")
    found = result(run)
    assert found["weights"] == state(run, "best")["weights_are"] == kind
    assert found["best"]["val/loss"] < found["last"]["val/loss"]
    best = f"model.weights={run}/checkpoints/best.pt"
    assert typed(*BASE, "trainer.max_epochs=1", "optimizer.lr=0", best, "name=tested").code == 0
    assert result(the_run(tmp_path / "outputs" / "tested"))["test"] == pytest.approx(found["test"], rel=1e-5)


def test_the_average_of_an_epoch_is_validated_whatever_else_validates(typed: Typed, tmp_path: Path) -> None:
    words = [*BASE, "trainer.swa_start_epoch=1"]
    assert typed(*words, "name=epochs").code == 0
    assert typed(*words, "trainer.validate_every_updates=17", "name=updates").code == 0  # the updates of an epoch
    epochs, updates = (the_run(tmp_path / "outputs" / name) for name in ("epochs", "updates"))
    assert lines(epochs) == lines(updates)
    assert result(epochs)["last"] == result(updates)["last"]
    assert result(epochs)["weights"] == state(epochs, "best")["weights_are"] == "swa"


def test_raw_weights_are_called_raw_while_nothing_is_averaged(typed: Typed, tmp_path: Path) -> None:
    words = ["trainer.swa_start_epoch=2", "trainer.validate_every_epochs=1", "scheduler=constant", "optimizer.lr=0"]
    assert typed(*BASE, *words).code == 0  # all are equal, so the first stays the best
    run = the_run(tmp_path / "outputs")
    assert result(run)["best"]["epoch"] == 1
    assert result(run)["weights"] == state(run, "best")["weights_are"] == "raw"


def test_the_epoch_that_a_callback_makes_the_last_is_validated(typed: Typed, tmp_path: Path) -> None:
    stop = "+callbacks.enough={_target_:tests.strange_callbacks.Enough,epochs:2}"
    assert typed(*BASE, "trainer.max_epochs=9", "trainer.validate_every_epochs=5", stop).code == 0
    found = result(the_run(tmp_path / "outputs"))
    assert found["last"]["epoch"] == found["best"]["epoch"] == 2 and "val/loss" in found["best"]


@pytest.mark.parametrize("option", ["ema_decay=1.5", "ema_decay=0", "swa_start_epoch=3", "swa_start_epoch=-1"])
def test_averages_that_could_not_be_are_refused_before_the_first_job(typed: Typed, tmp_path: Path, option: str) -> None:
    key, _, value = option.partition("=")
    done = typed("-m", *BASE, f"trainer.{key}=null,{value}")
    assert done.code == 2 and f"trainer.{option}" in done.stderr
    assert not list((tmp_path / "outputs").glob("*/*/result.json"))
