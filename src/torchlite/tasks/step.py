"""What a training step hands back to the loop."""

from dataclasses import dataclass, field

from torch import Tensor

from torchlite.metrics import PerSample


@dataclass
class Step:
    """One forward pass over B samples.

    The loop divides the sum of `losses` by the number of samples in the whole update, so an update is the mean over its
    samples however they were cut into micro-batches. Class weights and label smoothing are therefore inside `losses`.
    """

    losses: Tensor  # [B], one per sample, with gradient
    # Further numbers to average, each [B]; none called loss. Read when a line is written, so nothing may change them
    metrics: dict[str, Tensor | PerSample] = field(default_factory=dict)
