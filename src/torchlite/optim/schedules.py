"""Learning-rate schedules as functions of the update.

Update `u` counts applied updates from 0; update `u` of `total_updates` is made with the learning rate of the optimizer
times a factor, of `u` alone in all but `Plateau`. Every schedule takes `warmup_epochs`: of the first
`W = round(warmup_epochs * updates_per_epoch)` updates, `u` is made with (u + 1) / W of the rate (Goyal et al., "Accurate,
Large Minibatch SGD", 2017), in all but `onecycle`, which rises by a cosine.
`optimizer`, `total_updates`, `updates_per_epoch` and `monitor_mode` are known only at run time and are passed by name.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau

from torchlite.errors import UserError

Interval = Literal["update", "epoch", "validation"]
AHEAD = 256  # factors that the schedules here compute at once


class UpdateLR(LambdaLR):
    """The rate of the optimizer times `factor(update)`; stepped once after every applied update."""

    interval: ClassVar[Interval] = "update"

    def __init__(self, optimizer: Optimizer, factor: Callable[[int], float], ahead: int = 1) -> None:
        """
        Args:
            ahead: factors computed at once, which is cheaper; with 1 `factor` is called for no later update than the next.
        """
        self.factor, self.ahead = factor, ahead
        self._row: tuple[int, list[float]] = -1, []  # `ahead` factors in a row: which row it is, and they
        super().__init__(optimizer, factor)

    def step(self, epoch: None = None) -> None:  # type: ignore[override]
        """What torch's does, in a tenth of its time: it is called after every update."""
        self.last_epoch += 1
        self._step_count += 1
        row, place = divmod(self.last_epoch, self.ahead)
        if row != self._row[0]:
            self._row = row, [self.factor(row * self.ahead + index) for index in range(self.ahead)]
        factor = self._row[1][place]
        self._last_lr = [lr * factor for lr in self.base_lrs]
        set_learning_rates(self.optimizer, self._last_lr)

    def state_dict(self) -> dict[str, Any]:
        return {name: value for name, value in super().state_dict().items() if name not in ("factor", "ahead", "_row")}


def constant(optimizer: Optimizer, total_updates: int, updates_per_epoch: int, warmup_epochs: float = 0.0) -> UpdateLR:
    """The rate of the optimizer throughout, after the warm-up."""
    warmup = warmup_updates(warmup_epochs, total_updates, updates_per_epoch)
    return UpdateLR(optimizer, _after_warmup(warmup, lambda update: 1.0), AHEAD)


def cosine(
    optimizer: Optimizer,
    total_updates: int,
    updates_per_epoch: int,
    warmup_epochs: float = 0.0,
    final_lr_ratio: float = 0.0,
) -> UpdateLR:
    """Half a cosine from the rate towards `final_lr_ratio` of it, over the updates that the warm-up leaves.

    The end is what would follow the last update. Source: Loshchilov and Hutter, "SGDR", 2017.

    Raises:
        UserError: a value out of range, or a warm-up longer than the training; as in every function here.
    """
    _require(0 <= final_lr_ratio <= 1, "final_lr_ratio", final_lr_ratio, "from 0 to 1")
    warmup = warmup_updates(warmup_epochs, total_updates, updates_per_epoch)

    def factor(update: int) -> float:
        progress = 1.0 if update >= total_updates else (update - warmup) / (total_updates - warmup)
        return anneal(1.0, final_lr_ratio, progress)

    return UpdateLR(optimizer, _after_warmup(warmup, factor), AHEAD)


def onecycle(
    optimizer: Optimizer,
    total_updates: int,
    updates_per_epoch: int,
    warmup_epochs: float = 0.0,
    warmup_fraction: float = 0.3,
    initial_lr_ratio: float = 0.04,
    final_lr_ratio: float = 4e-6,
) -> UpdateLR:
    """Half a cosine up from `initial_lr_ratio` of the rate to all of it, and half a cosine down to `final_lr_ratio`.

    The rate of the optimizer is the maximum, and the last update is made with the minimum; momentum stays as it is. The
    rise takes `warmup_fraction` of the updates. It is the warm-up of this schedule: `warmup_epochs`, when above 0, is
    its length instead. Same numbers as `torch.optim.lr_scheduler.OneCycleLR`. Source: Smith and Topin,
    "Super-Convergence", 2018.
    """
    for name, ratio in (
        ("warmup_fraction", warmup_fraction),
        ("initial_lr_ratio", initial_lr_ratio),
        ("final_lr_ratio", final_lr_ratio),
    ):
        _require(0 <= ratio <= 1, name, ratio, "from 0 to 1")
    warmup = warmup_updates(warmup_epochs, total_updates, updates_per_epoch)
    last = total_updates - 1
    peak = (warmup if warmup_epochs > 0 else warmup_fraction * total_updates) - 1

    def factor(update: int) -> float:
        if update >= last:
            return final_lr_ratio
        if update < peak:
            return anneal(initial_lr_ratio, 1.0, update / peak)
        return anneal(1.0, final_lr_ratio, (update - peak) / (last - peak))

    return UpdateLR(optimizer, factor, AHEAD)


def step(
    optimizer: Optimizer,
    total_updates: int,
    updates_per_epoch: int,
    warmup_epochs: float = 0.0,
    step_epochs: int = 30,
    gamma: float = 0.1,
) -> UpdateLR:
    """The rate times `gamma` for every `step_epochs` epochs that are over; warm-up epochs count."""
    _require(step_epochs >= 1, "step_epochs", step_epochs, "1 or more")
    _require(0 < gamma <= 1, "gamma", gamma, "above 0 and at most 1")
    warmup = warmup_updates(warmup_epochs, total_updates, updates_per_epoch)
    return UpdateLR(
        optimizer, _after_warmup(warmup, lambda update: gamma ** (update // updates_per_epoch // step_epochs)), AHEAD
    )


def multistep(
    optimizer: Optimizer,
    total_updates: int,
    updates_per_epoch: int,
    warmup_epochs: float = 0.0,
    milestones_epochs: Sequence[int] = (),
    gamma: float = 0.1,
) -> UpdateLR:
    """The rate times `gamma` for every one of `milestones_epochs` that is reached: 30 takes effect after 30 epochs."""
    _require(all(epoch >= 0 for epoch in milestones_epochs), "milestones_epochs", milestones_epochs, "0 or more, each")
    _require(0 < gamma <= 1, "gamma", gamma, "above 0 and at most 1")
    warmup = warmup_updates(warmup_epochs, total_updates, updates_per_epoch)
    milestones = sorted(milestones_epochs)

    def factor(update: int) -> float:
        epoch = update // updates_per_epoch
        return gamma ** sum(milestone <= epoch for milestone in milestones)

    return UpdateLR(optimizer, _after_warmup(warmup, factor), AHEAD)


class Plateau(ReduceLROnPlateau):
    """The rate times `factor` whenever the monitored value has stopped improving.

    It has when more than `patience_validations` validations in a row brought no improvement. An improvement is one of
    more than `threshold`, in the units of the value; the rate never falls below `min_lr_ratio` of where it began.
    Validations during the warm-up can set the best value but are not counted as bad ones. `step` takes the value of a
    validation; `step_update` follows every update and does nothing once the warm-up is over.

    Raises:
        UserError: a value out of range, or a warm-up longer than the training.
    """

    interval: ClassVar[Interval] = "validation"

    def __init__(
        self,
        optimizer: Optimizer,
        total_updates: int,
        updates_per_epoch: int,
        monitor_mode: Literal["max", "min"],
        warmup_epochs: float = 0.0,
        factor: float = 0.5,
        patience_validations: int = 3,
        threshold: float = 1e-4,
        min_lr_ratio: float = 0.0,
    ) -> None:
        _require(0 < factor < 1, "factor", factor, "above 0 and below 1")
        _require(patience_validations >= 0, "patience_validations", patience_validations, "0 or more")
        _require(threshold >= 0, "threshold", threshold, "0 or more")
        _require(0 <= min_lr_ratio <= 1, "min_lr_ratio", min_lr_ratio, "from 0 to 1")
        # as torch's schedules do: what a resumed optimizer began with, not where it had come to
        base_lrs = [float(group.setdefault("initial_lr", group["lr"])) for group in optimizer.param_groups]
        super().__init__(
            optimizer,
            mode=monitor_mode,
            factor=factor,
            patience=patience_validations,
            threshold=threshold,
            threshold_mode="abs",
            min_lr=[lr * min_lr_ratio for lr in base_lrs],
            eps=0.0,  # torch's 1e-8 would keep very small rates from falling further
        )
        self.base_lrs = list(base_lrs)
        self.warmup_updates = warmup_updates(warmup_epochs, total_updates, updates_per_epoch)
        self.num_updates = 0
        self._warm_up()

    def step_update(self) -> None:
        """Moves the warm-up on by one applied update."""
        if self.num_updates < self.warmup_updates:
            self.num_updates += 1
            self._warm_up()

    def step(self, metrics: float, epoch: None = None) -> None:  # type: ignore[override]
        """Takes the monitored value of one validation."""
        if self.num_updates >= self.warmup_updates:
            super().step(metrics)
        elif self._is_better(metrics, self.best):
            self.best = metrics

    def _warm_up(self) -> None:
        share = min(1.0, (self.num_updates + 1) / max(1, self.warmup_updates))
        rates: list[float | Tensor] = [lr * share for lr in self.base_lrs]
        set_learning_rates(self.optimizer, rates)
        self._last_lr = rates  # what get_last_lr answers


def warmup_updates(warmup_epochs: float, total_updates: int, updates_per_epoch: int) -> int:
    """The number of updates in a warm-up, at most `total_updates`.

    Raises:
        UserError: a warm-up that is negative or longer than the training, or a training without updates.
    """
    if total_updates < 1 or updates_per_epoch < 1:
        raise UserError(
            f"nothing to schedule: {total_updates} updates in all, {updates_per_epoch} in an epoch; "
            "check trainer.max_epochs, data.batch_size and the size of the training part"
        )
    _require(warmup_epochs >= 0, "warmup_epochs", warmup_epochs, "0 or more")
    updates = round(warmup_epochs * updates_per_epoch)
    if updates > total_updates:
        raise UserError(
            f"scheduler.warmup_epochs={warmup_epochs:g} is longer than the training of "
            f"{total_updates / updates_per_epoch:g} epochs ({updates} updates of {total_updates}): "
            "lower it or raise trainer.max_epochs"
        )
    return updates


def anneal(start: float, end: float, progress: float) -> float:
    """Half a cosine from `start` (at progress 0) to `end` (at 1)."""
    return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * progress))


def set_learning_rates(optimizer: Optimizer, lrs: Sequence[float | Tensor]) -> None:
    """Gives each parameter group its rate, in place where the optimizer holds it as a tensor."""
    for group, lr in zip(optimizer.param_groups, lrs, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = float(lr)


def _after_warmup(warmup: int, main: Callable[[int], float]) -> Callable[[int], float]:
    return lambda update: (update + 1) / warmup if update < warmup else main(update)


def _require(fits: bool, name: str, value: object, legal: str) -> None:
    if not fits:
        raise UserError(f"scheduler.{name}={value} must be {legal}")
