"""Augmentations against a loop over single images, and their ranges."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from torchlite.data.augment import RandomCrop, RandomHorizontalFlip
from torchlite.errors import UserError


def pixels(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8))


def chances(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((rows, columns), dtype=np.float32))


def cropped(image: np.ndarray, draws: np.ndarray, padding: int, fill: int) -> np.ndarray:
    _, height, width = image.shape
    top, left = (int(draw * (2 * padding + 1)) for draw in draws)
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)), constant_values=fill)
    return padded[:, top : top + height, left : left + width]


@given(
    batch=st.integers(1, 6),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
    padding=st.integers(1, 5),
    fill=st.integers(0, 255),
    seed=st.integers(0, 99),
)
def test_crop_equals_the_loop_over_images(
    batch: int, channels: int, height: int, width: int, padding: int, fill: int, seed: int
) -> None:
    images, draws = pixels(batch, channels, height, width, seed=seed), chances(batch, 2, seed)
    before = images.clone()
    expected = [cropped(i, d, padding, fill) for i, d in zip(images.numpy(), draws.numpy(), strict=True)]
    assert np.array_equal(RandomCrop(padding, fill)(images, draws).numpy(), np.stack(expected))
    assert torch.equal(images, before)


@pytest.mark.parametrize("padding", range(1, 65))
def test_crop_reaches_both_ends_and_no_further(padding: int) -> None:
    images = pixels(2, 1, 4, 4)
    ends = torch.tensor([[0.0, 0.0], [1 - 2**-24, 1 - 2**-24]])
    both = RandomCrop(padding)(images, ends)
    assert both[0].sum() == (images[0, :, : 4 - padding, : 4 - padding].sum() if padding < 4 else 0)
    assert both[1].sum() == (images[1, :, padding:, padding:].sum() if padding < 4 else 0)


def test_flip_equals_the_loop_over_images() -> None:
    images, draws = pixels(64, 3, 5, 7), chances(64, 1)
    expected = [i[:, :, ::-1] if d < 0.3 else i for i, d in zip(images.numpy(), draws[:, 0].numpy(), strict=True)]
    assert np.array_equal(RandomHorizontalFlip(0.3)(images, draws).numpy(), np.stack(expected))


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_flip_never_and_always(probability: float) -> None:
    images, draws = pixels(64, 1, 3, 4), chances(64, 1)
    expected = images.flip(3) if probability else images
    assert torch.equal(RandomHorizontalFlip(probability)(images, draws), expected)


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: RandomCrop(0), "padding=0"),
        (lambda: RandomCrop(1, fill=256), "fill=256"),
        (lambda: RandomHorizontalFlip(1.5), "probability=1.5"),
    ],
)
def test_numbers_out_of_range_are_refused(build: object, named: str) -> None:
    with pytest.raises(UserError, match=named):
        build()  # type: ignore[operator]
