"""Runs of one setting folded into one row; the unit that is counted is the seed."""

import collections
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torchlite.compare.columns import ABSENT, Value, differing, is_number, short_names, shown
from torchlite.compare.finding import Told, natural
from torchlite.compare.records import Run
from torchlite.compare.statistics import Mean, Paired, mean


@dataclass(eq=False)
class Group:
    """Runs that differ in nothing that is compared but the seed."""

    runs: list[Run]
    values: dict[str, Value] = field(default_factory=dict)  # of the columns
    label: str = ""
    unfinished: set[str] = field(default_factory=set)  # seeds of which no run has finished
    paired: Paired | None = None  # against the baseline; None for the baseline itself and without one

    def seeds(self, metric: str) -> dict[str, float]:
        """A score per seed; where several settings are pooled, the mean of the seed's runs, so that n counts seeds."""
        found: dict[str, list[float]] = collections.defaultdict(list)
        for run in self.runs:
            if metric in run.scores:
                found[run.seed].append(run.scores[metric])
        return {seed: sum(scores) / len(scores) for seed, scores in found.items()}

    def mean(self, metric: str) -> Mean | None:
        """Over seeds, with its interval; None where no run has the score."""
        seeds = self.seeds(metric)
        return mean(list(seeds.values())) if seeds else None

    def finished(self, metric: str) -> str:
        """`1 of 5 seeds finished`; empty where all have."""
        n = len(self.seeds(metric))
        return f"{n} of {n + len(self.unfinished)} seeds finished" if self.unfinished else ""


def fold(
    runs: Sequence[Run], by: Sequence[str] = (), unfinished: Sequence[Told] = ()
) -> tuple[list[Group], list[str], list[str]]:
    """The groups, the columns that tell them apart, and notes on what the folding had to decide.

    Args:
        by: keys; runs that agree in these are pooled, whatever else differs. Without any, runs of one setting are.
        unfinished: what runs were told that have no result (yet).
    """

    def pool_of(run: Told) -> object:
        return tuple(shown(run.values[k]) if k in run.values else ABSENT for k in by) if by else run.setting

    pools: dict[object, list[Run]] = collections.defaultdict(list)
    for run in runs:
        pools[pool_of(run)].append(run)
    groups, repeats = {}, []
    for key, pool in pools.items():
        kept, older = _last(pool)
        groups[key] = Group(kept)
        repeats += older
    for told in unfinished:
        group = groups.get(pool_of(told))
        if group is not None and told.seed not in {run.seed for run in group.runs}:
            group.unfinished.add(told.seed)
    columns = list(by) or differing([group.runs[0] for group in groups.values()])
    _label(groups.values(), columns)
    notes = [_repeated(repeats, columns)] if repeats else []
    if by:
        notes += _pooled(list(groups.values()))
    return list(groups.values()), columns, notes


def _label(groups: Iterable[Group], columns: Sequence[str]) -> None:
    short = short_names(columns)
    for group in groups:
        first = group.runs[0]
        group.values = {key: first.values.get(key, ABSENT) for key in columns}
        words = [(key, shown(value)) for key, value in group.values.items() if value != ABSENT]
        group.label = ", ".join(v if k in first.options else f"{short[k]} {v}" for k, v in words) or _name(first)


def _name(run: Run) -> str:
    return shown(run.values.get("name") or run.directory.name)


def _last(pool: Sequence[Run]) -> tuple[list[Run], list[tuple[Run, Run]]]:
    """The last run of each setting and seed, and (earlier, last) of the others.

    By the names of directories, which begin with date and time for single runs: a copy of a record has new times on its files.
    """
    kept: dict[tuple[str, str], Run] = {}
    older = []
    for run in sorted(pool, key=lambda run: (natural(run.directory.name), natural(run.directory))):
        twin = kept.pop((run.setting, run.seed), None)
        if twin is not None:
            older.append((twin, run))
        kept[run.setting, run.seed] = run
    ordered = sorted(kept.values(), key=lambda run: (run.setting, _number(run.seed)))
    return ordered, older


def _number(seed: str) -> tuple[float, str]:
    value = json.loads(seed)
    return (float(value), "") if is_number(value) else (0.0, seed)


def _repeated(repeats: Sequence[tuple[Run, Run]], columns: Sequence[str]) -> str:
    unequal = [(old, new) for old, new in repeats if {**old.scores, "seconds": 0} != {**new.scores, "seconds": 0}]
    old, new = (unequal or repeats)[0]
    say = "" if not unequal else f", {len(unequal)} with other scores (--diff {old.directory} {new.directory})"
    apart = "" if "code" in columns else f"; --by {','.join([*columns, 'code'])} keeps code apart"
    return f"{len(repeats)} run(s) of a setting and seed that ran again are left out (the last by name is kept){say}{apart}."


def _pooled(groups: Sequence[Group]) -> list[str]:
    """What the rows pool, and whether every row and seed pools the same."""
    inside = list(dict.fromkeys(key for group in groups for key in differing(group.runs) if key not in group.values))
    notes = [f"Each row pools runs that differ in {', '.join(inside)}; a seed's runs are averaged."] if inside else []
    pools: dict[tuple[int, str], set[str]] = collections.defaultdict(set)
    for place, group in enumerate(groups):
        for run in group.runs:
            told = ", ".join(f"{key} {shown(run.values.get(key, ABSENT))}" for key in inside)
            pools[place, run.seed].add(told)
    first = next(iter(pools))
    other = next((one for one, pool in pools.items() if pool != pools[first]), None)
    if other is not None:
        lone = min(pools[first] ^ pools[other])
        names = [f"{groups[place].label}, seed {seed}" for place, seed in (first, other)]
        has, lacks = names if lone in pools[first] else reversed(names)
        notes.append(f"The rows are not balanced, for they pool unlike runs: {has}, has {lone}; {lacks}, has not.")
    return notes
