"""Loader workers that are killed, or have no room: said in one line, whenever it happens, with what may help."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from torchlite.data.augment import RandomResizedCrop
from torchlite.data.folders import image_folder
from torchlite.data.image_data import ImageData
from torchlite.data.preprocess import Preprocess
from torchlite.data.workers import WorkerDiedError

MakeFolder = Callable[..., Path]


def data(root: Path, **changes: Any) -> ImageData:
    options: dict[str, Any] = {"train": image_folder(str(root)), "test": None, "num_classes": 2, "channels": 3}
    options |= {"image_size": 24, "batch_size": 5, "val_fraction": 0, "drop_last": False, "num_workers": 2}
    options |= {"crop": RandomResizedCrop(24), "preprocess": Preprocess([0.5] * 3, [0.2] * 3, resize=26, crop=24)}
    return ImageData(**{**options, **changes}, seed=3, device="cpu")


class Slow:
    def __call__(self, image: Tensor) -> Tensor:
        time.sleep(0.05)
        return image


@pytest.mark.slow
def test_i04_a_worker_that_is_killed_ends_the_epoch_with_advice(folder: MakeFolder) -> None:
    made = data(folder(per_class=40), transforms=[Slow()])
    handler = signal.getsignal(signal.SIGCHLD)
    batches = made.train.epoch(0)
    next(batches)
    assert made.train.samples.workers._kept is not None
    victim = made.train.samples.workers._kept[0]._iterator._workers[1].pid
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    time.sleep(0.5)  # an update goes on: the news does not break into it
    with pytest.raises(WorkerDiedError) as raised:
        list(batches)
    assert time.monotonic() - began < 30
    assert "it was killed. Most often memory or shared memory" in str(raised.value)
    assert "data.num_workers=1" in str(raised.value) and len(str(raised.value).splitlines()) == 1
    assert signal.getsignal(signal.SIGCHLD) == handler
    assert len(list(made.train.epoch(0))) == 16  # new workers


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset"), ConnectionRefusedError(), EOFError()])
def test_i04_a_worker_that_is_killed_while_it_hands_over_is_explained(
    folder: MakeFolder, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """As met, now and then, where the batch was on its way when its worker died."""
    made = data(folder(), num_workers=1)

    def gone(self: object) -> None:
        raise error

    monkeypatch.setattr("torch.utils.data.dataloader._MultiProcessingDataLoaderIter._next_data", gone)
    with pytest.raises(WorkerDiedError, match="has gone while it handed over its batch .*: it was killed. Most often"):
        list(made.train.epoch(0))


class NoRoom:
    """As torch says it in a worker when /dev/shm is full."""

    def __call__(self, image: Tensor) -> Tensor:
        if torch.utils.data.get_worker_info() is None:
            return image
        raise RuntimeError(
            "unable to allocate shared memory(shm) for file </torch_1_2_3>: No space left on device (28)"
        )


def test_i04_a_worker_without_room_for_its_batch_is_explained(folder: MakeFolder) -> None:
    made = data(folder(), transforms=[NoRoom()])
    with pytest.raises(WorkerDiedError) as raised:
        list(made.train.epoch(0))
    assert str(raised.value).startswith("A loader worker could not hand over its batch (shared memory).")
    assert "data.num_workers=1" in str(raised.value) and len(str(raised.value).splitlines()) == 1
