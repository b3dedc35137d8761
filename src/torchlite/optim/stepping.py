"""When a schedule is stepped."""

from inspect import isroutine
from typing import Any, Literal, get_args, get_type_hints

from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts, CyclicLR, OneCycleLR, ReduceLROnPlateau

from torchlite.errors import UserError
from torchlite.optim.schedules import Interval, Plateau, set_learning_rates

PER_UPDATE = (OneCycleLR, CyclicLR, CosineAnnealingWarmRestarts)


class ScheduleStepper:
    """Steps a schedule at its own interval and at no other: tell it everything that happens, and it does what is due.

    Args:
        scheduler: a torch scheduler, or an object with `step`, `state_dict`, `load_state_dict` and `optimizer`.
        mode: whether the best monitored value is the highest or the lowest.

    Raises:
        UserError: a plateau schedule that looks for the other end than `mode`, or an `interval` that is none.
    """

    def __init__(self, scheduler: Any, mode: Literal["max", "min"]) -> None:
        self.scheduler = scheduler
        interval = interval_of(scheduler)
        assert interval is not None, "an object, unlike a function, always has an interval"
        self.interval: Interval = interval
        if isinstance(scheduler, ReduceLROnPlateau) and scheduler.mode != mode:
            raise UserError(
                f"the schedule takes the best value as the {scheduler.mode} but trainer.monitor as the {mode}: "
                f"set the schedule's mode to {mode}"
            )

    @property
    def lr(self) -> float:
        """The learning rate of the first parameter group, for the next update."""
        return float(self.scheduler.optimizer.param_groups[0]["lr"])

    def after_update(self) -> None:
        """To be called once after every applied update; not after one that was skipped."""
        if self.interval == "update":
            self.scheduler.step()
        elif isinstance(self.scheduler, Plateau):
            self.scheduler.step_update()

    def after_epoch(self) -> None:
        """To be called once after the last update of every epoch."""
        if self.interval == "epoch":
            self.scheduler.step()

    def after_validation(self, value: float) -> None:
        """To be called with the monitored value after every validation."""
        if self.interval == "validation":
            self.scheduler.step(value)

    def state_dict(self) -> dict[str, Any]:
        """The schedule's state; of every schedule of torch and of ours it loads with `weights_only=True`."""
        return self.scheduler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts the schedule where it was, and the optimizer's learning rates too.

        Building a schedule sets the rates back to its first update, whatever the optimizer had loaded before.
        """
        self.scheduler.load_state_dict(state)
        if hasattr(self.scheduler, "get_last_lr"):
            set_learning_rates(self.scheduler.optimizer, self.scheduler.get_last_lr())


def interval_of(scheduler: object) -> Interval | None:
    """When the schedule is to be stepped, of an object, its class, or a function that makes one.

    A class or function says so with an attribute `interval`. Else torch's classes are known: `OneCycleLR`, `CyclicLR`
    and `CosineAnnealingWarmRestarts` after an update, `ReduceLROnPlateau` after a validation, all others after an
    epoch; a function is taken for the class it is annotated to return; without a usable annotation the answer is None.

    Raises:
        UserError: the attribute is none of the three.
    """
    declared = getattr(scheduler, "interval", None)
    if declared is not None:
        if declared not in get_args(Interval):
            raise UserError(f"{scheduler}.interval is {declared!r}; it must be one of {', '.join(get_args(Interval))}")
        return declared
    if isroutine(scheduler):
        try:
            returned = get_type_hints(scheduler).get("return")
        except NameError:  # an annotation that only a type checker can resolve
            return None
        return interval_of(returned) if isinstance(returned, type) else None
    kind = scheduler if isinstance(scheduler, type) else type(scheduler)
    if issubclass(kind, ReduceLROnPlateau):
        return "validation"
    return "update" if issubclass(kind, PER_UPDATE) else "epoch"


def needs_validation(scheduler: object) -> bool:
    """Whether the schedule is driven by validations: of an object, its class, or a function that makes one."""
    return interval_of(scheduler) == "validation"
