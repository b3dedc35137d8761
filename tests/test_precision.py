"""What `auto` chooses, compile, and schedules counted in updates."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.conftest import Typed
from tests.runs import BASE, lines, result, same, state, the_run
from torchlite import machine
from torchlite.models import MLP, SmallCNN


def test_auto_takes_bf16_only_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(model: nn.Module, supported: bool) -> tuple[str, bool, bool]:
        monkeypatch.setattr(machine, "computes_in_bf16", lambda device: supported)
        found = machine.choose_formats(model, torch.device("cpu"), "auto", "auto", "auto")
        return found["precision"], found["channels_last"], found["compile"]

    assert chosen(SmallCNN(10, 1), True) == ("bf16", True, False)
    assert chosen(MLP(10, 1, 8), True) == ("fp32", False, False)
    assert chosen(SmallCNN(10, 1), False) == ("fp32", False, False)
    asked = machine.choose_formats(SmallCNN(10, 1), torch.device("cpu"), "fp32", True, True)
    assert asked == {"precision": "fp32", "channels_last": True, "compile": True}


def test_what_auto_chose_is_said_recorded_and_kept_by_a_resume(
    stopped: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "computes_in_bf16", lambda device: True)
    words = ["model=small_cnn", "model.widths=[4]", "trainer=fast", "trainer.max_epochs=2"]
    done = stopped(20, *words)
    assert done.code == 143 and "auto chose precision bf16, channels_last True, compile False" in done.stdout
    choices = json.loads((the_run(tmp_path / "outputs") / "run.json").read_text())["choices"]
    assert (choices["precision"], choices["channels_last"], choices["deterministic"]) == ("bf16", True, False)
    monkeypatch.setattr(machine, "computes_in_bf16", lambda device: False)
    done = stopped(None, *words, "resume=auto")
    assert done.code == 0 and "auto chose precision bf16" in done.stdout
    done = stopped(None, *words, "trainer.precision=fp32", "trainer.compile=false", "name=typed")
    assert done.code == 0 and "auto chose channels_last False\n" in done.stdout


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the compiler's own
def test_a_compiled_model_leaves_no_trace_in_its_checkpoint(typed: Typed, tmp_path: Path) -> None:
    """F01"""
    words = ["trainer=smoke", "model=mlp", "model.widths=[8]"]
    assert typed(*words, "trainer.compile=true", "name=compiled").code == 0
    best = the_run(tmp_path / "outputs" / "compiled") / "checkpoints" / "best.pt"
    weights = torch.load(best, weights_only=True)["model"]
    assert not any("_orig_mod" in name or "module." in name for name in weights)
    done = typed(*words, "optimizer.lr=0", f"model.weights={best}", "name=plain")
    assert done.code == 0 and "4 of 4 tensors taken" in done.stdout
    assert same(state(the_run(tmp_path / "outputs" / "plain"))["model"], weights)
    scores = [result(the_run(tmp_path / "outputs" / name))["test"]["test/loss"] for name in ("compiled", "plain")]
    assert scores[0] == pytest.approx(scores[1], rel=1e-5)


def test_a_lone_sample_for_a_batch_norm_is_refused_before_training(typed: Typed, tmp_path: Path) -> None:
    """H13"""
    words = ["model=mlp", "model.norm=batch", "data.drop_last=false", "data.batch_size=383"]  # of 1,150
    done = typed(*words)
    assert done.code == 2 and "no batch statistics" in done.stderr and not list(tmp_path.rglob("result.json"))
    assert typed(*words, "model.norm=layer", "trainer=smoke", "trainer.max_epochs=1").code == 0


def test_a_batch_larger_than_the_set_is_told_of(typed: Typed, tmp_path: Path) -> None:
    """G03: the schedule, the log and the count all say one update an epoch."""
    words = ["model=mlp", "data.batch_size=4096", "data.drop_last=false", "trainer.max_epochs=3", "scheduler=cosine"]
    done = typed(*words)
    assert done.code == 0 and "1150" in done.stdout and "data.batch_size=4096" in done.stdout
    assert result(the_run(tmp_path / "outputs"))["updates"] == 3


def test_onecycle_ends_at_its_minimum(typed: Typed, tmp_path: Path) -> None:
    """G04: counted in updates, whatever the micro-batches; 3 epochs of 17 updates."""
    words = ["model=mlp", "scheduler=onecycle", "trainer.max_epochs=3", "trainer.log_every_updates=1"]
    assert typed(*words, "trainer.micro_batch_size=32").code == 0
    rates = [line["lr"] for line in lines(the_run(tmp_path / "outputs")) if "update/loss" in line]
    assert len(rates) == 51 and rates[-1] == min(rates) and max(rates) == pytest.approx(0.003, rel=1e-3)


@pytest.mark.parametrize(("warmup", "code"), [("4", 2), ("3", 0), ("0", 0)])
def test_warm_up_as_long_as_the_training(typed: Typed, tmp_path: Path, warmup: str, code: int) -> None:
    """G05"""
    words = ["model=mlp", "trainer.max_epochs=3", "trainer.log_every_updates=1", f"scheduler.warmup_epochs={warmup}"]
    done = typed(*words)
    assert done.code == code, done.text
    if code:
        assert "scheduler.warmup_epochs=4" in done.stderr and "trainer.max_epochs=3" in done.stderr
        return
    rates = [line["lr"] for line in lines(the_run(tmp_path / "outputs")) if "update/loss" in line]
    assert all(0 < rate <= 0.003 + 1e-12 for rate in rates)
    if warmup == "3":
        assert rates[-1] == pytest.approx(0.003)


def test_what_fp16_leaves_out_moves_no_schedule_and_is_recorded(typed: Typed, tmp_path: Path) -> None:
    """G07: each update has the rate that it has without an overflow, and there are as many fewer as were left out."""
    assert typed(*BASE, "trainer.precision=fp16", "trainer.log_every_updates=1", "name=straight").code == 0
    high = ["trainer.log_every_updates=1", "+callbacks.high._target_=tests.strange_callbacks.HighScale"]
    done = typed(*BASE, "trainer.precision=fp16", *high, "name=high")
    assert done.code == 0 and "fp16 overflow: update 1 is tried again" in done.stdout, done.text
    straight, run = (the_run(tmp_path / "outputs" / name) for name in ("straight", "high"))
    rates = [{line["update"]: line["lr"] for line in lines(one) if "lr" in line} for one in (straight, run)]
    assert rates[1].items() < rates[0].items()
    assert result(run)["skipped_updates"] > 10 and result(straight)["skipped_updates"] == 0
    assert result(run)["skipped_updates"] + len(rates[1]) == len(rates[0])


def test_a_batch_that_was_cut_to_fit_is_logged_and_recorded(typed: Typed, tmp_path: Path) -> None:
    hungry = ["data.batch_size=64", "+callbacks.hungry={_target_: tests.strangers.Hungry, limit: 20}"]
    done = typed(*BASE, *hungry)
    assert done.code == 1 and "Less memory: trainer.micro_batch_size=auto" in done.stderr, done.text
    done = typed(*BASE, *hungry, "trainer.micro_batch_size=auto", "name=cut")
    assert done.code == 0 and "out of memory: going on with trainer.micro_batch_size=16" in done.stdout, done.text
    run = the_run(tmp_path / "outputs" / "cut")
    assert result(run)["micro_batch_size"] == 16
    assert "trainer.micro_batch_size=16" in (run / "train.log").read_text()
