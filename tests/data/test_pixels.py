"""Image files of every kind become the same upright uint8 pixels, whichever library decodes them."""

import io
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from torchlite.data import pixels
from torchlite.data.pixels import read, read_file, to_tensor
from torchlite.errors import UserError

RAMP = np.linspace(0, 255, 40 * 20).reshape(20, 40).astype(np.uint8)
PHOTO = np.stack([RAMP, RAMP[::-1], np.roll(RAMP, 9, 1)], axis=2)  # smooth: JPEG keeps it


def encoded(image: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def turned(image: np.ndarray, orientation: int) -> Image.Image:
    """As a camera stores it that notes this EXIF orientation."""
    moves = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    upright = Image.fromarray(image)
    return upright.transpose(moves[orientation]) if orientation in moves else upright


@pytest.fixture(params=["torchvision", "simplejpeg"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each of the two fast decoders in turn."""
    if request.param == "torchvision":
        monkeypatch.setitem(sys.modules, "simplejpeg", None)
    else:
        pytest.importorskip("simplejpeg")
    pixels._jpeg_decoder.cache_clear()
    monkeypatch.setattr(pixels, "_jpeg_decoder", pixels._jpeg_decoder.__wrapped__)
    return str(request.param)


@pytest.mark.parametrize("quality", [30, 75, 95])
@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_jpeg_has_the_pixels_of_pillow(
    decoder: str, quality: int, subsampling: int, progressive: bool, mode: str
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (67, 45, 3), dtype=np.uint8)
    image = Image.fromarray(noise).convert(mode)
    options = {"quality": quality, "progressive": progressive} | ({"subsampling": subsampling} if mode == "RGB" else {})
    content = encoded(image, **options)
    expected = np.asarray(Image.open(io.BytesIO(content))).reshape(67, 45, -1).transpose(2, 0, 1)
    got = read(content, "it").numpy()
    assert got.shape == expected.shape
    assert np.abs(got.astype(int) - expected).max() <= 2  # the bound that is stated; 0 with today's libraries


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_h03_exif_orientation_is_applied_wherever_an_image_is_read(decoder: str, kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[pixels.ORIENTATION] = orientation
    options = {"quality": 95, "subsampling": 0} if kind == "JPEG" else {"lossless": True} if kind == "WEBP" else {}
    content = encoded(turned(PHOTO, orientation), kind, exif=exif, **options)
    got = read(content, "it").permute(1, 2, 0).numpy()
    assert got.shape == PHOTO.shape
    assert np.abs(got.astype(int) - PHOTO).max() <= (24 if kind == "JPEG" else 0)
    assert np.abs(got.astype(int) - PHOTO).mean() < 2


MODES = ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "I;16", "I"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("channels", [1, 3])
def test_h04_every_mode_gives_the_wanted_channels_and_the_full_range(mode: str, channels: int, tmp_path: Path) -> None:
    ramp = np.tile(np.arange(0, 256, 15, dtype=np.uint8), (4, 1))  # 0 and 255 included
    if mode == "1":
        ramp = np.where(ramp > 127, 255, 0).astype(np.uint8)
    if mode in ("I;16", "I"):
        image = Image.fromarray(ramp.astype(np.uint16) * 257)
        image = image.convert("I") if mode == "I" else image
    elif mode == "PA":
        image = Image.fromarray(ramp).convert("P").convert("PA")
    else:
        image = Image.fromarray(ramp).convert(mode)
    direct = to_tensor(image, channels, "it")
    assert direct.dtype == torch.uint8 and direct.shape == (channels, *ramp.shape)
    assert all(np.array_equal(plane, ramp) for plane in direct.numpy())
    kind = {"CMYK": "TIFF", "I": "TIFF", "PA": None}.get(mode, "PNG")
    if kind:
        image.save(tmp_path / f"it.{kind.lower()}")
        stored = to_tensor(read_file(str(tmp_path / f"it.{kind.lower()}")), channels, "it")
        assert torch.equal(stored, direct)


def test_h04_palette_with_transparency_and_cmyk_jpeg_are_read(decoder: str) -> None:
    palette = Image.fromarray(PHOTO).quantize(16)
    content = encoded(palette, "PNG", transparency=bytes([0, 255] * 8))
    assert np.array_equal(read(content, "it").permute(1, 2, 0).numpy(), np.asarray(palette.convert("RGB")))
    content = encoded(Image.fromarray(PHOTO).convert("CMYK"), "JPEG", quality=95)
    assert np.abs(read(content, "it").permute(1, 2, 0).numpy().astype(int) - PHOTO).mean() < 3


def test_gray_of_a_color_jpeg_is_that_of_pillow(decoder: str) -> None:
    content = encoded(Image.fromarray(PHOTO))
    expected = np.asarray(Image.open(io.BytesIO(content)).convert("L"))
    assert np.array_equal(to_tensor(content, 1, "it")[0].numpy(), expected)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("half.jpg", encoded(Image.fromarray(PHOTO))[:700], "truncated"),
        ("half.png", encoded(Image.fromarray(PHOTO), "PNG")[:100], "cannot be read as an image"),
        ("empty.png", b"", "it is empty"),
        ("text.png", b"These are words, and many of them.", "it is no image that Pillow knows"),
        ("日本 100%.jpg", b"\xff\xd8\xff", "cannot be read as an image"),
    ],
)
def test_h01_a_file_that_cannot_be_read_is_named(
    decoder: str, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as raised:
        read_file(str(tmp_path / name))
    assert str(tmp_path / name) in str(raised.value) and said in str(raised.value)
    assert len(str(raised.value).splitlines()) == 1


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gone.jpg cannot be read: No such file"):
        read_file(str(tmp_path / "gone.jpg"))
