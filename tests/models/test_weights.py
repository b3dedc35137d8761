"""Starting from weights: what matches is taken and counted, a head of another size starts anew, nothing is silent."""

from pathlib import Path

import pytest
import torch
from torch import nn

from torchlite.errors import UserError
from torchlite.models import MLP, SmallCNN, load_weights, resnet18
from torchlite.models.weights import read_weights


def saved(model: nn.Module, path: Path, prefix: str = "", key: str | None = None) -> str:
    state = {prefix + name: value for name, value in model.state_dict().items()}
    torch.save(state if key is None else {key: state}, path)
    return str(path)


@pytest.mark.parametrize("key", [None, "model", "state_dict"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "module._orig_mod."])
def test_all_is_taken_whatever_wrapped_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, prefix: str, key: str | None
) -> None:
    """F01"""
    caplog.set_level("INFO", "torchlite")
    one, other = SmallCNN(3, 1), SmallCNN(3, 1)
    path = saved(one, tmp_path / "w.pt", prefix, key)
    load_weights(other, path)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))
    assert caplog.messages == [f"model.weights: 20 of 20 tensors taken from {path}"]


def test_an_empty_file_is_no_file_of_weights(tmp_path: Path) -> None:
    (tmp_path / "w.pt").touch()
    with pytest.raises(UserError, match="not a file of weights that can be read safely: "):
        read_weights(str(tmp_path / "w.pt"))


def test_another_architecture_is_an_error(tmp_path: Path) -> None:
    """F03"""
    path = saved(MLP(3, 1, 8), tmp_path / "w.pt")
    with pytest.raises(UserError, match="0 of its 4 tensors match this model's 20"):
        load_weights(SmallCNN(3, 1), path)


def test_missing_and_unexpected_names_are_listed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """F03"""
    model = SmallCNN(3, 1)
    state = model.state_dict()
    del state["features.0.0.weight"]
    torch.save(state | {"extra.weight": torch.ones(1)}, tmp_path / "w.pt")
    load_weights(model, str(tmp_path / "w.pt"))
    assert "1 not in the file: features.0.0.weight" in caplog.text
    assert "1 not in the model: extra.weight" in caplog.text


@pytest.mark.parametrize("make", [lambda n: SmallCNN(n, 1), lambda n: resnet18(n, 1)], ids=["small_cnn", "resnet18"])
def test_a_head_of_another_size_starts_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture, make) -> None:  # noqa: ANN001
    """F04: the backbone of 1000 classes into 3."""
    caplog.set_level("INFO", "torchlite")
    old, new = make(1000), make(3)
    load_weights(new, saved(old, tmp_path / "w.pt"))
    head = "head" if isinstance(new, SmallCNN) else "fc"
    assert f"the head {head} has another size" in caplog.text
    for name, value in new.state_dict().items():
        if not name.startswith(head):
            assert torch.equal(value, old.state_dict()[name]), name
    assert new.get_submodule(head).weight.std() < 0.05


def test_another_shape_elsewhere_is_an_error(tmp_path: Path) -> None:
    """F04"""
    path = saved(SmallCNN(3, 1, widths=[8, 64, 80]), tmp_path / "w.pt")
    with pytest.raises(UserError, match=r"features.0.0.weight has another shape: \[8, 1, 3, 3\] in the file"):
        load_weights(SmallCNN(3, 1), path)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("hello")
    (tmp_path / "text.safetensors").write_text("hello")
    torch.save({"a": 1}, tmp_path / "empty.pt")
    for name, message in {
        "nowhere.pt": "there is no such file",
        "text.pt": "not a file of weights",
        "text.safetensors": "not a file of weights",
        "empty.pt": "no tensors in it",
    }.items():
        with pytest.raises(UserError, match=message):
            read_weights(str(tmp_path / name))
