"""Draws docs/augmentations.png, every augmentation in six epochs: python docs/augmentations.py (needs scikit-learn)."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from sklearn.datasets import load_sample_images
from torchvision.transforms import v2

from torchlite.data.augment import RandomCrop, RandomErasing, RandomHorizontalFlip, RandomResizedCrop
from torchlite.data.color import ColorJitter
from torchlite.data.geometry import RandomAffine
from torchlite.data.image_data import ImageData
from torchlite.data.mixing import CutMix, MixUp
from torchlite.data.preprocess import Preprocess
from torchlite.data.sources import Arrays

SIZE, EPOCHS, LABELS = 64, 6, 130
ROWS = {
    "as it is": {},
    "RandomCrop": {"augment": [RandomCrop(12)]},
    "RandomHorizontalFlip": {"augment": [RandomHorizontalFlip()]},
    "RandomResizedCrop": {"augment": [RandomResizedCrop(SIZE, (0.2, 1.0))]},
    "RandomAffine: turn": {"augment": [RandomAffine(30)]},
    "RandomAffine: shift": {"augment": [RandomAffine(translate=(0.2, 0.2))]},
    "RandomAffine: scale": {"augment": [RandomAffine(scale=(0.6, 1.4))]},
    "RandomAffine: shear": {"augment": [RandomAffine(shear=(20.0, 20.0))]},
    "ColorJitter": {"augment": [ColorJitter(0.4, 0.4, 0.4)]},
    "ColorJitter: hue": {"augment": [ColorJitter(hue=0.3)]},
    "RandomErasing": {"augment": [RandomErasing(0.8)]},
    "MixUp": {"augment": [MixUp(1.0)]},
    "CutMix": {"augment": [CutMix()]},
    "v2.RandAugment": {"transforms": [v2.RandAugment()]},
    "v2.TrivialAugmentWide": {"transforms": [v2.TrivialAugmentWide()]},
    "v2.AugMix": {"transforms": [v2.AugMix()]},
}


def photographs() -> Arrays:
    """A palace and a flower, as scikit-learn ships them, in squares."""
    pictures = [Image.fromarray(image) for image in load_sample_images().images]
    squares = [picture.crop((107, 0, 534, 427)).resize((SIZE, SIZE)) for picture in pictures]
    return Arrays(np.stack([np.asarray(square) for square in squares]), np.arange(2), ["palace", "flower"])


def row(options: dict[str, list[object]]) -> np.ndarray:
    """Both photographs in each of the epochs, [SIZE, 2 * EPOCHS * SIZE, 3]."""
    made = ImageData(
        train=photographs(),
        test=None,
        num_classes=2,
        channels=3,
        image_size=SIZE,
        batch_size=2,
        preprocess=Preprocess([0.0] * 3, [1.0] * 3),
        val_fraction=0,
        num_workers=0,
        seed=1,
        device="cpu",
        **options,
    )
    columns = []
    for epoch in range(EPOCHS):
        (batch,) = made.train.epoch(epoch)
        columns += [batch.images[batch.ids == 0][0], batch.images[batch.ids == 1][0]]
    pictures = torch.cat([columns[i] for i in (*range(0, 2 * EPOCHS, 2), *range(1, 2 * EPOCHS, 2))], dim=2)
    return (pictures * 255).round().byte().permute(1, 2, 0).numpy()


def main() -> None:
    page = Image.new("RGB", (LABELS + 2 * EPOCHS * SIZE, len(ROWS) * SIZE), "white")
    for number, (name, options) in enumerate(ROWS.items()):
        page.paste(Image.fromarray(row(options)), (LABELS, number * SIZE))
        ImageDraw.Draw(page).text((4, number * SIZE + SIZE // 2 - 5), name, "black")
    small = page.resize((page.width * 3 // 4, page.height * 3 // 4), Image.Resampling.LANCZOS)
    small.quantize(96).save(Path(__file__).with_suffix(".png"), optimize=True)


if __name__ == "__main__":
    main()
