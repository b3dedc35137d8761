"""The fingerprint follows content, all of it and nothing else."""

import torch

from torchlite.data.decode import Decoded
from torchlite.data.fingerprint import fingerprint


def part(seed: int = 0, channels: int = 1) -> Decoded:
    images = torch.randint(0, 256, (9, 1, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    return Decoded(images.expand(-1, channels, -1, -1), torch.arange(9) % 3, None)


def test_equal_content_has_an_equal_fingerprint() -> None:
    assert fingerprint({"train": part()}) == fingerprint({"train": part()})
    assert len(fingerprint({"train": part()})) == 64


def test_one_pixel_one_label_and_the_part_all_count() -> None:
    pixel, label = part(), part()
    pixel.images[8, 0, 3, 3] ^= 1
    label.targets[8] = 0
    sets = [{"train": part()}, {"train": pixel}, {"train": label}, {"test": part()}, {"train": part(channels=3)}]
    sets += [{"train": part(), "test": part(1)}, {"train": part(1), "test": part()}]
    assert len({fingerprint(parts) for parts in sets}) == len(sets)
