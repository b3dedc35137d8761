"""Averages weighted by sample, kept on the device until somebody reads them, and accuracy per sample."""

import functools
import operator
from collections.abc import Mapping

import torch
from torch import Tensor

MOST_UNREAD = 1000  # sums of batches held back, tensors of one number each


def topk_correct(logits: Tensor, targets: Tensor, k: int) -> Tensor:
    """True where the target is among the k highest logits.

    Args:
        logits: [B, C].
        targets: int64 [B], or class probabilities [B, C], whose largest entry then counts as the target.
        k: at least 1; more than C counts as C.

    Returns:
        bool [B].
    """
    if targets.ndim == 2:
        targets = targets.argmax(dim=1)
    if k == 1:
        return logits.argmax(dim=1) == targets
    best = logits.topk(min(k, logits.shape[1]), dim=1).indices
    return (best == targets[:, None]).any(dim=1)


class Averages:
    """Means over samples, not over batches: a last, smaller batch counts for its own samples.

    The sums of batches stay on the device until somebody reads them, so adding a batch waits for nothing; then they are
    added one after the other in double precision, which gives the same bits wherever a run was cut and resumed.
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._unread: dict[str, list[Tensor]] = {}

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Count one batch in. `values` maps a name to one number per sample, [B]."""
        for name, value in values.items():
            self.add_sum(name, value.detach().sum(), value.numel())

    def add_sum(self, name: str, total: Tensor, count: int) -> None:
        """Count `count` samples in whose values add up to the scalar `total`."""
        unread = self._unread.setdefault(name, [])
        unread.append(total)
        self._counts[name] = self._counts.get(name, 0) + count
        if len(unread) >= MOST_UNREAD:
            self._read()

    def means(self) -> dict[str, float]:
        """The mean of each name so far. Waits for the device."""
        self._read()
        return {name: total / self._counts[name] for name, total in self._sums.items()}

    def merge(self, other: "Averages") -> None:
        """Count everything in that `other` has counted. Waits for the device."""
        self._read()
        other._read()
        for name, total in other._sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + total
            self._counts[name] = self._counts.get(name, 0) + other._counts[name]

    def reset(self) -> None:
        self._sums.clear()
        self._counts.clear()
        self._unread.clear()

    def state_dict(self) -> dict[str, list[float]]:
        self._read()
        return {name: [total, self._counts[name]] for name, total in self._sums.items()}

    def load_state_dict(self, state: Mapping[str, list[float]]) -> None:
        self.reset()
        self._sums = {name: float(pair[0]) for name, pair in state.items()}
        self._counts = {name: int(pair[1]) for name, pair in state.items()}

    def _read(self) -> None:
        for name, totals in self._unread.items():
            values = torch.stack(totals).tolist()
            self._sums[name] = functools.reduce(operator.add, values, self._sums.get(name, 0.0))  # sum() compensates
        self._unread.clear()
