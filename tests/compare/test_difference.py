"""Two runs side by side: only what differs, and the first update at which their metrics part."""

import json
from pathlib import Path

import pytest

from tests.compare import made
from torchlite.compare.difference import as_text, difference


def change(directory: Path, update: int, name: str, by: float) -> None:
    path = directory / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line["update"] == update and name in line:
            line[name] += by
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def twins(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs that are equal in everything; made in folders of one name, which their noise is drawn from."""
    return made.run(tmp_path / "one" / "a"), made.run(tmp_path / "other" / "a")


def test_equal_runs_differ_in_nothing(twins: tuple[Path, Path]) -> None:
    found = difference(*map(str, twins))
    assert all(not part for name, part in found.items() if name not in ("runs", "metrics"))
    assert found["metrics"]["verdict"] == "equal wherever both were logged, up to update 30"
    assert "the same: config, chosen at run time, code, packages, hardware, data" in as_text(found)


def test_the_first_update_at_which_they_part_is_named(twins: tuple[Path, Path]) -> None:
    change(twins[1], 18, "update/loss", 1e-9)
    change(twins[1], 20, "val/loss", 0.5)
    found = difference(*map(str, twins))
    metrics = found["metrics"]
    assert metrics["first_update"] == 18 and list(metrics["values"]) == ["update/loss"]
    assert metrics["verdict"] == "they part at update 18, the first that was logged and differs (equal up to update 14)"
    assert "update/loss: " in as_text(found) and "(+1e-09)" in as_text(found)


def test_a_number_that_is_not_finite_differs_from_one_that_is(twins: tuple[Path, Path]) -> None:
    """A record has null for NaN, which other tools write as such."""
    paths = [twin / "metrics.jsonl" for twin in twins]
    lines = paths[1].read_text().splitlines(keepends=True)
    whole = json.loads(lines[2])
    assert whole["update"] == 10
    for nothing in ("null", "NaN", "1" * 400):
        lines[2] = json.dumps({**whole, "val/loss": "?"}).replace('"?"', nothing) + "\n"
        paths[1].write_text("".join(lines))
        found = difference(*map(str, twins))
        assert found["metrics"]["first_update"] == 10 and found["metrics"]["values"] == {"val/loss": [1.0, None]}
        assert "val/loss: 1.0 | not finite\n" in as_text(found)
        json.dumps(found, allow_nan=False)
    paths[0].write_text(paths[1].read_text())
    assert difference(*map(str, twins))["metrics"]["verdict"].startswith("equal")


def test_durations_do_not_count(twins: tuple[Path, Path]) -> None:
    change(twins[1], 18, "images_per_second", 100)
    change(twins[1], 20, "seconds/epoch", 3)
    assert difference(*map(str, twins))["metrics"]["verdict"].startswith("equal")


def test_every_kind_of_difference_is_named(tmp_path: Path) -> None:
    facts = {
        "code": {"commit": "b" * 40, "dirty": True},
        "packages": {"python": "3.11.7", "torch": "2.15.0", "extra": "1"},
        "hardware": {"host": "there", "cpu": "A processor", "num_cores": 2},
        "choices": {"device": "cpu", "num_threads": 2, "monitor_mode": "max"},
        "data": {"fingerprint": "0" * 64, "split": {"train": 10}},
    }
    one = made.run(tmp_path / "a", optimizer="sgd")
    other = made.run(tmp_path / "b", optimizer="adamw", facts=facts)
    (other / "source.patch").write_text("--- a/x.py\n+++ b/x.py\n+print(1)\n")
    found = difference(str(one), str(other))
    assert found["config"]["optimizer._target_"] == ["torch.optim.SGD", "torch.optim.AdamW"]
    assert found["config"]["optimizer.momentum"] == [0.9, "–"]
    assert found["chosen at run time"] == {"num_threads": [1, 2]}
    assert found["code"]["commit"] == ["a" * 40, "b" * 40] and found["code"]["source.patch"][0] == "none"
    assert "++print(1)" in found["code"]["lines of source.patch in A (-) or B (+)"]
    assert found["packages"] == {"torch": ["2.14.1", "2.15.0"], "numpy": ["2.4.6", "–"], "extra": ["–", "1"]}
    assert found["hardware"] == {"host": ["here", "there"]}
    assert found["data"]["fingerprint"] == ["f" * 64, "0" * 64] and found["data"]["split.train"] == [1150, 10]
    text = as_text(found)
    assert "optimizer.lr: 0.1 | 0.003" in text and "num_threads: 1 | 2" in text


def test_an_unfinished_run_may_be_set_beside_a_finished_one(twins: tuple[Path, Path]) -> None:
    path = twins[1] / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:4]) + '{"update": 18, "upd')
    (twins[1] / "result.json").write_text('{"status": "running"}')
    found = difference(*map(str, twins))
    assert (
        found["metrics"]["verdict"] == "equal wherever both were logged, up to update 14; A ends at update 30, B at 14"
    )
    assert found["result"]["status"] == ["finished", "running"]


def test_metrics_that_were_never_logged_together_are_not_called_equal(twins: tuple[Path, Path]) -> None:
    (twins[1] / "metrics.jsonl").write_text('{"update": 1000, "epoch": 9, "val/loss": 1}\n')
    assert "never logged at the same update" in difference(*map(str, twins))["metrics"]["verdict"]
    (twins[1] / "metrics.jsonl").unlink()
    assert "one has no metrics" in difference(*map(str, twins))["metrics"]["verdict"]
