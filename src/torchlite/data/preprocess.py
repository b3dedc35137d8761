"""The deterministic way from pixels to what a model takes; training, evaluation and an exported file share it."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchlite.errors import UserError


class Preprocess(nn.Module):
    """Pixels 0..255 scaled to 0..1 and normalized: (pixels / 255 - mean) / std, channel by channel.

    Args:
        mean: one number a channel, in units of 0..1.
        std: one number a channel, in units of 0..1, above 0.

    Raises:
        UserError: mean and std differ in length, or a number is out of place.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std):
            raise UserError(
                f"data.preprocess.mean has {len(mean)} numbers and data.preprocess.std {len(std)}; give one a channel."
            )
        if not all(math.isfinite(m) for m in mean) or not all(0 < s < math.inf for s in std):
            raise UserError(
                f"data.preprocess.mean={list(mean)}, std={list(std)}: means are finite, deviations above 0, in 0..1."
            )
        self.num_channels = len(mean)
        means, stds = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (mean, std))
        # One product and one sum instead of four passes over the images.
        self.register_buffer("scale", (1 / (255 * stds)).float())
        self.register_buffer("shift", (-means / stds).float())

    def forward(self, images: Tensor) -> Tensor:
        """Normalized float32 [B, C, H, W] of images [B, C, H, W] with values 0..255, uint8 or float."""
        return torch.mul(images, self.scale).add_(self.shift)

    def undo(self, images: Tensor) -> Tensor:
        """Pictures to look at, float32 [B, C, H, W] in 0..1, of normalized images."""
        return ((images - self.shift) / (255 * self.scale)).clamp(0, 1)
