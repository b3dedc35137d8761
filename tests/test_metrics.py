"""Averages are over samples, and accuracy counts what it says."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from torchlite.metrics import Averages, topk_correct


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


def test_topk() -> None:
    logits = torch.tensor([[0.1, 0.9, 0.5], [0.9, 0.5, 0.1]])
    targets = torch.tensor([2, 0])
    assert topk_correct(logits, targets, 1).tolist() == [0.0, 1.0]
    assert topk_correct(logits, targets, 2).tolist() == [1.0, 1.0]
    assert topk_correct(logits, targets, 9).tolist() == [1.0, 1.0]
    mixed = torch.tensor([[0.0, 0.3, 0.7], [0.6, 0.4, 0.0]])
    assert topk_correct(logits, mixed, 1).tolist() == [0.0, 1.0]
