"""Reading and comparing run directories."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

BASE = (
    "model=mlp",
    "model.widths=[16]",
    "trainer.max_epochs=3",
    "trainer.log_every_updates=4",
    "trainer.num_threads=1",
    "trainer.save_pause_seconds=0",
)
TIMES = {"seconds/epoch", "images_per_second"}


def the_run(outputs: Path) -> Path:
    """The only run directory below."""
    (found,) = [path.parent for path in outputs.rglob("result.json")]
    return found


def result(run: Path) -> dict[str, Any]:
    return json.loads((run / "result.json").read_text())


def lines(run: Path) -> list[dict[str, float]]:
    """metrics.jsonl less the durations."""
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in TIMES} for line in found]


def state(run: Path, name: str = "last") -> dict[str, Any]:
    """A checkpoint less the durations and what TensorBoard's files are called."""
    saved = torch.load(run / "checkpoints" / f"{name}.pt", weights_only=True)
    for key in ("seconds", "epoch_seconds"):
        saved.get("progress", {}).pop(key, None)
    saved.get("callbacks", {}).pop("tensorboard", None)
    return saved


def same(one: Any, other: Any) -> bool:
    """Equal to the bit, tensors and not-a-numbers included."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other or (one != one and other != other))


def assert_same_run(one: Path, other: Path) -> None:
    """Weights, optimizer, schedule, averages, generators, metrics and scores: all equal to the bit."""
    assert lines(one) == lines(other)
    assert (one / "digests.jsonl").read_text() == (other / "digests.jsonl").read_text()
    for name in ("last", "best"):
        first, second = state(one, name), state(other, name)
        for key in ("config", "split"):  # they say where the data was kept
            first.pop(key), second.pop(key)
        different = [key for key in first if not same(first[key], second.get(key))]
        assert different == [], f"{name}.pt differs in {different}"
    keys = ("status", "best", "last", "test")
    assert [result(one)[key] for key in keys] == [result(other)[key] for key in keys]


def often(cases: Iterable[Any], count: int) -> list[Any]:
    """The first so many in every test run; the rest are slow."""
    return [pytest.param(case, marks=pytest.mark.slow if index >= count else ()) for index, case in enumerate(cases)]
