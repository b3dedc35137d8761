"""Networks of torchvision: stem, head and names; no weights are downloaded."""

import pytest
import torch
import torchvision.models
from torch import nn

from torchlite import build
from torchlite.errors import UserError
from torchlite.models import resnet18, torchvision_model
from torchlite.models.surgery import replace_head, replace_input


@pytest.mark.parametrize(
    ("model_name", "image_size"),
    [
        ("resnet34", 32),
        ("mobilenet_v3_small", 32),
        ("efficientnet_b0", 32),
        ("vit_b_16", 224),
        ("densenet121", 32),
        ("squeezenet1_1", 32),
        ("swin_t", 32),
        ("googlenet", 32),
    ],
)
@pytest.mark.parametrize("in_chans", [1, 3])
def test_every_family_takes_channels_and_classes(model_name: str, image_size: int, in_chans: int) -> None:
    model = torchvision_model(model_name, num_classes=7, in_chans=in_chans).eval()
    with torch.inference_mode():
        assert model(torch.randn(1, in_chans, image_size, image_size)).shape == (1, 7)


@pytest.mark.slow
def test_the_head_of_every_network_is_replaced() -> None:
    """The head is found by its position: this holds the rule against every network that torchvision has."""
    for name in torchvision.models.list_models(module=torchvision.models):
        if name.startswith("regnet"):
            continue  # its builder reads tensors, which the meta device does not have
        with torch.device("meta"):
            model = torchvision_model(name, num_classes=7, in_chans=3)
        outputs = [getattr(layer, "out_features", getattr(layer, "out_channels", 0)) for layer in model.modules()]
        assert (outputs.count(7), outputs.count(1000)) == (1, 0), name


@pytest.mark.parametrize("norm", ["batch", "group", "layer"])
@pytest.mark.parametrize("small_images", [True, False])
def test_resnet18_stem_and_norm(norm: str, small_images: bool) -> None:
    model = resnet18(num_classes=10, in_chans=1, small_images=small_images, norm=norm)
    assert isinstance(model, torchvision.models.ResNet)
    assert model.conv1.kernel_size == ((3, 3) if small_images else (7, 7))
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules()) == (norm == "batch")
    maps = {}
    model.layer4.register_forward_hook(lambda _, __, output: maps.update(size=output.shape[-1]))
    assert model.eval()(torch.randn(2, 1, 32, 32)).shape == (2, 10)
    assert maps["size"] == (4 if small_images else 1)
    assert model.fc.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_unknown_name_is_refused_with_the_closest() -> None:
    with pytest.raises(UserError, match=r"model\.model_name=resnet99: .*resnet"):
        torchvision_model("resnet99", num_classes=2, in_chans=3)


def test_detection_networks_are_no_classification_networks() -> None:
    with pytest.raises(UserError, match="no such classification network"):
        torchvision_model("fasterrcnn_resnet50_fpn", num_classes=2, in_chans=3)


def test_pretrained_weights_need_batch_norm() -> None:
    with pytest.raises(UserError, match=r"model\.norm=group"):
        resnet18(num_classes=2, in_chans=3, norm="group", pretrained=True)


def test_weights_that_cannot_be_downloaded_are_the_users_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*args: object, **kwargs: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", unreachable)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", unreachable)
    node = {"_target_": "torchlite.models.resnet18", "num_classes": 2, "in_chans": 3, "pretrained": True}
    with pytest.raises(UserError, match=r"no route to host[^$]*model\.pretrained=false"):
        build.model(node)


@pytest.mark.parametrize("in_chans", [1, 4])
def test_a_kept_stem_answers_a_gray_image_as_before(in_chans: int) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 7, stride=2, padding=3), nn.Flatten())
    gray = torch.randn(2, 1, 16, 16)
    before = model(gray.expand(-1, 3, -1, -1))
    replace_input(model, in_chans, keep_weights=True)
    assert torch.allclose(model(gray.expand(-1, in_chans, -1, -1)), before, atol=1e-5)


def test_a_stem_or_head_that_fits_is_kept() -> None:
    conv, head = nn.Conv2d(3, 8, 3), nn.Linear(8, 5)
    model = nn.Sequential(conv, head)
    replace_input(model, 3, keep_weights=True)
    replace_head(model, 5, keep_weights=True)
    assert model[0] is conv
    assert model[1] is head
    replace_head(model, 5, keep_weights=False)
    assert model[1] is not head


def test_a_network_without_a_head_is_refused() -> None:
    with pytest.raises(UserError, match="no linear layer"):
        replace_head(nn.Sequential(nn.ReLU()), 5, keep_weights=False)
