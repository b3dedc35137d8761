"""One image, from whatever it is stored as to uint8: the only place that knows file formats, layouts and image modes.

JPEG files go through simplejpeg where it is installed, else through torchvision's decoder, and through Pillow where
those cannot read one; all three give the same pixels (libjpeg's accurate decoding, which tests hold to within 2 levels
of 255).
"""

import functools
import glob
import importlib.util
import io
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlite.errors import UserError

ROWS_AT_ONCE = 4096  # images converted in one go, so that wide intermediate types stay small
BAD_SHOWN = 10  # files that cannot be read, in one message
UNPRINTED = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029]")  # what would end a line of a message, or move a cursor
ORIENTATION = 0x0112  # the EXIF tag that says how a camera was held


class BadFilesError(UserError):
    """Files that cannot be read: a line for each of the first ten, and how many there are."""

    def __init__(self, problems: Sequence[str]) -> None:
        lines = list(problems[:BAD_SHOWN])
        if len(problems) > BAD_SHOWN:
            lines.append(f"… and {len(problems) - BAD_SHOWN} more: {len(problems)} files cannot be read.")
        super().__init__("\n".join(lines))
        self.problems = list(problems)


class SizesDifferError(UserError):
    """Images that were to be kept in one tensor are of different sizes."""


def read_file(path: str) -> Tensor:
    """The pixels of an image file, upright, uint8 [1 or 3, H, W]. Raises UserError, naming the file."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise UserError(f"{shown(path)} cannot be read: {error.strerror or error}.") from error
    return read(content, shown(path))


def read(content: bytes, where: str) -> Tensor:
    """The pixels of an encoded image, upright, uint8 [1 or 3, H, W]; `where` names it in a UserError."""
    if content[:2] == b"\xff\xd8" and _is_upright(content):
        try:
            image = _jpeg_decoder()(content)
            if image.shape[0] in (1, 3):
                return image
        except (RuntimeError, ValueError):  # Pillow may read it all the same, or says what is wrong
            pass
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(content)) as opened:
            gray = opened.mode in ("1", "L", "LA", "F") or opened.mode.startswith("I")
            return _from_pil(opened, 1 if gray else 3, where)
    except UserError:
        raise
    except UnidentifiedImageError:
        reason = "it is empty" if not content else "it is no image that Pillow knows"
    except Exception as error:  # whatever a decoder says to bytes that are no image
        reason = str(error).rstrip(".") or type(error).__name__
    raise UserError(f"{where} cannot be read as an image: {reason}. Replace it or take it out.")


def shown(path: str) -> str:
    """A path, or another name, as it can be printed in one line, whatever bytes it is made of."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return UNPRINTED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


@functools.cache
def _jpeg_decoder() -> Callable[[bytes], Tensor]:
    """Bytes of a JPEG to uint8 [C, H, W]; found once, when the first is read."""
    try:
        import simplejpeg
    except ImportError:
        return _torchvision_decoder()

    def decode(content: bytes) -> Tensor:
        space = simplejpeg.decode_jpeg_header(content)[2]
        if space not in ("YCbCr", "RGB", "Gray"):
            raise ValueError(f"{space}: Pillow's to convert")
        pixels = simplejpeg.decode_jpeg(
            content, "Gray" if space == "Gray" else "RGB", fastdct=False, fastupsample=False
        )
        return torch.from_numpy(pixels).permute(2, 0, 1)

    return decode


def _torchvision_decoder() -> Callable[[bytes], Tensor]:
    """torchvision's decoder, or, where that has gone, one that leaves all to Pillow.

    It is taken from the library alone: importing the package takes seconds in every worker, and its function warns,
    since torchvision 0.29, that it will be removed.
    """
    try:
        found = importlib.util.find_spec("torchvision")
        folder = found.submodule_search_locations[0] if found and found.submodule_search_locations else ""
        (library,) = glob.glob(os.path.join(glob.escape(folder), "image*.so"))
        torch.ops.load_library(library)
        decode = torch.ops.image.decode_jpeg
    except (ValueError, OSError, AttributeError):

        def none(content: bytes) -> Tensor:
            raise ValueError("Pillow decodes")

        return none
    # 0: channels as stored
    return lambda content: decode(torch.frombuffer(bytearray(content), dtype=torch.uint8), 0, False)


def _is_upright(content: bytes) -> bool:
    """Whether a JPEG may be taken as it is stored."""
    if b"Exif\0\0" not in content[:65536]:
        return True
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as opened:
            return bool(opened.getexif().get(ORIENTATION, 1) == 1)
    except Exception:  # damaged: the decoder will say so
        return False


def to_tensor(image: Any, channels: int, where: str) -> Tensor:
    """One image, as a data set gives it, as uint8 [channels, H, W].

    Args:
        image: a PIL image, or a uint8 array or tensor [H, W], [H, W, C] or [C, H, W], or the bytes of an image file.
        where: names it in the message of the UserError when it is none of these.
    """
    if isinstance(image, bytes):
        image = read(image, where)
    elif hasattr(image, "getbands"):
        image = _from_pil(image, channels, where)
    if not isinstance(image, Tensor | np.ndarray):
        raise UserError(f"{where} is a {type(image).__name__}; images are PIL images, or uint8 arrays or tensors.")
    if dtype(image) != "uint8":
        raise UserError(
            f"{where} is {dtype(image)}; images must be uint8, 0..255. "
            "Leave out transforms that scale or normalize: data.preprocess does."
        )
    if image.ndim not in (2, 3) or 0 in image.shape:
        raise UserError(f"{where} has shape {list(image.shape)}; an image is [H, W], [H, W, C] or [C, H, W].")
    return to_channels(channels_first(as_tensor(image)[None]), channels, where)[0]


def _from_pil(image: Any, channels: int, where: str) -> Tensor:
    """A PIL image turned upright, uint8 [C, H, W]: of 16 bits the upper eight, colors as under any transparency."""
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):
        return torch.from_numpy((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))[None]
    if image.mode == "F":
        raise UserError(f"{where} is an image of floats; images must be uint8, 0..255.")
    if image.mode in ("P", "PA"):
        image = image.convert("RGBA")  # Pillow asks for this step where a palette has transparency
    pixels = torch.from_numpy(np.array(image.convert("L" if channels == 1 else "RGB")))
    return pixels[None] if pixels.ndim == 2 else pixels.permute(2, 0, 1)


def dtype(array: Tensor | np.ndarray) -> str:
    return str(array.dtype).removeprefix("torch.")


def as_tensor(array: Tensor | np.ndarray) -> Tensor:
    """The array as a tensor, copied only where torch cannot share it (read-only, or with strides it cannot state)."""
    return array if isinstance(array, Tensor) else torch.from_numpy(np.require(array, requirements=["C", "W"]))


def channels_first(images: Tensor) -> Tensor:
    """[N, C, H, W] of [N, H, W], [N, H, W, C] or [N, C, H, W]: the axis with 1 to 4 entries holds the channels."""
    if images.ndim == 3:
        return images.unsqueeze(1)
    return images.permute(0, 3, 1, 2) if images.shape[1] > 4 >= images.shape[3] else images


def to_channels(images: Tensor, channels: int, where: str) -> Tensor:
    """[N, channels, H, W] of uint8 images with 1 (gray), 2 (gray, alpha), 3 (RGB) or 4 (RGB, alpha) channels."""
    if images.shape[1] > 4:
        raise UserError(f"{where} has shape {list(images.shape[1:])}; an image has 1 to 4 channels.")
    if images.shape[1] in (2, 4):
        images = images[:, :-1]
    if images.shape[1] < channels:
        return images.expand(-1, channels, -1, -1)  # a view: three equal channels take the memory of one
    if images.shape[1] > channels:
        return torch.cat([_luma(rows) for rows in images.split(ROWS_AT_ONCE)])
    return images


def _luma(images: Tensor) -> Tensor:
    """Gray [N, 1, H, W] of RGB (ITU-R BT.601), rounded as Pillow does."""
    red, green, blue = images.int().split(1, dim=1)
    return ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16).to(torch.uint8)
