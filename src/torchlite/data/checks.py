"""What can be known to be wrong before any data is read."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchlite.data.augment import Augmentation
from torchlite.data.cores import num_cores
from torchlite.data.mixing import Mixture
from torchlite.data.pixels import shown
from torchlite.data.preprocess import Preprocess
from torchlite.errors import UserError

log = logging.getLogger("torchlite")


def numbers(
    batch_size: int,
    eval_batch_size: int,
    image_size: int,
    val_fraction: float,
    num_workers: int | str,
    memory_share: float,
) -> None:
    for key, number in (("batch_size", batch_size), ("eval_batch_size", eval_batch_size), ("image_size", image_size)):
        if number < 1:
            raise UserError(f"data.{key}={number}; give 1 or more.")
    if not 0 <= val_fraction < 1:
        raise UserError(f"data.val_fraction={val_fraction}; give 0 (no validation part) or more, below 1.")
    if isinstance(num_workers, int) and num_workers < 0:
        raise UserError(f"data.num_workers={num_workers}; give 0 (none), more, or auto.")
    if isinstance(num_workers, int) and num_workers > num_cores():
        log.warning("data.num_workers=%d is more than the %d cores: slower than fewer.", num_workers, num_cores())
    if not 0 <= memory_share <= 1:
        raise UserError(f"data.memory_share={memory_share}; give a share of the free memory, 0..1.")


def preprocess(module: nn.Module, channels: int) -> None:
    if isinstance(module, Preprocess) and module.num_channels != channels:
        raise UserError(
            f"data.preprocess.mean and data.preprocess.std have {module.num_channels} numbers, "
            f"but data.channels is {channels}; give one a channel."
        )


def augment(listed: Sequence[Augmentation | Mixture] | None) -> tuple[list[Augmentation], Mixture | None]:
    """The augmentations, and the mixture that may stand last."""
    augmentations: list[Any] = list(listed or ())
    mixture = augmentations.pop() if augmentations and hasattr(augmentations[-1], "mix") else None
    for position, augmentation in enumerate(augmentations):
        if hasattr(augmentation, "mix"):
            raise UserError(
                f"data.augment[{position}] is a {type(augmentation).__name__}, which mixes samples: it stands last, "
                "and there is one; torchlite.data.mixing.OneOf chooses among several."
            )
        if not isinstance(getattr(augmentation, "num_draws", None), int) or not callable(augmentation):
            raise UserError(
                f"data.augment[{position}] is a {type(augmentation).__name__}, which has no `num_draws`: "
                "an augmentation takes whole batches and its random numbers, as torchlite.data.augment.RandomCrop "
                "does. What takes single images stands in data.transforms."
            )
    return augmentations, mixture


def per_sample(crop: Any, transforms: Sequence[Callable[[Any], Any]] | None, collate: Any) -> None:
    for key, found in [
        ("crop", crop),
        ("collate_fn", collate),
        *((f"transforms[{i}]", t) for i, t in enumerate(transforms or ())),
    ]:
        if found is not None and not callable(found):
            raise UserError(f"data.{key} is a {type(found).__name__}; it must be something to call.")
        if key.startswith("transforms") and hasattr(found, "num_draws"):
            raise UserError(
                f"data.{key} is a {type(found).__name__}, which takes whole batches: it stands in data.augment."
            )


def class_names(names: Sequence[str | int] | None, num_classes: int) -> list[str] | None:
    """The names of the classes as text that can be printed."""
    if names is None:
        return None
    texts = [shown(str(name)) for name in names]
    if len(texts) != num_classes or len(set(texts)) != len(texts):
        raise UserError(
            f"data.class_names has {len(set(texts))} different names, but data.num_classes is {num_classes}."
        )
    return texts


def every_class_has_samples(targets: Tensor, names: Sequence[str] | None, num_classes: int) -> None:
    if num_classes == 1:
        log.warning("data.num_classes=1: where there is one class every answer is right, and nothing is learned.")
    without = (torch.bincount(targets, minlength=num_classes) == 0).nonzero()[:, 0].tolist()
    if without:
        listed = ", ".join(str(label) if names is None else names[label] for label in without[:10])
        log.warning(
            f"no training sample is of {'class' if len(without) == 1 else f'{len(without)} of the classes:'} "
            f"{listed}{', …' if len(without) > 10 else ''}; the model cannot learn what it never sees."
        )


def lone_sample(smallest: int, num_samples: int, batch_size: int) -> None:
    if smallest == 1 and batch_size > 1:
        log.warning(
            "the last of the batches that %d training samples make has 1 sample, which batch normalization may not be "
            "able to use: set data.drop_last=true, or data.batch_size=%d.",
            num_samples,
            next((size for size in range(batch_size - 1, 1, -1) if num_samples % size != 1), batch_size + 1),
        )


def fills_a_batch(num_samples: int, batch_size: int, drop_last: bool) -> None:
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
