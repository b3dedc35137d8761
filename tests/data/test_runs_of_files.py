"""Whole runs on files of one's own, typed as a user types them: what is right trains, what is wrong is one message, exit 2."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.conftest import Typed
from tests.runs import result, the_run

MakeFolder = Callable[..., Path]
SMALL = ["data.image_size=16", "data.preprocess.resize=16", "data.batch_size=4", "data.num_workers=0", "data.crop=null"]
SMALL += ["model=mlp", "model.widths=[8]", "trainer.max_epochs=1", "trainer.num_threads=1"]


def levels(root: Path, classes: str, per_class: int = 4) -> None:
    """Images whose level says their class: 60 times its place in "abcd"."""
    for name in classes:
        (root / name).mkdir(parents=True)
        for number in range(per_class):
            Image.new("RGB", (20, 20), (60 * "abcd".index(name),) * 3).save(root / name / f"{number}.png")


@pytest.mark.parametrize("word", ["callbacks=early_stopping", "scheduler=plateau"])
def test_what_needs_a_validation_part_is_refused_where_there_is_no_folder_of_it(
    typed: Typed, tmp_path: Path, word: str
) -> None:
    levels(tmp_path / "set" / "train", "abcd")
    words = ["data=image_folder", "data.root=set", "data.num_classes=4", *SMALL, "data.val_fraction=0"]
    done = typed(*words, word)
    assert done.code == 2 and "needs a validation part" in done.stderr, done.text
    assert not list(tmp_path.rglob("result.json"))
    levels(tmp_path / "set" / "val", "abcd")
    assert typed(*words, word).code == 0


def test_h05_a_perfect_model_scores_one_where_validation_lacks_a_class(typed: Typed, tmp_path: Path) -> None:
    levels(tmp_path / "set" / "train", "abcd")
    levels(tmp_path / "set" / "val", "abd")
    levels(tmp_path / "set" / "test", "d")
    words = [*SMALL[:5], "data.preprocess.mean=[0,0,0]", "data.preprocess.std=[1,1,1]", "trainer.max_epochs=1"]
    model = ["~model", "+model={_target_: tests.strangers.Perfect, num_classes: 4}", "optimizer.lr=1e-6"]
    done = typed("data=image_folder", "data.root=set", "data.num_classes=4", *words, *model)
    assert done.code == 0, done.text
    found = result(the_run(tmp_path))
    assert found["best"]["val/acc1"] == 1.0 and found["test"]["test/acc1"] == 1.0
    levels(tmp_path / "set" / "val2", "abd")
    (tmp_path / "set" / "val" / "d").rename(tmp_path / "set" / "val" / "e")
    done = typed("data=image_folder", "data.root=set", "data.num_classes=4", *words, *model)
    assert done.code == 2 and "(a, b, c, d) has not: e, such as that of sample 8 (" in done.stderr


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_table_that_is_not_utf_8_is_refused(typed: Typed, folder: MakeFolder, encoding: str) -> None:
    root = folder(classes=("x",))
    (root / "it.csv").write_text("path,label\n" + "x/0.jpg,gr\u00fcn\nx/1.jpg,rot\n", encoding=encoding)
    done = typed("data=csv", f"data.root={root}/it.csv", "data.num_classes=2", *SMALL)
    assert done.code == 2 and f"{root}/it.csv" in done.stderr and "Save it as UTF-8" in done.stderr
    assert len(done.stderr.splitlines()) == 1 and not list(Path("outputs").rglob("result.json"))


def test_a09_names_that_are_no_text_train_and_are_shown_everywhere(
    typed: Typed, folder: MakeFolder, tmp_path: Path
) -> None:
    root = folder("a set", classes=("a,b=c", "new\nline", "x\udcff"))
    root = root.rename(root.parent / "set \udcfe")
    words = [
        "data.num_classes=3",
        *SMALL,
        "callbacks.tensorboard.num_images=4",
        "data.val_fraction=0.5",
        "optimizer.lr=1e-9",
    ]
    done = typed("data=image_folder", f'data.root="{root}"', *words)
    assert done.code == 0, done.text
    run = the_run(tmp_path)
    named = ["a,b=c", "new\\nline", "x\\xff"]
    facts = json.loads((run / "run.json").read_text(encoding="utf-8"))
    assert facts["data"]["classes"] == named and os.path.samefile(facts["config"]["data"]["root"], root)
    (run / "train.log").read_text(encoding="utf-8")
    (run / "config.yaml").read_text(encoding="utf-8")
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    (text,) = events.Tensors("val/misclassified/text_summary")
    assert "taken for" in text.tensor_proto.string_val[0].decode("utf-8")
    assert events.SummaryMetadata("_hparams_/session_start_info").plugin_data.plugin_name == "hparams"
    done = typed("data=image_folder", f'data.root="{root}"', *words, "resume=auto")
    assert done.code == 0 and "already finished" in done.stdout


def test_h01_files_that_are_no_images_end_the_run_before_it_trains(typed: Typed, folder: MakeFolder) -> None:
    for part in ("train", "val"):
        root = folder(f"set/{part}").parent
    half = root / "train" / "ant" / "0.jpg"
    half.write_bytes(half.read_bytes()[: half.stat().st_size // 2])
    (root / "train" / "bee" / "new.png").write_bytes(b"")
    (root / "val" / "bee" / "text.png").write_text("no image")
    done = typed("data=image_folder", f"data.root={root}", "data.num_classes=2", *SMALL)
    assert done.code == 2 and len(done.stderr.splitlines()) == 3, done.text
    for path in (half, root / "train" / "bee" / "new.png", root / "val" / "bee" / "text.png"):
        assert str(path) in done.stderr
    assert not list(Path("outputs").rglob("result.json"))


KILLED = [
    *("data.num_classes=2", *SMALL, "data.num_workers=2", "trainer.max_epochs=3", "data.in_memory=false"),
    "+callbacks.kill={_target_: tests.strangers.KillsWorker, epoch: 1}",
]


@pytest.mark.slow
def test_i04_a_killed_worker_is_two_clear_lines_and_the_run_goes_on(
    typed: Typed, folder: MakeFolder, tmp_path: Path
) -> None:
    root = folder(per_class=20)
    words = ["data=image_folder", f"data.root={root}", *KILLED]
    done = typed(*words)
    assert done.code == 1 and "Traceback" not in done.text, done.text
    run = the_run(tmp_path)
    advice, way = done.stderr.splitlines()[-2:]
    assert "it was killed. Most often memory" in advice and "(data.num_workers=1)" in advice
    assert way == f"The last checkpoint is whole. Go on with the same words and resume={run.relative_to(tmp_path)}"
    failure = result(run)["failure"]
    assert failure["type"] == "WorkerDiedError" and "Traceback" in failure["traceback"]
    assert "Traceback" in (run / "train.log").read_text()
    done = typed(*words, way.rpartition(" ")[2])
    assert done.code == 0 and "going on after update" in done.stdout, done.text
    assert result(run)["status"] == "finished"


@pytest.mark.slow
def test_i04_a_sweeps_job_goes_on_from_its_checkpoint_after_its_worker_was_killed(
    typed: Typed, folder: MakeFolder, tmp_path: Path
) -> None:
    root = folder(per_class=20)
    words = ["data=image_folder", f"data.root={root}", *KILLED]
    command = ["-m", *words, "name=s"]
    assert typed(*command).code == 1
    done = typed(*command)
    assert done.code == 0 and "going on after update" in (the_run(tmp_path) / "train.log").read_text(), done.text
