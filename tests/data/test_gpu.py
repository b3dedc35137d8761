"""On a GPU: the draws of the CPU, the same pixels but for a level of rounding, by way of pinned memory."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from torchlite.data.augment import RandomCrop, RandomErasing, RandomHorizontalFlip, RandomResizedCrop
from torchlite.data.folders import image_folder
from torchlite.data.geometry import RandomAffine
from torchlite.data.image_data import ImageData
from torchlite.data.mixing import CutMix
from torchlite.data.preprocess import Preprocess

MakeFolder = Callable[..., Path]

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("crop", [None, RandomResizedCrop(24)])
@pytest.mark.parametrize("kept", [True, False])
def test_batches_are_those_of_the_cpu(folder: MakeFolder, crop: RandomResizedCrop | None, kept: bool) -> None:
    root = folder(sizes=((30, 30),), per_class=16)

    def batches(device: str) -> list[torch.Tensor]:
        made = ImageData(
            train=image_folder(str(root)),
            test=None,
            num_classes=2,
            channels=3,
            image_size=24,
            batch_size=5,
            crop=crop,
            augment=[RandomCrop(2), RandomHorizontalFlip(), RandomErasing(), RandomResizedCrop(24), CutMix()],
            preprocess=Preprocess([0.0] * 3, [1 / 255] * 3, resize=24, crop=24),
            in_memory=kept,
            num_workers=2,
            seed=0,
            device=device,
        )
        read = list(made.train.epoch(0))
        assert all(batch.images.device.type == device and batch.targets.device.type == device for batch in read)
        return [batch.images.cpu() for batch in read]

    for there, here in zip(batches("cuda"), batches("cpu"), strict=True):
        assert (there - here).abs().max() <= 1.01


def test_affine_on_a_gpu_is_that_of_the_cpu() -> None:
    images = torch.randint(0, 256, (16, 3, 20, 20), dtype=torch.uint8)
    draws = torch.rand(16, 6)
    affine = RandomAffine(30, (0.1, 0.1), (0.8, 1.2))
    difference = (affine(images.cuda(), draws).cpu().int() - affine(images, draws).int()).abs()
    assert difference.float().mean() < 0.01
