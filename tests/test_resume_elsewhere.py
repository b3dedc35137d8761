"""Runs that go on where something is not as it was: the data, a file, the machine."""

import json
from pathlib import Path

import pytest

from tests.conftest import Typed
from tests.runs import BASE, result, the_run


def test_other_data_is_refused(typed: Typed, tmp_path: Path) -> None:
    import numpy as np

    images = np.random.default_rng(0).integers(0, 256, (300, 8, 8), dtype=np.uint8)
    words = [
        "data=arrays",
        "data.root=set",
        "data.num_classes=3",
        "data.channels=1",
        "data.image_size=8",
        "data.batch_size=32",
    ]
    words += ["data.preprocess.mean=[0.5]", "data.preprocess.std=[0.25]", "model=mlp", "trainer.max_epochs=3"]
    (tmp_path / "set").mkdir()
    for part, count in (("train", 200), ("test", 60)):
        np.savez(tmp_path / "set" / f"{part}.npz", images=images[:count], labels=np.arange(count) % 3)
    assert typed(*words, "+callbacks.bad={_target_:tests.strangers.Explodes,update:8}").code == 1
    np.savez(tmp_path / "set" / "train.npz", images=images[:230], labels=np.arange(230) % 3)
    done = typed(*words, "+callbacks.bad={_target_:tests.strangers.Explodes,update:8}", "resume=auto")
    assert done.code == 2 and "the data is not what it was" in done.stderr, done.text
    np.savez(tmp_path / "set" / "train.npz", images=255 - images[:200], labels=np.arange(200) % 3)  # as many, others
    done = typed(*words, "+callbacks.bad={_target_:tests.strangers.Explodes,update:8}", "resume=auto")
    assert done.code == 2 and "the data is not what it was" in done.stderr, done.text


@pytest.mark.parametrize("begun", [["data_dir=old"], []], ids=["data_dir typed", "data_dir not typed"])
@pytest.mark.parametrize("words_again", [True, False], ids=["resume=auto", "resume=DIR"])
def test_a_run_goes_on_with_data_that_has_moved(
    typed: Typed, tmp_path: Path, begun: list[str], words_again: bool
) -> None:
    import numpy as np

    images = np.random.default_rng(0).integers(0, 256, (300, 8, 8), dtype=np.uint8)
    words = ["data=arrays", "data.root=${data_dir}/set", "data.num_classes=3", "data.channels=1", "data.image_size=8"]
    words += ["data.batch_size=32", "data.preprocess.mean=[0.5]", "data.preprocess.std=[0.25]", *BASE, "name=n"]
    old = tmp_path / ("old" if begun else "data")
    (old / "set").mkdir(parents=True)
    for part, count in (("train", 200), ("test", 60)):
        np.savez(old / "set" / f"{part}.npz", images=images[:count], labels=np.arange(count) % 3)
    assert typed(*words, *begun, "trainer.max_minutes=0.00001").code == 75
    old.rename(tmp_path / "new")
    run = the_run(tmp_path / "outputs")
    again = [*words, "resume=auto"] if words_again else [f"resume={run}"]
    done = typed(*again, "data_dir=new", "trainer.max_minutes=null")
    assert done.code == 0 and result(run)["status"] == "finished", done.text


def test_a_run_goes_on_without_the_file_it_began_from(stopped: Typed, tmp_path: Path) -> None:
    assert stopped(None, *BASE, "trainer.max_epochs=1", "name=first").code == 0
    best = the_run(tmp_path / "outputs" / "first") / "checkpoints" / "best.pt"
    assert stopped(7, *BASE, f"model.weights={best}", "name=second").code == 143
    best.unlink()
    done = stopped(None, *BASE, f"model.weights={best}", "name=second", "resume=auto")
    assert done.code == 0, done.text


def test_a_run_goes_on_where_there_are_fewer_cores_and_no_such_device(stopped: Typed, tmp_path: Path) -> None:
    """E06"""
    words = [word for word in BASE if "num_threads" not in word]
    assert stopped(7, *words).code == 143
    run = the_run(tmp_path / "outputs")
    facts = json.loads((run / "run.json").read_text())
    facts["choices"] |= {"num_threads": 4096, "device": "xpu:7"}
    (run / "run.json").write_text(json.dumps(facts))
    done = stopped(None, *words, "resume=auto")
    assert done.code == 0, done.text
    assert "the run began with 4096 threads" in done.text and "the run began on xpu:7, which is not here" in done.text
