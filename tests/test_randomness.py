"""Draws depend on (seed, epoch, sample) alone, and are uniform."""

import random

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchlite.randomness import AUGMENT, ORDER, draws, permutation, sample_seed, seed_everything, set_determinism

PERMUTATION = [8, 1, 6, 9, 7, 3, 5, 4, 2, 0]
DRAWS = [0.942448, 0.48179, 0.249107, 0.988117]
SEED = 614847571526901174


@given(st.integers(-(2**40), 2**40), st.integers(0, 10**6), st.integers(0, 300))
def test_a_permutation_holds_every_sample_once(seed: int, epoch: int, num_samples: int) -> None:
    order = permutation(seed, epoch, num_samples)
    assert sorted(order.tolist()) == list(range(num_samples))


def test_draws_do_not_depend_on_the_company() -> None:
    together = draws(3, 7, torch.arange(100), 4)
    alone = torch.cat([draws(3, 7, torch.tensor([i]), 4) for i in range(100)])
    backwards = draws(3, 7, torch.arange(99, -1, -1), 4).flip(0)
    assert torch.equal(together, alone) and torch.equal(together, backwards)
    assert torch.equal(draws(3, 7, torch.arange(100), 2), together[:, :2])


def test_draws_are_fixed_for_all_time() -> None:
    """A recorded run must draw the same in every later version."""
    assert permutation(0, 0, 10).tolist() == PERMUTATION
    assert [round(value, 6) for value in draws(0, 0, torch.tensor([0, 1]), 2).flatten().tolist()] == DRAWS
    assert sample_seed(0, 0, 0) == SEED


def test_seeds_epochs_samples_and_streams_all_matter() -> None:
    ids = torch.arange(50)
    kinds = [
        draws(0, 0, ids, 3),
        draws(1, 0, ids, 3),
        draws(0, 1, ids, 3),
        draws(0, 0, ids + 1, 3),
        draws(0, 0, ids, 3, ORDER),
    ]
    assert len({tuple(kind.flatten().tolist()) for kind in kinds}) == 5
    assert torch.equal(draws(0, 0, ids, 3, AUGMENT), kinds[0])
    assert len({sample_seed(s, e, i) for s in range(5) for e in range(5) for i in range(40)}) == 1000


def test_draws_are_uniform_and_uncorrelated() -> None:
    values = draws(0, 0, torch.arange(100_000), 3).double()
    assert values.min() >= 0 and values.max() < 1
    counts = torch.histc(values[:, 0], bins=20, min=0, max=1)
    chi_squared = ((counts - 5000) ** 2 / 5000).sum().item()
    assert chi_squared < 50  # 19 degrees of freedom: beyond it once in 10,000
    assert torch.corrcoef(values.T).fill_diagonal_(0).abs().max() < 0.02
    neighbors = torch.corrcoef(torch.stack([values[:-1, 0], values[1:, 0]]))[0, 1]
    assert abs(neighbors) < 0.02


def test_seeding_covers_python_numpy_and_torch() -> None:
    def numbers() -> tuple[float, float, float]:
        seed_everything(11)
        return random.random(), float(np.random.rand()), float(torch.rand(1))

    assert numbers() == numbers()
    seed_everything(-5)


def test_the_determinism_switch_goes_both_ways() -> None:
    try:
        set_determinism(True)
        assert torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.deterministic
        assert not torch.utils.deterministic.fill_uninitialized_memory
        set_determinism(False)
        assert not torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.benchmark
    finally:
        set_determinism(False)
