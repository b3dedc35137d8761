"""The order of an epoch: every sample exactly once over all ranks, or all classes as often."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchlite.data.augment import RandomCrop, RandomHorizontalFlip
from torchlite.data.batches import Batch, Batches
from torchlite.data.mixing import CutMix, MixUp
from torchlite.data.order import balanced_order, epoch_order, share, windows
from torchlite.data.preprocess import Preprocess
from torchlite.data.samples import InMemory


@given(
    num_samples=st.integers(1, 80),
    batch_size=st.integers(1, 90),
    drop_last=st.booleans(),
    epoch=st.integers(0, 10**6),
    seed=st.integers(0, 2**63 - 1),
    num_ranks=st.integers(1, 9),
)
def test_every_sample_exactly_once_over_all_ranks(
    num_samples: int, batch_size: int, drop_last: bool, epoch: int, seed: int, num_ranks: int
) -> None:
    order = epoch_order(num_samples, seed, epoch)
    assert sorted(order.tolist()) == list(range(num_samples))
    updates = windows(order, batch_size, drop_last)
    kept = num_samples // batch_size * batch_size if drop_last else num_samples
    read = [[share(update, rank, num_ranks).tolist() for rank in range(num_ranks)] for update in updates]
    assert [i for shares in read for own in shares for i in own] == order[:kept].tolist()
    for shares in read:
        sizes = [len(own) for own in shares]
        assert max(sizes) - min(sizes) <= 1


@given(
    labels=st.lists(st.integers(0, 5), min_size=1, max_size=80),
    epoch=st.integers(0, 1000),
    seed=st.integers(0, 2**40),
)
def test_balanced_reads_every_class_as_often(labels: list[int], epoch: int, seed: int) -> None:
    targets = torch.tensor(labels)
    keys = balanced_order(targets, seed, epoch)
    assert torch.equal(keys, balanced_order(targets, seed, epoch))
    assert len(keys) == len(labels) == len(set(keys.tolist()))
    ids = keys % len(labels)
    counts = [int((targets[ids] == label).sum()) for label in set(labels)]
    assert max(counts) - min(counts) <= 1
    for label in set(labels):  # within a class all samples are read as often, to within one
        times = [int((ids == i).sum()) for i in range(len(labels)) if labels[i] == label]
        assert max(times) - min(times) <= 1


def test_balanced_leaves_out_other_samples_in_other_epochs() -> None:
    targets = torch.tensor([0] * 90 + [1] * 10)
    read = [set((balanced_order(targets, 0, epoch) % 100).tolist()) for epoch in range(8)]
    assert all(len(ids & set(range(90))) == 50 and ids >= set(range(90, 100)) for ids in read)
    assert set().union(*read) == set(range(100))


def part(num_samples: int, **changes: object) -> Batches:
    images = torch.randint(
        0, 256, (num_samples, 1, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    samples = InMemory(images, torch.arange(num_samples) % 3)
    options = {"seed": 4, "augment": [RandomCrop(1), RandomHorizontalFlip()], "num_classes": 3, **changes}
    return Batches(samples, 5, Preprocess([0.5], [0.5]), torch.device("cpu"), **options)


@pytest.mark.parametrize("mixture", [None, MixUp(), CutMix()])
@pytest.mark.parametrize("num_ranks", [2, 3, 7])
@pytest.mark.parametrize("start", [0, 2])
def test_ranks_in_turn_read_the_batches_of_one_process(mixture: object, num_ranks: int, start: int) -> None:
    whole = list(part(23, mixture=mixture).epoch(1, start))
    ranks = [list(part(23, mixture=mixture).epoch(1, start, rank, num_ranks)) for rank in range(num_ranks)]
    assert {len(read) for read in ranks} == {len(whole)}
    for index, batch in enumerate(whole):
        shares = [read[index] for read in ranks]
        for name in Batch.__slots__:
            assert torch.equal(torch.cat([getattr(own, name) for own in shares]), getattr(batch, name))


def test_a_sample_read_twice_in_an_epoch_is_augmented_in_two_ways() -> None:
    labels = torch.tensor([0] * 20 + [1])
    images = torch.randint(0, 256, (21, 1, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    batches = Batches(
        InMemory(images, labels),
        21,
        Preprocess([0.5], [0.5]),
        torch.device("cpu"),
        0,
        [RandomCrop(4)],
        sampling="balanced",
    )
    (batch,) = batches.epoch(0)
    again = batch.images[batch.ids == 20]
    assert len(again) in (10, 11) and len({image.numpy().tobytes() for image in again}) > 5
    assert batch.targets.tolist() == labels[batch.ids].tolist()
