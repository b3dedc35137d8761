"""Averages are over samples, and accuracy counts what it says."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchlite.errors import UserError
from torchlite.metrics import MOST_DEFERRED, MOST_NUMBERS, Averages, Deferred, deferred, lasting, topk_correct


def test_the_last_small_batch_weighs_what_it_holds() -> None:
    """J01: batches of 4, 4 and 2 with accuracies 1, 1 and 0."""
    averages = Averages()
    for values in ([1.0] * 4, [1.0] * 4, [0.0] * 2):
        averages.add({"acc1": torch.tensor(values)})
    assert averages.means() == {"acc1": 0.8}


@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=5), min_size=1, max_size=6))
def test_means_do_not_depend_on_the_cut(batches: list[list[float]]) -> None:
    cut, whole, merged = Averages(), Averages(), Averages()
    for batch in batches:
        cut.add({"loss": torch.tensor(batch, dtype=torch.float64)})
        part = Averages()
        part.add({"loss": torch.tensor(batch, dtype=torch.float64)})
        merged.merge(part)
    whole.add({"loss": torch.tensor([v for batch in batches for v in batch], dtype=torch.float64)})
    for other in (cut, merged):
        assert abs(other.means()["loss"] - whole.means()["loss"]) < 1e-9


def test_state_goes_through_a_checkpoint() -> None:
    averages, other = Averages(), Averages()
    averages.add({"loss": torch.tensor([1.0, 2.0, 4.5])})
    other.load_state_dict(averages.state_dict())
    assert other.means() == averages.means()
    other.add({"loss": torch.tensor([0.5])})
    assert other.means() == {"loss": 2.0}
    averages.reset()
    assert averages.means() == {}


def test_merging_leaves_the_other_alone() -> None:
    total, part = Averages(), Averages()
    part.add({"loss": torch.tensor([1.0])})
    total.merge(part)
    total.add({"loss": torch.tensor([3.0])})
    assert part.means() == {"loss": 1.0}


@pytest.mark.parametrize("num_classes", [10, MOST_NUMBERS])
def test_what_is_computed_when_read_is_what_it_would_have_been(num_classes: int) -> None:
    """However many batches wait, of whatever sizes and kinds, and wherever they were read in between."""
    torch.manual_seed(0)
    now, later, read = Averages(), Averages(), Averages()
    for index in range(MOST_DEFERRED + 5 if num_classes == 10 else 3):
        size = 7 if index % 9 == 8 else 16
        logits, targets = torch.randn(size, num_classes), torch.randint(0, num_classes, (size,))
        if index % 4 == 3:  # as a collate_fn may mix some batches
            targets = torch.rand(size, num_classes)
        now.add({"acc1": topk_correct(logits, targets)})
        for averages in (later, read):
            averages.add({"acc1": deferred(topk_correct, logits, targets)})
        read.means()
    assert later.means() == now.means() == read.means()


@given(st.lists(st.sampled_from([1, 3, 16, 128, 129, 4097, MOST_NUMBERS, MOST_NUMBERS + 5]), min_size=1, max_size=12))
def test_losses_add_up_to_the_same_bits_however_many_wait(sizes: list[int]) -> None:
    """A run that was cut has read them elsewhere; those of a batch too large to wait are added in their place."""
    later, read, by_hand, count = Averages(), Averages(), 0.0, 0
    for index, size in enumerate(sizes):
        losses = torch.rand(size, generator=torch.Generator().manual_seed(index))
        by_hand, count = by_hand + losses.sum().item(), count + size
        for averages in (later, read):
            averages.add({"loss": deferred(torch.Tensor.detach, losses)})
        read.means()
    assert later.means() == read.means() == {"loss": by_hand / count}


def test_names_may_come_both_ways_and_in_any_batch() -> None:
    averages = Averages()
    right = deferred(topk_correct, torch.eye(3), torch.arange(3))
    for values in ({"acc1": right}, {"acc1": torch.zeros(3)}, {"other": torch.ones(2)}, {"acc1": right}):
        averages.add(values)
    assert averages.means() == {"acc1": 6 / 9, "other": 1.0}
    averages.add({"acc1": right})
    averages.reset()
    assert averages.means() == {}


def test_what_is_large_or_not_on_the_cpu_does_not_wait() -> None:
    targets = torch.zeros(2, dtype=torch.int64)
    assert isinstance(deferred(topk_correct, torch.zeros(2, 9), targets), Deferred)
    assert isinstance(deferred(topk_correct, torch.zeros(2, MOST_NUMBERS), targets), torch.Tensor)
    meta = deferred(topk_correct, torch.zeros(2, 9, device="meta"), targets.to("meta"))
    assert isinstance(meta, torch.Tensor)


def test_a_metric_that_changes_after_its_update_was_counted_as_it_was() -> None:
    """Such as one that shows a parameter, which the optimizer changes in place."""
    averages, parameter = Averages(), torch.tensor(1.0)
    averages.add({"temperature": parameter.expand(4)})
    parameter.fill_(3.0)
    averages.add({"temperature": parameter.expand(4)})
    assert averages.means() == {"temperature": 2.0}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_half_precision_are_added_in_full(dtype: torch.dtype) -> None:
    averages, values = Averages(), torch.full((1000,), 100.25, dtype=dtype)
    averages.add({"loss": values, "waited": deferred(torch.Tensor.detach, values)})
    assert set(averages.means().values()) == {values[0].item()}


def test_what_may_change_is_copied_and_what_is_a_models_own_is_not() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    for shown in (weight, weight.expand(2, 3), weight[:2]):
        kept = lasting(shown)
        with torch.no_grad():
            weight.mul_(2.0)
        assert not kept.requires_grad and not torch.equal(kept, shown)
    computed = weight * 2
    assert lasting(computed).data_ptr() == computed.data_ptr()


@pytest.mark.parametrize("changed", [0, 1])
def test_what_was_changed_before_it_was_counted_is_told_of(changed: int) -> None:
    """As by a callback that overwrites the targets, or a task that goes on with its losses in place."""
    averages, tensors = Averages(), (torch.eye(3), torch.arange(3))
    averages.add({"acc1": deferred(topk_correct, *tensors)})
    tensors[changed].detach().zero_()
    with pytest.raises(UserError, match=r"changed in place.*tensor\.clone"):
        averages.means()


def test_topk() -> None:
    logits = torch.tensor([[0.1, 0.9, 0.5], [0.9, 0.5, 0.1]])
    targets = torch.tensor([2, 0])
    assert topk_correct(logits, targets, 1).tolist() == [0.0, 1.0]
    assert topk_correct(logits, targets, 2).tolist() == [1.0, 1.0]
    assert topk_correct(logits, targets, 9).tolist() == [1.0, 1.0]
    mixed = torch.tensor([[0.0, 0.3, 0.7], [0.6, 0.4, 0.0]])
    assert topk_correct(logits, mixed, 1).tolist() == [0.0, 1.0]
