"""Averages of the weights: those of torch.optim.swa_utils, at less cost."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from torchlite.errors import UserError
from torchlite.models import SmallCNN
from torchlite.optim import WeightAverage, check_averaging


def move(model: nn.Module, seed: int) -> None:
    """New weights and statistics, as an update would leave them."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
        model.train()(torch.randn(8, 1, 8, 8))


def test_an_exponential_average_is_torchs_to_the_bit() -> None:
    model = SmallCNN(num_classes=3, in_chans=1, widths=[4, 8])
    torchs = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    ours = WeightAverage(model, ema_decay=0.9)
    assert ours.module is model
    for seed in range(5):
        move(model, seed)
        torchs.update_parameters(model)
        ours.after_update()
    state, expected = ours.module.state_dict(), torchs.module.state_dict()
    counters = {name for name, value in expected.items() if not value.is_floating_point()}
    assert len(counters) == 2
    assert all(torch.equal(state[name], expected[name]) for name in expected.keys() - counters)
    assert all(int(state[name]) == 5 for name in counters)  # a counter is the model's, not an average rounded down
    assert ours.state_dict()["num_averaged"] == 5


def test_the_first_update_is_where_an_exponential_average_begins() -> None:
    model = nn.Linear(2, 1)
    average = WeightAverage(model, ema_decay=0.5)
    for value in (1.0, 3.0):
        nn.init.constant_(model.weight, value)
        average.after_update()
    assert average.module.weight.tolist() == [[2.0, 2.0]]


def test_weights_that_are_shared_are_averaged_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    average = WeightAverage(model, ema_decay=0.5)
    for value in (0.0, 1.0):
        nn.init.constant_(model[0].weight, value)
        average.after_update()
    assert average.module[0].weight is average.module[1].weight
    assert average.module[0].weight.unique().tolist() == [0.5]


class Replacing(nn.Module):
    """Puts a new tensor in the place of its buffer, as the running norms of some networks do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))


def test_a_tensor_put_in_the_place_of_another_is_followed() -> None:
    model = Replacing()
    average = WeightAverage(model, ema_decay=0.5)
    for value in (1.0, 2.0):
        model.seen = torch.full((1,), value)
        average.after_update()
    assert average.module.seen.tolist() == [1.5]


def test_a_plain_average_counts_each_epoch_alike() -> None:
    model = nn.Linear(1, 1)
    average = WeightAverage(model, swa_start_epoch=1)
    for epoch, value in enumerate((100.0, 1.0, 2.0, 6.0)):
        nn.init.constant_(model.weight, value)
        average.after_update()
        average.after_epoch(epoch)
    assert average.module.weight.item() == 3.0


@pytest.mark.parametrize(
    ("ema_decay", "swa_start_epoch", "named"),
    [(0.9, 1, "ema_decay"), (1.0, None, "ema_decay"), (0.0, None, "ema_decay"), (None, 3, "swa_start_epoch")],
)
def test_what_makes_no_sense_is_refused(ema_decay: float | None, swa_start_epoch: int | None, named: str) -> None:
    with pytest.raises(UserError, match=rf"trainer\.{named}"):
        check_averaging(ema_decay, swa_start_epoch, max_epochs=3)
