"""Order and augmentation are functions of (seed, epoch, sample): not of grouping, start, or what ran before."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlite.data import samples as module
from torchlite.data.augment import RandomCrop, RandomHorizontalFlip
from torchlite.data.batches import Batch, Batches
from torchlite.data.preprocess import Preprocess
from torchlite.data.samples import InMemory
from torchlite.errors import UserError

CPU = torch.device("cpu")


def samples(num_samples: int, channels: int = 1, size: int = 6) -> InMemory:
    shape = (num_samples, channels, size, size)
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
    return InMemory(images, torch.arange(num_samples) % 10)


def training(source: InMemory, batch_size: int, seed: int = 0, drop_last: bool = True) -> Batches:
    preprocess = Preprocess([0.5], [0.25])
    return Batches(source, batch_size, preprocess, CPU, seed, [RandomCrop(2), RandomHorizontalFlip()], drop_last)


def by_id(epoch: list[Batch]) -> dict[int, Tensor]:
    return {int(i): image for batch in epoch for i, image in zip(batch.ids, batch.images, strict=True)}


def assert_equal(left: list[Batch], right: list[Batch]) -> None:
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert torch.equal(one.ids, other.ids)
        assert torch.equal(one.targets, other.targets)
        assert torch.equal(one.images, other.images)


@given(
    num_samples=st.integers(1, 60),
    batch_size=st.integers(1, 70),
    drop_last=st.booleans(),
    shuffled=st.booleans(),
    seed=st.integers(0, 2**40),
    epoch=st.integers(0, 1000),
)
def test_every_sample_once_an_epoch(
    num_samples: int, batch_size: int, drop_last: bool, shuffled: bool, seed: int, epoch: int
) -> None:
    source = samples(num_samples, size=2)
    part = Batches(source, batch_size, Preprocess([0.5], [0.5]), CPU, seed if shuffled else None, drop_last=drop_last)
    read = list(part.epoch(epoch))
    ids = [int(i) for batch in read for i in batch.ids]
    sizes = [len(batch.ids) for batch in read]
    assert len(read) == len(part)
    assert len(ids) == len(set(ids)) == (num_samples // batch_size * batch_size if drop_last else num_samples)
    assert all(size == batch_size for size in sizes[:-1])
    assert shuffled or ids == sorted(ids)
    for batch in read:
        assert torch.equal(batch.targets, source.targets[batch.ids])


@given(start=st.integers(0, 9), at_once=st.sampled_from([1, 200, 1 << 20]))
def test_start_gives_the_tail_of_the_same_epoch(start: int, at_once: int) -> None:
    part = training(samples(50), 7, drop_last=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "VALUES_AT_ONCE", at_once)
        tail = list(part.epoch(3, start))
    assert_equal(tail, list(part.epoch(3))[start:])


def test_augmentation_does_not_depend_on_grouping() -> None:
    source = samples(40)
    small, large = (
        by_id(list(training(source, 3, drop_last=False).epoch(1))),
        by_id(list(training(source, 40).epoch(1))),
    )
    assert small.keys() == large.keys()
    assert all(torch.equal(small[i], large[i]) for i in small)


def test_epochs_and_seeds_differ_and_repeat() -> None:
    source = samples(40)
    first = list(training(source, 8, seed=0).epoch(0))
    assert_equal(first, list(training(source, 8, seed=0).epoch(0)))
    for other in (training(source, 8, seed=1).epoch(0), training(source, 8, seed=0).epoch(1)):
        again = list(other)
        assert not torch.equal(torch.cat([b.ids for b in first]), torch.cat([b.ids for b in again]))
        images, others = by_id(first), by_id(again)
        assert any(not torch.equal(images[i], others[i]) for i in images)


def test_no_global_generator_is_read_or_moved() -> None:
    part = training(samples(30), 8)
    first = list(part.epoch(0))
    torch.manual_seed(5), np.random.seed(5), random.seed(5)
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    assert_equal(list(part.epoch(0)), first)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert random.getstate() == before[2]


def test_parts_share_images_and_number_their_own_samples() -> None:
    source = samples(20)
    part = source.part(torch.tensor([3, 5, 8, 13])).part(torch.tensor([1, 3]))
    assert part.images.data_ptr() == source.images.data_ptr()
    (batch,) = Batches(part, 8, Preprocess([0.0], [1.0]), CPU).epoch(0)
    assert batch.ids.tolist() == [0, 1]
    assert batch.targets.tolist() == [5, 3]
    assert torch.equal((batch.images * 255).round().to(torch.uint8), source.images[[5, 13]])


def test_a_preprocess_that_gives_no_numbers_to_compute_with_is_named() -> None:
    """P1: whole numbers, as an image has them, would end in torch's own words at the first convolution."""
    images, targets = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64)
    part = Batches(InMemory(images, targets), 2, lambda images: images // 2, CPU)
    with pytest.raises(UserError, match="data.preprocess gives uint8; a model needs float32"):
        next(part.epoch(0))


def test_a_batch_is_float_images_and_integer_targets() -> None:
    batch = next(training(samples(9), 4).epoch(0))
    assert batch.images.shape == (4, 1, 6, 6) and batch.images.dtype == torch.float32
    assert batch.targets.dtype == batch.ids.dtype == torch.int64
    assert not batch.images.requires_grad
