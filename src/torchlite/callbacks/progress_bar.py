"""A live bar on a terminal; without one nothing, since the log's plain lines say the same."""

import time
from typing import Any

from torchlite.callbacks.hooks import Callback


class ProgressBar(Callback):
    """Shows epoch, loss, accuracy, images per second and the time left, on a terminal only.

    Args:
        refresh_seconds: the bar is drawn again no more often than this.
    """

    def __init__(self, refresh_seconds: float = 0.1) -> None:
        self.refresh_seconds = refresh_seconds
        self.bar: Any = None
        self._drawn = 0.0
        self._numbers = ""

    def on_fit_begin(self, trainer: Any) -> None:
        console = trainer.record.console
        if not console.is_terminal:
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, TextColumn("{task.fields[numbers]}"), console=console, transient=True)
        self.task = self.bar.add_task("", total=trainer.total_updates, completed=trainer.progress.update, numbers="")
        self.bar.start()

    def on_batch_end(self, trainer: Any, batch: Any) -> None:
        if self.bar is None or time.monotonic() - self._drawn < self.refresh_seconds:
            return
        self._drawn = time.monotonic()
        epoch = f"epoch {trainer.progress.epoch + 1}/{trainer.max_epochs}"
        self.bar.update(self.task, completed=trainer.progress.update, description=epoch, numbers=self._numbers)

    def on_log(self, trainer: Any, values: dict[str, float]) -> None:
        if "update/loss" in values:
            accuracy = f"  acc1 {values['update/acc1']:.3f}" if "update/acc1" in values else ""
            speed = f"  {values['images_per_second']:,.0f} images/s"
            self._numbers = f"loss {values['update/loss']:.4f}{accuracy}{speed}"

    def on_fit_end(self, trainer: Any, scores: dict[str, float]) -> None:
        self.close()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
