"""What a sweep costs: two jobs at a time against one after the other, and a process for each job against one for all.

    python -m benchmarks.sweeps [ROUNDS]

Two at a time compute with one thread each, one after the other with all cores. "One process" is Hydra's basic launcher, which
imports torch once.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import machine

TRAIN = Path(__file__).resolve().parents[1] / "train.py"
EIGHT = ("seed=range(0,8)", "name=bench")


def seconds(*words: str) -> float:
    """Wall time of a sweep typed in a fresh directory."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, str(TRAIN), "-m", *EIGHT, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        return time.perf_counter() - started


def compare(what: str, one: tuple[str, ...], other: tuple[str, ...], rounds: int) -> None:
    """Print the median of each side and of the ratios, in turns."""
    pairs = [(seconds(*one), seconds(*other)) for _ in range(rounds)]
    ratio = statistics.median(a / b for a, b in pairs)
    a, b = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(f"{what}: {a:.1f} s against {b:.1f} s, ratio {ratio:.2f} (medians of {rounds} rounds)")


def main(rounds: int = 3) -> None:
    print(machine())
    for model, epochs in (("small_cnn", 30), ("mlp", 60)):
        words = (f"model={model}", f"trainer.max_epochs={epochs}")
        two = ("hydra/launcher=local", "hydra.launcher.num_jobs=2")
        compare(f"8 runs of {model}, 2 at a time, against one after the other", (*words, *two), words, rounds)
    short = ("trainer.max_epochs=6",)
    basic = (*short, "hydra/launcher=basic")
    compare("8 runs of about a second, a process each, against one process for all", short, basic, rounds)


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:2]))
