"""Random changes to training images, for whole batches of uint8 at once.

An augmentation is any object with a number `num_draws` and a call that takes images, uint8 [B, C, H, W], and draws,
float32 [B, num_draws] uniform in [0, 1), and returns images. It uses no other randomness: row i of the draws belongs to
image i and depends only on (seed, epoch, sample), so the result is the same however samples are grouped into batches.
"""

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor, arange, where

from torchlite.errors import UserError


class Augmentation(Protocol):
    """What `data.augment` lists."""

    num_draws: int

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        """Changed images, uint8 [B, C, H, W]; the input is left as it was."""
        ...


class RandomCrop:
    """Crops of the images' own size, from anywhere in the image after padding each side.

    Args:
        padding: pixels added on each side, 1 or more; the shift is uniform over -padding..padding in both directions.
        fill: value of the added pixels, 0..255.
    """

    num_draws = 2

    def __init__(self, padding: int, fill: int = 0) -> None:
        if padding < 1:
            raise UserError(f"RandomCrop: padding={padding} pixels; give 1 or more, or leave the augmentation out.")
        if not 0 <= fill <= 255:
            raise UserError(f"RandomCrop: fill={fill}; a pixel value is 0..255.")
        self.padding = padding
        self.fill = fill

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        height, width = images.shape[2:]
        padded = F.pad(images, (self.padding,) * 4, value=self.fill)
        # A draw is at most 1 - 2**-24 and its product with n rounds below n: no offset reaches 2 * padding + 1.
        top, left = (draws * (2 * self.padding + 1)).long().unbind(1)
        windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view [B, C, 2p+1, 2p+1, H, W]: nothing is copied
        return windows[arange(len(images), device=images.device), :, top, left]


class RandomHorizontalFlip:
    """Images mirrored left to right, each with the given probability, 0..1."""

    num_draws = 1

    def __init__(self, probability: float = 0.5) -> None:
        if not 0 <= probability <= 1:
            raise UserError(f"RandomHorizontalFlip: probability={probability} is outside 0..1.")
        self.probability = probability

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        width = images.shape[3]
        columns = arange(width, device=images.device)
        columns = where(draws < self.probability, width - 1 - columns, columns)  # [B, W]
        # 1.6 times as fast as where(flipped, images.flip(3), images); and indexing by a mask would wait for a GPU.
        return images.gather(3, columns[:, None, None, :].expand(images.shape))
