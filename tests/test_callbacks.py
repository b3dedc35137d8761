"""Hooks are called where they say, and a hook that does not exist is refused."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from tests.conftest import Typed
from torchlite.callbacks import Callback, EarlyStopping, Hooks, ProgressBar, progress_bar
from torchlite.errors import UserError


def test_a_hook_with_an_unknown_name_is_an_error() -> None:
    """F4"""
    with pytest.raises(UserError, match="Mine.on_epoch_ends is no hook; did you mean on_epoch_end?"):
        type("Mine", (Callback,), {"on_epoch_ends": lambda self, trainer: None})


def test_hooks_are_called_in_order(typed: Typed, tmp_path: Path) -> None:
    """F4, F8: a callback of one's own from the command line alone."""
    done = typed("trainer=smoke", "trainer.max_epochs=2", "model=mlp", "+callbacks.spy._target_=tests.strangers.Spy")
    assert done.code == 0, done.text
    validation = "validation ['val/acc1', 'val/acc5', 'val/loss']"
    scores = "['test/acc1', 'test/acc5', 'test/loss', 'val/acc1', 'val/acc5', 'val/loss']"
    assert (tmp_path / "hooks.txt").read_text().splitlines() == [
        "fit begin",
        *("epoch begin 0", validation, "epoch end 1"),
        *("epoch begin 1", validation, "epoch end 2"),
        f"fit end {scores}",
    ]


def test_a_callback_can_be_switched_off(typed: Typed, tmp_path: Path) -> None:
    done = typed("trainer=smoke", "model=mlp", "callbacks.tensorboard=null")
    assert done.code == 0, done.text
    assert not list((tmp_path / "outputs").rglob("tensorboard"))
    assert typed("trainer=smoke", "model=mlp", "callbacks=none").code == 0


def test_only_overridden_hooks_are_listened_to() -> None:
    calls = []

    class Mine(Callback):
        def on_epoch_end(self, trainer: object) -> None:
            calls.append(trainer)

    hooks = Hooks({"mine": Mine(), "stop": EarlyStopping()})
    hooks.call("on_batch_end", "trainer", "batch")
    hooks.call("on_epoch_end", "trainer")
    assert calls == ["trainer"]


@pytest.mark.parametrize(
    ("direction", "values", "stops_after"),
    [
        ("max", [0.5, 0.6, 0.6, 0.55, 0.61, 0.5, 0.5, 0.5], 8),
        ("min", [1.0, 0.9, 0.95, 0.95, 0.95, 0.1], 5),
        ("max", [0.9, 0.8, 0.8, 0.8, 0.99], 4),
    ],
)
def test_early_stopping_waits_its_patience(direction: str, values: list[float], stops_after: int) -> None:
    """T15, D04"""
    stopped: list[str] = []
    trainer = SimpleNamespace(monitor="val/acc1", monitor_direction=direction, stop=stopped.append)
    callback = EarlyStopping(patience_validations=3)
    for seen, value in enumerate(values, 1):
        callback.on_validation_end(trainer, {"val/acc1": value})
        other = EarlyStopping(patience_validations=3)  # as if it had been resumed here
        other.load_state_dict(callback.state_dict())
        callback = other
        assert bool(stopped) == (seen >= stops_after)
        if stopped:
            break
    assert seen == stops_after


def test_early_stopping_ends_a_run(typed: Typed, tmp_path: Path) -> None:
    done = typed(
        "callbacks=early_stopping", "callbacks.early_stopping.patience_validations=2", "model=mlp", "optimizer.lr=0"
    )
    assert done.code == 0, done.text
    assert "stopped after epoch 3: val/acc1 has not improved for 2 validations" in done.stdout


def test_the_bar_shows_numbers_from_the_first_update_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """At two seconds an update the log's first line comes after a hundred; what it says is shown as soon as it is there."""
    now = [100.0]
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: now[0])
    shown = io.StringIO()
    record = SimpleNamespace(console=Console(file=shown, force_terminal=True, width=140))
    progress = SimpleNamespace(update=0, epoch=0)
    updater = SimpleNamespace(loss_sum=torch.tensor(9.2))
    trainer = SimpleNamespace(record=record, progress=progress, updater=updater, total_updates=10, max_epochs=2)
    bar, batch = ProgressBar(), SimpleNamespace(ids=torch.arange(4))
    bar.on_fit_begin(trainer)

    def drawn_after(seconds: float) -> str:
        now[0] += seconds
        progress.update += 1
        shown.seek(0)
        shown.truncate()
        bar.on_batch_end(trainer, batch)
        return shown.getvalue()

    assert "1/10" in (first := drawn_after(2.0)) and "epoch 1/2" in first and "loss 2.3000" in first
    assert "2 images/s" in drawn_after(2.0)
    batch.ids = torch.arange(1)  # the last of an epoch
    assert "2 images/s" in drawn_after(2.0)
    batch.ids = torch.arange(4)
    assert drawn_after(0.1) == ""
    bar.on_log(trainer, {"update/loss": 1.25, "update/acc1": 0.5, "images_per_second": 2.0})
    updater.loss_sum = torch.tensor(4.0)
    assert "loss 1.2500  acc1 0.500" in drawn_after(1.0)
    assert "loss 1.0000" in drawn_after(6.0)
    refresh = bar.bar.refresh
    monkeypatch.setattr(bar.bar, "refresh", lambda: (refresh(), now.__setitem__(0, now[0] + 0.01)))
    assert drawn_after(1.0) and not drawn_after(4.9) and drawn_after(0.2), "10 ms a drawing: one in 5 s"
    monkeypatch.setattr(bar.bar, "refresh", lambda: (refresh(), now.__setitem__(0, now[0] + 10.0)))
    assert drawn_after(5.1) and not drawn_after(19.9) and drawn_after(0.2), "10 s in which nobody read: half a minute"
    bar.close()
    quiet = ProgressBar()
    quiet.on_fit_begin(SimpleNamespace(record=SimpleNamespace(console=Console(file=io.StringIO()))))
    quiet.on_batch_end(trainer, batch)
    assert quiet.bar is None
