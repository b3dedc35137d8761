"""Another logging service is one file: MLflow, on its local store or a server of yours."""

from typing import Any

from torchlite.callbacks.hooks import Callback
from torchlite.callbacks.tensorboard import flat_hparams
from torchlite.errors import UserError


class MLflow(Callback):
    """Sends the config, every logged number and the final scores to MLflow; a resumed run goes on in the same MLflow run.

    Args:
        tracking_uri: a server's address or a local store, such as `sqlite:///mlflow.db`.
        experiment: its name there.
    """

    def __init__(self, tracking_uri: str = "sqlite:///mlflow.db", experiment: str = "torchlite") -> None:
        try:
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise UserError("callbacks: MLflow is not installed; in the clone: pip install -e '.[mlflow]'") from error
        self.client: Any = MlflowClient(tracking_uri)
        self.experiment = experiment
        self.run_id: str | None = None
        self.finished = False

    def on_fit_begin(self, trainer: Any) -> None:
        if self.run_id is not None:
            self.client.update_run(self.run_id, status="RUNNING")
            return
        known = self.client.get_experiment_by_name(self.experiment)
        experiment_id = known.experiment_id if known else self.client.create_experiment(self.experiment)
        directory = trainer.record.directory
        run = self.client.create_run(experiment_id, run_name=directory.name, tags={"directory": str(directory)})
        self.run_id = run.info.run_id
        for name, value in flat_hparams(trainer.record.config).items():
            self.client.log_param(self.run_id, name, value)

    def on_log(self, trainer: Any, values: dict[str, float]) -> None:
        for name, value in values.items():
            if name not in ("update", "epoch"):
                self.client.log_metric(self.run_id, name, value, step=trainer.progress.update)

    def on_fit_end(self, trainer: Any, scores: dict[str, float]) -> None:
        for name, value in scores.items():
            self.client.log_metric(self.run_id, f"final/{name}", value, step=trainer.progress.update)
        self.client.set_terminated(self.run_id)
        self.finished = True

    def close(self) -> None:
        if self.run_id is not None and not self.finished:
            self.client.set_terminated(self.run_id, status="KILLED")  # stopped or failed; a resumed run opens it again

    def state_dict(self) -> dict[str, Any]:
        return {"run_id": self.run_id}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.run_id = state["run_id"]
