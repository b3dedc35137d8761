"""Every kind of source becomes the same uint8 tensors; what is wrong with one is named by index, file and value."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image

from torchlite.data.decode import check_size, gather, open_source
from torchlite.data.sources import Arrays
from torchlite.errors import UserError

RGB = np.random.default_rng(0).integers(0, 256, (12, 6, 6, 3), dtype=np.uint8)
GRAY = RGB[..., 0]
LABELS = np.arange(12) % 3


@dataclass
class Items:
    """A source that has nothing but items."""

    images: Any
    labels: Any
    samples: list[tuple[str, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.images[index], self.labels[index]


class Decoded(NamedTuple):
    images: torch.Tensor
    targets: torch.Tensor


def decoded(source: Any, channels: int = 3, **changes: Any) -> Decoded:
    options = {"name": "data.train", "num_classes": 3, "channels": channels}
    opened = open_source(source, **{**options, **changes})
    images = gather(opened)
    check_size(images.shape[2:], 6, opened.name)
    return Decoded(images, opened.targets)


@pytest.mark.parametrize(
    "source",
    [
        Arrays(RGB, LABELS, ["a", "b", "c"]),
        Arrays(RGB.transpose(0, 3, 1, 2), LABELS, ["a", "b", "c"]),
        Items(RGB, LABELS),
        Items(torch.from_numpy(RGB.transpose(0, 3, 1, 2).copy()), torch.from_numpy(LABELS)),
        Items([Image.fromarray(image) for image in RGB], LABELS.tolist()),
    ],
    ids=["NHWC arrays", "NCHW arrays", "array items", "tensor items", "PIL items"],
)
def test_every_form_gives_the_same_pixels(source: Any) -> None:
    got = decoded(source)
    assert got.images.dtype == torch.uint8 and got.targets.dtype == torch.int64
    assert np.array_equal(got.images.numpy(), RGB.transpose(0, 3, 1, 2))
    assert got.targets.tolist() == LABELS.tolist()


def test_gray_becomes_three_equal_channels_and_color_the_gray_of_pillow() -> None:
    assert torch.equal(decoded(Items(GRAY, LABELS), 3).images, torch.from_numpy(GRAY)[:, None].expand(-1, 3, -1, -1))
    expected = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in RGB])[:, None]
    assert np.array_equal(decoded(Items(RGB, LABELS), 1).images.numpy(), expected)
    assert np.array_equal(decoded(Arrays(RGB, LABELS, ["a", "b", "c"]), 1).images.numpy(), expected)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"])
@pytest.mark.parametrize("channels", [1, 3])
def test_every_pillow_mode_gives_one_shape_and_the_full_range(mode: str, channels: int) -> None:
    ramp = np.zeros((6, 6), dtype=np.uint8)
    ramp[:, 3:] = 255
    image = Image.fromarray(ramp.astype(np.uint16) * 257) if mode == "I;16" else Image.fromarray(ramp).convert(mode)
    images = decoded(Items([image] * 3, [0, 1, 2]), channels).images
    assert images.shape == (3, channels, 6, 6)
    assert np.array_equal(images[0, 0].numpy(), ramp)


def test_orientation_is_applied(tmp_path: Path) -> None:
    upright = Image.fromarray(RGB[0])
    exif = Image.Exif()
    exif[0x0112] = 6  # stored on its side: turn it by 270 degrees to see it upright
    upright.transpose(Image.Transpose.ROTATE_90).save(tmp_path / "side.png", exif=exif)
    with Image.open(tmp_path / "side.png") as stored:
        images = decoded(Items([stored], [0])).images
    assert np.array_equal(images[0].numpy(), RGB[0].transpose(2, 0, 1))


def test_items_count_where_they_differ_from_the_arrays() -> None:
    class Inverted(Arrays):
        def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
            image, label = super().__getitem__(index)
            return 255 - image, label

    got = decoded(Inverted(RGB, LABELS, ["a", "b", "c"]))
    assert np.array_equal(got.images.numpy(), 255 - RGB.transpose(0, 3, 1, 2))


def test_read_only_arrays_are_taken() -> None:
    still = GRAY.copy()
    still.flags.writeable = False
    assert len(decoded(Arrays(still, LABELS, ["a", "b", "c"]), 1).images) == 12


def test_h05_classes_are_matched_by_name() -> None:
    train = ["a", "b", "c"]
    got = decoded(Arrays(GRAY[:4], np.array([0, 1, 0, 1]), ["a", "c"]), 1, name="data.val", class_names=train)
    assert got.targets.tolist() == [0, 2, 0, 2]
    with pytest.raises(
        UserError, match=r"data.val has a class that data.train \(a, b, c\) has not: e, such as that of sample 2\."
    ):
        decoded(Arrays(GRAY, LABELS, ["a", "b", "e"]), 1, name="data.val", class_names=train)


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        ([0, 1, 3], "the label of sample 2 is 3; labels are integers 0..2 (data.num_classes=3)."),
        (
            [1, 2, 3],
            "the label of sample 2 is 3; labels are integers 0..2 (data.num_classes=3). They seem to start at 1.",
        ),
        ([0, -1, 2], "the label of sample 1 is -1; labels are integers 0..2"),
        ([0, 2.0, 1], "the label of sample 1 is 2.0 (float); labels are integers 0..2"),
        (["0", "1", "2"], "the label of sample 0 is 0 (str)"),
        ([True, False], "the label of sample 0 is True (bool)"),
        ([0, None, 1], "the label of sample 1 is None (NoneType)"),
        (torch.tensor([0.0, 1.0, 2.0]), "the label of sample 0 is 0.0 (float)"),
        ([[0, 1], [1, 0], [0, 0]], "the label of sample 0 is [0, 1] (list)"),
    ],
)
def test_h10_wrong_labels_are_named(labels: Any, named: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"data.train: {named}")):
        decoded(Items(GRAY, labels), 1)


def test_names_of_classes_that_are_no_list_are_named() -> None:
    source = Items(GRAY, LABELS)
    source.classes = 3  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="data.train: `classes` of a Items is 3; it lists names in label order"):
        decoded(source, 1)


def test_wrong_labels_of_arrays_are_named_too() -> None:
    with pytest.raises(UserError, match="the label of sample 0 is 0.0"):
        decoded(Arrays(GRAY, LABELS.astype(np.float32), ["a", "b", "c"]), 1)


def test_the_file_is_named_where_the_source_knows_it() -> None:
    source = Items(GRAY, [0, 9], samples=[("a/1.png", 0), ("b/2.png", 9)])
    with pytest.raises(UserError, match=re.escape("sample 1 (b/2.png) is 9")):
        decoded(source, 1)


def test_h01_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "half.png"
    Image.fromarray(RGB[0]).save(path)
    path.write_bytes(path.read_bytes()[:60])

    class Files(Items):
        def __getitem__(self, index: int) -> tuple[Any, Any]:
            with Image.open(self.images[index]) as image:
                return image.convert("RGB"), self.labels[index]

    with pytest.raises(UserError, match=re.escape(f"sample 0 ({path}) cannot be read")):
        decoded(Files([path], [0], samples=[(str(path), 0)]))


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (Items(GRAY.astype(np.float32), LABELS), "sample 0 is float32; images must be uint8"),
        (Items(torch.rand(12, 1, 6, 6), LABELS), "sample 0 is float32; images must be uint8"),
        (Arrays(GRAY.astype(np.int64), LABELS, ["a", "b", "c"]), "sample 0 is int64"),
        (Items(["a.png"] * 12, LABELS), "sample 0 is a str"),
        (Items([GRAY[0], GRAY[1, :5]], [0, 1]), "sample 1 has 5x6 pixels, but the first image has 6x6"),
        (Items(GRAY[:, :5, :5], LABELS), "images of 5x5 pixels, but data.image_size is 6"),
        (Items(np.zeros((12, 5, 6, 6), np.uint8), LABELS), "an image has 1 to 4 channels"),
        (Items(np.zeros((12, 6), np.uint8), LABELS), "has shape [6]"),
        (Arrays(GRAY, LABELS, ["a", "b"]), "data.num_classes is 3, but data.train has 2 classes"),
        (Items([], []), "is empty"),
        ([torch.zeros(1)], "sample 0 is a Tensor; it must be (image, label)"),
        (iter([]), "must be map-style"),
    ],
)
def test_sources_that_do_not_fit_are_named(source: Any, named: str) -> None:
    with pytest.raises(UserError, match=re.escape(named)):
        decoded(source, 1)
