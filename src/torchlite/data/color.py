"""Random changes of color for whole batches."""

import torch
from torch import Tensor

from torchlite.errors import UserError

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


class ColorJitter:
    """Images with brightness, contrast, saturation and hue changed, in this order, each uniformly within its limits.

    A gray image has neither saturation nor hue; those two leave it alone.

    Args:
        brightness: the factor is within 1 - brightness..1 + brightness, at least 0.
        contrast: the same, about the mean gray of the image.
        saturation: the same, about the gray of each pixel.
        hue: greatest turn of the color circle either way, 0..0.5 of it.
    """

    num_draws = 4

    def __init__(
        self, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, hue: float = 0.0
    ) -> None:
        for name, limit in (("brightness", brightness), ("contrast", contrast), ("saturation", saturation)):
            if limit < 0:
                raise UserError(f"ColorJitter: {name}={limit}; give 0 or more.")
        if not 0 <= hue <= 0.5:
            raise UserError(f"ColorJitter: hue={hue}; give 0..0.5 of the color circle.")
        self.limits = (brightness, contrast, saturation)
        self.hue = hue

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        pixels = images.float()
        is_color = images.shape[1] == 3
        low = [max(0.0, 1 - limit) for limit in self.limits]
        factors = [least + draws[:, k] * (1 + self.limits[k] - least) for k, least in enumerate(low)]
        brightness, contrast, saturation = (factor[:, None, None, None] for factor in factors)
        if self.limits[0]:
            pixels = (pixels * brightness).clamp(0, 255)
        if self.limits[1]:
            pixels = _blend(pixels, _mean_gray(pixels), contrast)
        if self.limits[2] and is_color:
            pixels = _blend(pixels, _gray(pixels), saturation)
        if self.hue and is_color:
            pixels = _turn_hue(pixels, ((2 * draws[:, 3] - 1) * self.hue)[:, None, None])
        return pixels.round().to(torch.uint8)


def _blend(pixels: Tensor, toward: Tensor, factor: Tensor) -> Tensor:
    return (pixels * factor + toward * (1 - factor)).clamp(0, 255)


def _gray(pixels: Tensor) -> Tensor:
    """[B, 1, H, W]"""
    if pixels.shape[1] == 1:
        return pixels
    red, green, blue = pixels.split(1, dim=1)
    return red * LUMA[0] + green * LUMA[1] + blue * LUMA[2]


def _mean_gray(pixels: Tensor) -> Tensor:
    """[B, 1, 1, 1]; summed as whole numbers, since a sum of floats depends on how it is cut into parts."""
    levels = (_gray(pixels) * 256).long()
    return (levels.sum((1, 2, 3), keepdim=True).double() / (256 * levels[0].numel())).float()


def _turn_hue(pixels: Tensor, turn: Tensor) -> Tensor:
    """RGB [B, 3, H, W] with each pixel's hue moved by `turn` (of a full circle), value and chroma kept."""
    red, green, blue = pixels.unbind(1)
    value, least = pixels.amax(1), pixels.amin(1)
    chroma = value - least
    safe = torch.where(chroma > 0, chroma, 1)
    sector = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    sector = (sector / 6 + turn).remainder(1.0) * 6
    turned = [value - chroma * _height((sector + offset).remainder(6.0)) for offset in (5.0, 3.0, 1.0)]
    return torch.stack(turned, dim=1).clamp(0, 255)


def _height(place: Tensor) -> Tensor:
    """How far a channel is below the highest, 0..1, at a place on the color circle, 0..6."""
    return torch.minimum(place, 4 - place).clamp(0, 1)
