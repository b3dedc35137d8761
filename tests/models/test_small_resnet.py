"""SmallResNet: shapes, the blocks it begins with, and what it refuses."""

import math

import pytest
import torch
from torch.nn import functional

from torchlite.errors import UserError
from torchlite.models import SmallResNet, recompute_activations
from torchlite.models.small_resnet import ResidualBlock


@pytest.mark.parametrize("size", [(8, 8), (9, 13), (28, 28), (70, 64)])
@pytest.mark.parametrize("norm", ["batch", "group", "layer"])
def test_it_takes_any_size(size: tuple[int, int], norm: str) -> None:
    model = SmallResNet(num_classes=7, in_chans=2, widths=[8, 16, 16], depths=[1, 2, 1], norm=norm)
    logits = model(torch.randn(3, 2, *size))
    assert logits.shape == (3, 7)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_it_has_the_parameters_and_blocks_it_says() -> None:
    model = SmallResNet(num_classes=10, in_chans=1)
    assert sum(parameter.numel() for parameter in model.parameters()) == 1_228_394
    deeper = SmallResNet(num_classes=10, in_chans=1, depths=[2, 3, 1, 1])
    assert len(deeper.blocks) == 7
    assert [block.residual[0].stride[0] for block in deeper.blocks] == [1, 1, 2, 1, 1, 2, 2]


def test_maps_are_halved_between_widths() -> None:
    model = SmallResNet(num_classes=2, in_chans=1, widths=[4, 8, 16], depths=[1, 1, 1])
    assert model.blocks(model.stem(torch.randn(1, 1, 28, 28))).shape == (1, 16, 7, 7)


def test_a_block_begins_as_its_shortcut() -> None:
    model = SmallResNet(num_classes=2, in_chans=1, widths=[4], depths=[2])
    maps = torch.rand(2, 4, 8, 8)
    for block in model.blocks:
        assert isinstance(block, ResidualBlock)
        assert torch.equal(block(maps), maps)


def test_the_first_loss_is_that_of_a_guess() -> None:
    loss = functional.cross_entropy(SmallResNet(10, 1)(torch.randn(64, 1, 28, 28)), torch.arange(64) % 10)
    assert loss.item() == pytest.approx(math.log(10), abs=0.15)


@pytest.mark.parametrize(("widths", "depths"), [([], []), ([8, 8], [1]), ([8], [0]), ([0], [1])])
def test_groups_that_are_none_are_refused(widths: list[int], depths: list[int]) -> None:
    with pytest.raises(UserError, match=r"model\.widths=.*model\.depths="):
        SmallResNet(10, 1, widths=widths, depths=depths)


def test_its_blocks_can_be_computed_twice() -> None:
    model = SmallResNet(10, 1, widths=[4, 8], depths=[1, 1])
    assert recompute_activations(model) == ["stem", "blocks.0", "blocks.1"]
