"""Array files: mapped where they can be, and what is wrong with one is named."""

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchlite.data.image_data import ImageData
from torchlite.data.mapped_arrays import image_arrays
from torchlite.data.preprocess import Preprocess
from torchlite.errors import UserError

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 8, 8), dtype=np.uint8)
LABELS = np.arange(20) % 4


def stored(folder: Path, kind: str, pixels: np.ndarray = PIXELS, labels: np.ndarray = LABELS) -> tuple[str, str]:
    if kind == "npy":
        np.save(folder / "x.npy", pixels)
        np.save(folder / "y.npy", labels)
        return str(folder / "x.npy"), str(folder / "y.npy")
    write = np.savez if kind == "npz" else np.savez_compressed
    write(folder / "xy.npz", first=np.zeros(3), images=pixels, labels=labels)
    return str(folder / "xy.npz"), str(folder / "xy.npz")


def data(source: Any, **changes: Any) -> ImageData:
    options: dict[str, Any] = {"test": None, "num_classes": 4, "channels": 1, "image_size": 8, "batch_size": 5}
    options |= {"preprocess": Preprocess([0.0], [1 / 255]), "val_fraction": 0, "seed": 0, "device": "cpu"}
    return ImageData(train=source, **{**options, **changes})


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed"])
@pytest.mark.parametrize("layout", [(20, 8, 8), (20, 1, 8, 8), (20, 8, 8, 1)])
def test_every_kind_of_file_gives_the_same_batches(tmp_path: Path, kind: str, layout: tuple[int, ...]) -> None:
    source = image_arrays(*stored(tmp_path, kind, PIXELS.reshape(layout)))
    assert isinstance(source.data, np.memmap) == (kind != "compressed")
    made, loaded = data(source), data(source, in_memory=False, num_workers=2)
    assert made.fingerprint == loaded.fingerprint and made.split["fingerprint_of"] == {"train": "files"}
    for batch, other in zip(made.train.epoch(0), loaded.train.epoch(0), strict=True):
        assert torch.equal(batch.images, other.images)
        assert np.array_equal(batch.images[:, 0].numpy(), PIXELS[batch.ids])
        assert batch.targets.tolist() == LABELS[batch.ids].tolist()


def test_a_worker_gets_the_place_and_not_the_pixels(tmp_path: Path) -> None:
    big = np.zeros((2000, 32, 32), dtype=np.uint8)
    source = image_arrays(*stored(tmp_path, "npz", big, np.zeros(2000, np.int64)))
    packed = pickle.dumps(source)
    assert len(packed) < 40_000
    assert np.array_equal(pickle.loads(packed).data, big)
    part = data(source, num_classes=1, image_size=32, in_memory=False).train.samples.reader
    assert len(pickle.dumps(part.images)) < 60_000


@pytest.mark.parametrize(
    ("pixels", "labels", "said"),
    [
        (PIXELS.astype(np.float32), LABELS, "has float32 [20, 8, 8]; images are uint8"),
        (
            PIXELS[:0],
            LABELS[:0],
            "has uint8 [0, 8, 8]; images are uint8 [N, H, W], [N, H, W, C] or [N, C, H, W], and there is",
        ),
        (PIXELS[:, :0], LABELS, "has uint8 [20, 0, 8]; images are"),
        (PIXELS > 9, LABELS, "has bool [20, 8, 8]; images are uint8"),
        (PIXELS, LABELS > 1, "the label of sample 0 is False (bool)"),
        (PIXELS, LABELS - 1, "the label of sample 0 is -1"),
        (PIXELS, LABELS[:, None], "has shape [20, 1]; one label for each"),
        (PIXELS, np.full(20, 2**63, np.uint64), "the label of sample 0 is 9223372036854775808"),
        (PIXELS, np.full(20, np.nan), "the label of sample 0 is nan (float)"),
        (np.zeros((20, 8, 8, 5), np.uint8), LABELS, "an image has 1 to 4 channels"),
        (PIXELS[:, 0], LABELS, "has uint8 [20, 8]; images are uint8 [N, H, W]"),
        (PIXELS, LABELS[:5], "has shape [5]; one label for each of the 20 images"),
        (PIXELS, LABELS + 1, "the label of sample 3 is 4; labels are integers 0..3"),
        (PIXELS, LABELS / 2, "the label of sample 0 is 0.0"),
    ],
)
def test_arrays_that_do_not_fit_are_named(tmp_path: Path, pixels: np.ndarray, labels: np.ndarray, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        data(image_arrays(*stored(tmp_path, "npy", pixels, labels)))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    images, labels = stored(tmp_path, "npz")
    with pytest.raises(UserError, match="has no array pictures; it has: first, images, labels"):
        image_arrays(images, labels, images_key="pictures")
    with pytest.raises(UserError, match=r"pictures.*Expected are images and labels.*\+data.train.images_key=NAME"):
        image_arrays(images, labels, images_key="pictures")
    with pytest.raises(UserError, match="gone.npy: there is no such file. .*without a test part: data.test=null"):
        image_arrays(str(tmp_path / "gone.npy"), labels)
    (tmp_path / "text.npy").write_text("words")
    with pytest.raises(UserError, match="text.npy cannot be read as a numpy file: it is neither .npy nor .npz"):
        image_arrays(str(tmp_path / "text.npy"), labels)
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object))
    with pytest.raises(UserError, match="objects.npy cannot be read as a numpy file"):
        image_arrays(str(tmp_path / "objects.npy"), labels)


class Pickled:
    """Says so when it is unpickled."""

    def __reduce__(self) -> tuple[Any, Any]:
        return Path.touch, (Path("unpickled"),)


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed", "pickle"])
def test_nothing_is_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.chdir(tmp_path)
    if kind == "pickle":
        images = labels = str(tmp_path / "x.npy")
        Path(images).write_bytes(pickle.dumps(Pickled()))
    else:
        images, labels = stored(tmp_path, kind, np.array([Pickled()], dtype=object))
    with pytest.raises(UserError, match="cannot be read as a numpy file"):
        image_arrays(images, labels)
    assert not (tmp_path / "unpickled").exists()


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed"])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.97])
def test_files_that_are_cut_off_are_named(tmp_path: Path, kind: str, share: float) -> None:
    images, labels = stored(tmp_path, kind)
    content = Path(images).read_bytes()
    Path(images).write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UserError, match=re.escape(f"{images} cannot be read as a numpy file: ")):
        image_arrays(images, labels)
