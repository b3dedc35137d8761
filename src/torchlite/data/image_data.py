"""What a `data` yaml becomes: three parts of a data set, checked, and everything a run must know about them."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import nn

from torchlite.data import checks
from torchlite.data.augment import Augmentation
from torchlite.data.batches import Batches
from torchlite.data.decode import Source
from torchlite.data.memory import default_workers
from torchlite.data.mixing import Mixture
from torchlite.data.order import Sampling
from torchlite.data.parts import Collate, Recipe, assembled
from torchlite.data.preprocess import Preprocess
from torchlite.data.samples import Loaded
from torchlite.data.workers import StartMethod


class ImageData:
    """The parts `train`, `val` and `test` of an image set as `Batches` (`val` and `test` may be None).

    A training image is read, cropped (`crop`, else as in evaluation), put through `transforms`, all on its own; then,
    in batches on the model's device, through `augment`, and normalized. One of validation or test goes through
    `preprocess`.

    Args:
        train: source to learn from; see `Source` for what one is.
        test: source that is read once, at the end; None for none.
        num_classes: labels are 0..num_classes-1.
        channels: 1 (gray) or 3 (RGB); images are converted.
        image_size: pixels, side of the square image that the model gets.
        batch_size: samples in one update.
        preprocess: from pixels 0..255 to what the model takes, normalization last. What evaluation and export do.
        val: source to choose by; None holds out `val_fraction` of `train`.
        val_fraction: share of the training samples to hold out, stratified, 0 <= f < 1; 0 for no validation part.
            Unused where `val` is given.
        split_seed: chooses the samples held out; not the run's seed, so that runs with different seeds compare.
        eval_batch_size: samples in a batch of validation and test.
        drop_last: leave out a last training batch that is not full. Evaluation counts every sample.
        sampling: training samples "each_once" an epoch, or "balanced": all classes as often.
        crop: makes a training image of `image_size` of one of any size, such as `RandomResizedCrop`.
        transforms: for training images one by one, such as torchvision v2's; each takes and gives uint8 [C, H, W]. They may
            draw from the global generators of Python, numpy and torch, which are seeded by (seed, epoch, sample).
        augment: random changes to whole batches, applied in turn; a mixture of samples, such as `MixUp`, may stand last.
        collate_fn: makes (images uint8 [B, C, H, W], targets) of a list of (image, target) pairs of different sizes.
        class_names: order of the classes; None for that of `train`.
        root: the folder sources read from (interpolated into them in yaml).
        in_memory: keep all parts decoded; "auto" does if they take at most `memory_share` of the memory that is free.
        memory_share: 0..1.
        num_workers: processes that prepare samples one by one where that is needed; "auto" is half the cores, 0 none.
        start_method: how they start; None for Python's default.
        seed: the run's seed, for order and augmentation.
        device: the model's device.

    Raises:
        UserError: sources, labels, images or numbers do not fit; names the key, what was got and what to do.
    """

    def __init__(
        self,
        train: Source,
        test: Source | None,
        num_classes: int,
        channels: Literal[1, 3],
        image_size: int,
        batch_size: int,
        preprocess: nn.Module,
        val: Source | None = None,
        val_fraction: float = 0.1,
        split_seed: int = 0,
        eval_batch_size: int = 512,
        drop_last: bool = True,
        sampling: Sampling = "each_once",
        crop: Augmentation | Callable[[Any], Any] | None = None,
        transforms: Sequence[Callable[[Any], Any]] | None = None,
        augment: Sequence[Augmentation | Mixture] | None = None,
        collate_fn: Collate | None = None,
        class_names: Sequence[str | int] | None = None,
        root: str | None = None,
        in_memory: bool | Literal["auto"] = "auto",
        memory_share: float = 0.25,
        num_workers: int | Literal["auto"] = "auto",
        start_method: StartMethod | None = None,
        *,
        seed: int,
        device: torch.device | str,
    ) -> None:
        checks.numbers(batch_size, eval_batch_size, image_size, val_fraction, num_workers, memory_share)
        checks.preprocess(preprocess, channels)
        checks.per_sample(crop, transforms, collate_fn)
        changes, mixture = checks.augment(augment)
        self.num_classes, self.channels, self.image_size = num_classes, channels, image_size
        self.batch_size, self.root, self.preprocess = batch_size, root, preprocess

        device = torch.device(device)
        preprocess.to(device).eval()
        workers = default_workers() if num_workers == "auto" else num_workers
        recipe = Recipe(
            preprocess, crop, transforms, collate_fn, seed, channels, image_size, device, workers, start_method, changes
        )
        sources = {"train": train, "val": val, "test": test}
        read = assembled(
            sources, recipe, num_classes, class_names, in_memory, memory_share, val_fraction, split_seed, sampling
        )
        made = read.samples
        self.class_names, self.fingerprint, self.split = read.class_names, read.fingerprint, read.split
        loaded = any(isinstance(part, Loaded) for part in made.values())
        self.choices = {"in_memory": read.in_memory, "num_workers": workers if loaded else 0}

        checks.fills_a_batch(len(made["train"].targets), batch_size, drop_last)
        finish = preprocess.normalize if isinstance(preprocess, Preprocess) else preprocess
        self.train = Batches(
            made["train"], batch_size, finish, device, seed, changes, drop_last, mixture, num_classes, read.order
        )
        checks.lone_sample(self.train.smallest, self.train.num_samples, batch_size)
        self.val, self.test = (
            Batches(made[name], eval_batch_size, finish, device) if name in made else None for name in ("val", "test")
        )
