"""A record is read whole or refused in a line, before anything runs."""

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.repeats import change_facts
from torchlite.errors import UserError
from torchlite.reproduce.entry import groups, words
from torchlite.reproduce.records import found, read
from torchlite.reproduce.verdict import judge, sampling_spread


def test_a_sweep_is_its_jobs_and_not_the_single_runs_beside_them(recorded: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    shutil.copytree(recorded, sweep / "seed-1-0123456789ab")
    shutil.copytree(recorded, sweep / "20260101-000000-0123456789ab")
    assert [run.name for run in found(str(sweep))] == ["seed-1-0123456789ab"]
    shutil.rmtree(sweep / "seed-1-0123456789ab")
    assert [run.name for run in found(str(sweep))] == ["20260101-000000-0123456789ab"]
    assert read(found(str(sweep))[0]).metric == "test/acc1"


def _holder(facts: dict[str, Any], path: tuple[Any, ...]) -> Any:
    return functools.reduce(lambda holder, name: holder[name], path[:-1], facts)


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of one value of a record."""

    def change(facts: dict[str, Any]) -> None:
        _holder(facts, path)[path[-1]] = value

    return change


LIST, OBJECT, ESCAPE = [[]], {"a": [{}]}, "\x1b[2J"
SHAPES: dict[tuple[str | int, ...], tuple[Any, ...]] = {
    ("code",): (LIST, None),
    ("code", "modules"): (LIST, OBJECT, None, True),
    ("data", "split"): (LIST, True, ESCAPE),
    ("data", "split", "test"): (LIST, None, True, "360"),
    ("data", "fingerprint"): (OBJECT, True, ESCAPE),
    ("config",): (LIST, {}, None),
    ("config", "model"): (LIST, None),
    ("config", "seed"): (LIST, None, True, "0"),
    ("config", "callbacks"): (LIST, OBJECT),
    ("config", "trainer", "monitor"): (LIST, None, ESCAPE),
    ("config", "data_dir"): (OBJECT, None),
    ("choices", "num_threads"): (LIST, None, True, "2"),
    ("packages", "torch"): (LIST, True),
    ("overrides", 0): (OBJECT, None),
    ("hardware",): (LIST, None),
    ("options",): (LIST, None),
}


@pytest.mark.parametrize(
    ("path", "value"),
    [(path, value) for path, values in SHAPES.items() for value in values],
    ids=lambda one: ".".join(map(str, one)) if isinstance(one, tuple) else ascii(one),
)
def test_a_record_of_another_shape_is_refused_in_a_line(
    recorded: Path, path: tuple[str | int, ...], value: Any
) -> None:
    key = ".".join(name for name in path[:2] if isinstance(name, str)).removesuffix(".torch")
    change_facts(recorded, put(*path, value=value))
    with pytest.raises(UserError) as refused:
        read(recorded)
    said = str(refused.value)
    assert said.startswith(f"{recorded / 'run.json'}: {key}") and said.isprintable()


def test_every_key_of_a_record_can_be_missing_or_null(recorded: Path) -> None:
    """It is read all the same, or refused in a line."""
    facts = json.loads((recorded / "run.json").read_text())
    places: list[tuple[str, ...]] = [(key,) for key in facts]
    places += [(key, inner) for key in ("config", "choices", "code", "data") for inner in facts[key]]
    for place in places:
        for change in (put(*place, value=None), lambda facts, place=place: _holder(facts, place).pop(place[-1])):
            (recorded / "run.json").write_text(json.dumps(facts))
            change_facts(recorded, change)
            try:
                past = read(recorded)
            except UserError as error:
                assert f"{recorded / 'run.json'}: {place[0]}" in str(error) and str(error).isprintable()
            else:
                assert judge(past, past, sampling_spread(past)).verdict == "identical"
                assert words(past) and groups([past])


FILES = {  # what a file holds, and what is said
    "a result that is no object": ("result.json", "[]", "result.json is no record"),
    "a score that is text": (
        "result.json",
        '{"status": "finished", "test": {"test/acc1": "good"}}',
        "result.json: test is",
    ),
    "a result without a status": ("result.json", "{}", "result.json: status is missing"),
    "digests cut off": (
        "digests.jsonl",
        '{"update": 0, "weights": "ab"}\n{"upd',
        "digests.jsonl, line 2, cannot be read",
    ),
    "digests that are no text": ("digests.jsonl", "\udcff\udcfe", "digests.jsonl cannot be read"),
    "a digest without update": (
        "digests.jsonl",
        '{"loss": 1.0}',
        "digests.jsonl: line 1 is no object with an `update`",
    ),
    "a digest of update true": ("digests.jsonl", '{"update": true}', "digests.jsonl: line 1 is no object"),
    "a digest that is no digest": ("digests.jsonl", '{"update": 1, "ids": "\\u001b[2J"}', "line 1: ids is damaged"),
    "a loss that is text": ("digests.jsonl", '{"update": 1, "loss": "low"}', "line 1: loss is damaged"),
    "metrics of text": (
        "metrics.jsonl",
        '{"update": 1, "val/acc1": "good"}',
        "metrics.jsonl: line 1 holds what is no number",
    ),
    "metrics cut off": (
        "metrics.jsonl",
        '{"update": 1}\n{"update": 2, "train',
        "metrics.jsonl, line 2, cannot be read",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_of_another_shape_is_refused_in_a_line(recorded: Path, case: str) -> None:
    name, text, expected = FILES[case]
    (recorded / name).write_text(text, errors="surrogateescape")
    with pytest.raises(UserError) as refused:
        read(recorded)
    assert expected in str(refused.value) and str(refused.value).isprintable()
