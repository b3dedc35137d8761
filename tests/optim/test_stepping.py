"""Schedules are stepped at their own interval, and continue where they were."""

import io
from typing import Any

import pytest
import torch
from torch.optim import Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

from torchlite.errors import UserError
from torchlite.optim import ScheduleStepper, interval_of, needs_validation
from torchlite.optim.schedules import Plateau, UpdateLR, constant, cosine, multistep, onecycle, step

RUN = {"total_updates": 12, "updates_per_epoch": 4}
SCHEDULES = {
    "constant": lambda o: constant(o, warmup_epochs=1, **RUN),
    "cosine": lambda o: cosine(o, warmup_epochs=1, **RUN),
    "onecycle": lambda o: onecycle(o, **RUN),
    "step": lambda o: step(o, step_epochs=1, **RUN),
    "multistep": lambda o: multistep(o, milestones_epochs=[1, 2], **RUN),
    "Plateau": lambda o: Plateau(o, monitor_mode="min", warmup_epochs=1.5, patience_validations=0, **RUN),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=1.0, total_steps=20),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, base_lr=0.1, max_lr=1.0, step_size_up=3),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=5),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, mode="min", patience=0),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=3),
    "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=1),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, milestones=[1, 1, 2]),
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda epoch: 0.5**epoch),
    "SequentialLR": lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.LinearLR(o, total_iters=2), lr_scheduler.ExponentialLR(o, 0.5)], milestones=[2]
    ),
}
PER_UPDATE = ["constant", "cosine", "onecycle", "step", "multistep", "OneCycleLR", "CyclicLR"]
PER_UPDATE += ["CosineAnnealingWarmRestarts"]
PER_VALIDATION = ["Plateau", "ReduceLROnPlateau"]


def make(name: str) -> tuple[Optimizer, ScheduleStepper]:
    optimizer = torch.optim.SGD(
        [{"params": [torch.nn.Parameter(torch.zeros(1))]}, {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.1}],
        lr=0.4,
        momentum=0.9,
    )
    return optimizer, ScheduleStepper(SCHEDULES[name](optimizer), mode="min")


def train(optimizer: Optimizer, stepper: ScheduleStepper, updates: range) -> list[list[float]]:
    rates = []
    for update in updates:
        rates.append([group["lr"] for group in optimizer.param_groups])
        optimizer.step()
        stepper.after_update()
        if update % 4 == 3:
            stepper.after_epoch()
            stepper.after_validation(1.0)
    return rates


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_schedule_has_its_interval(name: str) -> None:
    _, stepper = make(name)
    expected = "update" if name in PER_UPDATE else "validation" if name in PER_VALIDATION else "epoch"
    assert stepper.interval == expected


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_cannot_be_stepped_at_another_interval(name: str) -> None:
    optimizer, stepper = make(name)
    before = stepper.scheduler.last_epoch
    optimizer.step()
    if stepper.interval != "update":
        stepper.after_update()
    if stepper.interval != "epoch":
        stepper.after_epoch()
    if stepper.interval != "validation":
        stepper.after_validation(0.5)
    assert stepper.scheduler.last_epoch == before


@pytest.mark.parametrize("cut", [0, 1, 4, 6, 7, 11])
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("optimizer_first", [True, False])
def test_a_loaded_schedule_continues_bit_for_bit(name: str, cut: int, optimizer_first: bool) -> None:
    straight = train(*make(name), range(12))
    optimizer, stepper = make(name)
    rates = train(optimizer, stepper, range(cut))
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "schedule": stepper.state_dict()}, file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    optimizer, stepper = make(name)
    if optimizer_first:
        optimizer.load_state_dict(state["optimizer"])
    stepper.load_state_dict(state["schedule"])
    if not optimizer_first:
        optimizer.load_state_dict(state["optimizer"])
    assert rates + train(optimizer, stepper, range(cut, 12)) == straight


@pytest.mark.parametrize("name", ["cosine", "Plateau"])
def test_a_schedule_built_on_a_loaded_optimizer_continues(name: str) -> None:
    straight = train(*make(name), range(12))
    optimizer, stepper = make(name)
    train(optimizer, stepper, range(9))
    loaded, _ = make("constant")
    loaded.load_state_dict(optimizer.state_dict())
    continued = ScheduleStepper(SCHEDULES[name](loaded), mode="min")
    continued.load_state_dict(stepper.state_dict())
    assert train(loaded, continued, range(9, 12)) == straight[9:]


def test_the_rate_shown_is_the_first_groups() -> None:
    optimizer, stepper = make("step")
    assert stepper.lr == 0.4
    train(optimizer, stepper, range(4))
    assert stepper.lr == pytest.approx(0.04)


def test_a_rate_held_as_a_tensor_stays_one() -> None:
    lr = torch.tensor(0.5)
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    stepper = ScheduleStepper(Plateau(optimizer, monitor_mode="max", warmup_epochs=1, **RUN), mode="max")
    assert stepper.lr == pytest.approx(0.125)
    assert isinstance(optimizer.param_groups[0]["lr"], torch.Tensor)


def test_plateau_and_monitor_must_look_for_the_same_end() -> None:
    optimizer, _ = make("constant")
    with pytest.raises(UserError, match="mode to max"):
        ScheduleStepper(lr_scheduler.ReduceLROnPlateau(optimizer, mode="min"), mode="max")


class Counting:
    """A schedule of a user's own, related to nothing."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.steps: list[Any] = []

    def step(self, *values: float) -> None:
        self.steps.append(values)


@pytest.mark.parametrize(
    ("interval", "steps"), [("update", [()] * 8), ("epoch", [()] * 2), ("validation", [(1.0,)] * 2)]
)
def test_a_users_schedule_says_its_interval(interval: str, steps: list) -> None:
    optimizer, _ = make("constant")
    schedule = type("Own", (Counting,), {"interval": interval})(optimizer)
    train(optimizer, ScheduleStepper(schedule, mode="max"), range(8))
    assert schedule.steps == steps
    assert interval_of(type(schedule)) == interval


def test_an_interval_that_is_none_is_refused() -> None:
    optimizer, _ = make("constant")
    with pytest.raises(UserError, match="'batch'.*update, epoch, validation"):
        ScheduleStepper(type("Own", (Counting,), {"interval": "batch"})(optimizer), mode="max")


def annotated(optimizer: Optimizer) -> lr_scheduler.ReduceLROnPlateau:
    return lr_scheduler.ReduceLROnPlateau(optimizer)


def bare(optimizer):  # noqa: ANN001, ANN201
    return lr_scheduler.ReduceLROnPlateau(optimizer)


@pytest.mark.parametrize(
    ("target", "interval"),
    [
        (cosine, "update"),
        (onecycle, "update"),
        (UpdateLR, "update"),
        (Plateau, "validation"),
        (lr_scheduler.ReduceLROnPlateau, "validation"),
        (lr_scheduler.OneCycleLR, "update"),
        (lr_scheduler.StepLR, "epoch"),
        (LRScheduler, "epoch"),
        (annotated, "validation"),
        (bare, None),
    ],
)
def test_a_target_tells_its_interval_before_anything_is_built(target: object, interval: str | None) -> None:
    assert interval_of(target) == interval
    assert needs_validation(target) == (interval == "validation")
