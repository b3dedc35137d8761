"""What a training step hands back to the loop."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

Metrics = dict[str, Tensor | Callable[[], Tensor]]  # numbers to average, each [B], or what will give them


@dataclass
class Step:
    """One forward pass over B samples.

    The loop divides the sum of `losses` by the number of samples in the whole update, so an update is the mean over its
    samples however they were cut into micro-batches. Class weights and label smoothing are therefore inside `losses`.

    A metric may be a function, called when its numbers are read: on a CPU what is done for many batches in a row takes a
    fifth of the time it takes between two updates, which leave nothing of it in the caches.
    """

    losses: Tensor  # [B], one per sample, with gradient
    metrics: Metrics = field(default_factory=dict)  # further numbers to average
