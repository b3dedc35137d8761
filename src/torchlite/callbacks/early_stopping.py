"""Stop when the monitored score no longer improves."""

import math
from typing import Any

from torchlite.callbacks.hooks import Callback
from torchlite.errors import UserError


class EarlyStopping(Callback):
    """Stops training when `trainer.monitor` has not improved for `patience_validations` validations in a row.

    Args:
        patience_validations: validations without improvement that are waited for, at least 1.
        min_delta: an improvement no larger than this counts as none, in the monitor's unit; 0 or more.
    """

    needs_validation = True

    def __init__(self, patience_validations: int = 10, min_delta: float = 0.0) -> None:
        if patience_validations < 1:
            raise UserError(f"patience_validations={patience_validations}: give a whole number from 1 upwards.")
        if not min_delta >= 0:
            raise UserError(f"min_delta={min_delta}: give a number from 0 upwards.")
        self.patience_validations = patience_validations
        self.min_delta = min_delta
        self.best: float | None = None
        self.waited = 0

    def on_validation_end(self, trainer: Any, scores: dict[str, float]) -> None:
        value = scores[trainer.monitor]
        sign = 1.0 if trainer.monitor_direction == "max" else -1.0
        if math.isfinite(value) and (self.best is None or sign * (value - self.best) > self.min_delta):
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.waited >= self.patience_validations:
            trainer.stop(f"{trainer.monitor} has not improved for {self.waited} validations")

    def state_dict(self) -> dict[str, Any]:
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.best, self.waited = state["best"], state["waited"]
