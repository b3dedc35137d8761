"""The comparison itself: which runs, which score, which row is best."""

import collections
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchlite.compare import doubts, finding, records
from torchlite.compare.columns import ABSENT, check_known, condition, is_number, shown
from torchlite.compare.finding import Unfit
from torchlite.compare.groups import Group, fold
from torchlite.compare.records import Run
from torchlite.compare.statistics import ALPHA, against, family_size
from torchlite.errors import UserError
from torchlite.scores import direction


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    where: Sequence[str] = ()
    by: Sequence[str] = ()
    metric: str | None = None
    better: str | None = None  # "max" or "min"
    baseline: str | None = None
    sort: str | None = None
    reverse: bool = False


@dataclass(frozen=True)
class Report:
    """Everything that table, figure and page show."""

    groups: list[Group]  # sorted
    columns: list[str]
    metric: str
    beside: list[str]  # further scores that are shown but choose nothing
    less_is_better: bool
    best: list[Group]  # more than one where they tie; none where scores do not compare
    baseline: Group | None
    notes: list[str]
    unfit: list[Unfit]

    @property
    def runs(self) -> list[Run]:
        return [run for group in self.groups for run in group.runs]

    @property
    def num_tests(self) -> int:
        return sum(group.paired is not None and group.paired.p is not None for group in self.groups)

    @property
    def family(self) -> int:
        """How many tests p is corrected for."""
        is_best = self.baseline in self.best
        return family_size(len(self.groups) - 1 if is_best else self.num_tests, is_best)


def report(words: Sequence[str], asked: Asked) -> Report:
    """Compare all runs below the paths. Raises UserError when there is nothing to compare."""
    directories, unfit = finding.find(words)
    found = [records.read(directory) for directory in directories]
    runs = [run for run in found if isinstance(run, Run)]
    unfit = [*(run for run in found if isinstance(run, Unfit)), *unfit]
    if not runs:
        raise NothingToCompare("No finished run is there to compare.", unfit)
    known = list(dict.fromkeys(key for run in runs for key in run.values))
    for text in asked.where:
        holds = condition(text, known)
        runs = [run for run in runs if holds(run.values)]
    if not runs:
        raise UserError(f"No finished run has {' and '.join(asked.where)}.")
    told = [one.told for one in unfit if one.told is not None]
    told = [one for one in told if all(condition(text, known)(one.values) for text in asked.where)]
    for key in asked.by:
        check_known(key, known)
    metric = _metric(runs, asked.metric)
    unfit += [
        Unfit(r.directory, f"has no {metric}; it has {_listed(r.scores)}") for r in runs if metric not in r.scores
    ]
    scored = [run for run in runs if metric in run.scores]
    groups, columns, notes = fold(scored, asked.by, told)
    less_is_better = _less_is_better(metric, scored, asked.better)
    unlike_images = doubts.unlike_images(metric, scored)
    best = _best(groups, metric, less_is_better) if not unlike_images and len(groups) > 1 else []
    if asked.metric is None:
        notes += doubts.chosen_by_test(metric, scored)
    notes += [*doubts.unlike_runs(scored, "seconds" in (metric, asked.sort)), *unlike_images]
    notes += doubts.few_seeds(best, groups, metric)
    baseline = _baseline(groups, asked.baseline, known) if asked.baseline else None
    if baseline is not None and not unlike_images:
        _test(groups, baseline, metric, is_best=baseline in best)
    _sort(groups, metric, less_is_better, asked)
    return Report(
        groups=groups,
        columns=columns,
        metric=metric,
        beside=[name for name in _beside(metric) if any(name in run.scores for run in scored)],
        less_is_better=less_is_better,
        best=[group for group in groups if group in best],
        baseline=baseline,
        notes=notes,
        unfit=unfit,
    )


class NothingToCompare(UserError):
    """There are directories but no finished run among them."""

    def __init__(self, message: str, unfit: list[Unfit]) -> None:
        super().__init__(message)
        self.unfit = unfit


def _metric(runs: Sequence[Run], asked: str | None) -> str:
    """The score to compare by: the one asked for; else the one that all runs monitor; else, without validation, its test twin.

    Best weights were chosen by the monitored score, and so are best settings: the test part stays unread for choosing.
    """
    names = list(dict.fromkeys(name for run in runs for name in run.scores))
    if asked is not None:
        if asked not in names:
            raise UserError(f"--metric {asked}: no run has this score; the scores are: {_listed(names)}.")
        return asked
    monitors = collections.Counter(run.monitor for run in runs)
    if len(monitors) > 1:
        counted = ", ".join(f"{shown(name)} ({count})" for name, count in monitors.most_common())
        raise UserError(f"The runs monitor different scores: {counted}. Choose one with --metric: {_listed(names)}.")
    (monitor,) = monitors
    for name in (monitor, f"test/{monitor.partition('/')[2]}"):
        if name in names:
            return name
    raise UserError(
        f"No run has a {shown(monitor)}; choose another score with --metric: {_listed(names) or 'none is left'}."
    )


def _listed(names: object) -> str:
    return ", ".join(shown(name) for name in names)  # type: ignore[attr-defined]


def _beside(metric: str) -> list[str]:
    part, _, name = metric.partition("/")
    twin = {"val": f"test/{name}", "test": f"val/{name}"}.get(part)
    return [name for name in ([twin] if twin else []) + ["seconds"] if name != metric]


def _less_is_better(metric: str, runs: Sequence[Run], asked: str | None) -> bool:
    """By what was asked for, what the runs recorded of the score they monitor, or its name. Raises UserError without any."""
    name = metric.rpartition("/")[2]
    recorded = {run.better for run in runs if run.better and run.monitor.rpartition("/")[2] == name}
    better = asked or (recorded.pop() if len(recorded) == 1 else direction(metric))
    if better is None:
        raise UserError(f"{shown(metric)}: is more of it better, or less? Say --better max or --better min.")
    return better == "min"


def _baseline(groups: Sequence[Group], text: str, known: Sequence[str]) -> Group:
    """The one group that a run directory, or conditions such as `optimizer=sgd optimizer.lr=0.1`, single out."""
    place = Path(text).resolve()
    inside = [group for group in groups if any(run.directory.resolve() == place for run in group.runs)]
    if not inside:
        if "=" not in text:
            raise UserError(
                f"--baseline {text}: none of the compared runs; give one of them, or conditions: 'optimizer=sgd'."
            )
        tests = [condition(word, known) for word in shlex.split(text)]
        inside = [group for group in groups if all(holds(run.values) for holds in tests for run in group.runs)]
    if len(inside) != 1:
        which = "; ".join(group.label for group in inside[:4]) + ("; …" if len(inside) > 4 else "")
        more = f"fits {len(inside)} rows ({which}); say more, as in 'optimizer=sgd optimizer.lr=0.1'"
        say = more if inside else "fits no row"
        raise UserError(f"--baseline {text}: {say}.")
    return inside[0]


def _test(groups: Sequence[Group], baseline: Group, metric: str, is_best: bool) -> None:
    """Set `paired` of every group but the baseline."""
    theirs = baseline.seeds(metric)
    others = [group for group in groups if group is not baseline]
    ours = [group.seeds(metric) for group in others]
    common = [[seed for seed in seeds if seed in theirs] for seeds in ours]
    values = [[seeds[seed] for seed in both] for seeds, both in zip(ours, common, strict=True)]
    tests = against(values, [[theirs[seed] for seed in both] for both in common], is_best)
    for group, test in zip(others, tests, strict=True):
        group.paired = test


def _score(group: Group, metric: str) -> float:
    mean = group.mean(metric)
    assert mean is not None  # runs without the score were left out
    return mean.mean


def _sort(groups: list[Group], metric: str, less_is_better: bool, asked: Asked) -> None:
    """Best first, or by a column or score that was asked for."""
    sign = 1 if less_is_better else -1
    groups.sort(key=lambda group: sign * _score(group, metric))
    key = asked.sort
    if key is not None:
        scores = {name for group in groups for run in group.runs for name in run.scores}
        check_known(key, [*groups[0].values, *scores, "n"])

        def place(group: Group) -> tuple[int, float, str]:
            value = group.values.get(key, ABSENT)
            mean = group.mean(key) if key in scores else None
            number = len(group.seeds(metric)) if key == "n" else value if mean is None else mean.mean
            if is_number(number):
                return 0, float(number), ""
            return 1, 0.0, shown(number)

        groups.sort(key=place)
    if asked.reverse:
        groups.reverse()


def _best(groups: Sequence[Group], metric: str, less_is_better: bool) -> list[Group]:
    best = (min if less_is_better else max)(_score(group, metric) for group in groups)
    return [group for group in groups if _score(group, metric) == best]


def explained(report: Report) -> list[str]:
    """What a reader has to know of the numbers, a sentence each."""
    part = {"val": "of the best weights on the validation part", "test": "of the best weights on the test part"}
    what = part.get(report.metric.partition("/")[0], "of the whole run")
    lines = [f"{report.metric} {what}, {'lowest' if report.less_is_better else 'highest'} is best (*)."]
    lines += ["n counts seeds; mean ± 95 % interval (Student t), none for one seed."]
    if report.baseline is not None and report.num_tests:
        family = f"{report.num_tests} comparison(s)"
        if report.baseline in report.best:
            family = (
                f"all {report.family} pairs of rows, since the baseline is the best and may have been chosen for that"
            )
        lines.append(
            f"Difference to {report.baseline.label}: two-sided paired t-test on common seeds, p corrected by Holm for "
            f"{family}, claimed below {ALPHA}; its interval is not corrected."
        )
        if any(group.paired and group.paired.more_seeds for group in report.groups):
            lines.append(
                "More seeds: this many more of both rows would show the difference seen so far, were it the true one, with a "
                f"power of 80 % at level {ALPHA}/{report.family}; a rough estimate, as few seeds tell little of either."
            )
    return lines
