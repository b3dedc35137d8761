"""What a `data` yaml becomes: three parts of a data set, checked, and everything a run must know about them."""

import logging
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import nn

from torchlite.data.augment import Augmentation
from torchlite.data.batches import Batches, InMemory
from torchlite.data.decode import Decoded, Source, decode
from torchlite.data.fingerprint import fingerprint
from torchlite.data.preprocess import Preprocess
from torchlite.data.split import stratified_split
from torchlite.errors import UserError

log = logging.getLogger("torchlite")


class ImageData:
    """The parts `train`, `val` and `test` of an image set as `Batches` (`val` and `test` may be None).

    Args:
        train: source to learn from; see `Source` for what one is.
        test: source that is read once, at the end; None for none.
        num_classes: labels are 0..num_classes-1.
        channels: 1 (gray) or 3 (RGB); images are converted.
        image_size: pixels, side of the square image.
        batch_size: samples in one update.
        preprocess: from pixels 0..255 to what the model takes, normalization last.
        val: source to choose by; None holds out `val_fraction` of `train`.
        val_fraction: share of the training samples to hold out, stratified, 0 <= f < 1; 0 for no validation part.
            Unused where `val` is given.
        split_seed: chooses the samples held out; not the run's seed, so that runs with different seeds compare.
        eval_batch_size: samples in a batch of validation and test.
        drop_last: leave out a last training batch that is not full. Evaluation counts every sample.
        augment: random changes to training images, applied in turn.
        root: the folder sources read from (interpolated into them in yaml).
        in_memory: decode once and keep, which "auto" chooses too.
        num_workers: loader processes, unused while in memory; "auto" is half the cores.
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
        augment: Sequence[Augmentation] | None = None,
        root: str | None = None,
        in_memory: bool | Literal["auto"] = "auto",
        num_workers: int | Literal["auto"] = "auto",
        *,
        seed: int,
        device: torch.device | str,
    ) -> None:
        _check_numbers(batch_size, eval_batch_size, image_size, val_fraction)
        _check_preprocess(preprocess, channels, image_size)
        _check_augment(augment)
        self.num_classes = num_classes
        self.channels = channels
        self.image_size = image_size
        self.batch_size = batch_size
        self.root = root
        self.preprocess = preprocess
        self.choices: dict[str, bool | int] = {"in_memory": _in_memory(in_memory), "num_workers": 0}

        device = torch.device(device)
        preprocess.to(device).eval()
        parts = _decoded({"train": train, "val": val, "test": test}, num_classes, channels, image_size)
        self.fingerprint = fingerprint(parts)
        self.class_names = parts["train"].class_names or [str(label) for label in range(num_classes)]
        samples = {name: InMemory(part.images.to(device), part.targets.to(device)) for name, part in parts.items()}
        if val is None and val_fraction > 0:
            kept, held_out = stratified_split(parts["train"].targets, val_fraction, split_seed)
            samples["train"], samples["val"] = samples["train"].part(kept), samples["train"].part(held_out)
        self.split = _described(samples, val is not None, val_fraction, split_seed)

        _check_fills_a_batch(len(samples["train"].targets), batch_size, drop_last)
        self.train = Batches(samples["train"], batch_size, preprocess, device, seed, augment or (), drop_last)
        self.val, self.test = (
            Batches(samples[name], eval_batch_size, preprocess, device) if name in samples else None
            for name in ("val", "test")
        )


def _decoded(sources: dict[str, Source | None], num_classes: int, channels: int, image_size: int) -> dict[str, Decoded]:
    """The parts that have a source, all with the class numbers of the first."""
    parts: dict[str, Decoded] = {}
    class_names = None
    for name, source in sources.items():
        if source is not None:
            parts[name] = decode(source, f"data.{name}", num_classes, channels, image_size, class_names)
            class_names = class_names or parts[name].class_names
    return parts


def _described(samples: dict[str, InMemory], val_given: bool, val_fraction: float, split_seed: int) -> dict[str, Any]:
    """How the parts came about, for the record."""
    sizes: dict[str, Any] = {name: len(part.targets) for name, part in samples.items()}
    if val_given:
        return {**sizes, "validation": "own source"}
    if "val" not in samples:
        return {**sizes, "validation": "none"}
    cut = {"validation": "stratified part of train", "val_fraction": val_fraction, "split_seed": split_seed}
    return {**sizes, **cut}


def _in_memory(asked: bool | Literal["auto"]) -> bool:
    if asked is False:
        raise UserError("data.in_memory=false: sets are served from memory only; leave it at auto.")
    return True


def _check_numbers(batch_size: int, eval_batch_size: int, image_size: int, val_fraction: float) -> None:
    for key, number in (("batch_size", batch_size), ("eval_batch_size", eval_batch_size), ("image_size", image_size)):
        if number < 1:
            raise UserError(f"data.{key}={number}; give 1 or more.")
    if not 0 <= val_fraction < 1:
        raise UserError(f"data.val_fraction={val_fraction}; give 0 (no validation part) or more, below 1.")


def _check_preprocess(preprocess: nn.Module, channels: int, image_size: int) -> None:
    if isinstance(preprocess, Preprocess) and preprocess.num_channels != channels:
        raise UserError(
            f"data.preprocess.mean and data.preprocess.std have {preprocess.num_channels} numbers, "
            f"but data.channels is {channels}; give one a channel."
        )


def _check_augment(augment: Sequence[Augmentation] | None) -> None:
    for position, augmentation in enumerate(augment or ()):
        if not isinstance(getattr(augmentation, "num_draws", None), int) or not callable(augmentation):
            raise UserError(
                f"data.augment[{position}] is a {type(augmentation).__name__}, which has no `num_draws`: "
                "an augmentation takes whole batches and its random numbers, as torchlite.data.augment.RandomCrop does."
            )


def _check_fills_a_batch(num_samples: int, batch_size: int, drop_last: bool) -> None:
    if num_samples >= batch_size:
        return
    if drop_last:
        raise UserError(
            f"data.train has {num_samples} samples to learn from, fewer than data.batch_size={batch_size}, "
            f"and data.drop_last leaves out a batch that is not full. "
            f"Set data.batch_size={num_samples} or less, or data.drop_last=false."
        )
    log.warning(
        "data.batch_size=%d is more than the %d training samples: every update uses %d.",
        batch_size,
        num_samples,
        num_samples,
    )
