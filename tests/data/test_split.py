"""The held-out part: stratified, complete, and a function of split_seed alone."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchlite.data.split import stratified_split
from torchlite.errors import UserError


@given(
    labels=st.lists(st.integers(0, 6), min_size=1, max_size=200),
    fraction=st.floats(0.01, 0.99),
    split_seed=st.integers(0, 2**32),
)
def test_sizes_are_right_to_within_one_sample(labels: list[int], fraction: float, split_seed: int) -> None:
    targets = torch.tensor(labels)
    try:
        kept, held_out = stratified_split(targets, fraction, split_seed)
    except UserError:
        # Nothing to hold out: too small a share, or classes that each need the only sample they have.
        assert round(len(labels) * fraction) == 0 or all(labels.count(c) * fraction < 1 for c in set(labels))
        return
    assert sorted(kept.tolist() + held_out.tolist()) == list(range(len(labels)))
    assert kept.tolist() == sorted(kept.tolist()) and held_out.tolist() == sorted(held_out.tolist())
    for label in set(labels):
        count = int((targets[held_out] == label).sum())
        assert abs(count - labels.count(label) * fraction) < 1 + 1e-9
        assert count < labels.count(label)


def test_balanced_classes_get_equal_shares() -> None:
    targets = torch.arange(6000) % 10
    _, held_out = stratified_split(targets, 0.1, 0)
    assert torch.bincount(targets[held_out]).tolist() == [60] * 10


def test_split_seed_chooses_and_repeats() -> None:
    targets = torch.arange(100) % 4
    assert torch.equal(stratified_split(targets, 0.2, 7)[1], stratified_split(targets, 0.2, 7)[1])
    assert not torch.equal(stratified_split(targets, 0.2, 7)[1], stratified_split(targets, 0.2, 8)[1])


def test_holding_out_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="val_fraction=0.001 of 100"):
        stratified_split(torch.arange(100) % 4, 0.001, 0)
