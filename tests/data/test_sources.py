"""The digits that come along, and the message when another set is missing."""

import hashlib
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from urllib.error import URLError

import numpy as np
import pytest
import torch
import torchvision

from torchlite.data import sources
from torchlite.data.decode import open_source
from torchlite.data.sources import digits, missing_data, no_empty_folders
from torchlite.errors import UserError


def test_digits_are_all_there_and_stratified() -> None:
    train, test = digits("train"), digits("test")
    assert (len(train), len(test)) == (1437, 360)
    assert train.data.shape[1:] == (8, 8) and train.data.dtype == np.uint8
    assert (train.data.min(), train.data.max()) == (0, 255)
    assert np.bincount(test.targets).min() >= 35 and np.bincount(test.targets).max() <= 37
    assert train[5][1] == train.targets[5]


def test_the_note_beside_the_digits_has_their_hash() -> None:
    folder = files("torchlite.data")
    found = hashlib.sha256(folder.joinpath("digits.npz").read_bytes()).hexdigest()
    assert found == sources.DIGITS_SHA256
    assert found in folder.joinpath("digits.txt").read_text()


def test_damaged_digits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "DIGITS_SHA256", "0" * 64)
    with pytest.raises(UserError, match="digits.npz is damaged"):
        digits("train")


def test_digits_need_neither_torchvision_nor_timm_nor_pillow() -> None:
    script = (
        "import sys; from torchlite.data.decode import open_source; from torchlite.data.sources import digits\n"
        "import torchlite.data.image_data\n"
        "open_source(digits('train'), 'data.train', 10, 1)\n"
        "print({'torchvision', 'timm', 'PIL'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("name", ["MNIST", "CIFAR10"])
def test_torchvision_arrays_are_taken_without_the_items(name: str) -> None:
    cls = getattr(torchvision.datasets, name)
    dataset = cls.__new__(cls)  # as read from its files, without them
    pixels = np.random.default_rng(0).integers(0, 256, (40, 28, 28, 3), dtype=np.uint8)
    dataset.transform = dataset.target_transform = dataset.transforms = None
    dataset.classes = [str(label) for label in range(10)]
    gray = name == "MNIST"
    dataset.data = torch.from_numpy(pixels[..., 0].copy()) if gray else pixels
    dataset.targets = torch.arange(40) % 10 if gray else [label % 10 for label in range(40)]
    got = open_source(dataset, "data.train", 10, 1 if gray else 3)
    assert got.images is not None
    assert np.array_equal(got.images.numpy(), pixels[:, None, ..., 0] if gray else pixels.transpose(0, 3, 1, 2))
    assert got.targets.tolist() == [label % 10 for label in range(40)]


def test_a_missing_set_names_the_root_and_the_archives() -> None:
    text = str(missing_data("torchvision.datasets.FashionMNIST", "/there", URLError("no network")))
    assert "/there/FashionMNIST/raw/" in text and "train-images-idx3-ubyte.gz" in text and "no network" in text
    assert len(text.splitlines()) == 2
    text = str(missing_data("torchvision.datasets.CIFAR10", "/there", RuntimeError("Dataset not found or corrupted.")))
    assert "Put cifar-10-python.tar.gz into /there/" in text
    text = str(missing_data("torchvision.datasets.ImageFolder", "/there", FileNotFoundError("/there")))
    assert "/there" in text and "Put its files there" in text


def test_a_failed_download_leaves_no_folder_and_takes_none_of_the_users(tmp_path: Path) -> None:
    for root in (tmp_path / "new", tmp_path):
        (tmp_path / "mine").mkdir(exist_ok=True)
        with pytest.raises(OSError, match="no route"), no_empty_folders("torchvision.datasets.MNIST", str(root)):
            (root / "MNIST" / "raw").mkdir(parents=True)
            raise OSError("no route")
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_faults_of_another_kind_are_left_alone() -> None:
    assert missing_data("torchvision.datasets.MNIST", "/there", TypeError("unexpected keyword")) is None
    assert missing_data("torchvision.datasets.MNIST", "/there", RuntimeError("out of memory")) is None
