"""Histograms of weights and gradients, to see what a network does with its numbers."""

from typing import Any

from torchlite.callbacks.tensorboard import EventFiles


class Histograms(EventFiles):
    """Writes a histogram of every weight and gradient to TensorBoard at the end of every few epochs.

    Args:
        every_epochs: epochs between two histograms, >= 1.
    """

    suffix = ".histograms"

    def __init__(self, every_epochs: int = 1) -> None:
        self.every_epochs = every_epochs

    def on_epoch_end(self, trainer: Any) -> None:
        if trainer.progress.epoch % self.every_epochs:
            return
        for name, parameter in trainer.model.named_parameters():
            self.writer.add_histogram(f"weights/{name}", parameter.detach().cpu(), trainer.progress.update)
            if parameter.grad is not None:
                self.writer.add_histogram(f"gradients/{name}", parameter.grad.cpu(), trainer.progress.update)
