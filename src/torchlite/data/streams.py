"""Sets that can only be read from front to back: iterable data sets that state how many samples an epoch has."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset

from torchlite.data import labels as label_rules
from torchlite.data.fingerprint import Fingerprint, file_contents
from torchlite.data.loader import PerSample, Request
from torchlite.data.pixels import to_tensor
from torchlite.data.seeds import own_seeds, reseed
from torchlite.errors import UserError
from torchlite.randomness import STREAM, sample_seed

FIRST_ITEMS = 100  # of a stream that is not made of files, for its fingerprint


class Stream(Protocol):
    """An iterable data set: it yields (image, label) as a `Source` holds them, perhaps with a text that messages name it by.

    Every loader worker reads all of it and decodes its own batches only, so it must not split itself by worker; bytes
    of image files are best, since a worker that skips them decodes nothing. Attributes used where they exist:
    `classes`, and, called before each epoch, `begin(seed, epoch)` or else `set_epoch(epoch)`. `files` lists what it is
    made of, for the fingerprint. The global generators are seeded for each sample, so an order drawn from them repeats.
    """

    samples_per_epoch: int

    def __iter__(self) -> Iterator[tuple[Any, Any]]: ...


def is_stream(source: Any) -> bool:
    return isinstance(source, IterableDataset) or (hasattr(source, "__iter__") and not hasattr(source, "__getitem__"))


class StreamReader:
    """Batches of pixels and targets by (epoch, keys), keys being places in the stream, for the most part ascending.

    Args:
        source: the stream.
        name: the key to name in messages, such as "data.train".
        per_sample: what is done to each image on its own; its seed is also the stream's.
        num_classes: labels are 0..num_classes-1.

    Raises:
        UserError: the stream does not say how long an epoch is.
    """

    def __init__(
        self,
        source: Any,
        name: str,
        per_sample: PerSample,
        num_classes: int,
        class_names: list[str] | None = None,
        names_of: str = "data.train",
    ) -> None:
        count = getattr(source, "samples_per_epoch", None)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            if count is not None:
                raise UserError(f"{name}: samples_per_epoch is {count!r}; it is a whole number above 0.")
            raise UserError(
                f"{name} is a stream ({type(source).__name__}): give it an attribute samples_per_epoch, "
                "a whole number above 0, or make it map-style, with __len__ and __getitem__."
            )
        self.source = source
        self.name = name
        self.per_sample = per_sample
        self.num_classes = num_classes
        self.own_names = label_rules.class_names(source, name)
        self.class_names, self.names_of = class_names, names_of
        self.targets = np.zeros(count, dtype=np.int64)  # not known before they are read
        self._epoch: int | None = None
        self._items: Iterator[Sequence[Any]] | None = None
        self._place = 0

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_epoch": None, "_items": None, "_place": 0}

    def try_one(self) -> None:
        """Raise UserError if the first sample cannot be made, or is not what it should be."""
        answer = self[0, np.zeros(1, dtype=np.int64)]
        self._epoch, self._items = None, None
        if isinstance(answer, UserError):
            raise answer

    def __getitem__(self, request: Request) -> tuple[Tensor, Tensor] | UserError:
        epoch, keys = request
        if self.per_sample.seed is None:
            epoch = 0  # evaluation is the same in every epoch
        try:
            with own_seeds():
                return self._read(epoch, keys)
        except UserError as error:
            return error

    def _read(self, epoch: int, keys: np.ndarray) -> tuple[Tensor, Tensor]:
        found = {place: self._item(epoch, place) for place in sorted(keys.tolist())}
        made = list(self.per_sample.apply(_Items(self, found), keys, epoch, keys))
        labels = [found[place][1] for place in keys.tolist()]
        numbers = label_rules.checked(
            labels,
            lambda i: _called(keys[i], found[keys[i]]),
            self.name,
            self.num_classes,
            self.own_names,
            self.class_names,
            self.names_of,
        )
        targets, _ = label_rules.in_order(numbers, self.own_names, self.class_names)
        images = torch.stack(made) if made else torch.empty((0, self.per_sample.channels, 1, 1), dtype=torch.uint8)
        return images, targets

    def _item(self, epoch: int, place: int) -> Sequence[Any]:
        """What stands at a place; what comes before is read and dropped."""
        if epoch != self._epoch or place < self._place or self._items is None:
            self._begin(epoch)
        seed = self.per_sample.seed or 0
        while True:
            reseed(sample_seed(seed, epoch, self._place, STREAM))
            assert self._items is not None
            item = next(self._items, None)
            if item is None:
                raise UserError(
                    f"{self.name} ended after {self._place} samples; its samples_per_epoch says {len(self.targets)}. "
                    "Give as many as it has; a stream must not split itself among loader workers."
                )
            if not isinstance(item, tuple | list) or len(item) < 2:
                raise UserError(
                    f"{self.name}: sample {self._place} is a {type(item).__name__}; it must be (image, label)."
                )
            self._place += 1
            if self._place > place:
                return item

    def _begin(self, epoch: int) -> None:
        seed = self.per_sample.seed
        if hasattr(self.source, "begin"):
            self.source.begin(seed or 0, epoch)
        elif hasattr(self.source, "set_epoch"):
            self.source.set_epoch(epoch)
        reseed(sample_seed(seed or 0, epoch, -1, STREAM))
        self._items, self._epoch, self._place = iter(self.source), epoch, 0


class _Items:
    """Items of a stream that have been read, as images by place."""

    def __init__(self, reader: StreamReader, found: dict[int, Sequence[Any]]) -> None:
        self.reader = reader
        self.found = found

    def __len__(self) -> int:
        return len(self.found)

    def read(self, index: int) -> Tensor:
        where = f"{self.reader.name}: {_called(index, self.found[index])}"
        return to_tensor(self.found[index][0], self.reader.per_sample.channels, where)


def _called(place: int, item: Sequence[Any]) -> str:
    """How a message names a sample."""
    return f"sample {place}" + (f" ({item[2]})" if len(item) > 2 and isinstance(item[2], str) else "")


def stream_fingerprint(reader: Any) -> Fingerprint:
    """The identity of a stream: by the files it names, else by its first items."""
    files = getattr(reader.source, "files", None)
    if files:
        return Fingerprint(file_contents([("", path) for path in files], images=False), "files")
    digest = hashlib.sha256(str(len(reader.targets)).encode())
    with own_seeds():
        count = min(FIRST_ITEMS, len(reader.targets))
        found = {place: reader._item(0, place) for place in range(count)}
        for place, item in found.items():
            digest.update(f"{item[1]}\n".encode() + _Items(reader, found).read(place).contiguous().numpy().tobytes())
    reader._epoch = None
    return Fingerprint(digest.hexdigest(), f"first {count} items")
