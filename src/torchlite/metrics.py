"""Averages weighted by sample, kept on the device until somebody reads them, and accuracy per sample."""

from collections.abc import Mapping

import torch
from torch import Tensor


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

    Sums stay on the device, in float64 where it has that, so adding a batch waits for nothing.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Count one batch in. `values` maps a name to one number per sample, [B]."""
        for name, value in values.items():
            self.add_sum(name, value.detach().sum(), value.numel())

    def add_sum(self, name: str, total: Tensor, count: int) -> None:
        """Count `count` samples in whose values add up to the scalar `total`."""
        if name in self._sums:
            self._sums[name] += total
            self._counts[name] += count
        else:
            exact = torch.float32 if total.device.type == "mps" else torch.float64
            self._sums[name] = total.to(exact, copy=True)
            self._counts[name] = count

    def means(self) -> dict[str, float]:
        """The mean of each name so far. Waits for the device."""
        return {name: total.item() / self._counts[name] for name, total in self._sums.items()}

    def merge(self, other: "Averages") -> None:
        """Count everything in that `other` has counted."""
        for name, total in other._sums.items():
            self.add_sum(name, total, other._counts[name])

    def reset(self) -> None:
        self._sums.clear()
        self._counts.clear()

    def state_dict(self) -> dict[str, list[float]]:
        return {name: [total.item(), self._counts[name]] for name, total in self._sums.items()}

    def load_state_dict(self, state: Mapping[str, list[float]], device: torch.device) -> None:
        exact = torch.float32 if device.type == "mps" else torch.float64
        self._sums = {name: torch.tensor(pair[0], dtype=exact, device=device) for name, pair in state.items()}
        self._counts = {name: int(pair[1]) for name, pair in state.items()}
