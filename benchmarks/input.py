"""How many images a second arrive, beside torchvision's usual per-sample pipeline: same crops, flips and normalization.

    python -m benchmarks.input [ROUNDS]

Arrays of 28x28 and 3x32x32 in memory against PIL, without workers; a folder of JPEG files with RandomResizedCrop 224
against `ImageFolder`, with two workers each. Batches of 128 (64 of JPEG), one epoch a round; workers stay from round to
round. On a machine that others use too, set OMP_NUM_THREADS=1: two threads then wait for each other.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

from benchmarks.measure import interleave, machine
from torchlite.data.augment import RandomCrop, RandomHorizontalFlip, RandomResizedCrop
from torchlite.data.folders import image_folder
from torchlite.data.image_data import ImageData
from torchlite.data.preprocess import Preprocess
from torchlite.data.sources import Arrays

NUM_ARRAYS, NUM_FILES, BATCH_SIZE, FILE_BATCH_SIZE = 20_000, 512, 128, 64


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """Arrays as torchvision's own sets give them: a PIL image each, then transforms."""

    def __init__(self, pixels: np.ndarray, transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self.pixels = pixels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.transform(Image.fromarray(self.pixels[index])), 0


def usual(crop: v2.Transform, channels: int) -> v2.Compose:
    last = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * channels, [0.25] * channels)]
    return v2.Compose([crop, v2.RandomHorizontalFlip(), *last])


def arrays(channels: int, size: int) -> tuple[ImageData, DataLoader[torch.Tensor]]:
    shape = (NUM_ARRAYS, size, size, 3)[: 3 if channels == 1 else 4]
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    padding = size // 8
    ours = ImageData(
        train=Arrays(pixels, np.zeros(NUM_ARRAYS, dtype=np.int64), None),
        test=None,
        num_classes=1,
        channels=1 if channels == 1 else 3,
        image_size=size,
        batch_size=BATCH_SIZE,
        augment=[RandomCrop(padding), RandomHorizontalFlip()],
        preprocess=Preprocess([0.5] * channels, [0.25] * channels),
        val_fraction=0,
        seed=0,
        device="cpu",
    )
    transform = usual(v2.RandomCrop(size, padding=padding), channels)
    return ours, DataLoader(Pictures(pixels, transform), BATCH_SIZE, shuffle=True, drop_last=True)


def files(root: Path) -> tuple[ImageData, DataLoader[torch.Tensor]]:
    rng = np.random.default_rng(0)
    for index in range(NUM_FILES):
        folder = root / f"class {index % 2}"
        folder.mkdir(exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (32, 40, 3), dtype=np.uint8))
        coarse.resize((320, 256), Image.Resampling.BICUBIC).save(folder / f"{index}.jpg", quality=90)
    ours = ImageData(
        train=image_folder(str(root)),
        test=None,
        num_classes=2,
        channels=3,
        image_size=224,
        batch_size=FILE_BATCH_SIZE,
        crop=RandomResizedCrop(224),
        augment=[RandomHorizontalFlip()],
        preprocess=Preprocess([0.5] * 3, [0.25] * 3, resize=256, crop=224),
        val_fraction=0,
        in_memory=False,
        num_workers=2,
        seed=0,
        device="cpu",
    )
    dataset = ImageFolder(str(root), usual(v2.RandomResizedCrop(224), 3))
    theirs = DataLoader(dataset, FILE_BATCH_SIZE, shuffle=True, drop_last=True, num_workers=2, persistent_workers=True)
    return ours, theirs


def per_second(batches: Iterable[object], count: int) -> float:
    """Images a second over all of the batches; the time until the first counts too."""
    began = time.perf_counter()
    for _ in batches:
        pass
    return count / (time.perf_counter() - began)


def compare(what: str, ours: ImageData, theirs: DataLoader[torch.Tensor], rounds: int, wanted: float) -> None:
    epochs = iter(range(10**6))
    count = len(ours.train) * ours.batch_size
    pairs = interleave(
        lambda: per_second(ours.train.epoch(next(epochs)), count), lambda: per_second(theirs, count), rounds
    )
    ratios = sorted(mine / other for mine, other in pairs)
    mine, other = (statistics.median(side) for side in zip(*pairs, strict=True))
    print(
        f"{what}: torchlite {mine:,.0f} images/s, torchvision and PIL {other:,.0f}; "
        f"{statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f}; medians of {rounds} interleaved "
        f"rounds; wanted: {wanted:g} or more)"
    )


def main(rounds: int) -> None:
    print(machine())
    compare("28x28 gray in memory, no workers", *arrays(1, 28), rounds, 40)
    compare("3x32x32 in memory, no workers", *arrays(3, 32), rounds, 12)
    with tempfile.TemporaryDirectory() as root:
        compare("JPEG files, RandomResizedCrop 224, 2 workers", *files(Path(root)), rounds, 1.25)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
