"""Records of a small run, written by hand."""

import copy
import json
from pathlib import Path
from typing import Any

from torchlite.reproduce.records import Past

FACTS: dict[str, Any] = {
    "name": "a",
    "identity": "0123456789ab",
    "config": {"trainer": {"monitor": "val/acc1"}, "seed": 0},
    "overrides": ["optimizer=sgd", "seed=0"],
    "code": {"commit": None},
    "data": {"split": {"train": 100, "val": 20, "test": 400}},
}
RESULT: dict[str, Any] = {"status": "finished", "updates": 4, "seconds": 2.0, "last": {"val/acc1": 0.9}}
RESULT |= {"best": {"update": 4, "val/acc1": 0.9}, "test": {"test/acc1": 0.8}}
STOPPED = {"status": "stopped", "seconds": 1.0}
LINE = {"ids": "a", "targets": "b", "images": "c", "loss": 1.0, "grad_norm": 2.0, "lr": 0.1}
DIGESTS: list[dict[str, Any]] = [
    {"every": 1, "update": 0, "weights": "w0"},
    {"update": 1, **LINE, "weights": "w1"},
    {"update": 2, **LINE},
    {"update": 3, **LINE},
    {"update": 4, **LINE},
    {"update": 4, "epoch": 1, "weights": "w4"},
]
METRICS = [{"update": 2, "update/loss": 1.0}, {"update": 4, "train/loss": 1.0, "val/acc1": 0.9, "seconds/epoch": 3.0}]


def past(
    folder: Path, digests: Any = DIGESTS, metrics: Any = METRICS, result: Any = RESULT, facts: Any = FACTS
) -> Past:
    """The record in a folder; None for a file that is not there."""
    folder.mkdir(exist_ok=True)
    for name, lines in (("digests.jsonl", digests), ("metrics.jsonl", metrics)):
        if lines is not None:
            (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return Past(folder, facts, result)


def changed(line: int, **values: Any) -> list[dict[str, Any]]:
    """DIGESTS with other values in a line."""
    lines = copy.deepcopy(DIGESTS)
    lines[line] |= values
    return lines


def every(count: int, last: int, **values: Any) -> list[dict[str, Any]]:
    """Digests of the first 16 and every so manieth update, the weights at the end; `values` from update 21 on."""
    made = [{"every": count, "update": 0, "weights": "w0"}]
    made += [
        {"update": u, **LINE, **(values if u > 20 else {})} for u in range(1, last + 1) if u <= 16 or u % count == 0
    ]
    return [*made, {"update": last, "epoch": 1, "weights": values.get("weights", "w")}]
