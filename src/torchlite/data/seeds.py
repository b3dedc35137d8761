"""Per-sample code that draws from the global generators of Python, numpy and torch, run so that nobody else notices."""

import contextlib
import random
from collections.abc import Iterator
from typing import Any

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


def drawn_so_far() -> tuple[object, ...]:
    """Where the three global generators stand; another value means that somebody drew."""
    numpy_state: Any = np.random.get_state()
    numpy_drawn = numpy_state[1].tobytes(), *numpy_state[2:]
    return random.getstate(), numpy_drawn, torch.get_rng_state().numpy().tobytes()


def reseed(seed: int) -> None:
    """Seed the three global generators (torch's of the CPU only, which takes the lower 32 of the 63 bits), in `own_seeds`."""
    random.seed(seed)
    np.random.seed([seed & 0xFFFFFFFF, seed >> 32])
    torch.default_generator.manual_seed(seed)
