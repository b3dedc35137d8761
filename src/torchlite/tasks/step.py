"""What a training step hands back to the loop."""

from dataclasses import dataclass, field

from torch import Tensor

from torchlite.metrics import Deferred


@dataclass
class Step:
    """One forward pass over B samples.

    The loop divides the sum of `losses` by the number of samples in the whole update, so an update is the mean over its
    samples however they were cut into micro-batches. Class weights and label smoothing are therefore inside `losses`.
    """

    losses: Tensor  # [B], one per sample, with gradient
    # Further numbers to average, each [B]; none called loss
    metrics: dict[str, Tensor | Deferred] = field(default_factory=dict)
