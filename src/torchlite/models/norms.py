"""Normalization layers by name."""

from typing import Literal

from torch import nn

Norm = Literal["batch", "group", "layer"]

MAX_GROUPS = 32  # the paper's default
MIN_GROUP_CHANNELS = 4  # fewer come close to instance norm, which trains worse


def norm_2d(norm: Norm, num_channels: int) -> nn.Module:
    """A layer that normalizes feature maps [B, num_channels, H, W]; `layer` takes channels and space together."""
    return nn.BatchNorm2d(num_channels) if norm == "batch" else _group_norm(norm, num_channels)


def norm_1d(norm: Norm, num_features: int) -> nn.Module:
    """A layer that normalizes vectors [B, num_features]."""
    return nn.BatchNorm1d(num_features) if norm == "batch" else _group_norm(norm, num_features)


def group_count(num_channels: int) -> int:
    """The largest number of equal groups, at most 32, of at least 4 channels each; 1 where nothing else divides.

    Source: Wu and He, "Group Normalization", 2018.
    """
    most = min(MAX_GROUPS, num_channels // MIN_GROUP_CHANNELS)
    return next((groups for groups in range(most, 1, -1) if num_channels % groups == 0), 1)


def _group_norm(norm: Norm, num_channels: int) -> nn.GroupNorm:
    if norm == "layer":
        return nn.GroupNorm(1, num_channels)
    if norm == "group":
        return nn.GroupNorm(group_count(num_channels), num_channels)
    raise ValueError(f"norm must be 'batch', 'group' or 'layer', not {norm!r}")
