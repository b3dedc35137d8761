"""Averages of the weights over training, by torch.optim.swa_utils."""

from typing import Any

from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, get_swa_avg_fn

from torchlite.errors import UserError


class WeightAverage:
    """A second set of weights that follows the model's: an exponential average per update, or a plain one per epoch.

    Buffers, such as a batch norm's statistics, are averaged too, so no extra pass over the data is needed.

    Args:
        ema_decay: share of the average kept at each update, 0 < d < 1 (Polyak & Juditsky 1992).
        swa_start_epoch: the first epoch, from 0, whose end counts in a plain average (Izmailov et al. 2018).
    """

    def __init__(self, model: nn.Module, ema_decay: float | None = None, swa_start_epoch: int | None = None) -> None:
        if ema_decay is not None and swa_start_epoch is not None:
            raise UserError("trainer.ema_decay and trainer.swa_start_epoch: set one of them, or none.")
        if ema_decay is not None and not 0 < ema_decay < 1:
            raise UserError(f"trainer.ema_decay={ema_decay}: give a number above 0 and below 1.")
        self.model = model
        self.swa_start_epoch = swa_start_epoch
        if ema_decay is None:  # tensor by tensor: torch's way of averaging many at once cannot take counters on CUDA
            self.averaged = AveragedModel(model, avg_fn=get_swa_avg_fn(), use_buffers=True)
        else:
            self.averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(ema_decay), use_buffers=True)
        self.name = "swa" if ema_decay is None else "ema"

    @property
    def module(self) -> nn.Module:
        """The network with averaged weights, or the model itself while nothing is averaged yet."""
        return self.averaged.module if int(self.averaged.n_averaged) else self.model

    def after_update(self) -> None:
        if self.name == "ema":
            self.averaged.update_parameters(self.model)

    def after_epoch(self, epoch: int) -> None:
        """`epoch` is the one that has just ended, from 0."""
        if self.swa_start_epoch is not None and epoch >= self.swa_start_epoch:
            self.averaged.update_parameters(self.model)

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.averaged.module.state_dict(), "num_averaged": int(self.averaged.n_averaged)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.averaged.module.load_state_dict(state["weights"])
        self.averaged.n_averaged.fill_(state["num_averaged"])
