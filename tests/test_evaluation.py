"""Scores of a part of the data."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from torchlite.evaluation import evaluate


def test_the_model_computes_in_the_precision_and_the_data_does_not() -> None:
    """Or images would be normalized otherwise than in training."""
    autocast = torch.autocast("cpu", torch.bfloat16)
    seen: list[tuple[str, bool, bool]] = []

    def note(what: str, model: nn.Module) -> None:
        seen.append((what, torch.is_autocast_enabled("cpu"), model.training))

    def epoch(number: int) -> Iterator[Any]:
        for size in (3, 1):
            note("data", model)
            yield SimpleNamespace(ids=torch.arange(size))

    def evaluation_step(model: nn.Module, batch: Any) -> dict[str, torch.Tensor]:
        note("model", model)
        return {"loss": torch.full((len(batch.ids),), float(len(batch.ids)))}

    model = nn.Linear(1, 1)
    means = evaluate(model, SimpleNamespace(evaluation_step=evaluation_step), SimpleNamespace(epoch=epoch), autocast)
    assert means == {"loss": (3 * 3.0 + 1.0) / 4}
    assert seen == [("data", False, False), ("model", True, False)] * 2 and model.training
