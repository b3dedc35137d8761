"""Labels of a source: whole numbers in range, counted in the order of the training classes."""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torchlite.data.pixels import shown
from torchlite.errors import UserError

NAMES_SHOWN = 10


def class_names(source: Any, name: str) -> list[str] | None:
    """A source's own names of classes in the order of its labels, as text that can be printed; None where it has none."""
    names = getattr(source, "classes", None)
    if names is None:
        return None
    if isinstance(names, str) or not hasattr(names, "__len__") or not hasattr(names, "__getitem__"):
        raise UserError(f"{name}: `classes` of a {type(source).__name__} is {names!r}; it lists names in label order.")
    return [shown(str(label)) for label in names]


def checked(
    labels: Any,
    sample: Callable[[int], str],
    name: str,
    num_classes: int,
    own_names: list[str] | None = None,
    class_names: list[str] | None = None,
    names_of: str = "data.train",
) -> Tensor:
    """Labels as int64 [N], each a whole number in 0..num_classes-1, or of one of the source's own class names.

    Args:
        labels: a sequence, array or tensor of N.
        sample: how a message names the sample at an index.
        name: the key to name in messages, such as "data.train".
        own_names: the source's class names in the order of its labels; None where those are numbers only.
        class_names: names of all classes; None where these are the first.
        names_of: the key they come from.

    Raises:
        UserError: names the first sample that does not fit, its label or class, what is allowed and what to do.
    """
    if own_names is not None and class_names is None and len(own_names) != num_classes:
        raise UserError(
            f"data.num_classes is {num_classes}, but {name} has {len(own_names)} classes{_few(own_names)}. "
            f"Set data.num_classes={len(own_names)}, or is the data not what it should be?"
        )
    count = num_classes if own_names is None else len(own_names)
    why = f"data.num_classes={num_classes}" if count == num_classes else f"it names {count} classes"
    allowed = f"labels are integers 0..{count - 1} ({why})"
    labels = labels.numpy() if isinstance(labels, Tensor) else labels
    values = np.asarray(labels)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        for index, label in enumerate(labels):
            if isinstance(label, bool | np.bool_) or not isinstance(label, Integral):
                plain = label.item() if isinstance(label, np.generic) else label
                got = f"{plain!s} ({type(plain).__name__})"
                raise UserError(f"{name}: the label of {sample(index)} is {got}; {allowed}.")
    outside = np.flatnonzero((values < 0) | (values >= count))
    if len(outside):
        index = int(outside[0])
        hint = " They seem to start at 1." if values.min() == 1 and values.max() == count else ""
        raise UserError(f"{name}: the label of {sample(index)} is {values[index]}; {allowed}.{hint}")
    if own_names is not None and class_names is not None:
        _known(values, sample, name, own_names, class_names, names_of)
    return torch.from_numpy(values.astype(np.int64))


def _known(
    values: np.ndarray,
    sample: Callable[[int], str],
    name: str,
    own_names: list[str],
    class_names: list[str],
    names_of: str,
) -> None:
    """Raise UserError where a source has classes that `class_names` lacks; names them and the first sample of one."""
    unknown = [label for label in own_names if label not in set(class_names)]
    if not unknown:
        return
    first = np.flatnonzero(values == own_names.index(unknown[0]))
    example = f", such as that of {sample(int(first[0]))}" if len(first) else ""
    what = "a class that" if len(unknown) == 1 else f"{len(unknown)} classes that"
    unused = [label for label in class_names if label not in set(own_names)] if names_of != "data.train" else []
    remedy = (
        f"Name every class of the data there{f'; it has none called {_listed(unused)}' if unused else ''}."
        if names_of != "data.train"
        else "Rename the class, take its samples out, or put samples of it into the training part as well."
    )
    raise UserError(
        f"{name} has {what} {names_of} ({_listed(class_names)}) has not: {_listed(unknown)}{example}. {remedy}"
    )


def in_order(
    targets: Tensor, own_names: list[str] | None, class_names: list[str] | None
) -> tuple[Tensor, list[str] | None]:
    """Targets counted in `class_names`, and those names; without them in the source's own."""
    if own_names is None or own_names == class_names:
        return targets, class_names
    if class_names is None:
        return targets, own_names
    numbers = {label: number for number, label in reversed(list(enumerate(class_names)))}
    return torch.tensor([numbers[label] for label in own_names])[targets], class_names


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:NAMES_SHOWN])}{', …' if len(names) > NAMES_SHOWN else ''}"


def _few(names: list[str]) -> str:
    return f" ({_listed(names)})" if names else ""
