"""Sources opened: what their items are, how large, and whether they may be decoded once and kept."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from torchlite.data import labels as label_rules
from torchlite.data.cores import num_cores
from torchlite.data.pixels import (
    ROWS_AT_ONCE,
    BadFilesError,
    SizesDifferError,
    as_tensor,
    channels_first,
    dtype,
    to_channels,
    to_tensor,
)
from torchlite.data.seeds import drawn_so_far, own_seeds, reseed
from torchlite.errors import UserError

PROBES = 8  # samples read beforehand, to learn what the others are like


class Source(Protocol):
    """A map-style data set: its items are (image, label).

    An image is a PIL image, or a uint8 array or tensor [H, W], [H, W, C] or [C, H, W], or the bytes of an image file; a
    label is an integer. Attributes used where they exist: `classes` (names in label order), `targets` or `labels` (all
    labels), `samples` ((path, label) of each item, for messages and the fingerprint), `data` (all images as an array,
    used if no transform is set and items agree), `plain_files` (True: items are files as they are, read by any thread).
    """

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


@dataclass
class Opened:
    """A source that has been looked at, with its labels checked.

    Args:
        name: the key to name in messages, such as "data.train".
        images: all of it as uint8 [N, C, H, W] (a view, where the source holds arrays), or None.
        targets: int64 [N], counted in `class_names`.
        class_names: names in label order, if the source has any.
        size: (height, width) of the images that were read, None where they differ.
        varies: two readings of one sample differ: the source has randomness of its own.
    """

    source: Source
    name: str
    channels: int
    images: Tensor | None
    targets: Tensor
    class_names: list[str] | None
    size: tuple[int, int] | None
    varies: bool = False

    def __len__(self) -> int:
        return len(self.targets)

    def __getstate__(self) -> dict[str, Any]:
        """For a loader worker: what it needs to read images; each array once, of arrays mapped from files no pixel."""
        if self.images is None:
            return vars(self)
        if getattr(self.source, "files", None):
            return vars(self) | {"images": None}
        return vars(self) | {"source": None}

    def read(self, index: int) -> Tensor:
        """One image, uint8 [C, H, W]. Raises UserError, naming the sample."""
        if self.images is not None:
            return self.images[index]
        return to_tensor(item(self.source, index, self.name)[0], self.channels, self._where(index))

    def _where(self, index: int) -> str:
        return f"{self.name}: {sample(self.source, index)}"


def open_source(
    source: Source,
    name: str,
    num_classes: int,
    channels: int,
    class_names: list[str] | None = None,
    names_of: str = "data.train",
) -> Opened:
    """A source with its labels checked, some samples read, and nothing decoded that need not be.

    Args:
        source: see `Source`.
        name: the key to name in messages, such as "data.train".
        num_classes: labels are 0..num_classes-1.
        channels: 1 (gray) or 3 (RGB); images are converted.
        class_names: names of all classes; a source that numbers the same names otherwise is renumbered.
        names_of: the key those come from, for messages.

    Raises:
        UserError: names the key, the sample (index, and file where known), what was got and what is allowed.
    """
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise UserError(f"{name} is a {type(source).__name__}; it must be map-style, with __len__ and __getitem__.")
    if len(source) == 0:
        raise UserError(f"{name} ({type(source).__name__}) is empty.")
    found = _arrays(source, name, channels)
    images, labels = found or (None, _labels(source, name))
    own_names = label_rules.class_names(source, name)
    targets = label_rules.checked(
        labels, lambda index: sample(source, index), name, num_classes, own_names, class_names, names_of
    )
    targets, names = label_rules.in_order(targets, own_names, class_names)
    opened = Opened(source, name, channels, images, targets, names, None)
    if images is not None:
        opened.size = (images.shape[2], images.shape[3])
    else:
        _look(opened)
    return opened


def gather(
    opened: Opened,
    fit: Callable[[Tensor], Tensor] | None = None,
    out: Callable[[tuple[int, ...]], Tensor] | None = None,
) -> Tensor:
    """All images of a source in one tensor, uint8 [N, C, H, W].

    Args:
        fit: brings one image or a batch to the size that is kept; None where all are of one size.
        out: makes the tensor that is filled; a new one in memory by default.

    Raises:
        BadFilesError: images cannot be read.
        SizesDifferError: images differ in size.
    """
    if opened.images is not None and fit is None and out is None:
        return _whole(opened.images)
    images, bad = torch.empty(0), []
    for index, image in enumerate(_fitted(opened, fit)):
        if isinstance(image, UserError):
            bad.append(str(image))
            continue
        if not images.numel():
            shape = (len(opened), *image.shape)
            images = out(shape) if out else torch.empty(shape, dtype=torch.uint8)
        elif image.shape != images.shape[1:]:
            raise SizesDifferError(
                f"{opened.name}: {sample(opened.source, index)} has {image.shape[1]}x{image.shape[2]} pixels, "
                f"but the first image has {images.shape[2]}x{images.shape[3]}; images must be of one size. "
                "Set data.preprocess.resize and data.preprocess.crop, which bring them to one."
            )
        images[index] = image
    if bad:
        raise BadFilesError(bad)
    return images


def _fitted(opened: Opened, fit: Callable[[Tensor], Tensor] | None) -> Iterator[Tensor | UserError]:
    """Every image in turn, or what is wrong with it; files are decoded by as many threads as there are cores."""

    def one(index: int) -> Tensor | UserError:
        try:
            image = opened.read(index)
        except UserError as error:
            return error
        return image if fit is None else fit(image)

    if not getattr(opened.source, "plain_files", False):
        yield from map(one, range(len(opened)))
        return
    with ThreadPoolExecutor(num_cores()) as pool:
        for first in range(0, len(opened), ROWS_AT_ONCE):
            yield from pool.map(one, range(first, min(first + ROWS_AT_ONCE, len(opened))))


def _whole(images: Tensor) -> Tensor:
    """The images, contiguous; three equal channels stay a view of one."""
    if images.is_contiguous() or images.stride(1) == 0:
        return images
    return images.contiguous()


def check_size(size: Sequence[int], image_size: int, name: str) -> None:
    """Raise UserError unless images of this height and width are square and of `image_size`."""
    if tuple(size) != (image_size, image_size):
        raise UserError(
            f"{name} has images of {size[0]}x{size[1]} pixels, but data.image_size is {image_size}. "
            "Set data.image_size to the size of the images, or let data.preprocess (resize, crop) bring them to it."
        )


def _arrays(source: Source, name: str, channels: int) -> tuple[Tensor, Any] | None:
    """Images and labels of a source that holds them as uint8 arrays; None if it does not, or its items differ."""
    data = getattr(source, "data", None)
    labels = getattr(source, "targets", getattr(source, "labels", None))
    transforms = ("transform", "target_transform", "transforms")
    if (
        labels is None
        or any(getattr(source, key, None) is not None for key in transforms)
        or not _items_are_its_own(source)
    ):
        return None
    if not isinstance(data, Tensor | np.ndarray) or dtype(data) != "uint8" or data.ndim not in (3, 4):
        return None
    if len(data) != len(source) or len(labels) != len(source):
        return None
    images = to_channels(channels_first(as_tensor(data)), channels, name)
    for index in _probes(source):
        image, label = item(source, index, name)
        image = to_tensor(image, channels, f"{name}: {sample(source, index)}")
        if not np.array_equal(label, labels[index]) or not torch.equal(image, images[index]):
            return None  # the class has a __getitem__ of its own: what that gives is what counts
    return images, labels


def _items_are_its_own(source: Source) -> bool:
    """Whether a library's class, or ours, gives the items: a `__getitem__` of the user's may change any of them."""
    home = getattr(type(source).__getitem__, "__module__", "").partition(".")[0]
    return home in ("torchvision", "torchlite")


def _labels(source: Source, name: str) -> Any:
    """All labels, from the source's own list where its items agree with it, else from every item."""
    for key in ("targets", "labels"):
        labels = getattr(source, key, None)
        if labels is not None and hasattr(labels, "__len__") and len(labels) == len(source):
            if getattr(source, "plain_files", False):  # ours, whose items have the labels they are listed with
                return labels
            probes = _probes(source) if _items_are_its_own(source) else range(0)
            if probes and all(np.array_equal(item(source, index, name)[1], labels[index]) for index in probes):
                return labels
    labels = [item(source, index, name)[1] for index in range(len(source))]
    return [label.item() if isinstance(label, Tensor) and label.numel() == 1 else label for label in labels]


def _look(opened: Opened) -> None:
    """Read a few images, twice unless they are files: are they of one size, and is the source random by itself?

    It is where a reading draws from a global generator, whatever comes of it this time, or where two readings differ.
    """
    sizes: set[tuple[int, int]] = set()
    ours = getattr(opened.source, "plain_files", False)
    with own_seeds():
        for index in _probes(opened.source):
            reseed(index)
            before = drawn_so_far()
            try:
                first = opened.read(index)
            except UserError:
                if not ours:
                    raise
                continue  # all files that cannot be read are named together, later
            sizes.add((first.shape[1], first.shape[2]))
            if not ours:
                opened.varies |= drawn_so_far() != before
                again = opened.read(index)
                opened.varies |= first.shape != again.shape or not torch.equal(first, again)
    opened.size = sizes.pop() if len(sizes) == 1 else None


def _probes(source: Source) -> list[int]:
    return sorted({round(i * (len(source) - 1) / (PROBES - 1)) for i in range(PROBES)})


def item(source: Source, index: int, name: str) -> tuple[Any, Any]:
    """(image, label) of a sample. Raises UserError, naming it, when it cannot be read."""
    try:
        found = source[index]
    except OSError as error:  # what Pillow raises for files that are cut off or no images
        raise UserError(f"{name}: {sample(source, index)} cannot be read: {error}") from error
    except UserError as error:
        raise UserError(f"{name}: sample {index}: {error}") from error
    if not isinstance(found, tuple | list) or len(found) < 2:
        raise UserError(f"{name}: {sample(source, index)} is a {type(found).__name__}; it must be (image, label).")
    return found[0], found[1]


def sample(source: Source, index: int) -> str:
    """How a message names a sample: its index, and its file where the source knows it."""
    samples = getattr(source, "samples", None)
    if samples is not None and hasattr(samples, "__getitem__") and index < len(samples):
        entry = samples[index]
        if isinstance(entry, tuple | list):
            return f"sample {index} ({entry[0]})"
    return f"sample {index}"
