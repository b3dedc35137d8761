"""What a config means: its identity, its name, and that no secret of the environment is written down."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from torchlite import build, command_line, config, naming, run
from torchlite.check import check_nodes
from torchlite.config import Composed
from torchlite.errors import UserError

Compose = Callable[..., Composed]


@pytest.fixture
def composed() -> Compose:
    """A composed config without running anything: `composed("optimizer=sgd")`."""

    def go(*words: str) -> Composed:
        with initialize_config_dir(str(command_line.CONF), version_base="1.3"):
            cfg = compose("config", list(words), return_hydra_config=True)
        choices = dict(cfg.hydra.runtime.choices)
        return config.plain(config.without_hydra(cfg), choices, list(words))

    return go


OPEN = {  # what an option leaves to its user
    "image_folder": ["data.root=x", "data.num_classes=3"],
    "csv": ["data.root=x.csv", "data.num_classes=3"],
    "arrays": ["data.root=x", "data.num_classes=3"],
    "tar_shards": ["data.root=x", "data.num_classes=3"]
    + [f"data.{part}.samples_per_epoch=5" for part in ("train", "val")],
}


def options() -> list[tuple[str, str]]:
    groups = (*naming.GROUPS, "experiment")
    return [(group, path.stem) for group in groups for path in sorted((command_line.CONF / group).glob("*.yaml"))]


@pytest.mark.parametrize(("group", "option"), options(), ids=lambda word: word)
def test_every_yaml_composes_and_passes_the_check(composed: Compose, group: str, option: str) -> None:
    run.check(composed(f"{group}={option}", *OPEN.get(option, [])))


def test_no_yaml_is_left_out() -> None:
    sweeps = list((command_line.CONF / "sweep").glob("*.yaml"))  # planned by tests/sweep/test_plan.py
    assert len(options()) + len(sweeps) == len([p for p in command_line.CONF.rglob("*.yaml") if p.parts[-3] == "conf"])
    assert len(options()) >= 32


def test_a_choice_swaps_one_piece_and_nothing_else(composed: Compose) -> None:
    """C4"""
    default, swapped = composed().config, composed("optimizer=sgd").config
    assert {key for key in default if default[key] != swapped[key]} == {"optimizer"}


def test_identity_is_of_what_is_computed(composed: Compose) -> None:
    here = composed().identity
    same = ["seed=0", "name=other", "data_dir=/elsewhere", "dry_run=true", "data.num_workers=3", "optimizer=adamw"]
    same += [
        "callbacks=none",
        "callbacks.tensorboard.num_images=0",
        "trainer.log_every_updates=5",
        "trainer.max_minutes=50",
        "scheduler.warmup_epochs=1",
    ]
    assert all(composed(word).identity == here for word in same)
    other = [
        "seed=1",
        "optimizer=sgd",
        "optimizer.lr=0.5",
        "data.split_seed=1",
        "trainer.num_threads=1",
        "model.dropout=0.1",
    ]
    assert len({here, *(composed(word).identity for word in other)}) == 1 + len(other)
    assert len(here) == 12


def test_identity_does_not_depend_on_where_the_data_lies(composed: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    here = composed("data=mnist").identity
    monkeypatch.setenv("TORCHLITE_DATA", "/somewhere/else")
    assert composed("data=mnist").identity == here
    assert composed("data=mnist").config["data"]["train"]["root"] == "/somewhere/else"


def test_names_are_made_of_the_fixed_words(composed: Compose) -> None:
    assert composed().name == "digits-small_cnn"
    assert composed("optimizer=sgd", "seed=3").name == "digits-small_cnn-sgd"
    assert composed("experiment=digits_default").name == "digits_default"
    assert composed("name=mine").name == "mine"
    words = ["-m", "model=mlp,small_cnn", "optimizer=sgd"]
    choices = {"data": "digits", "model": "mlp", "optimizer": "sgd"}
    assert naming.run_name(choices, words, frozenset({"model"})) == "digits-sgd"


def test_what_comes_from_the_environment_stays_an_interpolation(
    composed: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "s3cret")
    monkeypatch.setenv("MY_WIDTH", "7")
    made = composed(
        "+callbacks.mine={_target_:my_module.Logger,token:'${oc.env:MY_TOKEN}',copy:'${callbacks.mine.token}'}",
        "model.widths=['${oc.decode:${oc.env:MY_WIDTH}}']",
        "data.root=${data_dir}",
    )
    assert made.config["callbacks"]["mine"]["token"] == made.config["callbacks"]["mine"]["copy"] == "s3cret"
    assert made.config["model"]["widths"] == [7]
    assert "s3cret" not in json.dumps(made.record)
    assert made.record["callbacks"]["mine"]["token"] == "${oc.env:MY_TOKEN}"
    assert made.record["model"]["widths"] == ["${oc.decode:${oc.env:MY_WIDTH}}"]
    assert made.record["model"]["num_classes"] == 10
    assert made.record["data"]["root"] == "${data_dir}"


def test_an_experiment_wins_over_the_root(composed: Compose) -> None:
    assert composed("experiment=digits_default").config["trainer"]["max_epochs"] == 30
    assert composed("experiment=digits_default", "trainer.max_epochs=2").config["trainer"]["max_epochs"] == 2


# Trust: judged on the object, whatever path leads to it


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "builtins.exec",
        "builtins.eval",
        "subprocess.Popen",
        "torch.load",
        "torch.hub.load",
        "torch.utils.cpp_extension.load",
        "torch.os.system",  # through a module that imported it
        "timm.models.load_checkpoint",
        "numpy.load",
        "torchvision.datasets.utils.download_url",
        "functools.partial",
        "operator.attrgetter",
        "torchlite.run.run",
        "torchlite.checkpoint.save",
        "torchlite.data.sources.os.system",
    ],
)
@pytest.mark.parametrize("place", ["model", "task", "data.preprocess", "data.augment", "callbacks.mine"])
def test_only_what_belongs_at_a_place_may_be_named(composed: Compose, target: str, place: str) -> None:
    """O01"""
    made = composed().config
    *parents, last = place.split(".")
    node: Any = made
    for parent in parents:
        node = node[parent]
    bad = {"_target_": target, "command": "touch pwned"}
    node[last] = [bad] if last == "augment" else bad
    problems = check_nodes(made)
    assert any(line.startswith(place) and "not allowed here" in line for line in problems), problems


def test_a_users_own_module_is_allowed_only_when_trusted(composed: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    made = composed().config
    made["model"] = {"_target_": "tests.strangers.Net", "num_classes": 10}
    assert check_nodes(made) == []
    made["task"] = {"_target_": "tests.strangers.make_task"}
    assert check_nodes(made) == []
    assert check_nodes(made, trusted=("tests",)) == []
    assert [line.partition("=")[0] for line in check_nodes(made, trusted=())] == ["model._target_", "task._target_"]


def test_a_record_cannot_even_import_a_module(
    composed: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O01"""
    (tmp_path / "evil.py").write_text("open('pwned', 'w').close()\nfrom torch import nn\nclass E(nn.Module): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = composed().config
    for place in ("model", "task"):
        made[place] = {"_target_": "evil.E"}
    made["data"]["preprocess"] = {"_target_": "evil.E"}
    assert len(check_nodes(made, trusted=())) == 3
    assert not (tmp_path / "pwned").exists()


def test_nothing_is_resolved_again_when_objects_are_built(composed: Compose) -> None:
    """O01: an interpolation that makes a node, or an escaped one, would come after the check."""
    made = composed("+callbacks.x={_target_:torchlite.callbacks.TensorBoard,num_images:3}").config
    made["model"]["dropout"] = "${oc.create:{_target_:os.makedirs,name:pwned}}"
    made["data"]["augment"] = [{"_target_": "torchlite.data.augment.RandomCrop", "padding": "\\${seed}"}]
    problems = check_nodes(made)
    assert any(line.startswith("model.dropout: an interpolation") for line in problems)
    assert any(line.startswith("data.augment[0].padding: an interpolation") for line in problems)


def test_a_bad_import_inside_a_users_module_is_told_apart(composed: Compose) -> None:
    made = composed().config
    made["model"] = {"_target_": "tests.strangers_broken.Net"}
    assert check_nodes(made) == [
        "model._target_=tests.strangers_broken.Net: importing it failed: No module named 'not_there_at_all'."
    ]


def test_a_library_that_refuses_a_value_is_a_users_mistake() -> None:
    with pytest.raises(UserError, match="optimizer: SGD refuses its arguments: Invalid learning rate: -1"):
        import torch

        build.build({"_target_": "torch.optim.SGD", "lr": -1}, "optimizer", params=[torch.nn.Parameter(torch.ones(1))])
