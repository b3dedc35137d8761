"""Batches of pixels made sample by sample, in this process or in loader workers: the same bits either way."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from torchlite.data.augment import Augmentation
from torchlite.data.cache import mapped
from torchlite.data.pixels import to_tensor
from torchlite.data.seeds import own_seeds, reseed
from torchlite.errors import UserError
from torchlite.randomness import CROP, draws, sample_seed

Request = tuple[int, np.ndarray]  # (epoch, keys): numpy, since a tensor would travel through shared memory


class Images(Protocol):
    """Decoded images by index."""

    def __len__(self) -> int: ...

    def read(self, index: int) -> Tensor:
        """One image, uint8 [C, H, W]."""
        ...


class Kept:
    """Images in memory, uint8 [M, C, H, W].

    Workers share them: by fork, through the file they are mapped from, or through shared memory.
    """

    def __init__(self, images: Tensor, file: Path | None = None) -> None:
        self.images = images
        self.file = file

    def __getstate__(self) -> dict[str, Any]:
        return {"file": self.file, "images": self.images if self.file is None else tuple(self.images.shape)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.file = state["file"]
        self.images = state["images"] if self.file is None else mapped(self.file, state["images"])

    def __len__(self) -> int:
        return len(self.images)

    def read(self, index: int) -> Tensor:
        return self.images[index]


class PerSample:
    """What is done to each image on its own, with the randomness of (seed, epoch, key).

    Args:
        crop: makes an image of `image_size` of one of any size: an `Augmentation`, or a callable; None leaves it.
        transforms: applied after it in turn; each takes and gives one image. Python's, numpy's and torch's global
            generators are seeded for each sample, and left as they were.
        seed: the run's; None for evaluation, which is the same in every epoch.
        image_size: side of what comes out, pixels; None where a `collate_fn` takes images of any size.
        seeded: seed the global generators for each sample: where anything draws from them.
    """

    def __init__(
        self,
        crop: Augmentation | Callable[[Any], Any] | None,
        transforms: Sequence[Callable[[Any], Any]],
        seed: int | None,
        channels: int,
        image_size: int | None,
        seeded: bool,
    ) -> None:
        self.crop: Any = crop
        self.transforms = transforms
        self.seed = seed
        self.channels = channels
        self.image_size = image_size
        self.num_draws = getattr(crop, "num_draws", 0)
        self.seeded = seeded

    def apply(self, images: Images, rows: np.ndarray, epoch: int, keys: np.ndarray) -> Iterator[Tensor]:
        """For each key the finished image, uint8 [C, S, S], made from `images.read(row)`."""
        seed, epoch = (0, 0) if self.seed is None else (self.seed, epoch)
        chances = draws(seed, epoch, torch.from_numpy(keys), self.num_draws, CROP) if self.num_draws else None
        for position, (row, key) in enumerate(zip(rows.tolist(), keys.tolist(), strict=True)):
            if self.seeded:
                reseed(sample_seed(seed, epoch, key))
            image = images.read(row)
            if chances is not None:
                image = self.crop(image[None], chances[position : position + 1])[0]
            elif self.crop is not None:
                image = to_tensor(self.crop(image), self.channels, "what data.crop gives")
            for number, transform in enumerate(self.transforms):
                image = to_tensor(transform(image), self.channels, f"what data.transforms[{number}] gives")
            if self.image_size not in (None, image.shape[1]) or image.shape[1] != image.shape[2]:
                self._refuse(image)
            yield image

    def _refuse(self, image: Tensor) -> None:
        if self.image_size is None:  # a collate_fn of the user's takes any
            return
        got = f"{image.shape[1]}x{image.shape[2]} pixels, but data.image_size is {self.image_size}"
        if self.seed is None or (self.crop is None and not self.transforms):
            raise UserError(
                f"An image has {got}. Set data.preprocess.resize and data.preprocess.crop, which bring it there."
            )
        raise UserError(f"data.crop and data.transforms make an image of {got}. Let data.crop give that size.")


class Reader:
    """Batches of pixels by (epoch, keys). This is all that a loader worker holds.

    Args:
        rows: int64 [N], the row of `images` each sample is in; None when they are all there, in order.
        targets: int64 [N], for `collate`.
        collate: makes (images, targets) of a list of such pairs; None stacks images of one size.
    """

    def __init__(
        self,
        images: Images,
        rows: np.ndarray | None,
        targets: np.ndarray,
        per_sample: PerSample,
        collate: Callable[[list[tuple[Tensor, int]]], tuple[Tensor, Tensor]] | None = None,
    ) -> None:
        self.images = images
        self.rows = rows
        self.targets = targets
        self.per_sample = per_sample
        self.collate = collate

    def __len__(self) -> int:
        return len(self.targets)

    def try_one(self) -> None:
        """Raise UserError if the first sample cannot be made, or is not what it should be."""
        answer = self[0, np.zeros(1, dtype=np.int64)]
        if isinstance(answer, UserError):
            raise answer

    def __getitem__(self, request: Request) -> Tensor | tuple[Tensor, Tensor] | UserError:
        """Images uint8 [B, C, S, S] (with `collate` what that gives), or what the user has to mend.

        The error is handed over, not raised: a worker would bury its message in a traceback.
        """
        epoch, keys = request
        ids = keys % len(self)
        rows = ids if self.rows is None else self.rows[ids]
        try:
            with own_seeds():
                made = self.per_sample.apply(self.images, rows, epoch, keys)
                if self.collate is None:
                    return _stacked(made, len(keys))
                return self.collate(list(zip(made, self.targets[ids].tolist(), strict=True)))
        except UserError as error:
            return error


def _stacked(images: Iterator[Tensor], count: int) -> Tensor:
    """One tensor; in a worker, already in the memory that is shared with the main process."""
    stacked = torch.empty(0, dtype=torch.uint8)
    for index, image in enumerate(images):
        if not index:
            stacked = torch.empty((count, *image.shape), dtype=torch.uint8)
            if get_worker_info() is not None:
                stacked.share_memory_()
        stacked[index] = image
    return stacked
