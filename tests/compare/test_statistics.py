"""Intervals and tests equal scipy's; true nulls are seldom claimed and planted differences are found."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from torchlite.compare import report, statistics
from torchlite.compare.groups import Group
from torchlite.compare.statistics import against, holm, mean, paired, seeds_needed

DRAW = np.random.default_rng(7)


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_the_interval_is_scipys(n: int) -> None:
    values = DRAW.normal(0.9, 0.01, n)
    low, high = stats.t.interval(0.95, n - 1, loc=values.mean(), scale=stats.sem(values))
    found = mean(values.tolist())
    assert found.n == n and found.mean == pytest.approx(values.mean(), rel=1e-14)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-12)


def test_one_value_has_no_interval() -> None:
    found = mean([0.9])
    assert (found.n, found.mean, found.half_width, found.low, found.high) == (1, 0.9, None, None, None)


def test_equal_values_have_an_interval_of_nothing() -> None:
    assert mean([0.88] * 5) == statistics.Mean(5, 0.88, 0.0)


@pytest.mark.parametrize("n", [2, 4, 20])
def test_the_paired_test_is_scipys(n: int) -> None:
    one, other = DRAW.normal(0.9, 0.01, n), DRAW.normal(0.89, 0.01, n)
    found, scipys = paired(one.tolist(), other.tolist()), stats.ttest_rel(one, other)
    assert found.p == scipys.pvalue
    assert found.difference.mean == pytest.approx((one - other).mean(), rel=1e-12)
    interval = scipys.confidence_interval(0.95)
    assert (found.difference.low, found.difference.high) == pytest.approx((interval.low, interval.high), rel=1e-9)


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ([], [], "no seed in common"),
        ([0.9], [0.8], "one seed in common"),
        ([0.9, 0.8, 0.7], [0.9, 0.8, 0.7], "equal on every seed"),
        ([0.9, 0.8], [0.8, 0.7], "the same difference on every seed"),
        ([278 / 287, 280 / 287, 281 / 287], [277 / 287, 279 / 287, 280 / 287], "the same difference on every seed"),
    ],
)
def test_no_p_where_chance_cannot_be_estimated(one: list[float], other: list[float], why: str) -> None:
    found = paired(one, other)
    assert (found.p, found.why_not, found.claimed) == (None, why, False)


def test_holm_is_that_of_r() -> None:
    """R: p.adjust(c(0.01, 0.02, 0.03, 0.04), "holm"), and c(0.04, 0.001, 0.03, 0.005)."""
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.04, 0.001, 0.03, 0.005]) == pytest.approx([0.06, 0.004, 0.06, 0.015])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []


@pytest.mark.parametrize(("effect", "needed"), [(0.2, 199), (0.5, 34), (0.8, 15), (-0.5, 34), (1.0, 10), (1.5, 6)])
def test_seeds_needed_are_those_of_the_tables(effect: float, needed: int) -> None:
    """Cohen's small, medium and large effects, two-sided 0.05 and power 0.8, as tables and G*Power give them."""
    assert seeds_needed(effect, 0.05) == needed


def test_seeds_needed_hold_in_simulation() -> None:
    effect, level = 0.9, 0.05 / 4
    needed = seeds_needed(effect, level)
    assert needed is not None
    rates = []
    for n in (needed, needed - 2):
        p = stats.ttest_1samp(np.random.default_rng(1).normal(effect, 1, (20_000, n)), 0, axis=1).pvalue
        rates.append((p < level).mean())
    assert rates[0] == pytest.approx(0.8, abs=0.02) or rates[0] > 0.8
    assert rates[1] < 0.79


@pytest.mark.parametrize("effect", [0.0, 1e-9, 0.01])
def test_what_no_number_of_seeds_would_settle(effect: float) -> None:
    assert seeds_needed(effect, 0.05) is None


@pytest.mark.parametrize("effect", [3.0, 20.0, 1e6])
def test_effects_beyond_any_need_few_seeds(effect: float) -> None:
    assert seeds_needed(effect, 0.05) in (2, 3, 4)


def _claims(draw: np.random.Generator, scores, baseline) -> int:
    """Claims of a sweep, as `report` makes them."""
    groups = [_group(values) for values in scores(draw)]
    chosen = baseline(groups)
    if chosen is not None:
        report._test(groups, chosen, "acc", chosen in report._best(groups, "acc", less_is_better=False))
    return sum(group.paired is not None and group.paired.claimed for group in groups)


def _group(values: list[float]) -> Group:
    return Group([SimpleNamespace(seed=str(seed), scores={"acc": value}) for seed, value in enumerate(values)])  # type: ignore[misc]


BASELINES = {
    "none, as by default": lambda groups: None,
    "one named before": lambda groups: groups[0],
    "the best": lambda groups: report._best(groups, "acc", less_is_better=False)[0],
}


def _alike(draw: np.random.Generator) -> list[list[float]]:
    """Nine equal groups of five seeds; a seed's luck is shared, as a seed's initial weights are."""
    return (0.95 + 0.01 * draw.normal(size=5) + 0.01 * draw.normal(size=(9, 5))).tolist()


def _counts(draw: np.random.Generator) -> list[list[float]]:
    """Nine equal groups of three seeds that are right on so many of 287 images: scores in steps."""
    return (draw.binomial(287, 0.985, size=(9, 3)) / 287).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scores", "baseline"),
    [(scores, baseline) for scores in (_alike, _counts) for baseline in BASELINES],
)
def test_equal_groups_are_seldom_said_to_differ(scores, baseline: str) -> None:
    """At most 6.5 % of 1,000 sweeps of equal groups claim any difference, also where the baseline is picked as the best."""
    draw = np.random.default_rng(2026)
    assert sum(_claims(draw, scores, BASELINES[baseline]) > 0 for _ in range(1000)) <= 65


def test_a_best_baseline_was_picked_from_all_rows_also_those_too_few_to_test() -> None:
    rivals = [[0.90, 0.91, 0.92], *([0.5],) * 8]
    made = against(rivals, [[0.93, 0.95, 0.94], *([0.93],) * 8], is_best=True)
    assert made[0].p is not None and made[0].p_holm == pytest.approx(min(1.0, 45 * made[0].p))
    assert all(test.p is None for test in made[1:])


def test_planted_differences_are_found() -> None:
    draw = np.random.default_rng(5)
    found = wrong = 0
    for _ in range(100):
        values = (0.95 + 0.01 * draw.normal(size=5) + 0.004 * draw.normal(size=(9, 5))).tolist()
        values[3] = [value + 0.03 for value in values[3]]
        tests = against(values[1:], [values[0]] * 8)
        found += tests[2].claimed and tests[2].difference.mean > 0
        wrong += any(test.claimed for index, test in enumerate(tests) if index != 2)
    assert found >= 90 and wrong <= 12


def test_more_seeds_are_estimated_for_close_calls_alone() -> None:
    close = [[0.90, 0.92, 0.905, 0.93], [0.97, 0.961, 0.972, 0.966]]
    tests = against(close, [[0.89, 0.915, 0.91, 0.915]] * 2)
    assert tests[1].claimed and tests[1].more_seeds is None
    differences = np.subtract(close[0], [0.89, 0.915, 0.91, 0.915])
    needed = seeds_needed(differences.mean() / differences.std(ddof=1), statistics.ALPHA / 2)
    assert not tests[0].claimed and needed is not None and tests[0].more_seeds == needed - 4
    assert tests[0].p is not None and tests[0].p_holm == pytest.approx(tests[0].p)  # the larger of two is not enlarged
    assert math.isclose(tests[1].p_holm, 2 * tests[1].p)
