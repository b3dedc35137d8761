"""Callbacks that somebody else might write, of the rarer kinds."""

import errno
import os
import signal
import time
from typing import Any

import torch

from torchlite.callbacks import Callback


class Enough(Callback):
    """Asks for the end once so many epochs are over."""

    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_epoch_end(self, trainer: Any) -> None:
        if trainer.progress.epoch == self.epochs:
            trainer.stop("enough")


class Draws(Callback):
    """Takes numbers from torch's generator before the first batch."""

    def on_fit_begin(self, trainer: Any) -> None:
        torch.randperm(10)


class HighScale(Callback):
    """Begins with a scale of fp16's gradients that overflows until it has been halved often enough."""

    def on_fit_begin(self, trainer: Any) -> None:
        scaler = trainer.updater.scaler
        scaler.load_state_dict({**scaler.state_dict(), "scale": 2.0**50})


class FullDisk(Callback):
    """Writes, once, to a disk that is full, as TensorBoard or a logging service might."""

    def __init__(self, epoch: int, file: str = "full.txt") -> None:
        self.epoch = epoch
        self.file = file

    def on_log(self, trainer: Any, values: dict[str, float]) -> None:
        if trainer.progress.epoch == self.epoch and not os.path.exists(self.file):
            open(self.file, "w").close()
            raise OSError(errno.ENOSPC, "No space left on device")


class Slow(Callback):
    """Makes every update take longer."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def on_batch_end(self, trainer: Any, batch: Any) -> None:
        time.sleep(self.seconds)


class Killed(Callback):
    """Kills this process without warning when an update has been applied."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_batch_end(self, trainer: Any, batch: Any) -> None:
        if trainer.progress.update == self.update:
            os.kill(os.getpid(), signal.SIGKILL)
