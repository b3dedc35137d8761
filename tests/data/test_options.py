"""Every option of `data` composes and passes the check, and odd paths go through as the docs quote them."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from torchlite import command_line, config
from torchlite.check import check_nodes
from torchlite.contradictions import check_together

WORDS = {  # what an option leaves open
    "digits": [],
    "mnist": [],
    "fashion_mnist": [],
    "cifar10": [],
    "cifar100": [],
    "image_folder": ["data.root=x", "data.num_classes=3"],
    "csv": ["data.root=x.csv", "data.num_classes=3"],
    "imagenet": [],
    "arrays": ["data.root=x", "data.num_classes=3"],
    "tar_shards": [
        "data.root=x",
        "data.num_classes=3",
        *(f"data.{part}.samples_per_epoch=5" for part in ("train", "val")),
    ],
}
NODES = [
    "{_target_: torchvision.transforms.v2.RandAugment, num_ops: 2}",
    "{_target_: torchvision.transforms.v2.TrivialAugmentWide}",
    "{_target_: torchvision.transforms.v2.AugMix}",
]
BATCH_NODES = [
    "{_target_: torchlite.data.geometry.RandomAffine, degrees: 10, translate: [0.1, 0.1], shear: [5, 0]}",
    "{_target_: torchlite.data.color.ColorJitter, brightness: 0.2, hue: 0.1}",
    "{_target_: torchlite.data.augment.RandomErasing}",
    "{_target_: torchlite.data.mixing.OneOf, "
    "choices: [{_target_: torchlite.data.mixing.MixUp}, {_target_: torchlite.data.mixing.CutMix}]}",
]


def problems(option: str, *words: str) -> list[str]:
    with initialize_config_dir(str(command_line.CONF), version_base="1.3"):
        composed = config.resolve(compose("config", [f"data={option}", *words]))
    return check_nodes(composed) + check_together(composed)


def test_no_option_is_forgotten() -> None:
    assert {path.stem for path in (command_line.CONF / "data").glob("*.yaml")} == WORDS.keys()


@pytest.mark.parametrize("option", WORDS)
def test_every_option_passes_the_check(option: str) -> None:
    assert problems(option, *WORDS[option]) == []


def test_nodes_of_ones_own_need_not_look_like_ours() -> None:
    """Keys that have a default may be missing, and a name that is known here may mean something else there."""
    with initialize_config_dir(str(command_line.CONF), version_base="1.3"):
        made = config.resolve(compose("config", ["data=mnist"]))
    made["data"]["preprocess"] = {"_target_": "mine.GrayToRGB", "mean": 0.5, "std": [0.1, 0.2, 0.3]}
    made["data"]["val_fraction"] = 0.0
    del made["data"]["val"], made["trainer"]["lr_reference_batch_size"]
    made["scheduler"] = {"_target_": "torch.optim.lr_scheduler.ConstantLR", "warmup_epochs": None}
    assert check_together(made) == []


def test_every_augmentation_is_a_node() -> None:
    words = [f"data.transforms=[{','.join(NODES)}]", f"data.augment=[{','.join(BATCH_NODES)}]"]
    assert problems("cifar10", *words) == []
    (problem,) = problems("cifar10", words[1].replace("hue:", "hu:"))
    assert "data.augment[1].hu" in problem and "hue" in problem


@pytest.mark.slow
def test_a09_an_odd_root_goes_through_as_the_docs_quote_it(tiny, folder, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    folder("d@ta 100%#1/日本, a=b", classes=("a,b=c", "x y"), per_class=12)
    words = ["data=image_folder", "data.num_classes=2", "data.image_size=24", "data.batch_size=4", "model=mlp"]
    done = tiny('data.root="d@ta 100%#1/日本, a=b/"', *words)
    assert done.code == 0, done.text
    (record,) = tmp_path.glob("outputs/*/*/run.json")
    assert "a,b=c" in record.read_text(encoding="utf-8")
    swept = tiny("-m", 'data.root="d@ta 100%#1/日本, a=b/"', *words, "seed=1,2")
    assert swept.code == 0 and len(list(tmp_path.glob("outputs/*/*seed*/result.json"))) == 2, swept.text
    refused = tiny("data.root=d@ta 100%#1/日本, a=b/", *words)
    assert refused.code == 2 and 'data.root="d@ta 100%#1/日本, a=b/"' in refused.text
