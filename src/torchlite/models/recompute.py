"""Activation checkpointing: memory for time, the same gradient."""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def recompute_activations(model: nn.Module) -> list[str]:
    """Make the model's blocks forget their activations and compute them again on the way back; the names of the blocks.

    A block is a child of the model, or of a sequence in it, that has layers of its own. Dropout draws the same again, and batch
    norms count each batch once (Chen et al. 2016, arXiv:1604.06174).
    """
    names: list[str] = []
    for name, block in model.named_modules():
        parent = model.get_submodule(name.rpartition(".")[0])
        sequence = isinstance(parent, nn.Sequential | nn.ModuleList)
        inside = any(name.startswith(f"{outer}.") for outer in names)
        is_list = isinstance(block, nn.ModuleList) or (isinstance(block, nn.Sequential) and _holds_blocks(block))
        if name and not inside and not is_list and (parent is model or sequence) and _has_layers(block):
            _wrap(block)
            names.append(name)
    return names


def _holds_blocks(sequence: nn.Sequential) -> bool:
    return all(_has_layers(child) for child in sequence if next(child.parameters(), None) is not None)


def _has_layers(module: nn.Module) -> bool:
    return next(module.children(), None) is not None


def _wrap(block: nn.Module) -> None:
    """Make the block an object of a class of its own, so that a copy of it computes with its own parameters."""
    original = type(block)

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        plain = partial(original.forward, self)
        if not self.training:
            return plain(*args, **kwargs)
        norms = [module for module in self.modules() if isinstance(module, _BatchNorm)]
        if norms:
            kwargs["context_fn"] = partial(_contexts, norms)
        return checkpoint(plain, *args, use_reentrant=False, **kwargs)

    block.__class__ = type(original.__name__, (original,), {"forward": forward})


def _contexts(norms: list[_BatchNorm]) -> tuple[Any, Any]:
    return contextlib.nullcontext(), _statistics_kept(norms)


@contextlib.contextmanager
def _statistics_kept(norms: list[_BatchNorm]) -> Iterator[None]:
    """The second forward pass sees the same batch: let it move copies of the running statistics, not these."""
    before = [dict(norm._buffers) for norm in norms]
    for norm in norms:
        norm._buffers.update({name: value.clone() for name, value in norm._buffers.items() if value is not None})
    try:
        yield
    finally:
        for norm, buffers in zip(norms, before, strict=True):
            norm._buffers.update(buffers)
