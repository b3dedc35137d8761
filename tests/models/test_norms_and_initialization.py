"""Norm layers by name, and the statistics of initial weights."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from torchlite.models import SmallCNN
from torchlite.models.initialization import HEAD_STD, initialize, initialize_head
from torchlite.models.norms import group_count, norm_1d, norm_2d


@pytest.mark.parametrize(
    ("norm", "kind"), [("batch", nn.BatchNorm2d), ("group", nn.GroupNorm), ("layer", nn.GroupNorm)]
)
def test_norm_2d_normalizes(norm: str, kind: type[nn.Module]) -> None:
    layer = norm_2d(norm, 16)
    assert type(layer) is kind
    normalized = layer(torch.randn(32, 16, 8, 8) * 5 + 3)
    assert normalized.mean().abs().item() < 1e-4
    assert normalized.std().item() == pytest.approx(1.0, abs=1e-2)


def test_layer_norm_is_one_group_over_channels_and_space() -> None:
    maps = torch.randn(2, 6, 5, 5)
    assert torch.allclose(norm_2d("layer", 6)(maps), nn.functional.layer_norm(maps, [6, 5, 5]), atol=1e-6)
    vectors = torch.randn(3, 6)
    assert torch.allclose(norm_1d("layer", 6)(vectors), nn.functional.layer_norm(vectors, [6]), atol=1e-6)


def test_unknown_norm_is_refused() -> None:
    with pytest.raises(ValueError, match="'instance'"):
        norm_2d("instance", 8)  # type: ignore[arg-type]


@given(st.integers(1, 4096))
def test_groups_divide_the_channels(num_channels: int) -> None:
    groups = group_count(num_channels)
    assert 1 <= groups <= 32
    assert num_channels % groups == 0
    assert groups == 1 or num_channels // groups >= 4


@pytest.mark.parametrize(("num_channels", "groups"), [(3, 1), (8, 2), (32, 8), (64, 16), (96, 24), (512, 32), (97, 1)])
def test_group_counts(num_channels: int, groups: int) -> None:
    assert group_count(num_channels) == groups


def test_initial_statistics_by_layer_type() -> None:
    conv, linear, norm = nn.Conv2d(64, 128, 3), nn.Linear(512, 256), nn.BatchNorm2d(64)
    nn.init.constant_(norm.weight, 7.0)
    initialize(nn.Sequential(conv, linear, norm))
    assert conv.weight.std().item() == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.02)
    assert linear.weight.std().item() == pytest.approx(math.sqrt(2 / 512), rel=0.02)
    assert torch.equal(norm.weight, torch.ones(64))
    assert not any(layer.bias.any() for layer in (conv, linear, norm))


def test_layers_without_weight_or_bias_are_no_trouble() -> None:
    initialize(nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2, affine=False), nn.GroupNorm(1, 2)))


def test_head_starts_small() -> None:
    head = SmallCNN(1000, 1).head
    assert head.weight.std().item() == pytest.approx(HEAD_STD, rel=0.05)
    head = nn.Linear(4, 2, bias=False)
    initialize_head(head)
    assert head.weight.abs().max() < 0.2
