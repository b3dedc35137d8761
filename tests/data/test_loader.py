"""Samples made one by one: the same order and bits with any workers, and from memory."""

import hashlib
import random
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from torchlite.data.augment import RandomErasing, RandomHorizontalFlip, RandomResizedCrop
from torchlite.data.folders import image_folder
from torchlite.data.image_data import ImageData
from torchlite.data.mixing import MixUp
from torchlite.data.preprocess import Preprocess
from torchlite.data.samples import Loaded
from torchlite.data.sources import Arrays
from torchlite.errors import UserError

MakeFolder = Callable[..., Path]

MEAN, STD = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
ONE_SIZE = ((30, 30),)


class Noise:
    """A user's transform, which draws from all three global generators and computes in floats."""

    def __call__(self, image: Tensor) -> Tensor:
        shift = np.random.randint(-9, 10) + random.randint(-9, 9) + torch.randn(1).item()
        blurred = torch.nn.functional.avg_pool2d(image[None].float(), 3, 1, 1)[0]
        return (blurred + shift).clamp(0, 255).to(torch.uint8)


def data(root: Path, **changes: Any) -> ImageData:
    options: dict[str, Any] = {
        "train": image_folder(str(root)),
        "test": None,
        "num_classes": 2,
        "channels": 3,
        "image_size": 24,
        "batch_size": 5,
        "eval_batch_size": 3,
        "val_fraction": 0.25,
        "drop_last": False,
        "crop": RandomResizedCrop(24),
        "transforms": [v2.RandAugment(), Noise()],
        "augment": [RandomHorizontalFlip(), RandomErasing(), MixUp()],
        "preprocess": Preprocess(MEAN, STD, resize=26, crop=24),
        "seed": 3,
        "device": "cpu",
    }
    return ImageData(**{**options, **changes})


def digest(made: ImageData, epochs: tuple[int, ...] = (0, 1)) -> list[str]:
    """A hash of ids, targets and images of each batch, training and validation."""
    read = [batch for epoch in epochs for batch in made.train.epoch(epoch)]
    read += list(made.val.epoch(0)) if made.val else []
    return [
        hashlib.sha256(b"".join(t.contiguous().numpy().tobytes() for t in (b.ids, b.targets, b.images))).hexdigest()
        for b in read
    ]


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_workers_change_no_bit(folder: MakeFolder, num_workers: int) -> None:
    root = folder()
    alone = data(root, num_workers=0)
    assert alone.choices == {"in_memory": False, "num_workers": 0}  # sizes differ
    with_workers = data(root, num_workers=num_workers)
    assert with_workers.choices == {"in_memory": False, "num_workers": num_workers}
    assert digest(with_workers) == digest(alone)
    assert len(set(digest(alone))) == len(digest(alone)) == 2 * 2 + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start_method", "num_workers", "kept"), [("spawn", 4, False), ("spawn", 1, True), ("forkserver", 2, True)]
)
def test_the_way_workers_start_changes_no_bit(
    folder: MakeFolder, start_method: str, num_workers: int, kept: bool
) -> None:
    root = folder(sizes=ONE_SIZE)
    alone = data(root, num_workers=0, in_memory=False, val_fraction=0)
    started = data(root, num_workers=num_workers, start_method=start_method, in_memory=kept, val_fraction=0)
    assert digest(started) == digest(alone)


@pytest.mark.parametrize("val_fraction", [0, 0.25])
def test_labels_stay_when_a_reader_is_handed_to_a_worker(folder: MakeFolder, val_fraction: float) -> None:
    """Pickling for a worker moves tensors to shared memory and frees where they were; no array may look there."""
    made = data(folder(sizes=ONE_SIZE), num_workers=1, in_memory=False, val_fraction=val_fraction)
    samples = made.train.samples
    assert isinstance(samples, Loaded)
    reader = samples.reader
    tensors = [held for held in vars(reader.images).values() if isinstance(held, Tensor)]
    arrays = [held for held in vars(reader).values() if isinstance(held, np.ndarray)]
    assert tensors and len(arrays) == (2 if val_fraction else 1)
    assert not any(np.shares_memory(array, tensor.numpy()) for array in arrays for tensor in tensors)
    before = samples.targets.tolist()
    ForkingPickler.dumps(reader)
    churn = [torch.arange(number) for number in range(1000)]
    assert samples.targets.tolist() == before and len(churn) == 1000


@pytest.mark.parametrize("num_workers", [0, 2])
def test_memory_and_files_give_the_same_bits(folder: MakeFolder, num_workers: int) -> None:
    root = folder(sizes=ONE_SIZE)
    files = data(root, num_workers=num_workers, in_memory=False)
    kept = data(root, num_workers=num_workers)
    assert kept.choices["in_memory"] is True and files.choices["in_memory"] is False
    assert digest(kept) == digest(files)
    assert kept.fingerprint == files.fingerprint


def test_memory_and_files_give_the_same_bits_without_work_on_single_samples(folder: MakeFolder) -> None:
    plain = {"crop": None, "transforms": None}
    root = folder()  # sizes differ, and resize and crop of `preprocess` bring them to one
    files, kept = data(root, in_memory=False, num_workers=2, **plain), data(root, **plain)
    assert kept.choices == {"in_memory": True, "num_workers": 0}
    assert digest(kept) == digest(files)
    arrays = np.random.default_rng(0).integers(0, 256, (30, 24, 24, 3), dtype=np.uint8)
    for source in (Arrays(arrays, np.arange(30) % 2, None),):
        options = {"train": source, "preprocess": Preprocess(MEAN, STD), **plain}
        assert digest(data(root, **options)) == digest(data(root, in_memory=False, num_workers=2, **options))


@pytest.mark.parametrize("keep", [False, True])
def test_workers_that_stay_and_epochs_cut_in_the_middle_change_no_bit(folder: MakeFolder, keep: bool) -> None:
    root = folder(per_class=14)
    alone, other = data(root, num_workers=0), data(root, num_workers=2)
    assert isinstance(other.train.samples, Loaded) and other.train.samples.workers is not None
    other.train.samples.workers.keep = keep
    for epoch in (0, 1):
        whole = list(alone.train.epoch(epoch))
        begun = other.train.epoch(epoch)
        assert torch.equal(next(begun).images, whole[0].images)  # and leave it, with batches under way
        rest = other.train.epoch(epoch, start=2)
        first = next(rest)
        nested = list(other.train.epoch(epoch, start=3))  # while an epoch is being read
        read = [first, *rest]
        assert [b.ids.tolist() for b in read] == [b.ids.tolist() for b in whole[2:]]
        assert all(torch.equal(a.images, b.images) for a, b in zip(read, whole[2:], strict=True))
        assert all(torch.equal(a.images, b.images) for a, b in zip(nested, whole[3:], strict=True))
        begun.close()


def test_no_global_generator_is_moved(folder: MakeFolder) -> None:
    made = data(folder(), num_workers=2), data(folder("other"), num_workers=0)
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate(), torch.get_num_threads()
    for each in made:
        digest(each)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2] and torch.get_num_threads() == before[3]


class Drawn:
    """A transform that gives what it draws: one pixel for each generator."""

    def __call__(self, image: Tensor) -> Tensor:
        drawn = [np.random.randint(1 << 24), random.randrange(1 << 24), int(torch.randint(1 << 24, ()))]
        return (
            torch.tensor([[d & 255, d >> 8 & 255, d >> 16] for d in drawn]).to(torch.uint8)[:, :, None].expand(3, 3, 3)
        )


@pytest.mark.parametrize("num_workers", [0, 4])
def test_i01_every_sample_in_every_epoch_draws_its_own_numbers(folder: MakeFolder, num_workers: int) -> None:
    root = folder(per_class=4)
    options = {"crop": None, "transforms": [Drawn()], "augment": None, "val_fraction": 0, "num_workers": num_workers}
    options |= {"image_size": 3, "preprocess": Preprocess([0.0] * 3, [1 / 255] * 3, resize=8, crop=8)}

    def drawn() -> dict[tuple[int, int], Tensor]:
        made = data(root, **options)
        return {
            (epoch, int(i)): image[:, :, 0]
            for epoch in (0, 1)
            for batch in made.train.epoch(epoch)
            for i, image in zip(batch.ids, batch.images, strict=True)
        }

    first = drawn()
    assert len(first) == 16
    for generator in range(3):
        assert len({tuple(image[generator].tolist()) for image in first.values()}) == 16
    assert all(torch.equal(image, again) for image, again in zip(first.values(), drawn().values(), strict=True))


DRAWS = {
    "numpy": lambda: np.random.randint(40),
    "torch": lambda: int(torch.randint(40, ())),
    "Python, rarely": lambda: 5 * (random.random() < 0.3),
}


class RandomItems:
    """A user's data set with randomness of its own, and no word about it."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return np.full((8, 8, 3), 100 + index + 3 * DRAWS[self.kind](), dtype=np.uint8), index % 2


@pytest.mark.parametrize("kind", DRAWS)
def test_i01_a_source_with_randomness_of_its_own_is_not_frozen_and_repeats(folder: MakeFolder, kind: str) -> None:
    options = {"train": RandomItems(kind), "crop": None, "transforms": None, "augment": None, "image_size": 8}
    options |= {"preprocess": Preprocess([0.0] * 3, [1.0] * 3), "val_fraction": 0}
    alone, others = data(folder(), num_workers=0, **options), data(folder("other"), num_workers=2, **options)
    assert alone.choices["in_memory"] is False
    assert digest(alone) == digest(others)
    levels = [
        {int(i): image[0, 0, 0] for b in alone.train.epoch(e) for i, image in zip(b.ids, b.images, strict=True)}
        for e in (0, 1)
    ]
    assert levels[0] != levels[1]
    with pytest.raises(UserError, match="data.in_memory=true: data.train cannot be kept: two readings"):
        data(folder("third"), in_memory=True, **options)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_h01_a_file_that_breaks_during_training_is_named_in_one_line(folder: MakeFolder, num_workers: int) -> None:
    root = folder()
    made = data(root, num_workers=num_workers, val_fraction=0)
    broken = root / "bee" / "3.jpg"
    broken.write_bytes(broken.read_bytes()[:300])
    with pytest.raises(UserError) as raised:
        list(made.train.epoch(0))
    assert str(broken) in str(raised.value) and "cannot be read as an image" in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_crop_of_the_wrong_size_is_refused_before_training(folder: MakeFolder) -> None:
    with pytest.raises(
        UserError, match="data.crop and data.transforms make an image of 20x20 pixels, but data.image_size is 24"
    ):
        data(folder(), crop=RandomResizedCrop(20))
    with pytest.raises(UserError, match="data.preprocess.resize and data.preprocess.crop"):
        data(folder("other"), crop=None, transforms=None, preprocess=Preprocess(MEAN, STD))


class Padded:
    """A user's collate_fn: images of different sizes in the corner of one size, and targets of floats."""

    def __call__(self, samples: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
        images = torch.zeros((len(samples), 3, 40, 40), dtype=torch.uint8)
        for image, (sample, _) in zip(images, samples, strict=True):
            image[:, : sample.shape[1], : sample.shape[2]] = sample
        return images, torch.tensor([target for _, target in samples])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_p2_samples_of_different_sizes_take_a_collate_fn_of_the_users(folder: MakeFolder, num_workers: int) -> None:
    options = {"crop": None, "transforms": None, "augment": [RandomHorizontalFlip(0.0)], "num_workers": num_workers}
    made = data(
        folder(), collate_fn=Padded(), preprocess=Preprocess([0.0] * 3, [1 / 255] * 3), image_size=40, **options
    )
    for batch in made.train.epoch(0):
        assert batch.images.shape[1:] == (3, 40, 40)
        assert batch.targets.tolist() == made.train.samples.targets[batch.ids].tolist()
        widths = {int((image.sum((0, 1)) > 0).sum()) for image in batch.images}
        assert widths <= {40, 28, 33} and len(widths) > 1
