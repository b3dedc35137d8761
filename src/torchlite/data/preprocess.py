"""The deterministic way from pixels to what a model takes; training, evaluation and an exported file share it."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchlite.errors import UserError

LONGEST = 32  # times as long as wide: images up to that are resized whole


class Preprocess(nn.Module):
    """Pixels 0..255 brought to one size, scaled to 0..1 and, last, normalized: (pixels / 255 - mean) / std by channel.

    Args:
        mean: one number a channel, in units of 0..1.
        std: one number a channel, in units of 0..1, above 0.
        resize: pixels; the shorter side becomes this (the other keeps the proportion), or [height, width] exactly.
            Bilinear with antialiasing, rounded to whole levels. None leaves the size.
        crop: pixels, side of the square cut from the middle, or [height, width]; where the image is smaller, black is
            added. None cuts nothing.

    Raises:
        UserError: mean and std differ in length, or a number is out of place.
    """

    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        resize: int | Sequence[int] | None = None,
        crop: int | Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        if len(mean) != len(std):
            raise UserError(
                f"data.preprocess.mean has {len(mean)} numbers and data.preprocess.std {len(std)}; give one a channel."
            )
        if not all(math.isfinite(m) for m in mean) or not all(0 < s < math.inf for s in std):
            raise UserError(
                f"data.preprocess.mean={list(mean)}, std={list(std)}: means are finite, deviations above 0, in 0..1."
            )
        for key, sides in (("resize", resize), ("crop", crop)):
            numbers = [sides] if isinstance(sides, int) else [] if sides is None else list(sides)
            if sides is not None and (len(numbers) not in (1, 2) or min(numbers) < 1):
                raise UserError(f"data.preprocess.{key}={sides}: give pixels, 1 or more, or [height, width].")
        self.resize = resize if resize is None or isinstance(resize, int) else tuple(resize)
        self.crop = (crop, crop) if isinstance(crop, int) else crop if crop is None else tuple(crop)
        self.num_channels = len(mean)
        means, stds = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (mean, std))
        # One product and one sum instead of four passes over the images.
        self.register_buffer("scale", (1 / (255 * stds)).float())
        self.register_buffer("shift", (-means / stds).float())

    def forward(self, images: Tensor) -> Tensor:
        """Normalized float32 [B, C, H, W] of images [B, C, H', W'] with values 0..255, uint8 or float."""
        return self.normalize(self.fit(images))

    def fit(self, images: Tensor) -> Tensor:
        """Images [C, H', W'] or [B, C, H', W'] resized and cropped; dtype and range stay. The first half."""
        if self.resize is None and self.crop is None:
            return images
        batch = images if images.ndim == 4 else images[None]
        batch = self._resized(self._middle(batch))
        if self.crop is not None:
            batch = _center(batch, self.crop[0], self.crop[1])
        return batch if images.ndim == 4 else batch[0]

    def _middle(self, images: Tensor) -> Tensor:
        """Of images far longer than wide, the middle that the crop can see: resized whole they would fill the memory."""
        height, width = images.shape[2:]
        if self.crop is None or not isinstance(self.resize, int) or max(height, width) <= LONGEST * min(height, width):
            return images
        keep = math.ceil((max(self.crop) + 8) * min(height, width) / self.resize) + 8  # more than the filter reaches
        keep = max(
            keep, min(height, width)
        )  # the short side is resized whole, or the picture would be of another scale
        keep += (max(height, width) - keep) % 4  # so that both middles, rounded to even numbers, are one
        return _center(images, min(height, keep), min(width, keep))

    def normalize(self, images: Tensor) -> Tensor:
        """Normalized float32 of images of the final size: the second half, and all of it that training shares."""
        if images.dtype == torch.uint8:  # the same bits in half the time of a product of two types
            return images.float().mul_(self.scale).add_(self.shift)
        return torch.mul(images, self.scale).add_(self.shift)

    def undo(self, images: Tensor) -> Tensor:
        """Pictures to look at, float32 [B, C, H, W] in 0..1, of normalized images."""
        return ((images - self.shift) / (255 * self.scale)).clamp(0, 1)

    def _resized(self, images: Tensor) -> Tensor:
        """In float and rounded, whatever the dtype, so that an exported file computes the same levels."""
        if self.resize is None:
            return images
        height, width = images.shape[2:]
        if isinstance(self.resize, int):
            short = min(height, width)
            size = (self.resize * height // short, self.resize * width // short)
        else:
            size = (self.resize[0], self.resize[-1])
        if (height, width) == size:
            return images
        resized = F.interpolate(images.float(), size, mode="bilinear", antialias=True, align_corners=False)
        return resized.round().clamp(0, 255).to(images.dtype)


def _center(images: Tensor, height: int, width: int) -> Tensor:
    """[B, C, height, width] from the middle, as torchvision cuts it."""
    missing = max(height - images.shape[2], 0), max(width - images.shape[3], 0)
    if any(missing):
        images = F.pad(images, (missing[1] // 2, (missing[1] + 1) // 2, missing[0] // 2, (missing[0] + 1) // 2))
    top, left = round((images.shape[2] - height) / 2.0), round((images.shape[3] - width) / 2.0)
    return images[:, :, top : top + height, left : left + width]
