"""Batches of one part of a set: their order, their augmentation, and nothing that depends on what ran before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from torchlite.data.augment import Augmentation
from torchlite.randomness import draws, permutation

VALUES_AT_ONCE = 1 << 20  # pixel values prepared in one go: hides the cost of calling torch; 4 MB as float32


@dataclass(slots=True)
class Batch:
    """Samples ready for a model.

    Args:
        images: float32 [B, C, H, W], augmented and preprocessed, on the model's device.
        targets: int64 [B], on the model's device.
        ids: int64 [B], index of each sample in its part, on the CPU.
    """

    images: Tensor
    targets: Tensor
    ids: Tensor

    def split(self, num_samples: int) -> Iterator["Batch"]:
        """Micro-batches of at most `num_samples` samples, in order."""
        parts = (self.images.split(num_samples), self.targets.split(num_samples), self.ids.split(num_samples))
        yield from map(Batch, *parts)


class Samples(Protocol):
    """Where decoded images come from: memory, or loader workers."""

    targets: Tensor  # int64 [N], on the model's device

    def fetch(self, groups: Sequence[Tensor]) -> Iterator[Tensor]:
        """For each group of ids (int64, CPU) in turn its images, uint8 [len(group), C, H, W], on the model's device."""
        ...

    def num_values(self) -> int:
        """Pixel values in one image."""
        ...


class InMemory:
    """Samples held as one uint8 tensor on the model's device.

    Args:
        images: uint8 [M, C, H, W].
        targets: int64 [N].
        rows: int64 [N], the row of `images` each sample is in; None when they are all there, in order.
    """

    def __init__(self, images: Tensor, targets: Tensor, rows: Tensor | None = None) -> None:
        self.images = images
        self.targets = targets
        self.rows = rows

    def part(self, ids: Tensor) -> "InMemory":
        """The samples with these ids (int64), numbered from 0; the images are shared, not copied."""
        ids = ids.to(self.images.device)
        return InMemory(self.images, self.targets[ids], ids if self.rows is None else self.rows[ids])

    def fetch(self, groups: Sequence[Tensor]) -> Iterator[Tensor]:
        for ids in groups:
            ids = ids.to(self.images.device, non_blocking=True)
            yield self.images.index_select(0, ids if self.rows is None else self.rows.index_select(0, ids))

    def num_values(self) -> int:
        return self.images[0].numel()


class Batches:
    """The batches of one part: `epoch(e)` gives them, `len()` is how many an epoch has.

    Args:
        samples: where images and targets come from.
        batch_size: samples in a batch.
        preprocess: from uint8 to what the model takes; ends in float32.
        device: where batches are made.
        seed: shuffles by (seed, epoch); None keeps the samples in order.
        augment: applied in turn; needs a seed.
        drop_last: leave out a last batch that is smaller than `batch_size`.
    """

    def __init__(
        self,
        samples: Samples,
        batch_size: int,
        preprocess: nn.Module,
        device: torch.device,
        seed: int | None = None,
        augment: Sequence[Augmentation] = (),
        drop_last: bool = False,
    ) -> None:
        self.samples = samples
        self.num_samples = len(samples.targets)
        self.batch_size = batch_size
        self.preprocess = preprocess
        self.device = device
        self.seed = seed
        self.augment = augment
        self.drop_last = drop_last

    def __len__(self) -> int:
        return (self.num_samples if self.drop_last else self.num_samples + self.batch_size - 1) // self.batch_size

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, a function of (seed, epoch); `start` leaves out as many first ones, unread.

        Images of neighboring batches may share memory: change none in place.
        """
        if start >= len(self):
            return
        order = torch.arange(self.num_samples) if self.seed is None else permutation(self.seed, epoch, self.num_samples)
        order = order[start * self.batch_size : len(self) * self.batch_size]
        # Draws belong to samples, so batches can be prepared several at once without a change in any bit.
        batches_at_once = max(1, VALUES_AT_ONCE // (self.samples.num_values() * self.batch_size))
        groups = order.split(self.batch_size * batches_at_once)
        for ids, pixels in zip(groups, self.samples.fetch(groups), strict=True):
            images, targets = self._prepare(epoch, ids, pixels)
            yield from map(
                Batch, images.split(self.batch_size), targets.split(self.batch_size), ids.split(self.batch_size)
            )

    @torch.no_grad()
    def _prepare(self, epoch: int, ids: Tensor, images: Tensor) -> tuple[Tensor, Tensor]:
        ids = ids.to(self.device, non_blocking=True)
        if self.augment and self.seed is not None:
            widths = [augmentation.num_draws for augmentation in self.augment]
            chances = draws(self.seed, epoch, ids, sum(widths))
            for augmentation, own in zip(self.augment, chances.split(widths, 1), strict=True):
                images = augmentation(images, own)
        return self.preprocess(images), self.samples.targets.index_select(0, ids)
