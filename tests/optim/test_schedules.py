"""Every schedule's learning rate at every update, held against its formula."""

import math
import warnings
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR

from torchlite.errors import UserError
from torchlite.optim import ScheduleStepper
from torchlite.optim.schedules import Plateau, UpdateLR, constant, cosine, multistep, onecycle, step

BASE = 0.4
SCHEDULES = [constant, cosine, onecycle, step, multistep]


def sgd(lr: float = BASE) -> torch.optim.SGD:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def lrs(
    schedule: Callable[..., LRScheduler], total: int, per_epoch: int, extra: int = 0, **options: object
) -> list[float]:
    """The rates that the updates of a training are made with, and `extra` ones past its end."""
    optimizer = sgd()
    stepper = ScheduleStepper(
        schedule(optimizer=optimizer, total_updates=total, updates_per_epoch=per_epoch, **options), mode="max"
    )
    rates = []
    for update in range(total + extra):
        rates.append(stepper.lr)
        optimizer.step()
        stepper.after_update()
        if (update + 1) % per_epoch == 0:
            stepper.after_epoch()
    return rates


def ramp(warmup: int) -> list[float]:
    return [BASE * (update + 1) / warmup for update in range(warmup)]


@pytest.mark.parametrize(
    "schedule", [constant, cosine, step, multistep, lambda **options: Plateau(monitor_mode="max", **options)]
)
@pytest.mark.parametrize(("warmup_epochs", "warmup"), [(1, 10), (2.5, 25), (0.1, 1), (4, 40)])
def test_warm_up_is_linear_and_ends_at_the_rate(schedule: Callable, warmup_epochs: float, warmup: int) -> None:
    rates = lrs(schedule, 40, 10, warmup_epochs=warmup_epochs)
    assert rates[:warmup] == pytest.approx(ramp(warmup))
    assert rates[warmup - 1] == BASE
    if warmup < 40:
        assert rates[warmup] == pytest.approx(BASE)


def test_a_factor_of_ones_own_is_asked_for_no_update_past_the_end() -> None:
    """Such as one that is not defined there; and its schedule restored at another update gives that one's rate."""
    optimizer = sgd()
    schedule = UpdateLR(optimizer, lambda update: math.sqrt(1 - update / 50))
    for _ in range(50):
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0
    for ahead in (1, 256):
        schedule = UpdateLR(optimizer := sgd(), lambda update: 1 / (1 + update), ahead)
        schedule.step()
        schedule.load_state_dict(schedule.state_dict() | {"last_epoch": 299})
        schedule.step()
        assert optimizer.param_groups[0]["lr"] == BASE / 301 and set(schedule.state_dict()).isdisjoint(
            {"ahead", "_row"}
        )


def test_constant() -> None:
    assert lrs(constant, 12, 4, extra=2) == [BASE] * 14


@pytest.mark.parametrize("warmup_epochs", [0, 1, 3])
def test_cosine(warmup_epochs: int) -> None:
    warmup = 10 * warmup_epochs
    expected = ramp(warmup) + [
        BASE * (0.1 + 0.9 * (1 + math.cos(math.pi * (update - warmup) / (40 - warmup))) / 2)
        for update in range(warmup, 40)
    ]
    rates = lrs(cosine, 40, 10, extra=3, warmup_epochs=warmup_epochs, final_lr_ratio=0.1)
    assert rates == pytest.approx(expected + [BASE * 0.1] * 3)


def test_step_counts_warm_up_epochs() -> None:
    rates = lrs(step, 25, 5, warmup_epochs=1, step_epochs=2, gamma=0.5)
    assert rates == pytest.approx(ramp(5) + [BASE] * 5 + [BASE / 2] * 10 + [BASE / 4] * 5)


def test_multistep_falls_at_each_milestone_in_any_order() -> None:
    rates = lrs(multistep, 25, 5, milestones_epochs=[4, 1], gamma=0.1)
    assert rates == pytest.approx([BASE] * 5 + [BASE / 10] * 15 + [BASE / 100] * 5)


@pytest.mark.parametrize(("total", "fraction"), [(100, 0.3), (37, 0.3), (50, 0.25), (10, 0.5)])
def test_onecycle_is_torchs(total: int, fraction: float) -> None:
    optimizer = sgd()
    torchs = OneCycleLR(optimizer, max_lr=BASE, total_steps=total, pct_start=fraction, cycle_momentum=False)
    expected = []
    for update in range(total):
        expected.append(torchs.get_last_lr()[0])
        optimizer.step()
        if update < total - 1:
            torchs.step()
    rates = lrs(onecycle, total, 10, warmup_fraction=fraction)
    assert rates == pytest.approx(expected, rel=1e-9)


def test_onecycle_begins_peaks_and_ends_where_it_says() -> None:
    rates = lrs(onecycle, 40, 10, extra=2, warmup_epochs=1.5, initial_lr_ratio=0.1, final_lr_ratio=0.01)
    assert rates[0] == pytest.approx(BASE * 0.1)
    assert rates[14] == max(rates) == pytest.approx(BASE)
    assert rates[39:] == [BASE * 0.01] * 3


def test_onecycle_leaves_momentum_alone() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE, momentum=0.9)
    onecycle(optimizer, total_updates=10, updates_per_epoch=5)
    assert optimizer.param_groups[0]["momentum"] == 0.9


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_update_is_a_training(schedule: Callable) -> None:
    assert all(math.isfinite(lr) and lr >= 0 for lr in lrs(schedule, 1, 1, extra=2))


@pytest.mark.parametrize("schedule", [*SCHEDULES, lambda **options: Plateau(monitor_mode="min", **options)])
class TestRefusals:
    def test_warm_up_longer_than_the_training_names_both(self, schedule: Callable) -> None:
        with pytest.raises(UserError, match=r"warmup_epochs=10 .*3 epochs .*trainer\.max_epochs"):
            schedule(optimizer=sgd(), total_updates=30, updates_per_epoch=10, warmup_epochs=10)

    def test_no_updates(self, schedule: Callable) -> None:
        with pytest.raises(UserError, match="nothing to schedule"):
            schedule(optimizer=sgd(), total_updates=0, updates_per_epoch=10)

    def test_negative_warm_up(self, schedule: Callable) -> None:
        with pytest.raises(UserError, match=r"scheduler\.warmup_epochs=-1"):
            schedule(optimizer=sgd(), total_updates=30, updates_per_epoch=10, warmup_epochs=-1)


@pytest.mark.parametrize(
    ("schedule", "options"),
    [
        (cosine, {"final_lr_ratio": 1.5}),
        (cosine, {"final_lr_ratio": math.nan}),
        (onecycle, {"warmup_fraction": -0.1}),
        (onecycle, {"initial_lr_ratio": 2}),
        (onecycle, {"final_lr_ratio": -1}),
        (step, {"step_epochs": 0}),
        (step, {"gamma": 0}),
        (multistep, {"milestones_epochs": [-1]}),
        (multistep, {"gamma": 1.1}),
        (Plateau, {"monitor_mode": "max", "factor": 1}),
        (Plateau, {"monitor_mode": "max", "patience_validations": -1}),
        (Plateau, {"monitor_mode": "max", "threshold": -1}),
        (Plateau, {"monitor_mode": "max", "min_lr_ratio": 2}),
    ],
)
def test_values_out_of_range_are_refused_by_key(schedule: Callable, options: dict) -> None:
    with pytest.raises(UserError, match=rf"scheduler\.{list(options)[-1]}="):
        schedule(optimizer=sgd(), total_updates=30, updates_per_epoch=10, **options)


@given(data=st.data(), per_epoch=st.integers(1, 20), epochs=st.integers(1, 6), ratio=st.floats(0, 1))
def test_rates_are_finite_and_between_zero_and_the_rate(
    data: st.DataObject, per_epoch: int, epochs: int, ratio: float
) -> None:
    warmup_epochs = data.draw(st.floats(0, epochs))
    options = data.draw(
        st.sampled_from(
            [
                (constant, {}),
                (cosine, {"final_lr_ratio": ratio}),
                (onecycle, {"warmup_fraction": ratio}),
                (onecycle, {"initial_lr_ratio": ratio, "final_lr_ratio": ratio}),
                (step, {"step_epochs": 1, "gamma": max(ratio, 1e-9)}),
                (multistep, {"milestones_epochs": [0, 2], "gamma": max(ratio, 1e-9)}),
            ]
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates = lrs(options[0], per_epoch * epochs, per_epoch, extra=2, warmup_epochs=warmup_epochs, **options[1])
    assert all(math.isfinite(lr) and 0 <= lr <= BASE * (1 + 1e-12) for lr in rates)


def plateau(**options: object) -> tuple[torch.optim.SGD, ScheduleStepper]:
    optimizer = sgd()
    settings = {"optimizer": optimizer, "total_updates": 40, "updates_per_epoch": 4, "monitor_mode": "max", **options}
    schedule = Plateau(**settings)  # type: ignore[arg-type]
    return optimizer, ScheduleStepper(schedule, mode=schedule.mode)


def test_plateau_falls_after_more_than_patience_bad_validations() -> None:
    _, stepper = plateau(factor=0.5, patience_validations=1, min_lr_ratio=0.2)
    seen = []
    for value in [0.5, 0.6, 0.6, 0.60005, 0.7, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]:
        stepper.after_update()
        stepper.after_epoch()
        stepper.after_validation(value)
        seen.append(stepper.lr / BASE)
    assert seen == pytest.approx([1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2, 0.2])


def test_plateau_takes_the_lowest_when_told() -> None:
    _, stepper = plateau(monitor_mode="min", patience_validations=0)
    for value, expected in [(2.0, 1), (1.0, 1), (1.5, 0.5)]:
        stepper.after_validation(value)
        assert stepper.lr == pytest.approx(BASE * expected)


def test_plateau_lets_tiny_rates_fall() -> None:
    optimizer = sgd(lr=1e-9)
    stepper = ScheduleStepper(Plateau(optimizer, 10, 5, monitor_mode="max", patience_validations=0), mode="max")
    stepper.after_validation(1.0)
    stepper.after_validation(1.0)
    assert stepper.lr == pytest.approx(5e-10)


def test_plateau_does_not_fall_during_its_warm_up() -> None:
    _, stepper = plateau(warmup_epochs=1, patience_validations=0)
    seen = []
    for value in [0.9, 0.5, 0.5, 0.5, 0.5, 0.95]:
        seen.append(stepper.lr / BASE)
        stepper.after_update()
        stepper.after_validation(value)
    assert seen == pytest.approx([0.25, 0.5, 0.75, 1, 0.5, 0.25])
    assert stepper.scheduler.best == 0.95
