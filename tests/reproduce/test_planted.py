"""Differences planted on purpose, each in one line or one file: the verdict names the quantity and the update."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.repeats import WORDS, edit, run_script
from tests.runs import the_run
from torchlite.randomness import permutation

AUGMENTED = (*WORDS, "data.augment=[{_target_:torchlite.data.augment.RandomCrop,padding:1}]")
MOMENTUM = (*WORDS, "optimizer=sgd")
SOURCE = "src/torchlite"
# file, line, its change; what the verdict names: quantity, update, words
PLANTED: dict[str, tuple[tuple[str, ...], str, str, str, str, int, str]] = {
    "the augmentation": (
        AUGMENTED,
        f"{SOURCE}/data/augment.py",
        "top, left = (draws * (2 * self.padding + 1)).long().unbind(1)",
        "left, top = (draws * (2 * self.padding + 1)).long().unbind(1)",
        "images",
        1,
        "augmentation",
    ),
    "the normalization": (
        WORDS,
        f"{SOURCE}/data/preprocess.py",
        "def normalize(self, images: Tensor) -> Tensor:",
        "def normalize(self, images: Tensor) -> Tensor:\n        images = images + 1",
        "images",
        1,
        "normalization",
    ),
    "the loss": (
        WORDS,
        f"{SOURCE}/tasks/classification.py",
        "return Step(self.losses(logits, batch.targets)",
        "return Step(1.001 * self.losses(logits, batch.targets)",
        "loss",
        1,
        "the forward pass or the loss",
    ),
    "the labels, later on": (
        WORDS,
        f"{SOURCE}/update.py",
        "        self._backward(batch)\n",
        "        batch.targets = batch.targets if update < 10 else (batch.targets + 1) % 10\n        self._backward(batch)\n",
        "targets",
        10,
        "labels",
    ),
    "the backward pass": (
        WORDS,
        f"{SOURCE}/update.py",
        ".backward(_share(losses.numel(), window, ",
        ".backward(_share(losses.numel(), window + 1, ",
        "grad_norm",
        1,
        "the backward pass",
    ),
    "the optimizer's arguments": (
        MOMENTUM,
        f"{SOURCE}/run.py",
        "groups = parameter_groups(model, decay_norm_and_bias=trainer.decay_norm_and_bias)\n",
        "groups = parameter_groups(model, decay_norm_and_bias=trainer.decay_norm_and_bias)\n"
        '    node["weight_decay"] = 0.25\n',
        "weights",
        1,
        "the optimizer's step",
    ),
    "the optimizer's memory": (
        (*MOMENTUM, "optimizer.nesterov=false"),
        f"{SOURCE}/run.py",
        "groups = parameter_groups(model, decay_norm_and_bias=trainer.decay_norm_and_bias)\n",
        'groups = parameter_groups(model, decay_norm_and_bias=trainer.decay_norm_and_bias)\n    node["momentum"] = 0.8\n',
        "loss",
        3,
        "the optimizer's step in update 2",
    ),
    "the schedule": (
        WORDS,
        f"{SOURCE}/optim/schedules.py",
        "updates = round(warmup_epochs * updates_per_epoch)",
        "updates = round(warmup_epochs * updates_per_epoch) + 1",
        "lr",
        1,
        "the schedule",
    ),
    "the order": (
        WORDS,
        f"{SOURCE}/data/order.py",
        "return permutation(seed, epoch, num_samples)",
        "return permutation(seed, epoch, num_samples).flip(0)",
        "ids",
        1,
        "the order of the samples",
    ),
    "the initial weights": (
        WORDS,
        f"{SOURCE}/models/mlp.py",
        "initialize(self)",
        "initialize(self)\n        next(self.parameters()).data.mul_(1.01)",
        "weights",
        0,
        "how the weights begin",
    ),
    "the scoring": (
        WORDS,
        f"{SOURCE}/tasks/classification.py",
        'return {"loss": losses, **scores}',
        'return {"loss": losses * 1.01, **scores}',
        "val/loss",
        17,
        "the scoring",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", PLANTED)
def test_a_changed_line_is_located(house: Path, tmp_path: Path, what: str) -> None:
    words, file, old, new, quantity, update, stage = PLANTED[what]
    (tmp_path / "given").mkdir()
    done = run_script(house / "train.py", *words, cwd=tmp_path / "given")
    assert done.code == 0, done.text
    edit(house / file, old, new)
    run = the_run(tmp_path / "given" / "outputs")
    done = run_script(house / "reproduce.py", str(run), "--code", "here", "--tolerance", "0", "--json", cwd=tmp_path)
    assert done.code in (0, 3), done.text
    (verdict,) = json.loads(done.stdout)
    parting = verdict["parting"]
    assert (parting["quantity"], parting["update"]) == (quantity, update), parting
    assert stage in parting["stage"]
    assert f"parted at update {update}: {quantity} was " in done.stderr
    assert "code: was commit" in done.stderr.splitlines()[1] + done.stderr.splitlines()[2]


@pytest.mark.slow
def test_a_swapped_image_file_is_located(house: Path, tmp_path: Path) -> None:
    """The fingerprint differs; and the update that first uses the image is the one that is named."""
    rng = np.random.default_rng(0)
    for label in ("ant", "bee"):
        (tmp_path / "photos" / label).mkdir(parents=True)
        for index in range(40):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / label / f"{index:02}.png")
    words = ["data=image_folder", f"data.root={tmp_path / 'photos'}", "data.num_classes=2", "data.image_size=8"]
    words += [
        "data.batch_size=8",
        "data.preprocess.resize=8",
        "data.crop=null",
        "data.augment=[]",
        "data.val_fraction=0",
    ]
    words += ["model=mlp", "model.widths=[8]", "trainer.max_epochs=2", "trainer.num_threads=1"]
    place = {"TORCHLITE_CACHE": str(tmp_path / "cache")}
    (tmp_path / "given").mkdir()
    done = run_script(house / "train.py", *words, cwd=tmp_path / "given", **place)
    assert done.code == 0, done.text
    sample = 53  # the 14th of the bees
    update = permutation(0, 0, 80).tolist().index(sample) // 8 + 1
    pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photos" / "bee" / "13.png")
    run = the_run(tmp_path / "given" / "outputs")
    done = run_script(house / "reproduce.py", str(run), "--json", cwd=tmp_path, **place)
    assert done.code in (0, 3), done.text
    (verdict,) = json.loads(done.stdout)
    assert (verdict["parting"]["quantity"], verdict["parting"]["update"]) == ("images", update) and update > 1
    assert "data: the fingerprint is not the recorded one" in done.stderr


@pytest.mark.slow
def test_without_a_change_the_same_house_repeats_to_the_bit(house: Path, tmp_path: Path) -> None:
    """What the planted differences are measured against; also with the optimizer's state, and from another folder."""
    (tmp_path / "given").mkdir()
    done = run_script(house / "train.py", *MOMENTUM, cwd=tmp_path / "given")
    assert done.code == 0, done.text
    moved = shutil.move(house, tmp_path / "elsewhere")
    run = the_run(tmp_path / "given" / "outputs")
    done = run_script(Path(moved) / "reproduce.py", str(run), cwd=tmp_path)
    assert done.code == 0 and "identical: " in done.stdout, done.text
