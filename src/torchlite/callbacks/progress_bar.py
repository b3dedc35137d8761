"""A live bar on a terminal; without one nothing, since the log's plain lines say the same."""

import math
import time
from typing import Any

from torchlite.callbacks.hooks import Callback

LONG = 5.0  # seconds that numbers on the bar may be old
MOST_DRAWING = 0.002  # of the time; a slow terminal is drawn on less often
LONGEST_PAUSE = 30.0  # seconds


class ProgressBar(Callback):
    """Shows epoch, loss, accuracy, images per second and the time left, on a terminal only.

    Loss and accuracy are those of the last line of the log; where updates take long, the loss of the latest one meanwhile.

    Args:
        refresh_seconds: the bar is drawn again no more often than this, less often where drawing takes long.
    """

    def __init__(self, refresh_seconds: float = 0.5) -> None:
        self.refresh_seconds = refresh_seconds
        self.bar: Any = None
        self._drawn = self._known = self._due = -math.inf  # when, in seconds of time.monotonic
        self._update = self._images = 0  # as it was drawn, and in a whole batch
        self._numbers = ""

    def on_fit_begin(self, trainer: Any) -> None:
        console = trainer.record.console
        if not console.is_terminal:
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        numbers = TextColumn("{task.fields[numbers]}")
        columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), numbers)
        # Not drawn by a thread of its own, which would hold up the loop for as long
        self.bar = Progress(*columns, console=console, transient=True, auto_refresh=False)
        self.task = self.bar.add_task("", total=trainer.total_updates, completed=trainer.progress.update, numbers="")
        self.bar.start()

    def on_batch_end(self, trainer: Any, batch: Any) -> None:
        if self.bar is None or (now := time.monotonic()) < self._due:
            return
        if now - self._known > LONG:
            self._known = now
            self._numbers = f"loss {trainer.updater.loss_sum.item() / len(batch.ids):.4f}"  # waits for the device
        update = trainer.progress.update
        self._images = max(self._images, len(batch.ids))  # an epoch's last batch may hold fewer
        images = (update - self._update) * self._images
        speed = "" if self._drawn < 0 else f"  {images / (now - self._drawn):,.0f} images/s"
        self._drawn, self._update = now, update
        epoch = f"epoch {trainer.progress.epoch + 1}/{trainer.max_epochs}"
        began = time.monotonic()
        self.bar.update(self.task, completed=update, description=epoch, numbers=self._numbers + speed)
        self.bar.refresh()
        pause = min((time.monotonic() - began) / MOST_DRAWING, LONGEST_PAUSE)
        self._due = now + max(self.refresh_seconds, pause)

    def on_validation_end(self, trainer: Any, scores: dict[str, float]) -> None:
        self._drawn = self._due = -math.inf  # its seconds are not the training's

    def on_log(self, trainer: Any, values: dict[str, float]) -> None:
        kind = next((kind for kind in ("update", "train") if f"{kind}/loss" in values), None)
        if kind is not None:
            accuracy = f"  acc1 {values[f'{kind}/acc1']:.3f}" if f"{kind}/acc1" in values else ""
            self._numbers, self._known = f"loss {values[f'{kind}/loss']:.4f}{accuracy}", time.monotonic()

    def on_fit_end(self, trainer: Any, scores: dict[str, float]) -> None:
        self.close()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
