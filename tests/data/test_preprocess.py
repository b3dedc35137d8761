"""Normalization against its definition, its inverse, and numbers that do not fit."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torchvision.transforms import v2

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


@given(
    height=st.integers(1, 70),
    width=st.integers(1, 70),
    resize=st.one_of(st.none(), st.integers(1, 40), st.lists(st.integers(1, 40), min_size=2, max_size=2)),
    crop=st.one_of(st.none(), st.integers(1, 50), st.lists(st.integers(1, 50), min_size=2, max_size=2)),
    channels=st.sampled_from([1, 3]),
)
def test_fit_is_torchvisions_resize_and_center_crop(
    height: int, width: int, resize: int | list[int] | None, crop: int | list[int] | None, channels: int
) -> None:
    image = torch.randint(
        0, 256, (channels, height, width), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    if isinstance(resize, int) and max(height, width) / min(height, width) * resize > 500:
        return  # a line of thousands of pixels tells nothing more
    preprocess = Preprocess([0.5] * channels, [0.5] * channels, resize, crop)
    steps = [v2.Resize(resize if isinstance(resize, int) else tuple(resize), antialias=True)] if resize else []
    steps += [v2.CenterCrop(crop)] if crop else []
    expected = image.float()
    for step in steps:
        expected = step(expected)
    got = preprocess.fit(image)
    assert got.dtype == torch.uint8 and got.shape == expected.shape
    assert torch.equal(got, expected.round().clamp(0, 255).to(torch.uint8))
    batch = torch.stack([image, image.flip(2), image])
    assert torch.equal(preprocess.fit(batch)[2], got)  # the same bits in any batch
    assert torch.equal(preprocess(batch)[0], preprocess.normalize(got[None])[0])
    assert torch.equal(preprocess(batch.float()), preprocess(batch))  # what an exported file is fed


def test_values_keep_their_range() -> None:
    ends = torch.tensor([0, 255], dtype=torch.uint8).repeat(3, 31, 17)
    fitted = Preprocess([0.5] * 3, [0.5] * 3, resize=13, crop=11).fit(ends)
    assert fitted.shape == (3, 11, 11) and fitted.min() >= 0 and fitted.max() <= 255


@pytest.mark.parametrize(("key", "value"), [("resize", 0), ("crop", [4, 0]), ("resize", [1, 2, 3])])
def test_sizes_that_do_not_fit_are_refused(key: str, value: object) -> None:
    with pytest.raises(UserError, match=f"data.preprocess.{key}="):
        Preprocess([0.5], [0.5], **{key: value})


@pytest.mark.parametrize(("resize", "crop"), [(256, 224), (512, 224), (64, 8)])
@pytest.mark.parametrize("tall", [True, False])
def test_an_image_far_longer_than_wide_keeps_its_scale(resize: int, crop: int, tall: bool) -> None:
    ramp = (torch.arange(4000) * 255 // 3999).to(torch.uint8).expand(1, 1, 100, 4000)
    image = ramp.transpose(2, 3) if tall else ramp
    made = Preprocess([0.0], [1.0], resize=resize, crop=crop)
    whole = F.interpolate(
        image.float(), [resize * side // 100 for side in image.shape[2:]], mode="bilinear", antialias=True
    )
    expected = v2.functional.center_crop(whole.round().to(torch.uint8), [crop, crop])
    assert (made.fit(image).int() - expected.int()).abs().max() <= 1


@pytest.mark.parametrize("size", [(3, 3000), (2000, 2), (1, 65000)])
def test_an_image_far_longer_than_wide_is_cut_before_it_is_resized(size: tuple[int, int]) -> None:
    """Of 1x65000 pixels `resize` alone would make 256x16,640,000, 50 GB of floats."""
    image = torch.randint(0, 256, (3, *size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    fitted = Preprocess([0.0] * 3, [1.0] * 3, resize=64, crop=48).fit(image)
    assert fitted.shape == (3, 48, 48)
    if max(size) < 10_000:
        whole = Preprocess([0.0] * 3, [1.0] * 3, resize=[64 * side // min(size) for side in size], crop=48).fit(image)
        assert (fitted.int() - whole.int()).abs().max() <= 1
