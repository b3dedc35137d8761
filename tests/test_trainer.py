"""The loop: what is trained, scored, kept and logged."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import Typed
from torchlite.errors import UserError
from torchlite.trainer import Trainer


def result(tmp_path: Path) -> dict[str, Any]:
    (file,) = (tmp_path / "outputs").rglob("result.json")
    return json.loads(file.read_text())


def lines(tmp_path: Path) -> list[dict[str, float]]:
    (file,) = (tmp_path / "outputs").rglob("metrics.jsonl")
    return [json.loads(line) for line in file.read_text().splitlines()]


LOSSES = [2.30751, 2.29814, 2.27636, 2.25571, 2.22938, 2.22416]


def test_a_fixed_loss_sequence_for_a_seed(typed: Typed, tmp_path: Path) -> None:
    """A change of these numbers is a change of what every recorded run computes."""
    words = ["model=mlp", "model.widths=[16]", "trainer.max_epochs=2", "trainer.log_every_updates=5"]
    assert typed(*words, "trainer.num_threads=1", "scheduler.warmup_epochs=0.5").code == 0
    losses = [line["update/loss"] for line in lines(tmp_path) if "update/loss" in line]
    assert losses == pytest.approx(LOSSES, rel=2e-4)  # the last bits are the processor's


def test_the_best_weights_are_tested_and_the_first_of_equals_wins(typed: Typed, tmp_path: Path) -> None:
    done = typed("model=mlp", "trainer.max_epochs=4", "optimizer.lr=0")
    assert done.code == 0, done.text
    assert result(tmp_path)["best"]["epoch"] == 1
    assert result(tmp_path)["last"]["epoch"] == 4


def test_the_test_set_is_scored_with_the_best_weights(typed: Typed, tmp_path: Path) -> None:
    """A callback ruins the weights before the fourth epoch: the test score is the best epoch's all the same."""
    done = typed("model=mlp", "trainer.max_epochs=5", "+callbacks.ruin={_target_:tests.strangers.Ruin,epoch:3}")
    assert done.code == 0, done.text
    found = result(tmp_path)
    assert found["best"]["epoch"] <= 3 and found["last"]["val/acc1"] < found["best"]["val/acc1"] - 0.1
    assert abs(found["test"]["test/acc1"] - found["best"]["val/acc1"]) < 0.1


def test_without_validation_the_last_weights_are_best_and_the_result_says_so(typed: Typed, tmp_path: Path) -> None:
    done = typed("trainer.max_epochs=1", "model=mlp", "data.val_fraction=0")
    assert done.code == 0, done.text
    assert "nothing was validated" in done.stdout
    found = result(tmp_path)
    assert found["best_is_last"] is True and found["best"] == {"update": 22, "epoch": 1}


def test_the_monitor_alone_chooses(typed: Typed, tmp_path: Path) -> None:
    done = typed("model=mlp", "trainer.max_epochs=6", "trainer.monitor=val/loss")
    assert done.code == 0, done.text
    scores = [line["val/loss"] for line in lines(tmp_path) if "val/loss" in line]
    assert result(tmp_path)["best"]["val/loss"] == min(scores)


def test_validation_every_so_many_updates_and_a_smoothed_score(typed: Typed, tmp_path: Path) -> None:
    """T16"""
    words = ["trainer.validate_every_updates=5", "trainer.smooth_validations=3", "trainer.monitor=val/acc1_smooth"]
    done = typed("trainer=smoke", "model=mlp", *words)
    assert done.code == 0, done.text
    scored = [line for line in lines(tmp_path) if "val/acc1" in line]
    assert [line["update"] for line in scored] == [5, 10, 15, 17]
    raw = [line["val/acc1"] for line in scored]
    smooth = [line["val/acc1_smooth"] for line in scored]
    assert smooth == pytest.approx([raw[0], sum(raw[:2]) / 2, sum(raw[:3]) / 3, sum(raw[1:]) / 3])
    assert result(tmp_path)["best"]["val/acc1_smooth"] == max(smooth)


def test_validation_every_so_many_epochs_includes_the_last(typed: Typed, tmp_path: Path) -> None:
    assert typed("model=mlp", "trainer.max_epochs=5", "trainer.validate_every_epochs=2").code == 0
    assert [line["epoch"] for line in lines(tmp_path) if "val/acc1" in line] == [2, 4, 5]


@pytest.mark.parametrize(
    "field",
    ["max_epochs", "limit_train_batches", "num_threads", "log_every_updates", "clip_grad_norm", "micro_batch_size"],
)
def test_numbers_that_would_train_nothing_are_refused(field: str) -> None:
    """P03"""
    with pytest.raises(UserError, match=rf"trainer\.{field}=0"):
        Trainer(**{"max_epochs": 1, field: 0})


def test_a_device_that_is_not_there_is_named(typed: Typed) -> None:
    done = typed("trainer=smoke", "trainer.device=xpu")
    assert done.code == 2 and "trainer.device=xpu cannot be used here" in done.stderr


def test_a_number_that_is_not_finite_stops_the_run_before_it_reaches_the_weights(typed: Typed, tmp_path: Path) -> None:
    words = ["trainer=smoke", "trainer.max_epochs=3", "model=mlp", "model.widths=[8]"]
    done = typed(*words, "+callbacks.poison={_target_:tests.strangers.Poison,update:20}")
    assert done.code == 1
    message = result(tmp_path)["failure"]["message"]
    assert message.startswith("update 20: the gradient of ") and "Samples: " in message and "optimizer.lr" in message
    (last,) = (tmp_path / "outputs").rglob("last.pt")
    state = torch.load(last, weights_only=True)
    assert state["progress"]["update"] == 17
    assert all(value.isfinite().all() for value in state["model"].values() if value.is_floating_point())


def test_scores_that_are_not_finite_are_no_success(typed: Typed, tmp_path: Path) -> None:
    """Weights that are finite but so large that every score is not: no accuracy is made up."""
    done = typed("model=mlp", "trainer.max_epochs=1", "+callbacks.huge._target_=tests.strangers.Huge")
    assert done.code == 1, done.text
    assert "val/loss" in done.text and "is not finite" in result(tmp_path)["failure"]["message"]
    assert [line["val/acc1"] for line in lines(tmp_path) if "val/acc1" in line] == [0.0]


@pytest.mark.parametrize("task", ["MeanLoss", "ScalarScores"])
def test_a_task_that_averages_by_itself_is_told_so(typed: Typed, task: str) -> None:
    done = typed("trainer=smoke", "model=mlp", f"task._target_=tests.strangers.{task}")
    assert done.code == 2 and task in done.stderr and "[B]" in done.stderr, done.text


def test_a_callback_that_exits_has_failed(typed: Typed, tmp_path: Path) -> None:
    done = typed("trainer=smoke", "model=mlp", "+callbacks.exits._target_=tests.strangers.Exits")
    assert done.code == 1
    assert result(tmp_path)["status"] == "failed"


def test_a_callback_that_cannot_be_closed_spoils_nothing(typed: Typed, tmp_path: Path) -> None:
    done = typed("trainer=smoke", "model=mlp", "+callbacks.stuck._target_=tests.strangers.Stuck")
    assert done.code == 0 and "callbacks.stuck could not be closed" in done.text
    assert result(tmp_path)["status"] == "finished"


def test_a_task_of_ones_own_replaces_one_method(typed: Typed, tmp_path: Path) -> None:
    """T2: several losses, the loop untouched; T11, F9."""
    words = ["task._target_=tests.strangers.TwoLosses", "+task.penalty_weight=0.1"]
    done = typed("trainer=smoke", "model=mlp", *words)
    assert done.code == 0, done.text
    assert all("update/penalty" in line for line in lines(tmp_path) if "update/loss" in line)


@pytest.mark.parametrize("words", ["optimizer=sgd", "optimizer=adam", "optimizer=rmsprop", "optimizer=timm"])
def test_every_optimizer_learns(typed: Typed, tmp_path: Path, words: str) -> None:
    """F5"""
    assert typed("model=mlp", "trainer.max_epochs=8", words).code == 0
    assert result(tmp_path)["test"]["test/acc1"] > 0.85


@pytest.mark.parametrize(
    "scheduler", ["cosine", "onecycle", "step", "multistep", "plateau", "constant", "warmup_cosine"]
)
def test_every_schedule_runs_and_its_rates_are_logged(typed: Typed, tmp_path: Path, scheduler: str) -> None:
    """T9, F5"""
    words = ["model=mlp", "trainer.max_epochs=3", "trainer.log_every_updates=1", f"scheduler={scheduler}"]
    assert typed(*words).code == 0
    rates = [line["lr"] for line in lines(tmp_path) if "update/loss" in line]
    assert len(rates) == 51 and all(0 <= rate <= 0.003 + 1e-12 for rate in rates)


def test_norm_and_bias_are_not_decayed_and_the_linear_rule_is_recorded(typed: Typed, tmp_path: Path) -> None:
    """T8, P6"""
    words = ["trainer=smoke", "trainer.lr_reference_batch_size=128", "optimizer=sgd", "optimizer.lr=0.1"]
    assert typed(*words, "data.batch_size=32").code == 0
    (file,) = (tmp_path / "outputs").rglob("run.json")
    assert json.loads(file.read_text())["choices"]["lr"] == pytest.approx(0.025)
    (last,) = (tmp_path / "outputs").rglob("last.pt")
    groups = torch.load(last, weights_only=True)["optimizer"]["param_groups"]
    assert [group["weight_decay"] for group in groups] == [0.0005, 0.0]
    assert all(name.endswith("weight") for name in groups[0]["param_names"])


def test_config_groups_become_plain_pytorch_objects(typed: Typed, tmp_path: Path) -> None:
    """C3"""
    done = typed("trainer=smoke", "optimizer=sgd", "+callbacks.kinds._target_=tests.strangers.Kinds")
    assert done.code == 0, done.text
    assert (tmp_path / "kinds.txt").read_text() == "SGD SmallCNN UpdateLR True"
