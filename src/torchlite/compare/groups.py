"""Runs of one setting folded into one row; the unit that is counted is the seed."""

import collections
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from torchlite.compare.columns import ABSENT, Value, differing, short_names, shown
from torchlite.compare.records import Run
from torchlite.compare.statistics import Mean, Paired, mean


@dataclass(eq=False)
class Group:
    """Runs that differ in nothing that is compared but the seed."""

    runs: list[Run]
    values: dict[str, Value] = field(default_factory=dict)  # of the columns
    label: str = ""
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


def fold(runs: Sequence[Run], by: Sequence[str] = ()) -> tuple[list[Group], list[str], list[str]]:
    """The groups, the columns that tell them apart, and notes on what the folding had to decide.

    Args:
        by: keys; runs that agree in these are pooled, whatever else differs. Without any, runs of one setting are.
    """
    pools: dict[object, list[Run]] = collections.defaultdict(list)
    for run in runs:
        pools[tuple(shown(run.values[k]) if k in run.values else ABSENT for k in by) if by else run.setting].append(run)
    groups, repeats = [], []
    for pool in pools.values():
        kept, older = _newest(pool)
        groups.append(Group(kept))
        repeats += older
    notes = [_repeated(repeats)] if repeats else []
    columns = list(by) or differing([group.runs[0] for group in groups])
    short = short_names(columns)
    for group in groups:
        first = group.runs[0]
        group.values = {key: first.values.get(key, ABSENT) for key in columns}
        words = [(key, shown(value)) for key, value in group.values.items() if value != ABSENT]
        group.label = ", ".join(v if k in first.options else f"{short[k]} {v}" for k, v in words) or _name(first)
    if by:
        notes += _pooled(groups)
    return groups, columns, notes


def _name(run: Run) -> str:
    return shown(run.values.get("name") or run.directory.name)


def _newest(pool: Sequence[Run]) -> tuple[list[Run], list[tuple[Run, Run]]]:
    """The newest run of each setting and seed, and (older, newer) of the others."""
    kept: dict[tuple[str, str], Run] = {}
    older = []
    for run in sorted(pool, key=lambda run: run.written):
        twin = kept.pop((run.setting, run.seed), None)
        if twin is not None:
            older.append((twin, run))
        kept[run.setting, run.seed] = run
    ordered = sorted(kept.values(), key=lambda run: (run.setting, _number(run.seed)))
    return ordered, older


def _number(seed: str) -> tuple[float, str]:
    value = json.loads(seed)
    return (float(value), "") if isinstance(value, int | float) and abs(value) < 1e300 else (0.0, seed)


def _repeated(repeats: Sequence[tuple[Run, Run]]) -> str:
    unequal = [(old, new) for old, new in repeats if {**old.scores, "seconds": 0} != {**new.scores, "seconds": 0}]
    old, new = (unequal or repeats)[0]
    say = "" if not unequal else f", {len(unequal)} with other scores (--diff {old.directory} {new.directory})"
    return f"{len(repeats)} older run(s) of a setting and seed that ran again are left out{say}; --by code keeps code apart."


def _pooled(groups: Sequence[Group]) -> list[str]:
    inside = differing([run for group in groups for run in group.runs])
    inside = [key for key in inside if key not in groups[0].values]
    notes = [f"Each row pools runs that differ in {', '.join(inside)}; a seed's runs are averaged."] if inside else []
    settings = [collections.Counter(run.seed for run in group.runs) for group in groups]
    if any(len(set(counts.values())) > 1 for counts in settings):
        notes.append("Some seeds ran more settings than others, so the rows are not balanced.")
    return notes
