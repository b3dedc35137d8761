"""Data sets that come with torchlite, and what to say when one that does not is missing."""

import contextlib
import hashlib
import io
import os
from collections.abc import Iterator
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from torchlite.errors import UserError

DIGITS_SHA256 = "8c869ae3e305900482a9ba36802dbf9c0638da6dc807e43d53040fab125f9038"


class Arrays:
    """A map-style set held in memory: item i is (data[i], targets[i]).

    Args:
        data: uint8 [N, H, W] (gray), [N, H, W, C] or [N, C, H, W].
        targets: integers [N].
        classes: names in label order, or None where labels are numbers only.
    """

    def __init__(self, data: np.ndarray, targets: np.ndarray, classes: list[str] | None) -> None:
        self.data = data
        self.targets = targets
        self.classes = classes

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> tuple[np.ndarray, Any]:
        return self.data[index], self.targets[index].item()


def digits(part: Literal["train", "test"]) -> Arrays:
    """Handwritten digits, 8x8 gray, 0..255, classes 0..9: 1,437 to train on or 360 to test on.

    The split is stratified and fixed in the file. Origin and license: `digits.txt` beside this module.

    Raises:
        UserError: the file is not the one that was shipped.
    """
    content = files("torchlite.data").joinpath("digits.npz").read_bytes()
    if hashlib.sha256(content).hexdigest() != DIGITS_SHA256:
        raise UserError("torchlite/data/digits.npz is damaged (its SHA-256 is another); install torchlite again.")
    with np.load(io.BytesIO(content), allow_pickle=False) as stored:
        chosen = stored["is_test"] == (part == "test")
        gray = stored["images"][chosen]  # 0..16
        targets = stored["targets"][chosen].astype(np.int64)
    return Arrays((gray.astype(np.uint16) * 255 // 16).astype(np.uint8), targets, [str(digit) for digit in range(10)])


@contextlib.contextmanager
def no_empty_folders(target: str, root: str | None) -> Iterator[None]:
    """Take away again the folders that torchvision makes for a set, where its download then fails.

    Args:
        target, root: as of `missing_data`.
    """
    own = Path(root or "") / target.rpartition(".")[2]
    new = [folder for folder in (own / "raw", own, own.parent) if not folder.exists()]
    try:
        yield
    except Exception:
        for folder in new:
            with contextlib.suppress(OSError):  # not there, or not empty
                folder.rmdir()
        raise


def missing_data(target: str, root: str | None, error: BaseException) -> UserError | None:
    """What to tell the user when a data set's files are not to be had; None if `error` is of another kind.

    Args:
        target: import path of the data set's class, such as "torchvision.datasets.MNIST".
        root: the folder it was to be found in, or None where it has none.
        error: what its constructor raised.
    """
    absent = isinstance(error, OSError | EOFError) or (
        isinstance(error, RuntimeError)
        and any(word in str(error).lower() for word in ("not found", "corrupt", "download"))
    )
    if not absent:
        return None
    reason = (str(error).strip() or type(error).__name__).splitlines()[-1]  # torchvision says what it tried, then why
    lines = [f"{target} found nothing to read in data.root={root!r}, nor could it be downloaded: {reason}"]
    archives, folder = _archives(target)
    if archives:
        place = os.path.join(str(root), *folder, "")
        lines.append(f"Put {', '.join(archives)} into {place}, or set data_dir to a folder that has the data set.")
    else:
        lines.append("Put its files there, or set data_dir to a folder that has the data set.")
    return UserError("\n".join(lines))


def _archives(target: str) -> tuple[list[str], list[str]]:
    """Archives a torchvision data set is made of, and the folder below its root where it looks for them."""
    module, _, name = target.rpartition(".")
    dataset = getattr(import_module(module), name)
    resources = getattr(dataset, "resources", None)
    if isinstance(resources, list):  # the MNIST family, which also takes them unpacked and then without a checksum
        return [f"{archive} (or unpacked)" for archive, _ in resources], [name, "raw"]
    filename = getattr(dataset, "filename", None)  # the CIFAR family
    return ([filename], []) if isinstance(filename, str) else ([], [])
