"""A record that came from elsewhere runs nothing: refused, with the path of the key at fault, before anything is made."""

import json
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import ROOT
from tests.repeats import change_facts
from torchlite.reproduce import command

PWNED = "touch pwned"
DEEP = {
    "_target_": "torchvision.transforms.v2.Compose",
    "transforms": [{"x": [{"_target_": "os.system", "command": PWNED}]}],
}


def node(target: str, **arguments: Any) -> dict[str, Any]:
    return {"_target_": target, **arguments}


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
    "no name of a thing": ("model", node("os; import os", command=PWNED)),
    "a target that is no text": ("model", {"_target_": ["os.system"], "command": PWNED}),
    "an interpolation left for later": ("model.widths", ["\\${oc.create:{_target_:os.system}}"]),
    "a module beside the record": ("model", node("evil.Net")),
}


def put(config: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        config = config[parent] if isinstance(config.get(parent), dict) else config.setdefault(parent, {})
    config[last] = value


@pytest.fixture
def refused(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """`refused(change)`: what is said about the record after the change; nothing was run, exit code 2."""
    (tmp_path / "evil.py").write_text("open('pwned', 'w').close()\n")
    monkeypatch.chdir(tmp_path)

    def run(change: Callable[[dict[str, Any]], object] = lambda facts: None, *words: str) -> str:
        change_facts(recorded, change)
        code = command.main([str(recorded), "--code", "here", *words])
        captured = capsys.readouterr()
        assert code == 2, captured
        assert not (tmp_path / "pwned").exists() and not (tmp_path / "outputs").exists()
        assert "Traceback" not in captured.err
        return captured.err

    return run


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
    from torchlite.errors import UserError

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
