"""Sets stored as numpy arrays in .npy or .npz files, mapped into memory where they can be: nothing is copied."""

import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from torchlite.data.pixels import shown
from torchlite.data.sources import Arrays
from torchlite.errors import UserError


class MappedArrays(Arrays):
    """As `Arrays`, of files; a loader worker maps them again instead of getting a copy."""

    def __init__(
        self, data: np.ndarray, targets: np.ndarray, classes: list[str] | None, place: tuple[str, str]
    ) -> None:
        super().__init__(data, targets, classes)
        self.place = place
        self.files = [place[0]]

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "data"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.data = load_array(*self.place)


def image_arrays(
    images: str,
    labels: str,
    images_key: str = "images",
    labels_key: str = "labels",
    classes: Sequence[str | int] | None = None,
) -> MappedArrays:
    """Images and labels in numpy files.

    Args:
        images: a .npy file, or a .npz file with `images_key` in it: uint8 [N, H, W], [N, H, W, C] or [N, C, H, W].
        labels: the same with `labels_key`: integers [N].
        classes: names in label order; None where labels are numbers only.

    Raises:
        UserError: names the file and what is wrong with it.
    """
    data, targets = load_array(images, images_key, "images"), load_array(labels, labels_key, "labels")
    if data.dtype != np.uint8 or data.ndim not in (3, 4) or not all(data.shape):
        raise UserError(
            f"{shown(images)} has {data.dtype} {list(data.shape)}; "
            "images are uint8 [N, H, W], [N, H, W, C] or [N, C, H, W], and there is one at least."
        )
    if targets.shape != (len(data),):
        raise UserError(
            f"{shown(labels)} has shape {list(targets.shape)}; one label for each of the {len(data)} images is wanted."
        )
    return MappedArrays(
        data, np.array(targets), None if classes is None else [str(name) for name in classes], (images, images_key)
    )


def load_array(file: str, key: str, what: str = "images") -> np.ndarray:
    """The array of a .npy file or under a key of a .npz file: mapped, unless it is compressed. Nothing is unpickled.

    Args:
        what: of the set it holds; `+data.train.<what>_key` names another key.
    """
    try:
        with open(file, "rb") as opened:
            beginning = opened.read(6)
        if beginning == b"\x93NUMPY":
            return np.load(file, mmap_mode="c", allow_pickle=False)
        if not zipfile.is_zipfile(file):
            raise ValueError("it is cut off" if beginning.startswith(b"PK") else "it is neither .npy nor .npz")
        with zipfile.ZipFile(file) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            if key not in names:
                raise UserError(
                    f"{shown(file)} has no array {key}; it has: {', '.join(map(shown, names)) or 'none'}. Expected are "
                    f"images and labels; where they have other names, +data.train.{what}_key=NAME (likewise data.test) "
                    "says which."
                )
            info = archive.getinfo(f"{key}.npy")
            if info.compress_type != zipfile.ZIP_STORED:
                with archive.open(info) as member:
                    return np.lib.format.read_array(member, allow_pickle=False)
        return _inside(file, info)
    except FileNotFoundError as error:
        raise UserError(
            f"{shown(file)}: there is no such file. data.train.images, data.train.labels and so on say which; "
            "without a test part: data.test=null."
        ) from error
    except UserError:
        raise
    except Exception as error:  # whatever numpy and zipfile say to a file that is damaged
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
        raise UserError(f"{shown(file)} cannot be read as a numpy file: {reason}.") from error


def _inside(file: str, info: zipfile.ZipInfo) -> np.ndarray:
    """The array that lies, not compressed, in an archive."""
    with open(file, "rb") as opened:
        opened.seek(info.header_offset + 26)  # the two lengths that end the fixed part of a member's header
        lengths = opened.read(4)
        name, extra = int.from_bytes(lengths[:2], "little"), int.from_bytes(lengths[2:], "little")
        opened.seek(info.header_offset + 30 + name + extra)
        version = np.lib.format.read_magic(opened)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read_header(opened)
        if dtype.hasobject:
            raise ValueError("it holds Python objects, which are not read")
        return np.memmap(file, dtype, "c", opened.tell(), shape, "F" if fortran else "C")
