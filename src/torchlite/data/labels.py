"""Labels of a source: whole numbers in range, counted in the order of the training classes."""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlite.errors import UserError


def checked(labels: Any, sample: Callable[[int], str], name: str, num_classes: int) -> Tensor:
    """Labels as int64 [N], each a whole number in 0..num_classes-1.

    Args:
        labels: a sequence, array or tensor of N.
        sample: how a message names the sample at an index.
        name: the key to name in messages, such as "data.train".

    Raises:
        UserError: names the first sample that does not fit, its label and what is allowed.
    """
    allowed = f"labels are integers 0..{num_classes - 1} (data.num_classes={num_classes})"
    labels = labels.numpy() if isinstance(labels, Tensor) else labels
    values = np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        for index, label in enumerate(labels):
            if isinstance(label, bool | np.bool_) or not isinstance(label, Integral):
                plain = label.item() if isinstance(label, np.generic) else label
                got = f"{plain!s} ({type(plain).__name__})"
                raise UserError(f"{name}: the label of {sample(index)} is {got}; {allowed}.")
    outside = np.flatnonzero((values < 0) | (values >= num_classes))
    if len(outside):
        index = int(outside[0])
        hint = " They seem to start at 1." if values.min() == 1 and values.max() == num_classes else ""
        raise UserError(f"{name}: the label of {sample(index)} is {values[index]}; {allowed}.{hint}")
    return torch.from_numpy(values.astype(np.int64))


def in_order(
    targets: Tensor, own_names: Sequence[str] | None, class_names: list[str] | None, num_classes: int, name: str
) -> tuple[Tensor, list[str] | None]:
    """Targets counted in `class_names`, and those names; without them in the source's own, which must be all."""
    if own_names is None:
        return targets, class_names
    own_names = [str(label) for label in own_names]
    if class_names is None:
        if len(own_names) != num_classes:
            raise UserError(
                f"data.num_classes is {num_classes}, but {name} has {len(own_names)} classes{_few(own_names)}."
            )
        return targets, own_names
    unknown = [label for label in own_names if label not in class_names]
    if unknown:
        raise UserError(f"{name} has classes that data.train has not: {', '.join(unknown)}.")
    if own_names == class_names:
        return targets, class_names
    return torch.tensor([class_names.index(label) for label in own_names])[targets], class_names


def _few(names: list[str]) -> str:
    return f" ({', '.join(names[:10])}{', …' if len(names) > 10 else ''})" if names else ""
