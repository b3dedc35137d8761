"""Means with intervals, the paired t-test, Holm's correction, and how many seeds would settle it. By scipy throughout."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchlite.errors import UserError

try:
    from scipy import special
except ImportError as error:  # pragma: no cover
    raise UserError("Comparing needs scipy; in the clone: pip install -e '.[compare]'.") from error

CONFIDENCE = 0.95
ALPHA = 0.05  # of the whole family of comparisons
POWER = 0.8
MOST_SEEDS = 1000  # more than anybody would run: then a difference is not worth settling


@dataclass(frozen=True)
class Mean:
    """A mean over `n` values and half the width of its 95 % interval; none for a single value."""

    n: int
    mean: float
    half_width: float | None

    @property
    def low(self) -> float | None:
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        return None if self.half_width is None else self.mean + self.half_width


def mean(values: Sequence[float]) -> Mean:
    """The mean and its Student t interval, mean ± t(0.975, n - 1) · s / √n; equals scipy.stats.t.interval."""
    n = len(values)
    if n > 1 and min(values) == max(values):
        return Mean(n, values[0], 0.0)  # without the noise of summing
    average = math.fsum(values) / n
    if n < 2:
        return Mean(n, average, None)
    return Mean(n, average, student(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n))


def student(freedom: int) -> float:
    """The 97.5 % point of Student's t."""
    return float(special.stdtrit(freedom, (1 + CONFIDENCE) / 2))


@dataclass(frozen=True)
class Paired:
    """A group against the baseline on the seeds both have."""

    difference: Mean  # group less baseline
    p: float | None  # two-sided, before correction; None where chance cannot be estimated
    why_not: str = ""  # why there is no p
    p_holm: float | None = None  # corrected for all comparisons of the table
    # Estimated, of both, to settle a close call; None: it is settled, or not worth settling
    more_seeds: int | None = None

    @property
    def claimed(self) -> bool:
        """Whether the two are said to differ."""
        return self.p_holm is not None and self.p_holm < ALPHA


def paired(group: Sequence[float], baseline: Sequence[float]) -> Paired:
    """The two-sided paired t-test (scipy.stats.ttest_rel). Value i of both is of seed i.

    Without spread between the differences there is no p: scores that are counts over few images often differ by the same
    step on two or three seeds, and t would then be infinite.
    """
    differences = np.subtract(group, baseline)
    if len(differences) == 0:
        return Paired(Mean(0, math.nan, None), None, "no seed in common")
    summary = mean(differences.tolist())
    if summary.n < 2:
        return Paired(summary, None, "one seed in common")
    if float(np.std(differences, ddof=1)) <= 1e-9 * float(np.abs(np.concatenate([group, baseline])).max(initial=0)):
        equal = abs(summary.mean) <= 1e-9
        return Paired(summary, None, "equal on every seed" if equal else "the same difference on every seed")
    from scipy import stats  # takes half a second, which a table without a baseline need not wait for

    return Paired(summary, float(stats.ttest_rel(group, baseline).pvalue))


def holm(p_values: Sequence[float], family: int | None = None) -> list[float]:
    """The p-values corrected so that at most 5 % of families of true nulls claim anything (Holm, Scand. J. Stat. 6, 1979).

    Args:
        family: how many tests these were picked from; None: no more than these.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, ((family or len(p_values)) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected


def against(
    groups: Sequence[Sequence[float]], baselines: Sequence[Sequence[float]], is_best: bool = False
) -> list[Paired]:
    """Each group against its baseline values of the same seeds, corrected together. Lists align as `paired` wants them.

    Args:
        is_best: whether the baseline has the best mean. Somebody may have picked it for that, and the best of equal groups
            looks better than they do: p is then corrected for all pairs of groups, from which these were picked.
    """
    tests = [paired(group, baseline) for group, baseline in zip(groups, baselines, strict=True)]
    tested = [index for index, test in enumerate(tests) if test.p is not None]
    family = family_size(len(groups) if is_best else len(tested), is_best)
    corrected = holm([test.p for test in tests if test.p is not None], family)
    for index, p_holm in zip(tested, corrected, strict=True):
        test = tests[index]
        more = None
        if p_holm >= ALPHA:
            spread = float(np.std(np.subtract(groups[index], baselines[index]), ddof=1))
            needed = seeds_needed(test.difference.mean / spread, ALPHA / family)
            more = None if needed is None else max(1, needed - test.difference.n)
        tests[index] = Paired(test.difference, test.p, "", p_holm, more)
    return tests


def family_size(num_rivals: int, is_best: bool) -> int:
    """How many tests p is corrected for: those against the baseline, or all pairs of it and its rivals.

    Args:
        num_rivals: rows that are tested against the baseline; where that is the best, all others, from which it was picked.
    """
    return num_rivals * (num_rivals + 1) // 2 if is_best else num_rivals


def seeds_needed(effect: float, alpha: float) -> int | None:
    """The least number of pairs with which the paired t-test finds a true effect with a power of 80 %; None: above 1,000.

    With n pairs t follows the noncentral t distribution with n - 1 degrees of freedom and noncentrality effect · √n, so
    power = 1 - F(c) + F(-c) with c = t(1 - alpha / 2, n - 1) (Cohen, Statistical Power Analysis for the Behavioral
    Sciences, 2nd ed. 1988, ch. 2). The effect seen so far stands for the true one, which makes this a rough estimate.

    Args:
        effect: mean of the differences over their standard deviation.
        alpha: two-sided level.
    """

    def power(n: int) -> float:
        critical = special.stdtrit(n - 1, 1 - alpha / 2)
        noncentrality = abs(effect) * math.sqrt(n)
        below, above = (special.nctdtr(n - 1, noncentrality, c) for c in (-critical, critical))
        return float(1 - above + (below if math.isfinite(below) else 0.0))

    if not power(MOST_SEEDS) >= POWER:
        return None
    low, high = 1, MOST_SEEDS  # power grows with n
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high
