"""Averages weighted by sample, kept on the device until somebody reads them, and accuracy per sample."""

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from torchlite.errors import UserError

MOST_UNREAD = 1000  # sums of batches held back, tensors of one number each
MOST_DEFERRED = 64  # batches whose metrics wait to be computed
# In the first tensor of what may wait: a larger one would take memory, is dear to compute anyway, and is summed by several
# threads, which gives other last bits than a row of a sum over many batches
MOST_NUMBERS = 1 << 15


def in_full(values: Tensor) -> Tensor:
    """The values in float32 where they have half that precision, in which sums keep no more than three digits."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


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


class Deferred(tuple[Callable[..., Tensor], tuple[Tensor, ...], list[int]]):
    """A number per sample that is computed, for many batches at once, when somebody reads the mean; made by `deferred`.

    It holds the function, its tensors, and their versions, by which a change in place is seen.
    """

    __slots__ = ()  # a NamedTuple takes four times as long to make, and there are two an update


_version: Callable[[Tensor], int] = operator.attrgetter("_version")
_shape: Callable[[Tensor], torch.Size] = operator.attrgetter("shape")


def lasting(values: Tensor) -> Tensor:
    """The values without gradient, as they are now: an optimizer changes a parameter, and what shows one, in place."""
    kept = values.detach()
    return kept.clone() if values.is_leaf or values._base is not None else kept


def deferred(function: Callable[..., Tensor], *tensors: Tensor) -> Tensor | Deferred:
    """`function(*tensors)`, later if that pays: for small tensors on the CPU, where calling torch costs more than computing.

    Args:
        function: gives one number for each sample of `tensors`, whatever other samples are with it.
        tensors: [B, …] each; of what a model gives its `lasting`. What changes one afterwards is told of.
    """
    if tensors[0].is_cpu and tensors[0].numel() <= MOST_NUMBERS:
        return Deferred((function, tensors, list(map(_version, tensors))))
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
            if isinstance(value, Deferred):
                waiting = self._deferred.setdefault(name, [])
                waiting.append(value)
                if len(waiting) >= MOST_DEFERRED:
                    self._compute()
            else:
                if name in self._deferred:  # sums of floats are added in the order of their batches
                    self._compute()
                self._add_sums(name, in_full(value.detach()).sum(), value.numel())

    def _add_sums(self, name: str, sums: Tensor, count: int) -> None:
        """Count in `count` samples of a batch, whose values add up to a scalar, or of k batches, [k]."""
        unread = self._unread.setdefault(name, [])
        unread.append(sums)
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
                self._add_sums(name, in_full(numbers).sum(dim=1), numbers.numel())

    def _read(self) -> None:
        self._compute()
        for name, sums in self._unread.items():
            values = torch.cat([each.reshape(-1) for each in sums]).tolist()
            self._sums[name] = functools.reduce(operator.add, values, self._sums.get(name, 0.0))  # sum() compensates
        self._unread.clear()


def _computed(waiting: Iterable[Deferred]) -> Iterable[Tensor]:
    """What k batches in a row give that are of one kind, [k, B]: a row adds up to the same bits, whatever k is."""
    for (function, *_), batches in itertools.groupby(waiting, _kind):
        tensors = []
        for _, of_batch, versions in batches:
            if list(map(_version, of_batch)) != versions:
                raise UserError(
                    "The losses, logits or targets of an update were changed in place before they were counted: in a task or "
                    "callback of yours change a copy, tensor.clone()."
                )
            tensors.append(of_batch)
        yield function(*map(torch.cat, zip(*tensors, strict=True))).reshape(len(tensors), -1)


def _kind(value: Deferred) -> tuple[Any, ...]:
    function, tensors, _ = value
    return function, *map(_shape, tensors)
