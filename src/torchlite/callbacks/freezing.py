"""Freeze layers from the start, and let them go at an epoch."""

import fnmatch
import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from torchlite.callbacks.hooks import Callback
from torchlite.errors import UserError

log = logging.getLogger("torchlite")


class Freeze(Callback):
    """Keeps parameters whose name matches a pattern from training until an epoch; their batch norms keep their statistics.

    Args:
        patterns: shell patterns of parameter names, such as `features.*` or `layer[12].*`.
        until_epoch: the epoch, from 0, at whose beginning they are let go; None: never.
    """

    def __init__(self, patterns: Sequence[str], until_epoch: int | None = None) -> None:
        self.patterns = list(patterns)
        self.until_epoch = until_epoch
        self._taken: set[str] = set()  # of the matches, those that the model had not fixed itself

    def on_fit_begin(self, trainer: Any) -> None:
        names = [name for name, _ in trainer.model.named_parameters() if self._matches(name)]
        if not names:
            some = ", ".join(name for name, _ in list(trainer.model.named_parameters())[:5])
            raise UserError(f"callbacks: no parameter matches {self.patterns}; the model has {some}, …")
        if self.until_epoch is None or trainer.progress.epoch < self.until_epoch:
            parameters = trainer.model.named_parameters()
            self._taken = {name for name, p in parameters if p.requires_grad and self._matches(name)}
            self._set(trainer.model, frozen=True)
            log.info(f"frozen: {len(names)} tensors" + self._until())

    def on_epoch_begin(self, trainer: Any) -> None:
        if trainer.progress.epoch == self.until_epoch:
            self._set(trainer.model, frozen=False)
            begin_momentum(trainer.model, trainer.optimizer)
            log.info(f"let go at epoch {self.until_epoch}: {', '.join(self.patterns)}")

    def _until(self) -> str:
        return "" if self.until_epoch is None else f" until epoch {self.until_epoch}"

    def _matches(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.patterns)

    def _set(self, model: nn.Module, frozen: bool) -> None:
        for name, parameter in model.named_parameters():
            if name in self._taken:
                parameter.requires_grad_(not frozen)
                parameter.grad = None
        for name, module in model.named_modules():
            if isinstance(module, _BatchNorm) and self._matches(f"{name}.weight"):
                if frozen:
                    module.eval()
                    module.train = lambda mode=True, module=module: module  # type: ignore[method-assign, misc]
                else:
                    vars(module).pop("train", None)
                    module.train(model.training)


def begin_momentum(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Momentum of zero where others have some already: torch's fused SGD takes that of all parameters, or of none."""
    momenta = [optimizer.state[p] for p in model.parameters() if p in optimizer.state]
    if not any(isinstance(state.get("momentum_buffer"), Tensor) for state in momenta):
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if (
                group.get("fused")
                and group.get("momentum")
                and optimizer.state[parameter].get("momentum_buffer") is None
            ):
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
