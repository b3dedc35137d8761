"""Callbacks that somebody else might write, of the rarer kinds."""

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
