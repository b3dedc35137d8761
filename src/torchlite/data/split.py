"""Cutting a validation part from a training set."""

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from torchlite.data.decode import Opened
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


def cut(parts: Mapping[str, Opened], val_fraction: float, split_seed: int) -> dict[str, Tensor | None]:
    """For each part the ids of its samples in its source (val's in train's where it has none); None for all."""
    rows: dict[str, Tensor | None] = dict.fromkeys(parts)
    if "train" in parts and "val" not in parts and val_fraction > 0:
        rows["train"], rows["val"] = stratified_split(parts["train"].targets, val_fraction, split_seed)
    return rows


def described(
    sizes: Mapping[str, int], rows: Mapping[str, Tensor | None], val_fraction: float, split_seed: int
) -> dict[str, Any]:
    """How the parts came about, for the record: enough to cut them again, and to see that the cut is the same.

    `held_out` lists the ids of validation samples in the order of the training source, runs as "first-last".
    """
    held_out = rows.get("val")
    if "val" not in sizes:
        return {**sizes, "validation": "none"}
    if held_out is None:
        return {**sizes, "validation": "own source"}
    digest = hashlib.sha256(held_out.numpy().tobytes()).hexdigest()
    made = {"validation": "stratified part of train", "val_fraction": val_fraction, "split_seed": split_seed}
    return {**sizes, **made, "held_out": _runs(held_out.tolist()), "held_out_sha256": digest}


def _runs(ids: list[int]) -> str:
    """Ascending numbers as text: "3 7-9"."""
    words: list[str] = []
    first = 0
    for index, number in enumerate(ids):
        if index + 1 == len(ids) or ids[index + 1] != number + 1:
            words.append(f"{ids[first]}-{number}" if index > first else str(number))
            first = index + 1
    return " ".join(words)


def _shares(counts: list[int], fraction: float) -> list[int]:
    """Whole numbers near count * fraction that sum to the rounded total (the method of largest remainders)."""
    shares = [int(count * fraction) for count in counts]
    missing = round(sum(counts) * fraction) - sum(shares)
    open_classes = [label for label, count in enumerate(counts) if shares[label] + 1 < count]
    open_classes.sort(key=lambda label: shares[label] - counts[label] * fraction)
    for label in open_classes[: max(missing, 0)]:
        shares[label] += 1
    return shares
