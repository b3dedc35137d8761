"""Averages of the weights over training, by torch.optim.swa_utils."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_swa_avg_fn

from torchlite.errors import UserError


def check_averaging(ema_decay: float | None, swa_start_epoch: int | None, max_epochs: int) -> None:
    """Raise UserError for averages that could not be, or that nothing would ever go into."""
    if ema_decay is not None and swa_start_epoch is not None:
        raise UserError("trainer.ema_decay and trainer.swa_start_epoch: set one of them, or none.")
    if ema_decay is not None and not 0 < ema_decay < 1:
        raise UserError(f"trainer.ema_decay={ema_decay}: give a number above 0 and below 1.")
    if swa_start_epoch is not None and not 0 <= swa_start_epoch < max_epochs:
        raise UserError(
            f"trainer.swa_start_epoch={swa_start_epoch}: epochs count from 0, so give 0 to {max_epochs - 1}, below "
            "trainer.max_epochs."
        )


class WeightAverage:
    """A second set of weights that follows the model's: an exponential average per update, or a plain one per epoch.

    Buffers, such as a batch norm's statistics, are averaged too, so no extra pass over the data is needed.

    Args:
        ema_decay: share of the average kept at each update, 0 < d < 1 (Polyak & Juditsky 1992).
        swa_start_epoch: the first epoch, from 0, whose end counts in a plain average (Izmailov et al. 2018).
    """

    def __init__(self, model: nn.Module, ema_decay: float | None = None, swa_start_epoch: int | None = None) -> None:
        self.model = model
        self.ema_decay = ema_decay
        self.swa_start_epoch = swa_start_epoch
        # Tensor by tensor: torch's way of averaging many at once cannot take counters on CUDA
        self.averaged = AveragedModel(model, avg_fn=get_swa_avg_fn(), use_buffers=True)
        self.num_averaged = 0
        self.name = "swa" if ema_decay is None else "ema"
        self._pairs = list(zip(_places(self.averaged.module), _places(model), strict=True))

    @property
    def module(self) -> nn.Module:
        """The network with averaged weights, or the model itself while nothing is averaged yet."""
        return self.averaged.module if self.num_averaged else self.model

    @torch.no_grad()
    def after_update(self) -> None:
        if self.ema_decay is None:
            return
        averages: list[Tensor] = []
        currents: list[Tensor] = []
        for (own, name), (others, _) in self._pairs:
            average, current = own[name], others[name]
            if not self.num_averaged or not (average.is_floating_point() or average.is_complex()):
                average.copy_(current)
            else:
                averages.append(average)
                currents.append(current)
        if averages:
            # AveragedModel.update_parameters sorts all tensors by type at each call, which takes longer than averaging them
            torch._foreach_lerp_(averages, currents, 1 - self.ema_decay)
        self.num_averaged += 1

    def after_epoch(self, epoch: int) -> None:
        """`epoch` is the one that has just ended, from 0."""
        if self.swa_start_epoch is not None and epoch >= self.swa_start_epoch:
            self.averaged.update_parameters(self.model)
            self.num_averaged += 1

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.averaged.module.state_dict(), "num_averaged": self.num_averaged}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.averaged.module.load_state_dict(state["weights"])
        self.averaged.n_averaged.fill_(state["num_averaged"])  # which a plain average counts by
        self.num_averaged = state["num_averaged"]


def _places(model: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """Where each parameter and buffer stands, in one order for a model and its copy; one that is shared stands once.

    Not the tensors themselves: a module may put another in the place of one.
    """
    places: dict[int, tuple[dict[str, Any], str]] = {}
    for module in model.modules():
        for home in (module._parameters, module._buffers):
            for name, tensor in home.items():
                if tensor is not None:
                    places.setdefault(id(tensor), (home, name))
    return list(places.values())
