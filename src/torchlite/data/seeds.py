"""Per-sample code that draws from the global generators of Python, numpy and torch, run so that nobody else notices."""

import contextlib
import random
from collections.abc import Iterator

import numpy as np
import torch


@contextlib.contextmanager
def own_seeds() -> Iterator[None]:
    """The three global generators are, afterwards, as they were; torch computes on one thread meanwhile.

    One thread: workers have one each, and the last bits of a float operation may depend on the number.
    """
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        with one_thread():
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """torch computes on one thread meanwhile."""
    num_threads = torch.get_num_threads()
    if num_threads != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if num_threads != 1:
            torch.set_num_threads(num_threads)


def reseed(seed: int) -> None:
    """Seed the three global generators (torch's of the CPU only) with 63 bits; for use within `own_seeds`."""
    random.seed(seed)
    np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
    torch.default_generator.manual_seed(seed)
