"""Which samples an epoch reads, in which order, in which windows, on which rank: functions of (seed, epoch) alone.

A place in the order is a key: the sample's id plus N for each time the sample came before in the same epoch. Keys below
N are ids; augmentation is drawn by key, so a sample that is read twice in an epoch is changed in two ways.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from torchlite.randomness import BALANCE, permutation

Sampling = Literal["each_once", "balanced"]
Order = Literal["each_once", "balanced", "as_it_comes"]


def epoch_order(num_samples: int, seed: int, epoch: int) -> Tensor:
    """Every sample once: a permutation of range(num_samples), int64."""
    return permutation(seed, epoch, num_samples)


def balanced_order(targets: Tensor, seed: int, epoch: int) -> Tensor:
    """As many keys as samples, int64, each class that occurs equally often to within one.

    Of a class that has too many samples some are left out, others in other epochs; of one that has too few, all are
    read again, as evenly as goes.

    Args:
        targets: int64 [N], class of each sample, on the CPU.
    """
    num_samples = len(targets)
    shuffled = permutation(seed, epoch, num_samples, BALANCE)
    counts = torch.bincount(targets)
    by_class = [
        rows for rows in shuffled[torch.argsort(targets[shuffled], stable=True)].split(counts.tolist()) if len(rows)
    ]
    share, rest = divmod(num_samples, len(by_class))
    favored = set(permutation(seed, epoch, len(by_class), BALANCE)[:rest].tolist())
    keys = []
    for position, rows in enumerate(by_class):
        turns = torch.arange(share + (position in favored))
        keys.append(rows[turns % len(rows)] + turns.div(len(rows), rounding_mode="floor") * num_samples)
    return torch.cat(keys)[permutation(seed, epoch, num_samples)]


def windows(order: Tensor, batch_size: int, drop_last: bool) -> Sequence[Tensor]:
    """The order cut into updates of `batch_size`; a smaller last one is kept or left out."""
    kept = len(order) // batch_size * batch_size if drop_last else len(order)
    return order[:kept].split(batch_size) if kept else ()


def share(window: Tensor, rank: int, num_ranks: int) -> Tensor:
    """What a rank reads of a window: consecutive, sizes differ by at most one, all shares in turn are the window.

    A share may be empty; every rank still takes part in every update.
    """
    return window.tensor_split(num_ranks)[rank]
