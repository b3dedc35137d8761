"""Cutting a validation part from a training set."""

import torch
from torch import Tensor

from torchlite.errors import UserError
from torchlite.randomness import permutation


def stratified_split(targets: Tensor, fraction: float, split_seed: int) -> tuple[Tensor, Tensor]:
    """Indices (kept, held out), int64, ascending: held out is `fraction` of each class, to within one sample.

    A function of its arguments alone. Every class that occurs keeps at least one sample.

    Args:
        targets: int64 [N], class of each sample.
        fraction: share of the samples to hold out, above 0 and below 1.
        split_seed: chooses which samples.

    Raises:
        UserError: nothing would be held out.
    """
    counts = torch.bincount(targets).tolist()
    shares = _shares(counts, fraction)
    if not sum(shares):
        raise UserError(
            f"data.val_fraction={fraction} of {len(targets)} training samples holds out none. "
            "Raise it, or set data.val_fraction=0 to do without validation."
        )
    order = permutation(split_seed, -1, len(targets))  # -1: an epoch no training has
    by_class = order[torch.argsort(targets[order], stable=True)].split(counts)
    kept = torch.cat([rows[share:] for rows, share in zip(by_class, shares, strict=True)])
    held_out = torch.cat([rows[:share] for rows, share in zip(by_class, shares, strict=True)])
    return kept.sort().values, held_out.sort().values


def _shares(counts: list[int], fraction: float) -> list[int]:
    """Whole numbers near count * fraction that sum to the rounded total (the method of largest remainders)."""
    shares = [int(count * fraction) for count in counts]
    missing = round(sum(counts) * fraction) - sum(shares)
    open_classes = [label for label, count in enumerate(counts) if shares[label] + 1 < count]
    open_classes.sort(key=lambda label: shares[label] - counts[label] * fraction)
    for label in open_classes[: max(missing, 0)]:
        shares[label] += 1
    return shares
