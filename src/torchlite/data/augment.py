"""Random changes to training images, for whole batches of uint8 at once.

An augmentation is any object with a number `num_draws` and a call that takes images, uint8 [B, C, H, W], and draws,
float32 [B, num_draws] uniform in [0, 1), and returns images. It uses no other randomness: row i of the draws belongs to
image i and depends only on (seed, epoch, sample), so the result is the same however samples are grouped into batches.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, arange, where

from torchlite.errors import UserError
from torchlite.randomness import draws


class Augmentation(Protocol):
    """What `data.augment` lists.

    With an attribute `host_draws = True` the draws come on the CPU whatever device the images are on: for numbers that
    are worked out sample by sample, with no wait for a GPU.
    """

    num_draws: int

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        """Changed images, uint8 [B, C, H, W]; the input is left as it was."""
        ...


def augmented(images: Tensor, augment: Sequence[Augmentation], seed: int, epoch: int, keys: Tensor) -> Tensor:
    """Images with each augmentation applied in turn, its draws being those of (seed, epoch, key).

    Args:
        keys: int64 [B], on the CPU.
    """
    widths = [augmentation.num_draws for augmentation in augment]
    chances = draws(seed, epoch, keys.to(images.device, non_blocking=True), sum(widths)).split(widths, 1)
    on_host = chances
    if images.device.type != "cpu" and any(getattr(one, "host_draws", False) for one in augment):
        on_host = draws(seed, epoch, keys, sum(widths)).split(widths, 1)
    for augmentation, here, there in zip(augment, chances, on_host, strict=True):
        images = augmentation(images, there if getattr(augmentation, "host_draws", False) else here)
    return images


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
        if images.device.type == "cpu":
            chosen = (draws[:, 0] < self.probability).nonzero()[:, 0]
            return images.clone().index_copy_(0, chosen, images.index_select(0, chosen).flip(3))
        width = images.shape[3]
        columns = arange(width, device=images.device)
        columns = where(draws < self.probability, width - 1 - columns, columns)  # [B, W]
        # 1.6 times as fast as where(flipped, images.flip(3), images); and what the CPU does would wait for a GPU.
        return images.gather(3, columns[:, None, None, :].expand(images.shape))


ATTEMPTS = 10  # at a box that fits, as in torchvision


class RandomResizedCrop:
    """Random boxes of the images, resized to squares, bilinear with antialiasing (Szegedy et al. 2015, 1409.4842).

    As `data.crop` it takes images of any size, one by one; in `data.augment`, batches of one size. On the CPU both give
    the same bits; on a GPU batches are resized there, within 1 level of 255.

    Args:
        size: pixels, side of what comes out.
        scale: least and greatest share of the image's area in a box, above 0, at most 1.
        ratio: least and greatest width / height of a box, drawn log-uniformly.
    """

    num_draws = 2 * ATTEMPTS + 2
    host_draws = True

    def __init__(
        self, size: int, scale: Sequence[float] = (0.08, 1.0), ratio: Sequence[float] = (3 / 4, 4 / 3)
    ) -> None:
        if size < 1:
            raise UserError(f"RandomResizedCrop: size={size} pixels; give 1 or more.")
        if len(scale) != 2 or not 0 < scale[0] <= scale[1] <= 1:
            raise UserError(
                f"RandomResizedCrop: scale={list(scale)}; give [least, greatest] share, above 0, at most 1."
            )
        if len(ratio) != 2 or not 0 < ratio[0] <= ratio[1]:
            raise UserError(f"RandomResizedCrop: ratio={list(ratio)}; give [least, greatest] width / height, above 0.")
        self.size = size
        self.scale = scale
        self.ratio = ratio

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        boxes = [self.box(row, images.shape[2], images.shape[3]) for row in draws.tolist()]
        if images.device.type != "cpu":
            return self._on_device(images, boxes)
        out = torch.empty((len(images), images.shape[1], self.size, self.size), dtype=torch.uint8)
        for index, (top, left, height, width) in enumerate(boxes):
            region = images[index : index + 1, :, top : top + height, left : left + width]
            out[index] = F.interpolate(region, (self.size, self.size), mode="bilinear", antialias=True)[0]
        return out

    def box(self, draws: Sequence[float], height: int, width: int) -> tuple[int, int, int, int]:
        """(top, left, height, width) of the box in an image; where no attempt fits, the largest that does, centered."""
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for attempt in range(ATTEMPTS):
            area = height * width * (self.scale[0] + draws[2 * attempt] * (self.scale[1] - self.scale[0]))
            ratio = math.exp(low + draws[2 * attempt + 1] * (high - low))
            box_width, box_height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < box_width <= width and 0 < box_height <= height:
                top = int(draws[-2] * (height - box_height + 1))
                return top, int(draws[-1] * (width - box_width + 1)), box_height, box_width
        box_width = max(1, min(width, round(height * self.ratio[1])))
        box_height = max(1, min(height, round(width / self.ratio[0])))
        return (height - box_height) // 2, (width - box_width) // 2, box_height, box_width

    def _on_device(self, images: Tensor, boxes: Sequence[tuple[int, int, int, int]]) -> Tensor:
        """All boxes at once: resizing is linear, so two products with matrices of triangular weights do it."""
        rows, columns = (
            self._weights([(box[k], box[k + 2]) for box in boxes], length).to(images.device, non_blocking=True)[:, None]
            for k, length in ((0, images.shape[2]), (1, images.shape[3]))
        )
        return (rows @ images.float() @ columns.transpose(2, 3)).round().clamp(0, 255).to(torch.uint8)

    def _weights(self, spans: Sequence[tuple[int, int]], length: int) -> Tensor:
        """[B, size, length]: how much each pixel of a line counts in each pixel that its span is resized to."""
        begin, extent = torch.tensor(spans, dtype=torch.float32).T[:, :, None, None]
        step = extent / self.size
        center = begin + (arange(self.size)[:, None] + 0.5) * step
        place = arange(length) + 0.5
        weights = (1 - (place - center).abs() / step.clamp(min=1)).clamp(min=0)
        weights = weights * ((place > begin) & (place < begin + extent))
        return weights / weights.sum(2, keepdim=True)


class RandomErasing:
    """A random box of each image painted over (Zhong et al. 2017, arXiv:1708.04896).

    Args:
        probability: of an image to be painted on, 0..1.
        scale: least and greatest share of the image's area in the box, above 0, at most 1.
        ratio: least and greatest height / width of the box, drawn log-uniformly.
        value: of the paint, 0..255.
    """

    num_draws = 1 + RandomResizedCrop.num_draws
    host_draws = True

    def __init__(
        self,
        probability: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: int = 0,
    ) -> None:
        if not 0 <= probability <= 1:
            raise UserError(f"RandomErasing: probability={probability} is outside 0..1.")
        if not 0 <= value <= 255:
            raise UserError(f"RandomErasing: value={value}; a pixel value is 0..255.")
        if len(ratio) != 2 or not 0 < ratio[0] <= ratio[1]:
            raise UserError(f"RandomErasing: ratio={list(ratio)}; give [least, greatest] height / width, above 0.")
        self._boxes = RandomResizedCrop(1, scale, (1 / ratio[1], 1 / ratio[0]))  # which counts width / height
        self.probability = probability
        self.value = value

    def __call__(self, images: Tensor, draws: Tensor) -> Tensor:
        height, width = images.shape[2:]
        boxes = [
            self._boxes.box(row[1:], height, width) if row[0] < self.probability else (0,) * 4 for row in draws.tolist()
        ]
        top, left, tall, wide = torch.tensor(boxes).to(images.device, non_blocking=True).T[:, :, None]
        rows, columns = arange(height, device=images.device), arange(width, device=images.device)
        inside_rows = (rows >= top) & (rows < top + tall)
        inside = inside_rows[:, :, None] & ((columns >= left) & (columns < left + wide))[:, None, :]
        return images.masked_fill(inside[:, None], self.value)
