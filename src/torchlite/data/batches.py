"""Batches of one part of a set: their order, their augmentation, and nothing that depends on what ran before."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchlite.data.augment import Augmentation, augmented
from torchlite.data.mixing import Mixture, probabilities, window_rng
from torchlite.data.order import Order, balanced_order, epoch_order, share, windows
from torchlite.data.samples import Samples
from torchlite.data.seeds import one_thread
from torchlite.errors import UserError
from torchlite.randomness import WINDOW, sample_seed


@dataclass(slots=True)
class Batch:
    """Samples ready for a model.

    Args:
        images: float32 [B, C, H, W], augmented and preprocessed, on the model's device.
        targets: int64 [B], or class probabilities float32 [B, K] of mixed samples, on the model's device.
        ids: int64 [B], index of each sample in its part, on the CPU.
    """

    images: Tensor
    targets: Tensor
    ids: Tensor

    def split(self, num_samples: int) -> Iterator["Batch"]:
        """Micro-batches of at most `num_samples` samples, in order."""
        parts = (self.images.split(num_samples), self.targets.split(num_samples), self.ids.split(num_samples))
        yield from map(Batch, *parts)


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
        mixture: mixes the samples of a batch; needs a seed and `num_classes`.
        sampling: "each_once" an epoch; "balanced": all classes as often; "as_it_comes": in the order of a stream.
    """

    def __init__(
        self,
        samples: Samples,
        batch_size: int,
        preprocess: Callable[[Tensor], Tensor],
        device: torch.device,
        seed: int | None = None,
        augment: Sequence[Augmentation] = (),
        drop_last: bool = False,
        mixture: Mixture | None = None,
        num_classes: int = 0,
        sampling: Order = "each_once",
    ) -> None:
        self.samples = samples
        self.num_samples = len(samples.targets)
        self.batch_size = batch_size
        self.preprocess = preprocess
        self.device = device
        self.seed = seed
        self.augment = augment
        self.drop_last = drop_last
        self.mixture = mixture
        self.num_classes = num_classes
        self.sampling = sampling

    def __len__(self) -> int:
        return (self.num_samples if self.drop_last else self.num_samples + self.batch_size - 1) // self.batch_size

    @property
    def smallest(self) -> int:
        """Samples in the smallest batch of an epoch: batch normalization may need more than one."""
        rest = self.num_samples % self.batch_size
        return rest if rest and not (self.drop_last and len(self)) else min(self.batch_size, self.num_samples)

    def epoch(self, epoch: int, start: int = 0, rank: int = 0, num_ranks: int = 1) -> Iterator[Batch]:
        """The batches of one epoch, a function of (seed, epoch); `start` leaves out as many first ones, unread.

        Of several ranks each gets its share of every batch, perhaps an empty one; the shares in turn are the batch.
        Images of neighboring batches may share memory: change none in place.
        """
        if start >= len(self):
            return
        # Groups begin at the same batches wherever an epoch is entered, so a batch lies at the same place in memory, on which
        # the last bits of a product may depend
        skip = start % self.samples.batches_at_once(self.batch_size)
        yield from itertools.islice(self._served(epoch, start - skip, rank, num_ranks), skip, None)

    def _served(self, epoch: int, start: int, rank: int, num_ranks: int) -> Iterator[Batch]:
        # Draws belong to samples, so batches can be prepared several at once without a change in any bit.
        at_once = self.samples.batches_at_once(self.batch_size)
        order = self._order(epoch)
        lead = 1 if self.mixture is not None and num_ranks > 1 else 0
        if num_ranks == 1:
            order = order[start * self.batch_size : len(self) * self.batch_size]
            groups = list(order.split(self.batch_size * at_once))
            runs = [self._sizes(len(keys)) for keys in groups]
        else:
            updates = windows(order, self.batch_size, self.drop_last)[start:]
            shares = [_with_lead(update, rank, num_ranks, lead) for update in updates]
            parts = [shares[first : first + at_once] for first in range(0, len(shares), at_once)]
            groups = [torch.cat(part) for part in parts]
            runs = [[len(own) for own in part] for part in parts]
        numbers = [keys % self.num_samples for keys in groups] if self.sampling == "balanced" else groups
        update = start
        fetched = self.samples.fetch(epoch, groups, numbers)
        for sizes, keys, ids, (pixels, own_targets) in zip(runs, groups, numbers, fetched, strict=True):
            images, targets = self._prepare(epoch, keys, ids, pixels, own_targets)
            for batch in map(Batch, images.split(sizes), targets.split(sizes), ids.split(sizes)):
                yield batch if self.mixture is None else self._mixed(batch, epoch, update, lead)
                update += 1

    def _sizes(self, num_samples: int) -> list[int]:
        """Those of the batches that so many samples, in a row, make."""
        full, rest = divmod(num_samples, self.batch_size)
        return [self.batch_size] * full + [rest] * bool(rest)

    def _order(self, epoch: int) -> Tensor:
        if self.seed is None or self.sampling == "as_it_comes":
            return torch.arange(self.num_samples)
        if self.sampling == "balanced":
            return balanced_order(self.samples.targets.cpu(), self.seed, epoch)
        return epoch_order(self.num_samples, self.seed, epoch)

    @torch.no_grad()
    def _prepare(
        self, epoch: int, keys: Tensor, ids: Tensor, images: Tensor, targets: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if self.augment and self.seed is not None and not self.samples.in_workers:
            images = augmented(images, self.augment, self.seed, epoch, keys)
        if targets is None:
            targets = self.samples.targets.index_select(0, ids.to(self.device, non_blocking=True))
        # Beside workers that use the cores, two threads would wait for each other; no sum is in here to depend on it.
        with one_thread() if self.samples.in_workers else contextlib.nullcontext():
            prepared = self.preprocess(images)
        if not isinstance(prepared, Tensor) or not prepared.is_floating_point():
            given = (
                str(prepared.dtype).removeprefix("torch.") if isinstance(prepared, Tensor) else type(prepared).__name__
            )
            raise UserError(
                f"data.preprocess gives {given}; a model needs float32 [B, C, H, W], such as images.float()."
            )
        return prepared, targets

    @torch.no_grad()
    def _mixed(self, batch: Batch, epoch: int, update: int, lead: int) -> Batch:
        """The batch with each sample mixed with the one before it; `lead` samples came along only to be mixed with."""
        assert self.mixture is not None and self.seed is not None
        targets = batch.targets if batch.targets.ndim == 2 else probabilities(batch.targets, self.num_classes)
        if not len(batch.ids):
            return Batch(batch.images, targets, batch.ids)
        rng = window_rng(sample_seed(self.seed, epoch, update, WINDOW))
        if lead:
            pairs = batch.images[1:], targets[1:], batch.images[:-1], targets[:-1]
        else:
            pairs = batch.images, targets, batch.images.roll(1, 0), targets.roll(1, 0)
        images, targets = self.mixture.mix(*pairs, rng)
        return Batch(images, targets, batch.ids[lead:])


def _with_lead(window: Tensor, rank: int, num_ranks: int, lead: int) -> Tensor:
    """A rank's share of a window, after the sample that its first one is mixed with where `lead` is 1."""
    own = share(window, rank, num_ranks)
    if not lead or not len(own):
        return own
    first = sum(len(share(window, before, num_ranks)) for before in range(rank))
    return torch.cat([window[first - 1].reshape(1), own])
