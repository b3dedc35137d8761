"""Curves of metrics.jsonl: read, brought onto common points, and folded over seeds into means with bands."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchlite.compare.columns import is_number
from torchlite.compare.statistics import student

Numbers = NDArray[np.float64]
TIMES = ("seconds/", "images_per_second")
AXES = ("updates", "epochs", "seconds")


@dataclass(frozen=True)
class Curve:
    """Values at rising numbers of updates; epochs and seconds are those at the same points."""

    updates: Numbers
    epochs: Numbers
    seconds: Numbers
    values: Numbers

    def x(self, axis: str) -> Numbers:
        return {"updates": self.updates, "epochs": self.epochs, "seconds": self.seconds}[axis]


@dataclass(frozen=True)
class Band:
    """The mean over `n` seeds where all of them have values, and its 95 % interval (Student t); none for one seed."""

    n: int
    mean: Curve
    low: Numbers | None
    high: Numbers | None


def read(directory: Path) -> dict[str, Curve]:
    """Every quantity in metrics.jsonl as a curve; lines that are no JSON or numbers that are not finite are skipped.

    Epochs and seconds between the ends of two epochs go evenly with updates. Seconds are those of training and validation, and
    not a number where durations were left out of the record, as they are of published ones.
    """
    points: dict[str, dict[float, float]] = {}
    ends: list[tuple[float, float, float]] = [(0.0, 0.0, 0.0)]
    for whole in lines(directory):
        line = {name: value for name, value in whole.items() if math.isfinite(value)}
        update = line["update"]
        for name, value in line.items():
            if name not in ("update", "epoch") and not name.startswith(TIMES):
                points.setdefault(name, {})[update] = value
        if "seconds/epoch" in line or any(name.startswith("train/") for name in line):
            ends.append((update, line.get("epoch", len(ends)), ends[-1][2] + line.get("seconds/epoch", math.nan)))
    at, epochs, seconds = (np.array(column) for column in zip(*ends, strict=True))
    curves = {}
    for name, found in points.items():
        updates = np.array(sorted(found))
        values = np.array([found[update] for update in updates.tolist()])
        curves[name] = Curve(updates, np.interp(updates, at, epochs), np.interp(updates, at, seconds), values)
    return curves


def lines(directory: Path) -> list[dict[str, float]]:
    """The numbers of each line of metrics.jsonl that holds an update, NaN for null and what no float holds.

    None where the file cannot be read.
    """
    try:
        text = (directory / "metrics.jsonl").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    found = []
    for line in text.splitlines():
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict):
            numbers = {n: v for n, v in read.items() if v is None or isinstance(v, int | float)}
            if is_number(numbers.get("update")):
                found.append({n: float(v) if is_number(v) else math.nan for n, v in numbers.items()})
    return found


def band(curves: Sequence[Curve], most_points: int, seeds: Sequence[str] | None = None) -> Band | None:
    """The mean curve over seeds, from where the last run begins to where the first ends, at up to `most_points` points.

    A run whose points lie elsewhere is read between its points. None where the runs have no stretch in common.

    Args:
        seeds: of each curve; those of one seed are averaged first, so that the interval counts seeds. None: all differ.
    """
    first = max(curve.updates[0] for curve in curves)
    last = min(curve.updates[-1] for curve in curves)
    grid = np.unique(np.concatenate([curve.updates for curve in curves]))
    grid = grid[(grid >= first) & (grid <= last)]
    if len(grid) == 0:
        return None
    if len(grid) > most_points:
        grid = grid[np.unique(np.linspace(0, len(grid) - 1, most_points).round().astype(int))]
    own = np.array(range(len(curves)) if seeds is None else seeds)

    def at(name: str) -> Numbers:
        runs = np.stack([np.interp(grid, curve.updates, getattr(curve, name)) for curve in curves])
        return np.stack([runs[own == seed].mean(0) for seed in dict.fromkeys(own.tolist())])

    values = at("values")
    mean = Curve(grid, at("epochs").mean(0), at("seconds").mean(0), values.mean(0))
    n = len(values)
    if n < 2:
        return Band(n, mean, None, None)
    half = student(n - 1) * values.std(0, ddof=1) / math.sqrt(n)
    return Band(n, mean, mean.values - half, mean.values + half)
