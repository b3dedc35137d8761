"""Which parameters are decayed, the linear learning-rate rule, and timm's optimizers."""

import io

import pytest
import timm
import torch
from torch import nn

from torchlite.errors import UserError
from torchlite.models import SmallCNN, resnet18
from torchlite.optim import linear_lr, parameter_groups, timm_optimizer


def names(group: dict) -> set[str]:
    return {name for name, _ in group["params"]}


def test_resnet18_decays_convolution_and_linear_weights_alone() -> None:
    model = resnet18(num_classes=10, in_chans=3)
    decayed, rest = parameter_groups(model, weight_decay=0.05)
    assert (decayed["weight_decay"], rest["weight_decay"]) == (0.05, 0.0)
    weights = {f"{n}.weight" for n, m in model.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))}
    assert names(decayed) == weights
    assert names(decayed) | names(rest) == {name for name, _ in model.named_parameters()}


def test_vit_does_not_decay_what_it_lists() -> None:
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=10)
    decayed, rest = parameter_groups(model, weight_decay=0.05)
    assert {"pos_embed", "cls_token"} <= names(rest)
    assert all(name.endswith(".weight") and "norm" not in name for name in names(decayed))
    inside = parameter_groups(nn.ModuleDict({"encoder": model}), weight_decay=0.05)
    assert "encoder.pos_embed" in names(inside[1])


def test_norms_of_more_dimensions_are_not_decayed() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.LayerNorm([3, 4, 4]))
    assert names(parameter_groups(model)[1]) == {"1.weight", "1.bias"}


def test_everything_is_decayed_on_demand() -> None:
    groups = parameter_groups(SmallCNN(10, 1), weight_decay=0.1, decay_norm_and_bias=True)
    assert len(groups) == 1
    assert len(groups[0]["params"]) == len(list(SmallCNN(10, 1).parameters()))


def test_shared_parameters_are_in_one_group_once() -> None:
    model = nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.Linear(4, 4)})
    model["second"].weight = model["first"].weight
    decayed, rest = parameter_groups(model)
    assert names(decayed) == {"first.weight"}
    assert names(rest) == {"first.bias", "second.bias"}


def test_a_shared_parameter_may_be_listed_under_its_second_name() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.second = self.first

        def no_weight_decay(self) -> set[str]:
            return {"second.weight"}

    (group,) = parameter_groups(Tied(), weight_decay=0.1)
    assert group["weight_decay"] == 0.0


def test_frozen_parameters_are_left_out() -> None:
    model = SmallCNN(10, 1)
    model.features.requires_grad_(False)
    assert [names(group) for group in parameter_groups(model)] == [{"head.weight"}, {"head.bias"}]
    with pytest.raises(UserError, match="no trainable parameter"):
        parameter_groups(model.requires_grad_(False))


def test_without_a_decay_the_optimizers_own_holds() -> None:
    optimizer = torch.optim.AdamW(parameter_groups(SmallCNN(10, 1)), lr=0.1, weight_decay=0.3)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]


def test_order_and_names_are_the_models_and_load_as_weights_only() -> None:
    model = SmallCNN(10, 1)
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=0.1, betas=[0.9, 0.99])
    model(torch.randn(2, 1, 8, 8)).sum().backward()
    optimizer.step()
    order = [name for name, _ in model.named_parameters()]
    for group in optimizer.param_groups:
        assert group["param_names"] == [name for name in order if name in group["param_names"]]
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    optimizer.load_state_dict(torch.load(file, weights_only=True))


@pytest.mark.parametrize("opt", ["lamb", "lion", "sgd", "adan", "muon", "lookahead_radam"])
def test_timm_optimizers_learn_from_groups(opt: str) -> None:
    model = SmallCNN(10, 1)
    optimizer = timm_optimizer(parameter_groups(model), opt=opt, lr=0.01, weight_decay=0.02)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.02, 0.0]
    before = model.head.weight.clone()
    nn.functional.cross_entropy(model(torch.randn(4, 1, 8, 8)), torch.arange(4)).backward()
    optimizer.step()
    assert not torch.equal(model.head.weight, before)


def test_timm_optimizer_takes_betas_and_eps() -> None:
    optimizer = timm_optimizer([nn.Parameter(torch.ones(2))], opt="lamb", lr=0.01, betas=[0.8, 0.9], eps=1e-4)
    assert (list(optimizer.defaults["betas"]), optimizer.defaults["eps"]) == ([0.8, 0.9], 1e-4)
    with pytest.raises(UserError, match=r"optimizer\.betas"):
        timm_optimizer([nn.Parameter(torch.ones(2))], opt="sgd", lr=0.01, betas=[0.8, 0.9])


def test_unknown_timm_optimizer_is_refused_with_the_closest() -> None:
    with pytest.raises(UserError, match=r"optimizer\.opt=lambb: .*lamb"):
        timm_optimizer([nn.Parameter(torch.ones(2))], opt="lambb", lr=0.01)


@pytest.mark.parametrize(("batch_size", "expected"), [(256, 0.1), (64, 0.025), (8192, 3.2)])
def test_linear_rule(batch_size: int, expected: float) -> None:
    assert linear_lr(0.1, batch_size, reference_batch_size=256) == pytest.approx(expected)


@pytest.mark.parametrize("sizes", [(0, 256), (256, 0)])
def test_linear_rule_refuses_empty_batches(sizes: tuple[int, int]) -> None:
    with pytest.raises(UserError, match=r"trainer\.lr_reference_batch_size"):
        linear_lr(0.1, *sizes)
