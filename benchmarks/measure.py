"""Two things measured in turn on one machine, and the words that must stand beside every figure."""

import gc
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
MANY = 50  # pairs, of which the extremes say little


def interleave(ours: Callable[[], T], bare: Callable[[], T], rounds: int) -> list[tuple[T, T]]:
    """Both sides' own measurements, (ours, bare) for each round.

    They take turns, and turns at going first, since a machine drifts by tens of percent. One run of each beforehand
    warms up and is thrown away.
    """
    if rounds < 5:
        raise ValueError(f"{rounds} rounds are too few for a median; take 5 or more")
    ours()
    bare()
    pairs = []
    for index in range(rounds):
        gc.collect()
        if index % 2:
            second = bare()
            pairs.append((ours(), second))
        else:
            first = ours()
            pairs.append((first, bare()))
    return pairs


def compared(what: str, pairs: Sequence[tuple[float, float]], unit: str, decimals: int) -> str:
    """One line: the median of each side, and the median, lowest and highest ratio within a round; of many the middle half."""
    ours, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    ratios = [a / b for a, b in pairs]
    sides = f"torchlite {ours:.{decimals}f} {unit}, bare {bare:.{decimals}f} {unit}"
    low, _, high = statistics.quantiles(ratios, n=4)
    many = len(pairs) >= MANY
    extent = f"half of them {low:.3f} to {high:.3f}" if many else f"{min(ratios):.3f} to {max(ratios):.3f}"
    spread = f"{extent}; medians of {len(pairs)} interleaved {'turns' if many else 'rounds'}"
    return f"{what}: {sides}, ratio {statistics.median(ratios):.3f} ({spread})"


def machine() -> str:
    """CPU model, cores, and the versions that decide speed, on one line; imports no torch."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {version('torch')}"
