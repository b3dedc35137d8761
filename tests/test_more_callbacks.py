"""Freezing, loss weights over time, histograms, another logging service: none of them touches the loop (T11, F8)."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from tests.conftest import Typed
from tests.runs import lines, result, state, the_run
from torchlite.callbacks import Freeze, LossWeights, MLflow
from torchlite.errors import UserError

FROZEN = "+callbacks.freeze={_target_:torchlite.callbacks.Freeze,patterns:['features.*'],until_epoch:%s}"


def frozen(model: nn.Module, callback: Freeze, epoch: int = 0) -> SimpleNamespace:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = SimpleNamespace(model=model, optimizer=optimizer, progress=SimpleNamespace(epoch=epoch))
    callback.on_fit_begin(trainer)
    return trainer


def test_frozen_layers_do_not_move_until_their_epoch(typed: Typed, tmp_path: Path) -> None:
    words = ["model=small_cnn", "model.widths=[4]", "trainer.save_every_epochs=1", "trainer.num_threads=1"]
    assert typed(*words, "trainer.max_epochs=3", FROZEN % 2).code == 0
    run = the_run(tmp_path / "outputs")
    epochs = [state(run, f"epoch-000{number}")["model"] for number in (1, 2, 3)]
    body = [key for key in epochs[0] if key.startswith("features")]
    assert all(torch.equal(epochs[0][key], epochs[1][key]) for key in body), "weights or statistics moved"
    assert not torch.equal(epochs[1]["features.0.0.weight"], epochs[2]["features.0.0.weight"])
    assert not torch.equal(epochs[1]["features.0.1.running_mean"], epochs[2]["features.0.1.running_mean"])
    assert not torch.equal(epochs[0]["head.weight"], epochs[1]["head.weight"])


def test_layers_that_are_let_go_get_their_momentum(typed: Typed, tmp_path: Path) -> None:
    """Of torch's fused SGD, which takes none but a whole list of them."""
    words = ["optimizer=sgd", "optimizer.momentum=0.9", "model=small_cnn", "model.widths=[4]", "trainer.num_threads=1"]
    for fused in ("true", "false"):
        done = typed(
            *words, "trainer.max_epochs=2", FROZEN % 1, f"trainer.fused_optimizer={fused}", f"name=fused-{fused}"
        )
        assert done.code == 0, done.text
    one, other = (state(the_run(tmp_path / "outputs" / f"fused-{fused}"))["model"] for fused in ("true", "false"))
    for key in one:
        torch.testing.assert_close(one[key], other[key], rtol=1e-3, atol=1e-4)


def test_a_pattern_that_matches_nothing_is_an_error() -> None:
    with pytest.raises(UserError, match=r"no parameter matches \['fetures.\*'\]; the model has 0.weight"):
        frozen(nn.Sequential(nn.Linear(2, 2)), Freeze(["fetures.*"]))


def test_frozen_norms_stay_in_evaluation_mode_and_wake() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    callback = Freeze(["1.*"], until_epoch=1)
    trainer = frozen(model, callback)
    model.train()
    assert not model[1].training and model[0].training
    trainer.progress.epoch = 1
    callback.on_epoch_begin(trainer)
    assert model[1].training and all(p.requires_grad for p in model.parameters())
    model.eval()
    assert not model[1].training


def test_what_the_model_has_fixed_itself_stays_so() -> None:
    model, callback = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), Freeze(["*"], until_epoch=1)
    model[0].bias.requires_grad_(False)
    trainer = frozen(model, callback)
    assert not any(p.requires_grad for p in model.parameters())
    trainer.progress.epoch = 1
    callback.on_epoch_begin(trainer)
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["0.bias"]


def test_a_loss_weight_follows_its_points() -> None:
    callback = LossWeights("penalty", {2: 1.0, 4: 3.0})
    assert [callback.value(epoch) for epoch in range(6)] == [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]
    task = SimpleNamespace(penalty=0.0)
    trainer = SimpleNamespace(task=task, progress=SimpleNamespace(epoch=3))
    callback.on_fit_begin(trainer)
    assert task.penalty == 2.0
    with pytest.raises(UserError, match="has no number penalt"):
        LossWeights("penalt", {0: 1.0}).on_fit_begin(trainer)
    with pytest.raises(UserError, match="at least one epoch"):
        LossWeights("penalty", {})


def test_a_loss_weight_in_a_run(typed: Typed, tmp_path: Path) -> None:
    weights = (
        "+callbacks.weights={_target_:torchlite.callbacks.LossWeights,attribute:label_smoothing,values:{0:0.0,1:0.5}}"
    )
    assert typed("model=mlp", "trainer.max_epochs=2", "optimizer.lr=0", weights).code == 0
    losses = [line["train/loss"] for line in lines(the_run(tmp_path / "outputs")) if "train/loss" in line]
    assert losses[0] != losses[1]  # the same weights, another loss


def test_histograms(typed: Typed, tmp_path: Path) -> None:
    node = "+callbacks.histograms={_target_:torchlite.callbacks.Histograms,every_epochs:2}"
    assert typed("model=mlp", "trainer.max_epochs=4", node).code == 0
    events = EventAccumulator(
        str(the_run(tmp_path / "outputs") / "tensorboard"), size_guidance={"histograms": 0}
    ).Reload()
    assert any(tag.startswith("weights/") for tag in events.Tags()["histograms"])
    name = next(tag for tag in events.Tags()["histograms"] if tag.startswith("gradients/"))
    assert [event.step for event in events.Histograms(name)] == [34, 68]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # MLflow's own
def test_mlflow_on_its_local_store(stopped: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F8: for real, and a resumed run goes on in the same MLflow run."""
    client_module = pytest.importorskip("mlflow.tracking", reason="pip install -e '.[mlflow]'")
    monkeypatch.setenv("MLFLOW_DISABLE_AUTO_LOGGING", "1")
    words = ["callbacks=mlflow", "model=mlp", "trainer.max_epochs=2", "trainer.log_every_updates=5"]
    assert stopped(20, *words).code == 143
    done = stopped(None, *words, "resume=auto")
    assert done.code == 0, done.text
    client = client_module.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("torchlite")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED" and run.data.params["optimizer.lr"] == "0.003"
    ours = result(the_run(tmp_path / "outputs"))
    assert run.data.metrics["final/test/acc1"] == pytest.approx(ours["test"]["test/acc1"])
    steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "update/loss")]
    assert sorted(set(steps)) == [5, 10, 15, 20, 25, 30]


def test_without_mlflow_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name == "mlflow" or name.startswith("mlflow.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlflow", None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"in the clone: pip install -e '\.\[mlflow\]'"):
        MLflow()
