"""Random turns, shifts, scales and shears of whole batches."""

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from torchlite.errors import UserError


class RandomAffine:
    """Images turned, scaled, sheared and shifted, about their middle, each uniformly within its limits.

    Args:
        degrees: greatest turn either way.
        translate: greatest shift either way, [of the width, of the height], 0..1.
        scale: least and greatest factor, above 0.
        shear: greatest shear either way, [along x, along y], degrees below 90.
        interpolation: between pixels.
        fill: value of what comes in from outside, 0..255.
    """

    num_draws = 6
    host_draws = True

    def __init__(
        self,
        degrees: float = 0.0,
        translate: Sequence[float] = (0.0, 0.0),
        scale: Sequence[float] = (1.0, 1.0),
        shear: Sequence[float] = (0.0, 0.0),
        interpolation: Literal["nearest", "bilinear"] = "bilinear",
        fill: int = 0,
    ) -> None:
        if degrees < 0:
            raise UserError(f"RandomAffine: degrees={degrees}; give the greatest turn, 0 or more.")
        if len(translate) != 2 or not all(0 <= share <= 1 for share in translate):
            raise UserError(f"RandomAffine: translate={list(translate)}; give two shares, of width and height, 0..1.")
        if len(scale) != 2 or not 0 < scale[0] <= scale[1]:
            raise UserError(f"RandomAffine: scale={list(scale)}; give [least, greatest] factor, above 0.")
        if len(shear) != 2 or not all(0 <= angle < 90 for angle in shear):
            raise UserError(f"RandomAffine: shear={list(shear)}; give two angles, 0 <= a < 90 degrees.")
        if not 0 <= fill <= 255:
            raise UserError(f"RandomAffine: fill={fill}; a pixel value is 0..255.")
        self.degrees, self.translate, self.scale, self.shear = degrees, translate, scale, shear
        self.interpolation: Literal["nearest", "bilinear"] = interpolation
        self.fill = fill

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        height, width = images.shape[2:]
        # Per sample and in Python, because a vectorized sine may differ in its last bit with the place in the batch.
        rows = [self._inverse(row, height, width) for row in draws.tolist()]
        matrix = torch.tensor(rows, dtype=torch.float32).to(images.device, non_blocking=True)
        y, x = (torch.arange(n, device=images.device) - (n - 1) / 2 for n in (height, width))
        a, b, c, d, e, f = (column[:, None, None] for column in matrix.unbind(1))
        from_x, from_y = x * a + y[:, None] * b + c, x * d + y[:, None] * e + f  # pixels from the middle, [B, H, W]
        grid = torch.stack([from_x * (2 / width), from_y * (2 / height)], dim=3)
        shifted = images.float() - self.fill  # grid_sample fills with 0
        moved = F.grid_sample(shifted, grid, mode=self.interpolation, padding_mode="zeros", align_corners=False)
        return (moved + self.fill).round().clamp(0, 255).to(torch.uint8)

    def _inverse(self, draws: Sequence[float], height: int, width: int) -> list[float]:
        """[a, b, c, d, e, f]: where the pixel at (x, y) from the middle comes from, (ax + by + c, dx + ey + f)."""
        turn, shift_x, shift_y, grow, shear_x, shear_y = draws
        angle = math.radians((2 * turn - 1) * self.degrees)
        factor = self.scale[0] + grow * (self.scale[1] - self.scale[0])
        tan_x, tan_y = (
            math.tan(math.radians((2 * draw - 1) * limit))
            for draw, limit in zip((shear_x, shear_y), self.shear, strict=True)
        )
        move_x = (2 * shift_x - 1) * self.translate[0] * width
        move_y = (2 * shift_y - 1) * self.translate[1] * height
        cos, sin = math.cos(angle), math.sin(angle)
        # Forward: turn, then shear, then scale; p = factor * turn @ shear
        p = [factor * (cos - sin * tan_y), factor * (cos * tan_x - sin)]
        q = [factor * (sin + cos * tan_y), factor * (sin * tan_x + cos)]
        area = p[0] * q[1] - p[1] * q[0]
        if abs(area) < 1e-6:  # both shears at once can fold the image flat; it is then left as it was
            return [1.0, 0.0, 0.0, 0.0, 1.0, 0.0]
        a, b, d, e = q[1] / area, -p[1] / area, -q[0] / area, p[0] / area
        return [a, b, -(a * move_x + b * move_y), d, e, -(d * move_x + e * move_y)]
