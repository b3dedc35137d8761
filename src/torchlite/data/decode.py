"""From whatever a source holds to uint8 tensors: the only place that knows layouts, image modes and label types."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from torchlite.errors import UserError

ROWS_AT_ONCE = 4096  # images converted in one go, so that wide intermediate types stay small
PROBES = 8  # samples compared with a source's own items before its arrays are trusted


class Source(Protocol):
    """A map-style data set: its items are (image, label).

    An image is a PIL image, or a uint8 array or tensor [H, W], [H, W, C] or [C, H, W]; a label is an integer.
    Attributes used where they exist: `classes` (names in label order), `samples` ((path, label) of each item, for
    messages), `data` with `targets` or `labels` (the whole set as arrays, used if no transform is set and items agree).
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass
class Decoded:
    """A whole source in memory: images uint8 [N, C, H, W], targets int64 [N], class names if the source has any."""

    images: Tensor
    targets: Tensor
    class_names: list[str] | None


def decode(
    source: Source, name: str, num_classes: int, channels: int, image_size: int, class_names: list[str] | None = None
) -> Decoded:
    """The whole of a source, decoded once and checked.

    Args:
        source: see `Source`.
        name: the key to name in messages, such as "data.train".
        num_classes: labels are 0..num_classes-1.
        channels: 1 (gray) or 3 (RGB); images are converted.
        image_size: pixels, side of the square image.
        class_names: names of the training classes; a source that numbers the same names otherwise is renumbered.

    Raises:
        UserError: names the key, the sample (index, and file where known), what was got and what is allowed.
    """
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise UserError(f"{name} is a {type(source).__name__}; it must be map-style, with __len__ and __getitem__.")
    if len(source) == 0:
        raise UserError(f"{name} ({type(source).__name__}) is empty.")
    images, labels = _arrays(source, name, channels) or _items(source, name, channels)
    height, width = images.shape[2:]
    if (height, width) != (image_size, image_size):
        raise UserError(
            f"{name} has images of {height}x{width} pixels, but data.image_size is {image_size}. "
            "Set data.image_size to the size of the images."
        )
    targets = _targets(labels, source, name, num_classes)
    own_names = getattr(source, "classes", None)
    if own_names is None:
        return Decoded(images, targets, class_names)
    own_names = [str(label) for label in own_names]
    if class_names is None and len(own_names) != num_classes:
        raise UserError(f"data.num_classes is {num_classes}, but {name} has {len(own_names)} classes.")
    if class_names is not None and own_names != class_names:
        targets = _renumbered(targets, own_names, class_names, name)
    return Decoded(images, targets, class_names or own_names)


def _arrays(source: Source, name: str, channels: int) -> tuple[Tensor, Any] | None:
    """Images and labels of a source that holds them as uint8 arrays; None if it does not, or its items differ."""
    data = getattr(source, "data", None)
    labels = getattr(source, "targets", getattr(source, "labels", None))
    transforms = ("transform", "target_transform", "transforms")
    if labels is None or any(getattr(source, key, None) is not None for key in transforms):
        return None
    if not isinstance(data, Tensor | np.ndarray) or _dtype(data) != "uint8" or data.ndim not in (3, 4):
        return None
    if len(data) != len(source) or len(labels) != len(source):
        return None
    images = _to_channels(_channels_first(_tensor(data)), channels, name)
    for index in {round(i * (len(source) - 1) / (PROBES - 1)) for i in range(PROBES)}:
        image, label = _item(source, index, name)
        image = _to_tensor(image, channels, f"{name}: {_sample(source, index)}")
        if not np.array_equal(label, labels[index]) or not torch.equal(image, images[index]):
            return None  # the class has a __getitem__ of its own: what that gives is what counts
    return images, labels


def _items(source: Source, name: str, channels: int) -> tuple[Tensor, list[Any]]:
    """Images and labels of a source, item by item."""
    images, labels = torch.empty(0), []
    for index in range(len(source)):
        item, label = _item(source, index, name)
        image = _to_tensor(item, channels, f"{name}: {_sample(source, index)}")
        if index == 0:
            images = torch.empty((len(source), *image.shape), dtype=torch.uint8)
        elif image.shape != images.shape[1:]:
            raise UserError(
                f"{name}: {_sample(source, index)} has {image.shape[1]}x{image.shape[2]} pixels, but the first image "
                f"has {images.shape[2]}x{images.shape[3]}; images must be of one size."
            )
        images[index] = image
        labels.append(label.item() if isinstance(label, Tensor) and label.numel() == 1 else label)
    return images, labels


def _item(source: Source, index: int, name: str) -> tuple[Any, Any]:
    try:
        item = source[index]
    except OSError as error:  # what Pillow raises for files that are cut off or no images
        raise UserError(f"{name}: {_sample(source, index)} cannot be read: {error}") from error
    if not isinstance(item, tuple | list) or len(item) < 2:
        raise UserError(f"{name}: {_sample(source, index)} is a {type(item).__name__}; it must be (image, label).")
    return item[0], item[1]


def _sample(source: Source, index: int) -> str:
    """How a message names a sample: its index, and its file where the source knows it."""
    samples = getattr(source, "samples", None)
    if isinstance(samples, Sequence) and index < len(samples) and isinstance(samples[index], tuple | list):
        return f"sample {index} ({samples[index][0]})"
    return f"sample {index}"


def _dtype(array: Tensor | np.ndarray) -> str:
    return str(array.dtype).removeprefix("torch.")


def _tensor(array: Tensor | np.ndarray) -> Tensor:
    """The array as a tensor, copied only where torch cannot share it (read-only, or with strides it cannot state)."""
    return array if isinstance(array, Tensor) else torch.from_numpy(np.require(array, requirements=["C", "W"]))


def _to_tensor(image: Any, channels: int, where: str) -> Tensor:
    """One image as uint8 [C, H, W]."""
    if hasattr(image, "getbands"):
        image = _from_pil(image, channels, where)
    if not isinstance(image, Tensor | np.ndarray):
        raise UserError(f"{where} is a {type(image).__name__}; images are PIL images, or uint8 arrays or tensors.")
    if _dtype(image) != "uint8":
        raise UserError(
            f"{where} is {_dtype(image)}; images must be uint8, 0..255. "
            "Leave out transforms that scale or normalize: data.preprocess does."
        )
    if image.ndim not in (2, 3):
        raise UserError(f"{where} has shape {list(image.shape)}; an image is [H, W], [H, W, C] or [C, H, W].")
    return _to_channels(_channels_first(_tensor(image)[None]), channels, where)[0]


def _from_pil(image: Any, channels: int, where: str) -> np.ndarray:
    """Pixels of a PIL image, turned upright; of 16 bits the upper eight, colors as they are under any transparency."""
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        return (np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8)
    if image.mode == "F":
        raise UserError(f"{where} is an image of floats; images must be uint8, 0..255.")
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")  # Pillow asks for this step where a palette has transparency
    return np.array(image.convert("L" if channels == 1 else "RGB"))


def _channels_first(images: Tensor) -> Tensor:
    """[N, C, H, W] of [N, H, W], [N, H, W, C] or [N, C, H, W]: the axis with 1 to 4 entries holds the channels."""
    if images.ndim == 3:
        return images.unsqueeze(1)
    return images.permute(0, 3, 1, 2) if images.shape[1] > 4 >= images.shape[3] else images


def _to_channels(images: Tensor, channels: int, where: str) -> Tensor:
    """[N, channels, H, W] of uint8 images with 1 (gray), 2 (gray, alpha), 3 (RGB) or 4 (RGB, alpha) channels."""
    if images.shape[1] > 4:
        raise UserError(f"{where} has shape {list(images.shape[1:])}; an image has 1 to 4 channels.")
    if images.shape[1] in (2, 4):
        images = images[:, :-1]
    if images.shape[1] < channels:
        return images.expand(-1, channels, -1, -1)  # a view: three equal channels take the memory of one
    if images.shape[1] > channels:
        return torch.cat([_luma(rows) for rows in images.split(ROWS_AT_ONCE)])
    return images.contiguous()


def _luma(images: Tensor) -> Tensor:
    """Gray [N, 1, H, W] of RGB (ITU-R BT.601), rounded as Pillow does."""
    red, green, blue = images.int().split(1, dim=1)
    return ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16).to(torch.uint8)


def _targets(labels: Any, source: Source, name: str, num_classes: int) -> Tensor:
    """Labels as int64 [N], each an integer in 0..num_classes-1."""
    allowed = f"labels are integers 0..{num_classes - 1} (data.num_classes={num_classes})"
    labels = labels.numpy() if isinstance(labels, Tensor) else labels
    values = np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        for index, label in enumerate(labels):
            if isinstance(label, bool | np.bool_) or not isinstance(label, Integral):
                got = f"{label!s} ({type(label).__name__})"
                raise UserError(f"{name}: the label of {_sample(source, index)} is {got}; {allowed}.")
    outside = np.flatnonzero((values < 0) | (values >= num_classes))
    if len(outside):
        index = int(outside[0])
        hint = " They seem to start at 1." if values.min() == 1 and values.max() == num_classes else ""
        raise UserError(f"{name}: the label of {_sample(source, index)} is {values[index]}; {allowed}.{hint}")
    return torch.from_numpy(values.astype(np.int64))


def _renumbered(targets: Tensor, own_names: list[str], class_names: list[str], name: str) -> Tensor:
    """Targets that count in `own_names`, counted in `class_names` instead."""
    unknown = [label for label in own_names if label not in class_names]
    if unknown:
        raise UserError(f"{name} has classes that data.train has not: {', '.join(unknown)}.")
    return torch.tensor([class_names.index(label) for label in own_names])[targets]
