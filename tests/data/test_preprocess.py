"""Normalization against its definition, its inverse, and numbers that do not fit."""

import pytest
import torch

from torchlite.data.preprocess import Preprocess
from torchlite.errors import UserError

MEAN, STD = [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]
EVERY_VALUE = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(2, 3, 16, 16)


def test_equals_the_definition_for_every_pixel_value() -> None:
    mean, std = (torch.tensor(values, dtype=torch.float64)[:, None, None] for values in (MEAN, STD))
    got = Preprocess(MEAN, STD)(EVERY_VALUE)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), (EVERY_VALUE.double() / 255 - mean) / std, rtol=0, atol=1e-6)


def test_undo_gives_the_picture_back() -> None:
    preprocess = Preprocess(MEAN, STD)
    picture = preprocess.undo(preprocess(EVERY_VALUE))
    assert torch.equal((picture * 255).round().to(torch.uint8), EVERY_VALUE)
    assert picture.min() >= 0 and picture.max() <= 1


def test_float_pixels_are_not_changed_in_place() -> None:
    pixels = EVERY_VALUE.float()
    before = pixels.clone()
    assert torch.equal(Preprocess(MEAN, STD)(pixels), Preprocess(MEAN, STD)(EVERY_VALUE))
    assert torch.equal(pixels, before)


@pytest.mark.parametrize(
    ("mean", "std", "named"),
    [
        ([0.5], [0.5, 0.5], "data.preprocess.mean has 1 numbers and data.preprocess.std 2"),
        ([0.5], [0.0], "above 0"),
        ([float("nan")], [0.5], "finite"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(mean: list[float], std: list[float], named: str) -> None:
    with pytest.raises(UserError, match=named):
        Preprocess(mean, std)
