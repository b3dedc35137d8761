"""Change a weight of the task's loss over training."""

from collections.abc import Mapping
from typing import Any

from torchlite.callbacks.hooks import Callback
from torchlite.errors import UserError


class LossWeights(Callback):
    """Sets a number of the task at given epochs, and moves it linearly in between.

    Args:
        attribute: the task's attribute, such as `label_smoothing` or a weight of your own task's loss.
        values: epoch, from 0, to value; before the first epoch and after the last the value stays.
    """

    def __init__(self, attribute: str, values: Mapping[int, float]) -> None:
        if not values:
            raise UserError("values: give at least one epoch and its value, such as {0: 0.0, 10: 0.1}.")
        self.attribute = attribute
        self.current: float | None = None  # what holds; of a resumed run before its first epoch begins, too
        self.points = sorted((int(epoch), float(value)) for epoch, value in values.items())

    def value(self, epoch: float) -> float:
        """The number that holds at an epoch, fractions included."""
        before = [point for point in self.points if point[0] <= epoch]
        after = [point for point in self.points if point[0] > epoch]
        if not before or not after:
            return before[-1][1] if before else after[0][1]
        (start, low), (end, high) = before[-1], after[0]
        return low + (high - low) * (epoch - start) / (end - start)

    def on_fit_begin(self, trainer: Any) -> None:
        if not isinstance(getattr(trainer.task, self.attribute, None), int | float):
            raise UserError(f"callbacks: the task {type(trainer.task).__name__} has no number {self.attribute}.")
        self._set(trainer, self.value(trainer.progress.epoch) if self.current is None else self.current)

    def on_epoch_begin(self, trainer: Any) -> None:
        self._set(trainer, self.value(trainer.progress.epoch))

    def _set(self, trainer: Any, value: float) -> None:
        self.current = value
        setattr(trainer.task, self.attribute, value)

    def state_dict(self) -> dict[str, Any]:
        return {"current": self.current}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.current = state["current"]
