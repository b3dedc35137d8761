"""Scores of a part of the data."""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from torchlite.errors import UserError
from torchlite.metrics import Averages


def evaluate(
    model: nn.Module,
    task: Any,
    batches: Any,
    autocast: AbstractContextManager[Any],
    limit_batches: int | None = None,
    after_batch: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Means over every sample of a part, by the names of the task's `evaluation_step`.

    Args:
        batches: the part; its first epoch is read.
        limit_batches: read no more than these.
        after_batch: called after each; may raise to leave.
    """
    averages, was_training = Averages(), model.training
    model.eval()
    with torch.no_grad():
        for batch in itertools.islice(batches.epoch(0), limit_batches):
            with autocast:  # which the preprocessing, between batches, is none of
                values = task.evaluation_step(model, batch)
            if any(value.shape != batch.ids.shape for value in values.values()):
                raise UserError(f"{type(task).__name__}.evaluation_step has to give one number a sample, [B].")
            averages.add(values)
            after_batch()
    model.train(was_training)
    return averages.means()
