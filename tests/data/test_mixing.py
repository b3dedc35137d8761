"""MixUp and CutMix: right mixtures, one draw a window, the same however the window is cut."""

import numpy as np
import pytest
import torch
from torch import Tensor

from torchlite.data.batches import Batches
from torchlite.data.mixing import CutMix, MixUp, OneOf, probabilities, window_rng
from torchlite.data.preprocess import Preprocess
from torchlite.data.samples import InMemory
from torchlite.errors import UserError
from torchlite.tasks import Classification


def batch(size: int = 5) -> tuple[Tensor, Tensor]:
    images = torch.arange(size, dtype=torch.float32)[:, None, None, None].expand(size, 3, 8, 10).contiguous()
    return images, probabilities(torch.arange(size) % 4, 4)


def mixed(mixture: object, size: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    images, targets = batch(size)
    return mixture.mix(images, targets, images.roll(1, 0), targets.roll(1, 0), window_rng(seed))


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("seed", range(5))
def test_mixup_averages_with_the_sample_before(size: int, seed: int) -> None:
    images, targets = mixed(MixUp(0.4), size, seed)
    rng = window_rng(seed)
    rng.random_sample()
    share = rng.beta(0.4, 0.4)
    before, labels = batch(size)
    torch.testing.assert_close(images, before * share + before.roll(1, 0) * (1 - share))
    torch.testing.assert_close(targets, labels * share + labels.roll(1, 0) * (1 - share))
    torch.testing.assert_close(targets.sum(1), torch.ones(size))


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("seed", range(8))
def test_cutmix_targets_are_the_shares_of_the_area(size: int, seed: int) -> None:
    images, targets = mixed(CutMix(), size, seed)
    for index in range(size):
        own, other = index, (index - 1) % size
        assert set(images[index].unique().tolist()) <= {float(own), float(other)}
        share = (images[index] == own).float().mean()
        expected = probabilities(torch.tensor([own % 4]), 4) * share + probabilities(torch.tensor([other % 4]), 4) * (
            1 - share
        )
        torch.testing.assert_close(targets[index], expected[0])


def test_probability_and_choice() -> None:
    assert all(torch.equal(mixed(MixUp(1.0, 0.0), seed=s)[0], batch()[0]) for s in range(9))
    half = sum(not torch.equal(mixed(MixUp(1.0, 0.5), seed=s)[0], batch()[0]) for s in range(400))
    assert 150 < half < 250
    chosen = [mixed(OneOf([MixUp(1.0), CutMix()]), seed=s)[0] for s in range(100)]
    cut = sum(bool((images == images.round()).all()) for images in chosen)
    assert 30 < cut < 70


def part(mixture: object, num_samples: int = 11) -> Batches:
    images = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (num_samples, 1, 6, 6), dtype=np.uint8))
    samples = InMemory(images, torch.arange(num_samples) % 3)
    return Batches(samples, 4, Preprocess([0.5], [0.25]), torch.device("cpu"), 7, mixture=mixture, num_classes=3)


def test_windows_and_epochs_differ_repeat_and_need_no_beginning() -> None:
    first = list(part(MixUp(1.0)).epoch(0))
    assert [b.targets.shape for b in first] == [(4, 3), (4, 3), (3, 3)] and first[0].targets.dtype == torch.float32
    again = list(part(MixUp(1.0)).epoch(0, start=1))
    assert all(torch.equal(a.images, b.images) for a, b in zip(first[1:], again, strict=True))
    shares = {round(float(b.targets.max()), 4) for e in range(3) for b in part(MixUp(1.0)).epoch(e)}
    assert len(shares) > 3


def test_mixed_targets_train_and_score() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 3))
    task = Classification(3, label_smoothing=0.1)
    for each in part(CutMix()).epoch(0):
        whole = task.training_step(model, each)
        cut = [task.training_step(model, micro) for micro in each.split(3)]
        assert whole.losses.shape == (len(each.ids),)
        torch.testing.assert_close(torch.cat([step.losses for step in cut]), whole.losses)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: MixUp(0.0), "alpha=0.0"),
        (lambda: CutMix(1.0, 1.5), "probability=1.5"),
        (lambda: OneOf([]), "choices is empty"),
    ],
)
def test_numbers_out_of_range_are_refused(make: object, named: str) -> None:
    with pytest.raises(UserError, match=named):
        make()  # type: ignore[operator]
