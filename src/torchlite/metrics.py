"""Averages weighted by sample, kept on the device until somebody reads them, and accuracy per sample."""

import functools
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, cast

import torch
from torch import Tensor

from torchlite.errors import UserError

MOST_UNREAD = 64  # batches held back: little memory, even where a value is a view of something large
MOST_NUMBERS = (
    1 << 16
)  # in what a batch's PerSample is kept as; a larger one is computed at once, and dear enough anyway


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


class PerSample(NamedTuple):
    """A metric, [B], that is computed when somebody reads its mean, for many batches at once; the loop does not wait for it.

    `function` gives one number for each sample of `tensors`, whatever others are with it. They are [B, …] each, without
    gradient, and are kept until then: nothing may change them.
    """

    function: Callable[..., Tensor]
    tensors: tuple[Tensor, ...]


class Averages:
    """Means over samples, not over batches: a last, smaller batch counts for its own samples.

    What is added stays on the device as it is until somebody reads the means, so adding a batch waits for nothing and costs
    next to nothing. Then each batch is summed up, and the sums are added one after the other in double precision, which gives
    the same bits wherever a run was cut and resumed.
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._unread: dict[str, list[Tensor | PerSample]] = defaultdict(list)

    def add(self, values: Mapping[str, Tensor | PerSample]) -> None:
        """Count one batch in. `values` maps a name to one number per sample, [B]."""
        for name, value in values.items():
            if isinstance(value, PerSample):
                if value.tensors[0].numel() > MOST_NUMBERS:
                    value = value.function(*value.tensors)
            elif value.requires_grad:
                value = value.detach()
            unread = self._unread[name]
            unread.append(value)
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
        for name, unread in self._unread.items():
            batches = list(_computed(unread))
            if any(batch.ndim != 1 for batch in batches):
                raise UserError(
                    f"the metric {name} has to be one number a sample, [B]; it is {list(batches[0].shape)}."
                )
            totals = torch.stack([batch.sum() for batch in batches]).tolist()
            self._sums[name] = functools.reduce(operator.add, totals, self._sums.get(name, 0.0))  # sum() compensates
            self._counts[name] = self._counts.get(name, 0) + sum(batch.numel() for batch in batches)
        self._unread.clear()


def _computed(values: Iterable[Tensor | PerSample]) -> Iterator[Tensor]:
    """The numbers of the batches, in turn; whole numbers, which add up to the same in any order, of several in one tensor."""
    for function, batches in itertools.groupby(values, lambda value: getattr(value, "function", None)):
        if function is None:
            yield from cast(Iterator[Tensor], batches)
            continue
        each = [batch.tensors for batch in cast(Iterator[PerSample], batches)]
        numbers = function(*map(torch.cat, zip(*each, strict=True)))
        yield from numbers.split([len(tensors[0]) for tensors in each]) if numbers.is_floating_point() else (numbers,)
