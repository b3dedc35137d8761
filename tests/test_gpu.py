"""The same on a GPU: run with `make test-slow` where there is one."""

from pathlib import Path

import pytest
import torch

from tests.conftest import Typed
from tests.runs import assert_same_run, result, the_run

pytestmark = pytest.mark.gpu
WORDS = ("model=small_cnn", "model.widths=[8,16]", "model.dropout=0.2", "trainer.max_epochs=2", "trainer.device=cuda")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_it_learns_in_every_precision(typed: Typed, tmp_path: Path, precision: str) -> None:
    words = ["trainer.max_epochs=10", f"trainer.precision={precision}", "trainer.channels_last=true"]
    assert typed("trainer.device=cuda", *words).code == 0
    assert result(the_run(tmp_path / "outputs"))["test"]["test/acc1"] > 0.9


def test_two_runs_are_the_same(typed: Typed, tmp_path: Path) -> None:
    """I06: or what is not deterministic is named in the result."""
    for name in ("one", "two"):
        assert typed(*WORDS, f"name={name}").code == 0
    one, two = (the_run(tmp_path / "outputs" / name) for name in ("one", "two"))
    if "not_deterministic" not in result(one):
        assert_same_run(one, two)


def test_resumed_equals_straight(stopped: Typed, tmp_path: Path) -> None:
    assert stopped(None, *WORDS, "name=straight").code == 0
    assert stopped(20, *WORDS, "name=cut").code == 143
    assert stopped(None, *WORDS, "name=cut", "resume=auto").code == 0
    assert_same_run(the_run(tmp_path / "outputs" / "straight"), the_run(tmp_path / "outputs" / "cut"))


def test_a_bad_update_is_left_out_and_told_of_at_the_next_log_line(typed: Typed, tmp_path: Path) -> None:
    poison = "+callbacks.poison={_target_:tests.strangers.Poison,update:12}"
    done = typed(*WORDS, poison, "trainer.log_every_updates=8")
    assert done.code == 1 and "update 12: the gradient of " in done.text
    for last in (tmp_path / "outputs").rglob("last.pt"):
        weights = torch.load(last, weights_only=True)["model"]
        assert all(value.isfinite().all() for value in weights.values() if value.is_floating_point())


def test_a_run_of_the_gpu_goes_on_without_one(stopped: Typed, tmp_path: Path) -> None:
    """E06: its checkpoint opens on the CPU, and its weights start a run there."""
    assert stopped(20, *WORDS).code == 143
    last = the_run(tmp_path / "outputs") / "checkpoints" / "last.pt"
    done = stopped(None, *WORDS[:4], "trainer.device=cpu", f"model.weights={last}", "name=cpu")
    assert done.code == 0 and "tensors taken" in done.stdout


@pytest.mark.filterwarnings("default")  # the compiler's own
def test_fast_compiles_and_finishes(typed: Typed, tmp_path: Path) -> None:
    done = typed("trainer=fast", "trainer.max_epochs=3", "trainer.device=cuda")
    assert done.code == 0 and "compile True" in done.stdout, done.text
