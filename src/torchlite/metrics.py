"""Averages weighted by sample, kept on the device until somebody reads them, and accuracy per sample."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

MOST_UNREAD = 1000  # sums of batches held back, tensors of one number each
MOST_DEFERRED = 64  # batches whose metrics wait to be computed
# In the first tensor of what may wait: a larger one would take memory, and is dear to compute anyway
MOST_NUMBERS = 1 << 16


def topk_correct(logits: Tensor, targets: Tensor, k: int = 1) -> Tensor:
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


class Deferred(NamedTuple):
    """A metric that is computed, for many batches at once, when somebody reads its mean; made by `deferred`."""

    function: Callable[..., Tensor]
    tensors: tuple[Tensor, ...]


def deferred(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor | Deferred:
    """`function(*tensors)`, later if that pays: for small tensors on the CPU, where calling torch costs more than computing.

    Args:
        function: gives one bool or whole number for each sample of `tensors`, whatever other samples are with it.
        tensors: [B, …] each, without gradient; nothing may change them afterwards.
    """
    if tensors[0].device.type == "cpu" and tensors[0].numel() <= MOST_NUMBERS:
        return Deferred(function, tensors)
    return function(*tensors)


class Averages:
    """Means over samples, not over batches: a last, smaller batch counts for its own samples.

    The sums of batches stay on the device until somebody reads them, so adding a batch waits for nothing; then they are
    added one after the other in double precision, which gives the same bits wherever a run was cut and resumed.
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._unread: dict[str, list[Tensor]] = {}
        self._deferred: dict[str, list[Deferred]] = {}

    def add(self, values: Mapping[str, Tensor | Deferred]) -> None:
        """Count one batch in. `values` maps a name to one number per sample, [B]."""
        for name, value in values.items():
            if not isinstance(value, Deferred):
                self.add_sum(name, value.detach().sum(), value.numel())
                continue
            waiting = self._deferred.setdefault(name, [])
            waiting.append(value)
            if len(waiting) >= MOST_DEFERRED:
                self._compute()

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
        self._deferred.clear()

    def state_dict(self) -> dict[str, list[float]]:
        self._read()
        return {name: [total, self._counts[name]] for name, total in self._sums.items()}

    def load_state_dict(self, state: Mapping[str, list[float]]) -> None:
        self.reset()
        self._sums = {name: float(pair[0]) for name, pair in state.items()}
        self._counts = {name: int(pair[1]) for name, pair in state.items()}

    def _compute(self) -> None:
        deferred, self._deferred = self._deferred, {}
        for name, waiting in deferred.items():
            for numbers in _computed(waiting):
                self.add_sum(name, numbers.sum(), numbers.numel())

    def _read(self) -> None:
        self._compute()
        for name, totals in self._unread.items():
            values = torch.stack(totals).tolist()
            self._sums[name] = functools.reduce(operator.add, values, self._sums.get(name, 0.0))  # sum() compensates
        self._unread.clear()


def _computed(waiting: Iterable[Deferred]) -> Iterable[Tensor]:
    """What batches give, those in a row that are of one kind together: whole numbers add up to the same in any order."""
    for (function, _), batches in itertools.groupby(waiting, _kind):
        yield function(*map(torch.cat, zip(*(batch.tensors for batch in batches), strict=True)))


def _kind(value: Deferred) -> tuple[Any, ...]:
    return value.function, [(tensor.dtype, tensor.shape[1:]) for tensor in value.tensors]
