"""A set that is a list of image files with labels; what folders and tables become."""

import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from torchlite.data.pixels import read_file, shown

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm")


class ImageFiles:
    """Image files with labels; item i is (pixels, label), read from the disk each time.

    Paths are kept as one array of bytes: loader workers share it, and any name a file system allows goes through.

    Args:
        root: folder that names are relative to.
        names: path of each file below it.
        labels: integers [N].
        classes: names in label order, or None where labels are numbers only.
        notes: where each sample was listed, such as "row 7 of labels.csv"; None for nowhere.
    """

    plain_files = True

    def __init__(
        self,
        root: str,
        names: Sequence[str],
        labels: Sequence[int],
        classes: list[str] | None,
        notes: tuple[str, Sequence[int]] | None = None,
    ) -> None:
        self.root = os.path.abspath(root)
        self.names = np.array([os.fsencode(name) for name in names], dtype=np.bytes_)
        self.targets = np.asarray(labels, dtype=np.int64)
        if classes is not None:
            self.classes = classes
        self.notes = notes

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return read_file(self.path(index)), int(self.targets[index])

    def path(self, index: int) -> str:
        """The file of a sample."""
        return os.path.join(self.root, os.fsdecode(bytes(self.names[index])))

    @property
    def samples(self) -> "Listed":
        """(path, label) of each sample, for messages."""
        return Listed(self)


class Listed:
    """What messages say of the samples of an `ImageFiles`, without a list of them."""

    def __init__(self, files: ImageFiles) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[str, int]:
        path = shown(self.files.path(index))
        if self.files.notes is not None:
            path += f", row {self.files.notes[1][index]} of {self.files.notes[0]}"
        return path, int(self.files.targets[index])


def natural(name: str) -> tuple[list[Any], str]:
    """A sort key by which "class 9" comes before "class 10"."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part], name


def is_image(name: str) -> bool:
    return name.lower().endswith(EXTENSIONS)
