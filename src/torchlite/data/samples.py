"""Where a part's pixels come from: served from memory by index, or made sample by sample. Same order, same bits."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from torchlite.data.augment import Augmentation, augmented
from torchlite.data.loader import Request
from torchlite.data.memory import return_freed
from torchlite.data.workers import AnyReader, StartMethod, Workers
from torchlite.errors import UserError

VALUES_AT_ONCE = 1 << 20  # pixel values prepared in one go: hides the cost of calling torch; 4 MB as float32

HEAP_LIMIT = 1 << 27  # bytes of batches, as float32, between two tidyings of the heap, which take 30 ms each


class Samples(Protocol):
    """Pixels and targets of one part, by key (see `order`)."""

    targets: Tensor  # int64 [N], on the model's device
    in_workers: bool  # loader processes make, and augment, the batches on the CPU

    def fetch(
        self, epoch: int, groups: Sequence[Tensor], ids: Sequence[Tensor]
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        """For each group of keys (int64, CPU) in turn its images, uint8 [B, C, H, W], on the model's device.

        `ids` are the keys without what counts repetitions. With images come targets where a `collate_fn` or a stream
        made them, else None.
        """
        ...

    def batches_at_once(self, batch_size: int) -> int:
        """How many batches are best fetched together."""
        ...


class InMemory:
    """Samples held as one uint8 tensor on the model's device.

    Args:
        images: uint8 [M, C, H, W].
        targets: int64 [N].
        rows: int64 [N], the row of `images` each sample is in; None when they are all there, in order.
    """

    in_workers = False

    def __init__(self, images: Tensor, targets: Tensor, rows: Tensor | None = None) -> None:
        self.images = images
        self.targets = targets
        self.rows = rows

    def part(self, ids: Tensor) -> "InMemory":
        """The samples with these ids (int64), numbered from 0; the images are shared, not copied."""
        ids = ids.to(self.images.device)
        return InMemory(self.images, self.targets[ids], ids if self.rows is None else self.rows[ids])

    def fetch(
        self, epoch: int, groups: Sequence[Tensor], ids: Sequence[Tensor]
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        for own in ids:
            own = own.to(self.images.device, non_blocking=True)
            yield self.images.index_select(0, own if self.rows is None else self.rows.index_select(0, own)), None

    def batches_at_once(self, batch_size: int) -> int:
        return max(1, VALUES_AT_ONCE // (self.images[0].numel() * batch_size))


class Loaded:
    """Samples made one by one, here (`num_workers` 0) or by loader workers.

    Args:
        reader: makes them.
        device: the model's.
        num_workers: processes.
        start_method: how they start; None for Python's default.
        keep: they wait for the next epoch instead of ending.
        augment: applied to each batch where it is made, if that is a worker and the model's device the CPU: the cores
            then work side by side. Elsewhere that is left to whoever fetches.
        seed: for `augment`.
    """

    def __init__(
        self,
        reader: AnyReader,
        device: torch.device,
        num_workers: int,
        start_method: StartMethod | None = None,
        keep: bool = True,
        augment: Sequence[Augmentation] = (),
        seed: int = 0,
    ) -> None:
        self.reader = reader
        self.device = device
        self.targets = torch.from_numpy(reader.targets).to(device)
        self.workers = None
        self.in_workers = num_workers > 0 and device.type == "cpu"
        if num_workers:
            maker = _Augmenting(reader, augment, seed) if augment and self.in_workers else reader
            self.workers = Workers(maker, num_workers, start_method, keep, pin=device.type == "cuda")

    def fetch(
        self, epoch: int, groups: Sequence[Tensor], ids: Sequence[Tensor]
    ) -> Iterator[tuple[Tensor, Tensor | None]]:
        requests = [(epoch, keys.numpy()) for keys in groups]
        answers = self.workers.answers(requests) if self.workers else map(self.reader.__getitem__, requests)
        freed = 0
        for answer in answers if self.device.type == "cpu" else copied_ahead(answers, self.device):
            if isinstance(answer, UserError):
                raise answer
            yield (answer[0], answer[1]) if isinstance(answer, tuple | list) else (answer, None)
            freed += answer.numel() * 4 if isinstance(answer, Tensor) and self.workers else 0
            if freed >= HEAP_LIMIT and self.device.type == "cpu":
                return_freed()
                freed = 0

    def batches_at_once(self, batch_size: int) -> int:
        return 1


class _Augmenting:
    """A reader whose batches are augmented."""

    def __init__(self, reader: AnyReader, augment: Sequence[Augmentation], seed: int) -> None:
        self.reader = reader
        self.targets = reader.targets
        self.augment = augment
        self.seed = seed

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, request: Request) -> Tensor | tuple[Tensor, Tensor] | UserError:
        answer = self.reader[request]
        if isinstance(answer, UserError):
            return answer
        images = answer[0] if isinstance(answer, tuple) else answer
        images = augmented(images, self.augment, self.seed, request[0], torch.from_numpy(request[1]))
        return (images, answer[1]) if isinstance(answer, tuple) else images


Answer = Tensor | tuple[Tensor, Tensor] | UserError


def copied_ahead(answers: Iterator[Answer], device: torch.device) -> Iterator[Answer]:
    """The answers with their tensors on the device; on CUDA the next is copied during the update before."""
    if device.type != "cuda":
        for answer in answers:
            yield _moved(answer, device)
        return
    stream = torch.cuda.Stream(device)
    waiting: list[tuple[Answer, torch.cuda.Event]] = []
    for answer in answers:
        with torch.cuda.stream(stream):
            copy = _moved(answer, device)
            done = torch.cuda.Event()
            done.record(stream)
        waiting.append((copy, done))
        if len(waiting) == 2:
            yield _ready(*waiting.pop(0), device)
    for copy, done in waiting:
        yield _ready(copy, done, device)


def _moved(answer: Answer, device: torch.device) -> Answer:
    if isinstance(answer, UserError):
        return answer
    if isinstance(answer, tuple | list):  # a list where torch before 2.11 has pinned the two
        return answer[0].to(device, non_blocking=True), answer[1].to(device, non_blocking=True)
    return answer.to(device, non_blocking=True)


def _ready(answer: Answer, done: torch.cuda.Event, device: torch.device) -> Answer:
    """Work that follows on the model's stream waits for the copy, and the memory stays until that work is done."""
    current = torch.cuda.current_stream(device)
    current.wait_event(done)
    for tensor in answer if isinstance(answer, tuple) else (answer,):
        if isinstance(tensor, Tensor):
            tensor.record_stream(current)
    return answer
