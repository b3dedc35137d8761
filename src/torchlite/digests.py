"""What went into an update and what came out of it, as digests: by them a repetition is seen to part, and where.

`digests.jsonl` has a line for an update, and one for the weights at the start and after each epoch:

    {"every": 1, "update": 0, "weights": "9f86d081884c7d65"}
    {"update": 1, "ids": "5f2a09c1", "lr": 0.001, "targets": "…", "images": "…", "loss": 2.3025, "grad_norm": 1.25}

Loss and norm are the exact numbers, so two runs can be told to differ by rounding or by more. What is on the model's device
stays there until the loop reads its own sums, so no update waits.
"""

import functools
import hashlib
import json
import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from torchlite.callbacks import Callback
from torchlite.machine import CONVOLUTIONS
from torchlite.randomness import hash_bits

NAME = ".digests"  # among the callbacks: no key of a config can hold a dot
FIRST = 16  # updates at the beginning that are always digested: most repetitions that part do so there
BYTES_AT_ONCE = 1 << 14  # of a batch for a network without convolutions, whose update may take less than a millisecond
PLAIN = (torch.float32, torch.int64)  # that numpy has as well
MOST_UPDATES = 20_000  # digested over a run: 3 MB of text


class Digests(Callback):
    """Writes the digests of a run; always on. Every update, or every k-th where it would take more of a large batch's time."""

    def __init__(self) -> None:
        self.every: int | None = None  # known with the first batch
        self.num_lines = 0
        self._pending: list[tuple[dict[str, Any], int | Tensor, int | Tensor, Tensor, float | Tensor, int]] = []

    def on_fit_begin(self, trainer: Any) -> None:
        self.record = trainer.record
        if not trainer.progress.update and not self.num_lines:
            self._initial = weights_digest(trainer.model)

    def on_batch_end(self, trainer: Any, batch: Any) -> None:
        update = trainer.progress.update
        if self.every is None:
            self._begin(trainer, batch)
        if update > FIRST and update % self.every:
            return
        line = {"update": update, "ids": f"{zlib.crc32(batch.ids.numpy()):08x}", "lr": trainer.lr}
        if math.log10(update).is_integer():
            line["weights"] = weights_digest(trainer.model)
        updater = trainer.updater
        sums = checksum(batch.targets.reshape(-1)), checksum(batch.images)
        self._pending.append((line, *sums, updater.loss_sum, updater.grad_square, len(batch.ids)))

    def on_log(self, trainer: Any, values: dict[str, float]) -> None:
        self.write()

    def on_epoch_end(self, trainer: Any) -> None:
        progress = trainer.progress
        self._put([{"update": progress.update, "epoch": progress.epoch, "weights": weights_digest(trainer.model)}])

    def close(self) -> None:
        self.write()

    def state_dict(self) -> dict[str, Any]:
        self.write()
        return {"lines": self.num_lines, "every": self.every}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_lines, self.every = state["lines"], state["every"]

    def write(self) -> None:
        """Put on disk what is pending. Waits for the device."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        lines, targets, images, losses, squares, counts = zip(*pending, strict=True)
        values = zip(*map(_numbers, (targets, images, losses, squares)), strict=True)
        for line, (target, image, loss, square), count in zip(lines, values, counts, strict=True):
            line |= {"targets": _hexadecimal(target), "images": _hexadecimal(image)}
            line |= {"loss": _finite(loss / count), "grad_norm": _finite(math.sqrt(square))}
        self._put(lines)

    def _begin(self, trainer: Any, batch: Any) -> None:
        """Choose how often, and write the line of the weights that the run begins with."""
        convolutional = any(isinstance(module, CONVOLUTIONS) for module in trainer.model.modules())
        by_size = 1 if convolutional else math.ceil(batch.images.nbytes / BYTES_AT_ONCE)
        every = max(by_size, math.ceil(trainer.total_updates / MOST_UPDATES))
        # A power of two, so that of two runs one digests all that the other does
        self.every = 1 << (every - 1).bit_length()
        if not self.num_lines and hasattr(self, "_initial"):
            self._put([{"every": self.every, "update": 0, "weights": self._initial}])

    def _put(self, lines: Sequence[dict[str, Any]]) -> None:
        self.record.digest("".join(f"{json.dumps(line)}\n" for line in lines))
        self.num_lines += len(lines)


def lines_kept(state: dict[str, Any] | None) -> tuple[int | None, int]:
    """How many lines of metrics.jsonl and of digests.jsonl a checkpoint counts; of a run from its beginning (None, 0)."""
    if state is None:
        return None, 0
    return state["progress"]["lines"], state["callbacks"].get(NAME, {"lines": 0})["lines"]


def _numbers(column: Sequence[Any]) -> list[Any]:
    """Scalars as plain numbers, those on a device in one go."""
    return torch.stack(tuple(column)).tolist() if isinstance(column[0], Tensor) else list(column)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # which JSON does not have


def checksum(values: Tensor) -> int | Tensor:
    """A 64-bit number of the bits of every sample [B, …] and of their places within it; off the CPU a scalar tensor there.

    Sums of integers, so the same on every device and for any number of threads. Which of the samples holds what does not
    count, since the ids say that, but in a vector every place does.
    """
    if values.device.type == "cpu" and values.dtype in PLAIN:  # numpy does it in a third of the time
        array = np.ascontiguousarray(values.detach().numpy())
        rows = array.reshape(len(array) if array.ndim > 1 else 1, -1)
        words = rows.view(np.int64 if rows.shape[1] * rows.itemsize % 8 == 0 else np.uint8)
        sums = words[0] if len(words) == 1 else np.add.reduce(words, axis=0, dtype=np.int64)
        return int(sums.dot(_factors_of_numpy(words.shape[1])))
    flat = values.detach().reshape(len(values) if values.ndim > 1 else 1, -1).contiguous()
    bits = flat.view(torch.int64 if flat.shape[1] * flat.element_size() % 8 == 0 else torch.uint8)
    return (bits.sum(0) * _factors(bits.shape[1], values.device)).sum()


@functools.cache
def _factors(count: int, device: torch.device) -> Tensor:
    return (hash_bits(0, 0, torch.arange(count), 1, 0)[:, 0] | 1).to(device)


@functools.cache
def _factors_of_numpy(count: int) -> np.ndarray:
    return _factors(count, torch.device("cpu")).numpy()


def _hexadecimal(value: int) -> str:
    return f"{value & (1 << 64) - 1:016x}"


def weights_digest(model: nn.Module) -> str:
    """16 hex digits of a SHA-256 over the names and bits of all parameters and buffers."""
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        flat = value.detach().cpu().contiguous().reshape(-1)
        digest.update(f"{name} {value.dtype} {list(value.shape)}\n".encode())
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
