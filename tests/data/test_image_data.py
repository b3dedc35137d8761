"""The whole room: parts, split, fingerprint and the checks before training."""

import logging
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from torchlite.data.augment import RandomCrop
from torchlite.data.image_data import ImageData
from torchlite.data.preprocess import Preprocess
from torchlite.data.sources import Arrays, digits
from torchlite.errors import UserError


def source(num_samples: int = 40, seed: int = 0, num_classes: int = 4) -> Arrays:
    pixels = np.random.default_rng(seed).integers(0, 256, (num_samples, 5, 5), dtype=np.uint8)
    return Arrays(pixels, np.arange(num_samples) % num_classes, [f"class {label}" for label in range(num_classes)])


def data(**changes: Any) -> ImageData:
    options: dict[str, Any] = {
        "train": source(),
        "test": source(10, seed=1),
        "num_classes": 4,
        "channels": 1,
        "image_size": 5,
        "batch_size": 8,
        "preprocess": Preprocess([0.5], [0.5]),
        "seed": 0,
        "device": "cpu",
    }
    return ImageData(**{**options, **changes})


def test_digits_from_end_to_end() -> None:
    made = data(train=digits("train"), test=digits("test"), num_classes=10, image_size=8, augment=[RandomCrop(1)])
    held_out = made.split.pop("held_out").split()
    assert len(made.split.pop("held_out_sha256")) == 64 and int(held_out[-1].split("-")[-1]) < 1437
    assert made.split == {
        "train": 1293,
        "val": 144,
        "test": 360,
        "validation": "stratified part of train",
        "val_fraction": 0.1,
        "split_seed": 0,
        "fingerprint_of": {"train": "pixels", "test": "pixels"},
    }
    assert made.class_names == [str(digit) for digit in range(10)]
    assert made.choices == {"in_memory": True, "num_workers": 0}
    assert len(made.train) == 1293 // 8 and made.val is not None and len(made.val) == 1
    assert sum(len(batch.ids) for batch in made.val.epoch(0)) == 144


def test_the_split_depends_on_split_seed_and_not_on_seed() -> None:
    def held_out(**changes: Any) -> torch.Tensor:
        made = data(train=source(200), **changes)
        assert made.val is not None
        return torch.cat([batch.images for batch in made.val.epoch(0)])

    assert torch.equal(held_out(seed=0), held_out(seed=1))
    assert not torch.equal(held_out(split_seed=0), held_out(split_seed=1))


def test_validation_may_be_given_or_left_out() -> None:
    given = data(val=source(12, seed=2))
    assert given.val is not None and given.val.num_samples == 12 and given.train.num_samples == 40
    pixels = dict.fromkeys(("train", "val", "test"), "pixels")
    assert given.split == {"train": 40, "val": 12, "test": 10, "validation": "own source", "fingerprint_of": pixels}
    without = data(val_fraction=0, test=None)
    assert without.val is None and without.test is None
    assert without.split == {"train": 40, "validation": "none", "fingerprint_of": {"train": "pixels"}}


def test_evaluation_counts_every_sample_in_order() -> None:
    made = data(val=source(9, seed=2), eval_batch_size=4, augment=[RandomCrop(1)])
    assert made.val is not None
    read = list(made.val.epoch(0))
    assert [len(batch.ids) for batch in read] == [4, 4, 1]
    assert torch.cat([batch.ids for batch in read]).tolist() == list(range(9))
    again = torch.cat([batch.images for batch in made.val.epoch(5)])
    assert torch.equal(torch.cat([batch.images for batch in read]), again)


def test_fingerprint_follows_content_and_nothing_else() -> None:
    changed = source()
    changed.data[39, 4, 4] ^= 1
    base = data().fingerprint
    assert data(seed=1, split_seed=5, batch_size=4, val_fraction=0.5).fingerprint == base
    assert data(train=changed).fingerprint != base
    assert data(test=None).fingerprint != base


def test_h12_a_set_smaller_than_a_batch_is_refused_with_both_numbers() -> None:
    with pytest.raises(UserError, match="data.train has 5 samples to learn from, fewer than data.batch_size=8"):
        data(train=source(5), val_fraction=0)
    made = data(val=source(2, seed=2))
    assert made.val is not None and sum(len(batch.ids) for batch in made.val.epoch(0)) == 2


def test_a_batch_larger_than_the_set_warns_of_the_real_size(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="torchlite"):
        made = data(train=source(5), val_fraction=0, drop_last=False)
    assert [record.getMessage() for record in caplog.records] == [
        "data.batch_size=8 is more than the 5 training samples: every update uses 5."
    ]
    assert [len(batch.ids) for batch in made.train.epoch(0)] == [5]


@pytest.mark.parametrize(
    ("num_samples", "drop_last", "smallest", "said"),
    [(9, False, 1, "data.batch_size=3"), (9, True, 4, ""), (10, False, 2, ""), (8, False, 4, ""), (3, False, 3, "")],
)
def test_h13_a_last_batch_of_one_sample_is_said_at_the_start(
    caplog: pytest.LogCaptureFixture, num_samples: int, drop_last: bool, smallest: int, said: str
) -> None:
    with caplog.at_level(logging.WARNING, logger="torchlite"):
        made = data(train=source(num_samples), val_fraction=0, batch_size=4, drop_last=drop_last)
    assert made.train.smallest == smallest == min(len(batch.ids) for batch in made.train.epoch(0))
    assert ("has 1 sample" in caplog.text) == bool(said) and said in caplog.text


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"channels": 3}, "data.preprocess.mean and data.preprocess.std have 1 numbers, but data.channels is 3"),
        ({"num_classes": 5}, "data.num_classes is 5, but data.train has 4 classes"),
        ({"test": source(num_classes=3)}, None),
        ({"batch_size": 0}, "data.batch_size=0"),
        ({"eval_batch_size": 0}, "data.eval_batch_size=0"),
        ({"val_fraction": 1.0}, "data.val_fraction=1.0"),
        ({"augment": [nn.Identity()]}, r"data.augment\[0\] is a Identity, which has no `num_draws`"),
    ],
)
def test_h04_what_does_not_fit_is_named(changes: dict[str, Any], named: str | None) -> None:
    if named is None:
        assert data(**changes).test is not None  # fewer classes to test on: allowed, and matched by name
        return
    with pytest.raises(UserError, match=named):
        data(**changes)
