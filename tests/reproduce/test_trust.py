"""A record that came from elsewhere runs nothing: refused, with the path of the key at fault, before anything is made."""

import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import ROOT
from tests.repeats import change_facts, node, put
from torchlite.errors import UserError
from torchlite.reproduce import command
from torchlite.reproduce.records import read
from torchlite.reproduce.rerun import as_recorded

PWNED = "touch pwned"
DEEP = {
    "_target_": "torchvision.transforms.v2.Compose",
    "transforms": [{"x": [{"_target_": "os.system", "command": PWNED}]}],
}


PIPES = "torch.utils.data.datapipes.iter"
HOSTILE = {
    "os.system": ("model", node("os.system", command=PWNED)),
    "posix.system, as os.system resolves": ("model", node("posix.system", command=PWNED)),
    "three levels deep": ("data.preprocess.resize", node("builtins.list", a=[node("os.system", command=PWNED)])),
    "in a list of transforms": ("data.transforms", [DEEP]),
    "builtins.exec": ("task", node("builtins.exec", source="open('pwned', 'w')")),
    "builtins.eval": ("scheduler", node("builtins.eval", source="1")),
    "subprocess.Popen": ("optimizer", node("subprocess.Popen", args=["touch", "pwned"])),
    "a partial": ("trainer.clip_gradients", node("subprocess.run", _partial_=True, args=["touch", "pwned"])),
    "an alias within torch": ("model", node("torch.serialization.os.system", command=PWNED)),
    "an alias within ours": ("callbacks.x", node("torchlite.provenance.subprocess.run", args=["touch", "pwned"])),
    "ours that runs programs": (
        "callbacks.x",
        node("torchlite.provenance._git", directory=".", arguments=["--version"]),
    ),
    "torch.load": ("model", node("torch.load", f="evil.pt", weights_only=False)),
    "torch.hub.load": ("model", node("torch.hub.load", repo_or_dir=".", model="m", source="local")),
    "numpy.load": ("data.train", node("numpy.load", file="evil.npy", allow_pickle=True)),
    "torch's compiler of C++": ("model", node("torch.utils.cpp_extension.load", name="x", sources=["x.cpp"])),
    "hydra's own call": ("model", node("hydra.utils.instantiate", config=node("os.system", command=PWNED))),
    "functools.partial": ("callbacks.x", node("functools.partial", func="os.system")),
    "a data set that unpickles": ("data.train", node("torchvision.datasets.LSUN", root=".", classes="test")),
    "a data set that may unpickle": ("data.train", node("timm.data.ImageDataset", root="x", class_map="evil.pkl")),
    "no name of a thing": ("model", node("os; import os", command=PWNED)),
    "a target that is no text": ("model", {"_target_": ["os.system"], "command": PWNED}),
    "an interpolation left for later": ("model.widths", ["\\${oc.create:{_target_:os.system}}"]),
    "a module beside the record": ("model", node("evil.Net")),
    "a private function of ours that imports": (
        "data.train",
        node("torchlite.data.sources._archives", target="evil.Net"),
    ),
    "arguments without names": ("data.train", node("torchvision.datasets.MNIST", _args_=[".", True, None, None, True])),
    "nodes in arguments without names": (
        "model",
        node("torch.nn.Sequential", _args_=[node("os.system", command=PWNED)]),
    ),
    "a partial in a list of lists": ("data.transforms", [[node("os.system", _partial_=True, command=PWNED)]]),
    "files that are unpickled on their way": (
        "data.train",
        node(f"{PIPES}.RoutedDecoder", datapipe=node(f"{PIPES}.FileOpener", datapipe=["evil.pickle"])),
    ),
    "a reader that asks a shell": (
        "data.train",
        node("timm.data.IterableImageDataset", root="pip{e,x}:touch pwned #", reader="WDS/x"),
    ),
    "code of a hub": ("data.train.trust_remote_code", True),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_config_that_names_programs_is_refused(refused: Any, case: str) -> None:
    """O01"""
    path, value = HOSTILE[case]
    said = refused(lambda facts: put(facts["config"], path, value))
    assert any(line.startswith(path) for line in said.splitlines()), said


def test_all_keys_at_fault_are_named_at_once(refused: Any) -> None:
    """O01"""

    def change(facts: dict[str, Any]) -> None:
        put(facts["config"], "model", node("os.system", command=PWNED))
        put(facts["config"], "callbacks.x", node("builtins.exec", source="1"))

    said = refused(change).splitlines()
    assert [line.partition("=")[0] for line in said] == ["model._target_", "callbacks.x._target_"]
    assert "the config comes from a record" in said[0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "../../../tmp/x"),
        ("name", "a/b"),
        ("name", "-rf"),
        ("identity", "../../x"),
        ("identity", "0123456789ab/../../.."),
        ("commit", "--upload-pack=touch pwned"),
        ("commit", "main"),
        ("modules", "../../evil"),
        ("modules", "/tmp/evil"),
    ],
)
def test_names_that_leave_their_folder_are_refused(refused: Any, key: str, value: str) -> None:
    def change(facts: dict[str, Any]) -> None:
        if key in ("name", "identity"):
            facts[key] = value
        else:
            facts["code"][key] = {value: {"file": "x", "sha256": "x"}} if key == "modules" else value

    said = refused(change)
    assert key in said and "refused" in said


def test_yaml_is_never_read(recorded: Path, refused: Any) -> None:
    """A tag in config.yaml would run what it names if it were loaded carelessly; nothing loads it."""
    (recorded / "config.yaml").write_text("!!python/object/apply:os.system ['touch pwned']\n")
    tag = "!!python/object/apply:os.system ['touch pwned']"
    said = refused(lambda facts: put(facts["config"], "model.norm", {"_target_": tag}))
    assert said.startswith("model.norm._target_=!!python")


class Evil:
    def __reduce__(self) -> Any:
        return (open, ("pwned", "w"))


def a_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Evil()))


def a_checkpoint(path: Path) -> None:
    torch.save({"model": Evil()}, path)


def an_old_checkpoint(path: Path) -> None:
    torch.save({"model": Evil()}, path, _use_new_zipfile_serialization=False)


def an_archive(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(Evil()))
        archive.writestr("archive/version", "3\n")


@pytest.mark.slow
@pytest.mark.parametrize("make", [a_pickle, a_checkpoint, an_old_checkpoint, an_archive])
@pytest.mark.parametrize("model", ["ours", "timm"])
def test_weights_that_are_a_program_are_not_opened(
    reproduce: Any, recorded: Path, tmp_path: Path, make: Callable[[Path], None], model: str
) -> None:
    """O03"""
    make(tmp_path / "evil.pth")

    def change(facts: dict[str, Any]) -> None:
        if model == "ours":
            facts["config"]["model"]["weights"] = str(tmp_path / "evil.pth")
        else:
            own = {
                "model_name": "resnet10t",
                "num_classes": 10,
                "in_chans": 1,
                "checkpoint_path": str(tmp_path / "evil.pth"),
            }
            facts["config"]["model"] = node("timm.create_model", **own)

    change_facts(recorded, change)
    done = reproduce(recorded, "--code", "here")
    assert done.code in (1, 2), done.text
    assert not (tmp_path / "pwned").exists()
    if model == "ours":
        assert done.code == 2 and "evil.pth" in done.stderr and "Traceback" not in done.stderr


def test_checkpoints_in_a_record_are_not_opened(repeated: Any, recorded: Path, tmp_path: Path) -> None:
    """O03: a repetition begins from nothing."""
    for path in (recorded / "checkpoints").iterdir():
        a_pickle(path)
    done = repeated(recorded, "--code", "here", "--updates", "2")
    assert done.code == 0 and "identical" in done.stdout, done.text
    assert not (tmp_path / "pwned").exists()


def test_a_link_in_a_record_is_refused(recorded: Path, refused: Any, tmp_path: Path) -> None:
    (recorded / "source.patch").unlink(missing_ok=True)
    (tmp_path / "secret").write_text("a secret")
    (recorded / "source.patch").symlink_to(tmp_path / "secret")
    said = refused()
    assert "source.patch is a link" in said and "a secret" not in said


@pytest.mark.parametrize("damage", ["{", "[]", '{"config": 1}', "null", '{"config": {}}'])
def test_a_damaged_record_is_refused(recorded: Path, refused: Any, damage: str) -> None:
    (recorded / "run.json").write_text(damage)
    code = command.main([str(recorded)])
    assert code == 2


def test_a_record_too_large_to_read_or_too_deep_is_refused(recorded: Path, refused: Any) -> None:
    result = (recorded / "result.json").read_text()
    with open(recorded / "result.json", "wb") as file:
        file.truncate(2**30)
    assert "result.json is larger than 64 MB" in refused()
    (recorded / "result.json").write_text(result)
    digests = (recorded / "digests.jsonl").read_text()
    deep = "[" * 500 + "]" * 500
    (recorded / "digests.jsonl").write_text(f'{digests}{{"update": 99, "loss": {deep}}}\n')
    with pytest.raises(UserError, match="digests.jsonl"):
        _ = read(recorded).digests
    assert "deeper than any record's" in refused(lambda facts: put(facts["config"], "model.x", json.loads(deep)))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("data.fingerprint", "${oc.env:HOME}"),
        ("data.fingerprint", node("os.system", command=PWNED)),
        ("data.data_dir", "${oc.env:HOME}"),
    ],
)
def test_facts_are_of_the_kind_that_is_written(refused: Any, path: str, value: Any) -> None:
    """They become part of the config that is run."""
    assert path in refused(lambda facts: put(facts, path, value))


def test_a_record_starts_no_thousand_processes(recorded: Path) -> None:
    change_facts(recorded, lambda facts: put(facts["config"], "data.num_workers", 10_000))
    assert as_recorded(read(recorded)).config["data"]["num_workers"] <= 4 * (os.cpu_count() or 1)


def test_modules_need_a_persons_word(recorded: Path, refused: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (recorded / "modules").mkdir()
    (recorded / "modules" / "nets.py").write_text("open('pwned', 'w').close()\n\x1b[2J")

    def change(facts: dict[str, Any]) -> None:
        facts["code"]["modules"] = {"nets": {"file": "/elsewhere/nets.py", "sha256": "x"}}

    said = refused(change)
    assert "read it above, then add --trust-code" in said


@pytest.mark.parametrize("name", ["torch", "os", "numpy", "torchlite.run"])
def test_a_module_cannot_stand_in_for_a_library(recorded: Path, refused: Any, name: str) -> None:
    (recorded / "modules").mkdir()
    (recorded / "modules" / f"{name}.py").write_text("open('pwned', 'w').close()\n")

    def change(facts: dict[str, Any]) -> None:
        facts["code"]["modules"] = {name: {"file": "x", "sha256": "x"}}

    assert "would stand in for" in refused(change, "--trust-code")


def test_tar_shards_are_files_or_plain_addresses() -> None:
    """webdataset hands `pipe:` and addresses to a shell."""
    from torchlite.data.shards import TarShards

    pytest.importorskip("webdataset")
    for shards in ("pipe:touch pwned", "pipe:touch pwned #://x.tar", "http://x/'; touch pwned; '.tar"):
        with pytest.raises(UserError, match="no plain address"):
            TarShards(shards, samples_per_epoch=1)


def test_floors_of_libraries_with_known_holes_are_stated() -> None:
    """O01, O03"""
    assert "hydra-core>=1.3.4" in (ROOT / "pyproject.toml").read_text()
    assert "torch 2.10" in (ROOT / "README.md").read_text()


def test_json_of_a_refusal_is_no_verdict(recorded: Path, repeated: Any) -> None:
    change_facts(recorded, lambda facts: put(facts["config"], "model", node("os.system", command=PWNED)))
    done = repeated(recorded, "--json")
    assert done.code == 2 and done.stdout == ""
    with pytest.raises(ValueError):
        json.loads(done.stdout)
