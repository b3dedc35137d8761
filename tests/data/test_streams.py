"""Streams: one order and the same bits with any workers and after any cut; wrong ones are named."""

import gc
import io
import random
import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset

from torchlite.data.augment import RandomHorizontalFlip
from torchlite.data.image_data import ImageData
from torchlite.data.mixing import MixUp
from torchlite.data.preprocess import Preprocess
from torchlite.data.sources import Arrays
from torchlite.errors import UserError


class Numbers(IterableDataset):
    """Images of one level each, in an order drawn from Python's global generator."""

    def __init__(self, samples_per_epoch: int = 23, number: int = 40, labels: int = 3) -> None:
        self.samples_per_epoch = samples_per_epoch
        self.number = number
        self.labels = labels

    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        order = list(range(self.number))
        random.shuffle(order)
        for number in order:
            yield np.full((6, 6), number * 5 % 250, dtype=np.uint8), number % self.labels


class Shift:
    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        return image + np.random.randint(5)


def data(train: Any, **changes: Any) -> ImageData:
    options: dict[str, Any] = {
        "test": None,
        "num_classes": 3,
        "channels": 1,
        "image_size": 6,
        "batch_size": 4,
        "eval_batch_size": 4,
        "preprocess": Preprocess([0.0], [1 / 255]),
        "val_fraction": 0,
        "drop_last": False,
        "transforms": [Shift()],
        "augment": [RandomHorizontalFlip(), MixUp()],
        "seed": 2,
        "device": "cpu",
    }
    return ImageData(train=train, **{**options, **changes})


def read(made: ImageData, epoch: int, *cut: int) -> list[tuple[Any, ...]]:
    batches = made.train.epoch(epoch, *cut)
    return [(b.ids.tolist(), b.targets.numpy().tobytes(), b.images.numpy().tobytes()) for b in batches]


def test_workers_and_cuts_change_no_bit() -> None:
    alone = data(Numbers(), num_workers=0)
    assert len(alone.train) == 6 and alone.train.num_samples == 23
    epochs = [read(alone, epoch) for epoch in (0, 1)]
    assert [i for ids, _, _ in epochs[0] for i in ids] == list(range(23))
    assert epochs[0] != epochs[1] and read(alone, 0) == epochs[0]
    assert read(alone, 1, 3) == epochs[1][3:]
    for num_workers in (1, 2, 4):
        others = data(Numbers(), num_workers=num_workers)
        assert [read(others, epoch) for epoch in (0, 1)] == epochs
        assert read(others, 0, 2) == epochs[0][2:]
        assert others.fingerprint == alone.fingerprint
        assert others.split["fingerprint_of"] == {"train": "first 23 items"}


def test_ranks_in_turn_read_the_batches_of_one_process() -> None:
    made = data(Numbers(), num_workers=0)
    whole = list(made.train.epoch(0))
    ranks = [list(made.train.epoch(0, 0, rank, 3)) for rank in range(3)]
    for index, batch in enumerate(whole):
        assert torch.equal(torch.cat([r[index].images for r in ranks]), batch.images)
        assert torch.equal(torch.cat([r[index].targets for r in ranks]), batch.targets)


def test_a_stream_validates_too_and_counts_every_sample() -> None:
    held = Arrays(np.zeros((5, 6, 6), np.uint8), np.arange(5) % 3, None)
    made = data(Numbers(), val=Numbers(10), test=held, num_workers=2)
    assert made.val is not None and made.test is not None
    assert [len(b.ids) for b in made.val.epoch(0)] == [4, 4, 2] and made.test.num_samples == 5
    first, again = ([b.images for b in made.val.epoch(epoch)] for epoch in (0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert {"train": 23, "val": 10, "test": 5, "validation": "own source"}.items() <= made.split.items()


@pytest.mark.parametrize(
    ("train", "changes", "said"),
    [
        (Numbers(samples_per_epoch=0), {}, "samples_per_epoch is 0; it is a whole number above 0"),
        (iter([]), {}, "give it an attribute samples_per_epoch"),
        (Numbers(), {"val_fraction": 0.1}, "data.train is a stream, of which nothing can be held out"),
        (Numbers(), {"sampling": "balanced"}, "data.sampling=balanced does not go with it"),
        (Numbers(), {"in_memory": True}, "data.in_memory=true does not go with"),
        (Numbers(labels=4), {}, "integers 0..2"),
        (Numbers(), {"image_size": 7}, "6x6 pixels"),
    ],
)
def test_what_does_not_fit_is_named(train: Any, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        list(data(train, **{"num_workers": 0, **changes}).train.epoch(0))


class Named(Numbers):
    """The same, with a name for each label."""

    def __init__(self, classes: list[str], **others: Any) -> None:
        super().__init__(labels=len(classes), **others)
        self.classes = classes


def test_h05_classes_of_streams_are_matched_by_name() -> None:
    train, val = Named(["a", "b", "c"]), Named(["c", "a"], samples_per_epoch=8)
    made = data(train, val=val, transforms=None, augment=None)
    assert made.class_names == ["a", "b", "c"]
    for batch in made.val.epoch(0):
        levels = batch.images[:, 0, 0, 0].round().int().tolist()
        assert [2 if level // 5 % 2 == 0 else 0 for level in levels] == batch.targets.tolist()
    named = data(train, class_names=["c", "b", "a"], transforms=None, augment=None)
    assert named.class_names == ["c", "b", "a"]
    for batch in named.train.epoch(0):
        levels = batch.images[:, 0, 0, 0].round().int().tolist()
        assert [2 - level // 5 % 3 for level in levels] == batch.targets.tolist()
    with pytest.raises(UserError, match=r"data\.val has a class that data\.train \(a, b, c\) has not: d"):
        data(train, val=Named(["a", "d"], samples_per_epoch=8))


@pytest.mark.parametrize("num_workers", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_a_stream_that_ends_early_is_named(num_workers: int) -> None:
    said = "data.train ended after {} samples; its samples_per_epoch says {}"
    with pytest.raises(UserError, match=said.format(40, 50)):
        data(Numbers(samples_per_epoch=50), num_workers=num_workers)
    made = data(Numbers(samples_per_epoch=150, number=130), num_workers=num_workers)
    with pytest.raises(UserError, match=said.format(130, 150)):
        list(made.train.epoch(0))


def shards(folder: Path, counts: tuple[int, ...] = (7, 5, 9), label: str = "cls") -> str:
    number = 0
    for shard, count in enumerate(counts):
        with tarfile.open(folder / f"train-{shard:02}.tar", "w") as tar:
            for _ in range(count):
                image = io.BytesIO()
                Image.new("L", (6, 6), number * 5).save(image, "PNG")
                for ending, content in (("png", image.getvalue()), (label, str(number % 3).encode())):
                    entry = tarfile.TarInfo(f"{number:04}.{ending}")
                    entry.size = len(content)
                    tar.addfile(entry, io.BytesIO(content))
                number += 1
    return str(folder / f"train-{{00..{len(counts) - 1:02}}}.tar")


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # webdataset leaves a file open that is not read to its end
def test_tar_shards_give_every_sample_once_in_an_order_of_seed_and_epoch(tmp_path: Path) -> None:
    pytest.importorskip("webdataset")
    from torchlite.data.shards import TarShards

    pattern = shards(tmp_path)
    plain = {"transforms": None, "augment": None}
    made = data(TarShards(pattern, 21, shuffle_buffer=6), num_workers=0, **plain)
    levels = [[int(image[0, 0, 0]) for b in made.train.epoch(e) for image in b.images] for e in (0, 1)]
    assert sorted(levels[0]) == sorted(levels[1]) == [5 * n for n in range(21)] and levels[0] != levels[1]
    for batch in made.train.epoch(0):
        assert ((batch.images[:, 0, 0, 0] / 5).long() % 3).tolist() == batch.targets.tolist()
    others = data(TarShards(pattern, 21, shuffle_buffer=6), num_workers=2, **plain)
    assert [read(others, e) for e in (0, 1)] == [read(made, e) for e in (0, 1)]
    assert made.split["fingerprint_of"] == {"train": "files"}
    assert TarShards(str(tmp_path / "train-*.tar"), 21).files == TarShards(pattern, 21).files
    in_order = data(TarShards(pattern, 21), num_workers=0, **plain)
    assert [int(image[0, 0, 0]) for b in in_order.train.epoch(1) for image in b.images] == [5 * n for n in range(21)]
    del made, others, in_order
    gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_wrong_tar_shards_are_named(tmp_path: Path) -> None:
    pytest.importorskip("webdataset")
    from torchlite.data.shards import TarShards

    with pytest.raises(UserError, match=r"there is no tar file .*train-\*.tar. data.train.shards and"):
        TarShards(str(tmp_path / "train-*.tar"), 5)
    with pytest.raises(UserError, match="there is no tar file .*train-01.tar"):
        TarShards(str(tmp_path / "train-{01..02}.tar"), 5)
    pattern = shards(tmp_path, (3,), label="txt")
    with pytest.raises(UserError, match="it has png, txt, not jpg;jpeg;png;webp and cls"):
        data(TarShards(pattern, 3), num_workers=0)
    gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_samples_of_shards_are_named_by_tar_file_and_key(tmp_path: Path) -> None:
    pytest.importorskip("webdataset")
    from torchlite.data.shards import TarShards

    pattern = shards(tmp_path, (3, 4))
    said = f"data.train: the label of sample 2 ({tmp_path}/train-00.tar, sample 0002) is 2; labels are integers 0..1 "
    with pytest.raises(UserError, match=re.escape(said)):
        list(data(TarShards(pattern, 7), num_workers=0, num_classes=2).train.epoch(0))
    path = tmp_path / "train-01.tar"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\x89PNG", b"\x89GNP", 1))
    with pytest.raises(UserError, match=r"train-01.tar, sample 0003\) cannot be read as an image"):
        list(data(TarShards(pattern, 7), num_workers=0).train.epoch(0))
    for share in (0.35, 0.05, 0):
        path.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(UserError, match="train-01.tar"):
            list(data(TarShards(str(path), 4), num_workers=0, batch_size=2).train.epoch(0))
    gc.collect()


def test_without_webdataset_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchlite.data.shards import TarShards

    for name in ("webdataset", "webdataset.shardlists"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    with pytest.raises(UserError) as raised:
        TarShards("x.tar", 5)
    assert "pip install -e '.[webdataset]'" in str(raised.value) and len(str(raised.value).splitlines()) == 1
