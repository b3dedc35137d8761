"""A run repeated from its record: the verdict, where it parted, and what is said before it starts."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.repeats import WORDS, change_facts, run_script
from tests.runs import the_run


def repetition(folder: Path) -> Path:
    return the_run(folder / "outputs" / "reproduced")


@pytest.mark.slow
def test_a_run_is_repeated_from_its_record_alone(reproduce: Any, recorded: Path, tmp_path: Path) -> None:
    """C6: the run is moved, its weights are gone, and it is repeated to the bit."""
    original = shutil.copytree(recorded, tmp_path / "kept")
    shutil.rmtree(recorded / "checkpoints")
    shutil.rmtree(recorded / "tensorboard")
    done = reproduce(recorded)
    assert done.code == 0, done.text
    assert "nothing differs before it starts" in done.stdout
    assert "identical: order of samples, inputs, losses, gradients, weights, metrics\n" in done.stdout
    again = repetition(tmp_path)
    for run in (again, original):  # they tell of the callback that was added
        for name in ("last", "best"):
            assert (run / "checkpoints" / f"{name}.pt").exists()
    first, second = ((run / "digests.jsonl").read_text() for run in (original, again))
    assert first == second and len(first.splitlines()) == 1 + 34 + 2
    verdict = json.loads((again / "verdict.json").read_text())
    assert (verdict["verdict"], verdict["parting"], verdict["updates"]) == ("identical", None, 35)


def test_only_the_first_updates_are_checked(repeated: Any, recorded: Path, tmp_path: Path) -> None:
    done = repeated(recorded, "--updates", "5", "--json")
    assert done.code == 0, done.text
    (verdict,) = json.loads(done.stdout)
    assert verdict["verdict"] == "identical" and verdict["updates"] == 6 and verdict["now"] is None
    lines = (repetition(tmp_path) / "digests.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["update"] == 5
    assert list((tmp_path / "outputs").glob("*/*-*/result.json")) == []  # where resume=auto looks


@pytest.mark.slow
def test_another_number_of_threads_is_said_and_judged(reproduce: Any, tmp_path: Path) -> None:
    words = ("model=small_cnn", "model.widths=[16,16]", "trainer.max_epochs=4", "trainer.num_threads=1")
    (tmp_path / "given").mkdir()
    done = run_script(ROOT / "train.py", *words, cwd=tmp_path / "given")
    assert done.code == 0, done.text
    run = the_run(tmp_path / "given" / "outputs")
    done = reproduce(run, "--num-threads", "2", "--tolerance", "0.1")
    assert "threads: computed with 1, now with 2: sums differ in the last bits" in done.stdout
    assert done.code == 0 and "equivalent: " in done.stdout, done.text
    assert "parted at update " in done.stdout and ": rounding. Look at " in done.stdout, done.text
    done = reproduce(run, "--num-threads", "2", "--updates", "20")
    assert done.code == 3 and "different: " in done.stdout, done.text


@pytest.mark.slow
def test_a_record_moved_to_another_person_and_place(reproduce: Any, tmp_path: Path) -> None:
    """B07: another HOME, the outputs and the data gone from where they were, and nothing but the record."""
    rng = np.random.default_rng(0)
    for label in ("ant", "bee"):
        (tmp_path / "first" / "photos" / label).mkdir(parents=True)
        for index in range(20):
            pixels = rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "first" / "photos" / label / f"{index}.png")
    words = ["data=image_folder", "data.root=./photos", "data.num_classes=2", "data.image_size=8", "data.batch_size=8"]
    words += ["data.preprocess.resize=8", "model=mlp", "trainer.max_epochs=2", "trainer.num_threads=1"]
    done = run_script(ROOT / "train.py", *words, cwd=tmp_path / "first", TORCHLITE_CACHE=str(tmp_path / "cache"))
    assert done.code == 0, done.text
    (tmp_path / "second" / "home").mkdir(parents=True)
    run = tmp_path / "second" / "the record"
    original = tmp_path / "original"
    shutil.copytree(the_run(tmp_path / "first" / "outputs"), original)
    run.mkdir()
    for name in ("run.json", "result.json", "metrics.jsonl", "digests.jsonl", "config.yaml"):
        shutil.copy(original / name, run / name)
    shutil.move(tmp_path / "first" / "photos", tmp_path / "second" / "pictures")
    shutil.rmtree(tmp_path / "first")
    place = {"HOME": str(tmp_path / "second" / "home"), "TORCHLITE_CACHE": str(tmp_path / "other cache")}
    change_facts(run, lambda facts: facts["packages"].update(torch="2.13.0", pillow="1.0"))
    done = reproduce(run, "--data-dir", "../second/pictures", cwd=tmp_path / "second", **place)
    assert done.code == 0 and "identical: " in done.stdout, done.text
    lines = done.stdout.splitlines()
    assert "packages: torch was 2.13.0" in lines[1] and "packages: pillow was 1.0" in lines[2]  # before it starts
    assert_same_weights(original, repetition(tmp_path / "second"))
    done = reproduce(run, cwd=tmp_path / "second", **place)
    assert done.code == 2 and "photos" in done.stderr and "Traceback" not in done.text, done.text


def assert_same_weights(one: Path, other: Path) -> None:
    import torch

    first, second = (torch.load(run / "checkpoints" / "best.pt", weights_only=True)["model"] for run in (one, other))
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    assert (one / "digests.jsonl").read_text() == (other / "digests.jsonl").read_text()


@pytest.mark.slow
def test_a_sweep_is_repeated_job_by_job(reproduce: Any, tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    done = run_script(ROOT / "train.py", "-m", *WORDS, "seed=0,1", "name=pair", cwd=tmp_path / "given")
    assert done.code == 0, done.text
    done = reproduce(tmp_path / "given" / "outputs" / "pair", "--json")
    assert done.code == 0, done.text
    assert [verdict["verdict"] for verdict in json.loads(done.stdout)] == ["identical", "identical"]
    assert "2 identical" in done.stderr


def test_help_names_the_exit_codes(reproduce: Any) -> None:
    done = reproduce("--help")
    assert done.code == 0 and "3 different" in done.stdout
    done = reproduce("x", "--cod", "nowhere")
    assert done.code == 2
