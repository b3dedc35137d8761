"""Classification: losses per sample, weights and smoothing inside, scores limited to the class count."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torchlite.data.batches import Batch
from torchlite.errors import UserError
from torchlite.metrics import Deferred
from torchlite.tasks import Classification


@pytest.fixture
def batch() -> Batch:
    torch.manual_seed(0)
    return Batch(torch.randn(6, 4), torch.tensor([0, 1, 2, 2, 1, 0]), torch.arange(6))


def test_losses_are_per_sample(batch: Batch) -> None:
    model = nn.Linear(4, 3)
    step = Classification(3, label_smoothing=0.1).training_step(model, batch)
    expected = F.cross_entropy(model(batch.images), batch.targets, reduction="none", label_smoothing=0.1)
    assert step.losses.shape == (6,) and torch.equal(step.losses, expected)
    correct = step.metrics["acc1"]
    assert isinstance(correct, Deferred)
    function, tensors, _ = correct
    assert not tensors[0].requires_grad
    assert torch.equal(function(*tensors), model(batch.images).argmax(1) == batch.targets)
    assert step.losses.requires_grad


def test_class_weights_scale_their_samples(batch: Batch) -> None:
    model = nn.Linear(4, 3)
    plain = Classification(3).training_step(model, batch).losses
    weighted = Classification(3, class_weights=[1.0, 2.0, 0.5]).training_step(model, batch).losses
    assert torch.allclose(weighted, plain * torch.tensor([1.0, 2.0, 0.5])[batch.targets])


def test_scores_stop_at_the_class_count(batch: Batch) -> None:
    task = Classification(3, topk=(1, 2, 5))
    assert task.metrics == {"loss": "min", "acc1": "max", "acc2": "max"}
    assert task.evaluation_step(nn.Linear(4, 3), batch).keys() == task.metrics.keys()


def test_a_model_of_another_width_is_named(batch: Batch) -> None:
    with pytest.raises(UserError, match=r"shape \[6, 4\]; the task needs \[batch, 3\]"):
        Classification(3).training_step(nn.Linear(4, 4), batch)


@pytest.mark.parametrize("kind", [torch.float32, torch.int32, torch.uint8])
def test_targets_of_another_kind_are_named(batch: Batch, kind: torch.dtype) -> None:
    batch.targets = batch.targets.to(kind)
    with pytest.raises(UserError, match="the task needs class numbers, int64"):
        Classification(3).training_step(nn.Linear(4, 3), batch)


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"class_weights": [1.0]}, "class_weights"),
        ({"topk": []}, "topk"),
        ({"topk": [0]}, "topk"),
    ],
)
def test_bad_numbers_are_refused(arguments: dict, key: str) -> None:
    with pytest.raises(UserError, match=key):
        Classification(3, **arguments)


def test_probabilities_sum_to_one() -> None:
    assert torch.allclose(Classification(3).predict(nn.Linear(4, 3), torch.randn(5, 4)).sum(1), torch.ones(5))
