"""Runs that go on where something is not as it was: the data, a file, the machine."""

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Typed
from tests.runs import BASE, result, state, the_run
from torchlite import checkpoint


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("first", ["true", "false"])
def test_a_run_goes_on_compiled_or_not(stopped: Typed, tmp_path: Path, first: str) -> None:
    """F01: the checkpoint's names are the same; last bits may differ, which is said."""
    assert stopped(20, *BASE, f"trainer.compile={first}").code == 143
    run = the_run(tmp_path / "outputs")
    other = {"true": "false", "false": "true"}[first]
    done = stopped(None, *BASE, f"resume={run}", f"trainer.compile={other}")
    assert done.code == 0 and f"the run began with other compile ({first.capitalize()})" in done.stdout, done.text
    assert stopped(None, *BASE, "name=straight").code == 0
    scores = [result(one)["test"]["test/loss"] for one in (run, the_run(tmp_path / "outputs" / "straight"))]
    assert scores[0] == pytest.approx(scores[1], rel=1e-3)


def test_a_run_that_asked_for_a_gpu_goes_on_without_one(typed: Typed, tmp_path: Path) -> None:
    """E06: as its record has it, it began on one."""
    assert typed(*BASE, "trainer.max_minutes=0.00001").code == 75
    run = the_run(tmp_path / "outputs")
    facts = json.loads((run / "run.json").read_text())
    facts["config"]["trainer"]["device"] = facts["choices"]["device"] = "xpu:7"
    (run / "run.json").write_text(json.dumps(facts))
    go_on = [f"resume={run}", "trainer.max_minutes=null"]
    done = typed(*go_on)
    assert done.code == 2 and "trainer.device=xpu:7 cannot be used here" in done.stderr, done.text
    done = typed(*go_on, "trainer.device=cpu")
    assert done.code == 0 and "the run began with other device (xpu:7): it may differ" in done.stdout, done.text
    assert result(run)["updates"] == result(run)["last"]["update"]


@pytest.mark.parametrize("word", ["resume=auto", "resume={}"])
def test_a_run_whose_result_was_lost_goes_on(stopped: Typed, tmp_path: Path, word: str) -> None:
    assert stopped(20, *BASE, "name=cut").code == 143
    run = the_run(tmp_path / "outputs")
    (run / "result.json").unlink()
    done = stopped(None, *BASE, "name=cut", word.format(run))
    assert done.code == 0 and "going on after update 20" in done.stdout, done.text
    assert the_run(tmp_path / "outputs") == run and result(run)["status"] == "finished"


def test_what_goes_on_with_other_code_or_libraries_is_recorded(stopped: Typed, tmp_path: Path) -> None:
    assert stopped(20, *BASE).code == 143
    run = the_run(tmp_path / "outputs")
    facts = json.loads((run / "run.json").read_text())
    torch_then, cpu_now = facts["packages"]["torch"], facts["hardware"]["cpu"]
    facts["packages"]["torch"], facts["hardware"]["cpu"] = "1.0", "Z80"
    facts["code"]["commit"] = "0" * 40
    (run / "run.json").write_text(json.dumps(facts))
    done = stopped(40, *BASE, f"resume={run}")
    assert "the run began with other code, torch (1.0), cpu (Z80): it may differ" in done.stdout, done.text
    facts["packages"]["torch"], facts["hardware"]["cpu"] = torch_then, cpu_now
    (run / "run.json").write_text(json.dumps(facts))
    assert stopped(None, *BASE, f"resume={run}").code == 0
    assert result(run)["continued"] == [
        {"update": 20, "other": ["code", "torch (1.0)", "cpu (Z80)"]},
        {"update": 40, "other": ["code"]},
    ]


DAMAGE = [
    lambda data: data[: len(data) // 2],
    pytest.param(lambda data: b"", marks=pytest.mark.slow),
    pytest.param(lambda data: b"text", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("damage", DAMAGE, ids=["half", "empty", "text"])
def test_a_damaged_last_checkpoint_gives_way_to_the_one_before(
    stopped: Typed, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    """E04: said on the terminal and in train.log; a damaged file that was named is refused, with the way on."""
    assert stopped(40, *BASE).code == 143
    run = the_run(tmp_path / "outputs")
    last = run / "checkpoints" / "last.pt"
    last.write_bytes(damage(last.read_bytes()))
    done = stopped(None, *BASE, f"resume={last}")
    assert done.code == 2 and "is damaged" in done.stderr and f"previous.pt: resume={run}" in done.stderr, done.text
    done = stopped(None, *BASE, f"resume={run}")
    assert done.code == 0 and "last.pt is damaged" in done.stdout, done.text
    assert "last.pt is damaged" in (run / "train.log").read_text()


def test_whoever_meets_the_full_disk_the_run_says_how_it_goes_on(typed: Typed, tmp_path: Path) -> None:
    words = [*BASE, "+callbacks.full={_target_: tests.strange_callbacks.FullDisk, epoch: 2}"]
    done = typed(*words)
    run = the_run(tmp_path / "outputs")
    assert done.code == 1 and "Traceback" not in done.text, done.text
    assert done.stderr.endswith(
        "No space left on device. Make room.\n"
        f"The last checkpoint is whole. Go on with the same words and resume={run.relative_to(tmp_path)}\n"
    )
    assert result(run)["failure"]["goes_on"]
    assert typed(*words, f"resume={run}").code == 0
    assert result(run)["status"] == "finished"


@pytest.mark.parametrize("model", [pytest.param("resnet18", marks=pytest.mark.slow), "timm"])
def test_a_run_goes_on_without_a_network_to_have_pretrained_weights_from(
    stopped: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """The checkpoint has the weights, so those that training began with are not needed again."""
    import timm
    import torchvision

    published = {
        "resnet18": torchvision.models.resnet18().state_dict(),
        "timm": timm.create_model("test_resnet").state_dict(),
    }[model]
    words = [f"model={model}", "model.pretrained=true", "trainer.max_epochs=1", "trainer.num_threads=1", "name=n"]
    words += ["model.model_name=test_resnet"] if model == "timm" else []
    reached = []

    def download(*args: object, **options: object) -> object:
        reached.append(args)
        if len(reached) > 1:
            raise OSError("no route to host")
        return published

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", download)
    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", download)
    assert stopped(3, *words).code == 143
    done = stopped(99, *words, "resume=auto")
    assert done.code == 0 and len(reached) == 2, done.text


def test_the_optimizers_kernel_is_this_devices(stopped: Typed, tmp_path: Path) -> None:
    """A checkpoint from a device without fused optimizers goes on where there are some, and looks for bad updates itself."""
    assert stopped(10, *BASE).code == 143
    run = the_run(tmp_path / "outputs")
    saved = checkpoint.load(run / "checkpoints" / "last.pt")
    for group in saved["optimizer"]["param_groups"]:
        assert group["fused"] is True
        group["fused"] = None
    checkpoint.save(run / "checkpoints" / "last.pt", saved)
    assert stopped(99, *BASE, "resume=auto").code == 0
    assert [group["fused"] for group in state(run)["optimizer"]["param_groups"]] == [True, True]


def test_a_run_that_goes_back_leaves_no_later_state_to_fall_back_on(
    stopped: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*BASE, "trainer.save_every_epochs=1"]
    assert stopped(40, *words).code == 143
    run = the_run(tmp_path / "outputs")
    assert state(run, "previous")["progress"]["update"] == 34
    monkeypatch.setattr("torchlite.update.Updater.apply", lambda *_: 1 / 0)
    assert stopped(99, *words, f"resume={run}/checkpoints/epoch-0001.pt").code == 1
    assert state(run)["progress"]["update"] == 17 and not (run / "checkpoints" / "previous.pt").exists()


@pytest.mark.parametrize("write", ["torchlite.record.write_json", "torchlite.lines.Lines.__init__", "yaml.safe_dump"])
def test_a_disk_that_is_full_from_the_first_is_said_in_a_line(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    def full(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(write, full)
    done = typed(*BASE)
    assert done.code == 1 and done.stderr.strip() == "[Errno 28] No space left on device. Make room.", done.text
