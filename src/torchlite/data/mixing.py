"""Mixtures of the samples of an update: what they are is drawn once per (seed, epoch, window), before it is cut.

A mixture takes images after preprocessing and class probabilities. Sample i is mixed with the one before it in the
window (the first with the last), which in a shuffled order is any other; so odd windows are no special case, and one of
a single sample is left as it is.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from torchlite.errors import UserError


class Mixture(Protocol):
    """What stands last in `data.augment`, at most one; told from an augmentation by `mix`."""

    def mix(
        self, images: Tensor, targets: Tensor, others: Tensor, other_targets: Tensor, rng: np.random.RandomState
    ) -> tuple[Tensor, Tensor]:
        """Mixed images, float32 [B, C, H, W], and class probabilities, float32 [B, K]; inputs are left as they were.

        Args:
            others, other_targets: row i is what row i is mixed with.
            rng: the window's own; every rank draws the same from it.
        """
        ...


class MixUp:
    """Images and targets averaged with those of another sample (Zhang et al. 2017, arXiv:1710.09412).

    Args:
        alpha: both parameters of the Beta distribution that the share is drawn from, above 0.
        probability: of an update to be mixed, 0..1.
    """

    def __init__(self, alpha: float = 0.2, probability: float = 1.0) -> None:
        _check("MixUp", alpha, probability)
        self.alpha = alpha
        self.probability = probability

    def mix(
        self, images: Tensor, targets: Tensor, others: Tensor, other_targets: Tensor, rng: np.random.RandomState
    ) -> tuple[Tensor, Tensor]:
        chance, share = rng.random_sample(), float(rng.beta(self.alpha, self.alpha))
        if chance >= self.probability:
            return images, targets
        return images * share + others * (1 - share), targets * share + other_targets * (1 - share)


class CutMix:
    """A box of each image replaced by the same box of another, targets by area (Yun et al. 2019, arXiv:1905.04899).

    Args:
        alpha: both parameters of the Beta distribution that the area is drawn from, above 0.
        probability: of an update to be mixed, 0..1.
    """

    def __init__(self, alpha: float = 1.0, probability: float = 1.0) -> None:
        _check("CutMix", alpha, probability)
        self.alpha = alpha
        self.probability = probability

    def mix(
        self, images: Tensor, targets: Tensor, others: Tensor, other_targets: Tensor, rng: np.random.RandomState
    ) -> tuple[Tensor, Tensor]:
        chance, share = rng.random_sample(), float(rng.beta(self.alpha, self.alpha))
        height, width = images.shape[2:]
        middle_y, middle_x = rng.randint(height), rng.randint(width)
        if chance >= self.probability:
            return images, targets
        half = 0.5 * math.sqrt(1 - share)
        top, bottom = (min(max(int(middle_y + sign * half * height), 0), height) for sign in (-1, 1))
        left, right = (min(max(int(middle_x + sign * half * width), 0), width) for sign in (-1, 1))
        mixed = images.clone()
        mixed[:, :, top:bottom, left:right] = others[:, :, top:bottom, left:right]
        kept = 1 - (bottom - top) * (right - left) / (height * width)
        return mixed, targets * kept + other_targets * (1 - kept)


class OneOf:
    """For each update one of several mixtures, all as likely."""

    def __init__(self, choices: Sequence[Mixture]) -> None:
        if not choices:
            raise UserError("OneOf: choices is empty; list the mixtures to choose from.")
        self.choices = choices

    def mix(
        self, images: Tensor, targets: Tensor, others: Tensor, other_targets: Tensor, rng: np.random.RandomState
    ) -> tuple[Tensor, Tensor]:
        chosen = self.choices[rng.randint(len(self.choices))]
        return chosen.mix(images, targets, others, other_targets, rng)


def window_rng(seed: int) -> np.random.RandomState:
    """A generator whose stream numpy promises never to change, seeded with 63 bits."""
    return np.random.RandomState([seed & 0xFFFFFFFF, seed >> 32])


def probabilities(targets: Tensor, num_classes: int) -> Tensor:
    """Class probabilities, float32 [B, K], of int64 [B]."""
    return torch.nn.functional.one_hot(targets, num_classes).float()


def _check(name: str, alpha: float, probability: float) -> None:
    if not alpha > 0:
        raise UserError(f"{name}: alpha={alpha}; give a number above 0.")
    if not 0 <= probability <= 1:
        raise UserError(f"{name}: probability={probability} is outside 0..1.")
