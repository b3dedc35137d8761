"""Updates of models and tasks that somebody else might write."""

from typing import Any

import pytest
import torch
from torch import nn

from tests.test_update import CPU, batch, updater
from torchlite.errors import UserError
from torchlite.tasks import Classification, Step
from torchlite.update import Updater


@pytest.mark.parametrize("kind", ["complex", "sparse"])
def test_gradients_of_other_kinds_are_measured(kind: str) -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(6, 3, dtype=torch.complex64)) if kind == "complex" else None
            self.table = nn.Embedding(6, 3, sparse=True)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            if self.weight is None:
                return self.table(images.argmax(dim=1))
            return (images.to(torch.complex64) @ self.weight).abs()

    network = Other()
    one = Updater(network, network, Classification(3), torch.optim.SGD(network.parameters(), lr=0.1), CPU)
    one.apply(batch(8), 1)
    gradients = [p.grad.to_dense() for p in network.parameters() if p.grad is not None]
    assert one.grad_norm.item() == pytest.approx(
        torch.cat([g.abs().flatten() for g in gradients]).norm().item(), rel=1e-5
    )


def test_losses_without_gradient_are_named() -> None:
    class Detached(Classification):
        def training_step(self, model: nn.Module, batch: Any) -> Step:
            return Step(super().training_step(model, batch).losses.detach())

    with pytest.raises(UserError, match=r"Detached.training_step: the losses have no gradient"):
        updater(task=Detached(3)).apply(batch(4), 1)


def test_a_metric_that_is_no_tensor_is_named() -> None:
    class Scalar(Classification):
        def training_step(self, model: nn.Module, batch: Any) -> Step:
            return Step(super().training_step(model, batch).losses, {"scale": 1.0})  # type: ignore[dict-item]

    with pytest.raises(UserError, match=r"the metric scale has to be \[B\]"):
        updater(task=Scalar(3)).apply(batch(4), 1)
