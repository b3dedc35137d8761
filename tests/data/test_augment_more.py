"""Crops, turns, colors and erasing: against torchvision's with the same numbers, and whatever batch they stand in."""

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as tv

from torchlite.data.augment import (
    Augmentation,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
)
from torchlite.data.color import ColorJitter
from torchlite.data.geometry import RandomAffine
from torchlite.errors import UserError
from torchlite.randomness import draws as hashed

ALL: list[Augmentation] = [
    RandomCrop(3),
    RandomHorizontalFlip(),
    RandomResizedCrop(16),
    RandomErasing(0.7),
    RandomAffine(30, (0.2, 0.1), (0.7, 1.3), (15, 10)),
    RandomAffine(180, interpolation="nearest", fill=128),
    ColorJitter(0.4, 0.4, 0.4, 0.2),
]


def smooth(batch: int, channels: int = 3, height: int = 20, width: int = 26, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    coarse = torch.randint(0, 256, (batch, channels, 4, 5), generator=rng).float()
    return F.interpolate(coarse, (height, width), mode="bicubic").clamp(0, 255).to(torch.uint8)


def chances(rows: int, augmentation: Augmentation, seed: int = 0) -> Tensor:
    return hashed(seed, 0, torch.arange(rows), augmentation.num_draws)


@pytest.mark.parametrize("augmentation", ALL, ids=lambda a: type(a).__name__)
@pytest.mark.parametrize("channels", [1, 3])
def test_an_image_comes_out_the_same_in_every_batch(augmentation: Augmentation, channels: int) -> None:
    images, draws = smooth(37, channels), chances(37, augmentation)
    before = images.clone()
    whole = augmentation(images, draws)
    assert whole.dtype == torch.uint8 and torch.equal(images, before)
    assert not torch.equal(whole, images)
    for size in (1, 2, 5, 16):
        parts = [augmentation(i, d) for i, d in zip(images.split(size), draws.split(size), strict=True)]
        assert torch.equal(torch.cat(parts), whole)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert torch.equal(augmentation(images, draws), whole)
    finally:
        torch.set_num_threads(threads)


def test_resized_crop_is_the_box_resized() -> None:
    crop = RandomResizedCrop(16, (0.2, 0.9))
    images, draws = smooth(40), chances(40, crop)
    for image, row, got in zip(images, draws.tolist(), crop(images, draws), strict=True):
        top, left, height, width = crop.box(row, 20, 26)
        assert 0 <= top <= 20 - height and 0 <= left <= 26 - width
        assert torch.equal(got, tv.resized_crop(image, top, left, height, width, [16, 16], antialias=True))


def test_resized_crop_has_the_area_and_shape_it_should() -> None:
    crop = RandomResizedCrop(8, (0.25, 0.5), (0.5, 2.0))
    boxes = [crop.box(row, 400, 300) for row in chances(2000, crop).tolist()]
    areas = np.array([height * width / 120_000 for _, _, height, width in boxes])
    ratios = np.log([width / height for _, _, height, width in boxes])
    assert areas.min() > 0.245 and areas.max() < 0.505 and abs(areas.mean() - 0.375) < 0.01
    assert abs(ratios).max() < math.log(2.0) + 0.02
    tops = np.array([top / (400 - height) for top, _, height, _ in boxes if height < 400])
    assert abs(tops.mean() - 0.5) < 0.03 and tops.min() < 0.02 and tops.max() > 0.97


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 300), (300, 1), (7, 9), (4000, 10)])
def test_resized_crop_fits_any_image(height: int, width: int) -> None:
    crop = RandomResizedCrop(4)
    for row in chances(50, crop).tolist():
        top, left, tall, wide = crop.box(row, height, width)
        assert tall >= 1 and wide >= 1 and 0 <= top <= height - tall and 0 <= left <= width - wide


def test_resized_crop_on_a_device_is_within_one_level() -> None:
    for size, shape in ((16, (20, 26)), (48, (20, 26)), (5, (20, 26)), (16, (64, 60))):
        crop = RandomResizedCrop(size)
        images, draws = smooth(20, 3, *shape), chances(20, crop)
        boxes = [crop.box(row, *shape) for row in draws.tolist()]
        difference = (crop._on_device(images, boxes).int() - crop(images, draws).int()).abs()
        assert difference.max() <= 1


def test_affine_is_that_of_torchvision() -> None:
    affine = RandomAffine(40, (0.2, 0.1), (0.8, 1.2), fill=9)
    images, draws = smooth(20), chances(20, affine)
    for image, row, got in zip(images, draws.tolist(), affine(images, draws), strict=True):
        how: dict[str, Any] = {
            "angle": (2 * row[0] - 1) * 40,
            "translate": [(2 * row[1] - 1) * 0.2 * 26, (2 * row[2] - 1) * 0.1 * 20],
            "scale": 0.8 + row[3] * 0.4,
            "shear": [0.0, 0.0],
            "interpolation": InterpolationMode.BILINEAR,
        }
        inside = tv.affine(torch.ones(1, 20, 26), **how)[0] > 0.9999  # at the rim torchvision blends by a mask
        assert inside.sum() > 150
        assert (got.float() - tv.affine(image.float(), **how))[:, inside].abs().max() <= 0.51


def test_affine_shifts_and_shears_the_way_it_says() -> None:
    images = torch.zeros(1, 1, 21, 21, dtype=torch.uint8)
    images[0, 0, 10, 10] = 255
    most = torch.ones(1, 6) * (1 - 2**-24)
    half = torch.full((1, 6), 0.5)
    shift = half.clone()
    shift[0, 1:3] = most[0, 1:3]
    moved = RandomAffine(0, (5 / 21, 3 / 21), interpolation="nearest")(images, shift)
    assert moved[0, 0, 13, 15] == 255
    bar = torch.zeros(1, 1, 21, 21, dtype=torch.uint8)
    bar[0, 0, :, 10] = 255
    shear = half.clone()
    shear[0, 4] = most[0, 4]
    slanted = RandomAffine(0, shear=(45, 0), interpolation="nearest")(bar, shear)
    assert all(slanted[0, 0, row, row] == 255 for row in range(1, 20))
    assert torch.equal(RandomAffine(0)(smooth(3), half.expand(3, 6)), smooth(3))


@pytest.mark.parametrize("position", range(4))
def test_jitter_is_that_of_torchvision(position: int) -> None:
    limits = [0.0] * 4
    limits[position] = (0.5, 0.5, 0.5, 0.3)[position]
    jitter = ColorJitter(*limits)
    images, draws = smooth(30), chances(30, jitter)
    functions = (tv.adjust_brightness, tv.adjust_contrast, tv.adjust_saturation, tv.adjust_hue)
    for image, row, got in zip(images, draws.tolist(), jitter(images, draws), strict=True):
        amount = (2 * row[3] - 1) * 0.3 if position == 3 else 0.5 + row[position]
        difference = (got.int() - functions[position](image, amount).int()).abs()
        assert difference.max() <= 3 and difference.float().mean() < 1  # torchvision cuts off where this rounds


def test_jitter_leaves_gray_gray_and_keeps_the_range() -> None:
    jitter = ColorJitter(1.0, 1.0, 1.0, 0.5)
    gray = smooth(30, 1).expand(-1, 3, -1, -1)
    changed = jitter(gray, chances(30, jitter))
    assert torch.equal(changed[:, 0], changed[:, 1]) and torch.equal(changed[:, 0], changed[:, 2])
    ends = torch.tensor([0, 255], dtype=torch.uint8).reshape(1, 1, 1, 2).expand(30, 3, 4, 2)
    assert jitter(ends, chances(30, jitter)).shape == ends.shape


def test_erasing_paints_a_box_of_the_size_it_says() -> None:
    erase = RandomErasing(0.5, (0.1, 0.2), (0.5, 2.0), value=7)
    images = torch.full((600, 3, 40, 40), 200, dtype=torch.uint8)
    painted = erase(images, chances(600, erase)) == 7
    share = painted[:, 0].float().mean((1, 2))
    assert torch.equal(painted[:, 0], painted[:, 2])
    assert 230 < int((share > 0).sum()) < 370
    assert share[share > 0].min() > 0.085 and share.max() < 0.215
    for mask in painted[share > 0][:20, 0]:
        rows, columns = mask.any(1).sum(), mask.any(0).sum()
        assert mask.sum() == rows * columns


def test_erasing_counts_height_by_width() -> None:
    image = torch.ones(8, 1, 100, 100, dtype=torch.uint8)
    erase = RandomErasing(1.0, (0.1, 0.1), (3.0, 3.0))
    for erased in erase(image, chances(8, erase))[:, 0] == 0:
        rows, columns = int(erased.any(1).sum()), int(erased.any(0).sum())
        assert (rows, columns) == (55, 18)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: RandomResizedCrop(0), "size=0"),
        (lambda: RandomResizedCrop(8, (0.0, 1.0)), "scale="),
        (lambda: RandomResizedCrop(8, (0.5, 1.0), (2.0, 1.0)), "ratio="),
        (lambda: RandomErasing(2.0), "probability=2.0"),
        (lambda: RandomErasing(value=300), "value=300"),
        (lambda: RandomAffine(-1), "degrees=-1"),
        (lambda: RandomAffine(translate=(2.0, 0.0)), "translate="),
        (lambda: RandomAffine(scale=(0.0, 1.0)), "scale="),
        (lambda: RandomAffine(shear=(90.0, 0.0)), "shear="),
        (lambda: RandomAffine(fill=-1), "fill=-1"),
        (lambda: ColorJitter(brightness=-0.1), "brightness=-0.1"),
        (lambda: ColorJitter(hue=0.6), "hue=0.6"),
    ],
)
def test_numbers_out_of_range_are_refused(make: object, named: str) -> None:
    with pytest.raises(UserError, match=named):
        make()  # type: ignore[operator]
