"""What is kept in memory: by a stated share, decoded once for all runs, by whichever of two processes comes first."""

import logging
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from torchlite.data import cache, placement
from torchlite.data.augment import RandomResizedCrop
from torchlite.data.decode import open_source
from torchlite.data.folders import image_folder
from torchlite.data.image_data import ImageData
from torchlite.data.preprocess import Preprocess
from torchlite.errors import UserError

MakeFolder = Callable[..., Path]


def data(root: Path, **changes: Any) -> ImageData:
    options: dict[str, Any] = {"test": None, "num_classes": 2, "channels": 3, "image_size": 16, "batch_size": 4}
    options |= {"preprocess": Preprocess([0.0] * 3, [1.0] * 3, resize=16, crop=16), "seed": 0, "device": "cpu"}
    return ImageData(train=image_folder(str(root)), **{**options, **changes})


def test_the_share_of_free_memory_decides_and_can_be_overruled(
    folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder()
    size = 12 * 3 * 16 * 16
    monkeypatch.setattr(placement, "available", lambda device: 4 * size)
    assert data(root).choices == {"in_memory": True, "num_workers": 0}
    assert data(root, num_workers=1, memory_share=0.24).choices == {"in_memory": False, "num_workers": 1}
    assert data(root, memory_share=0.0, in_memory=True).choices["in_memory"] is True
    assert data(root, in_memory=False, num_workers=0).choices == {"in_memory": False, "num_workers": 0}
    assert data(root, in_memory=False).choices["num_workers"] >= 1


def test_images_that_differ_in_size_cannot_be_kept_whole(folder: MakeFolder) -> None:
    with pytest.raises(UserError, match="data.in_memory=true: data.train cannot be kept: its images differ in size"):
        data(folder(), in_memory=True, crop=lambda image: image[:, :16, :16])


def test_a_size_that_only_decoding_shows_leaves_the_set_in_its_files(
    folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = folder(sizes=((30, 30),), per_class=12)
    Image.new("RGB", (9, 7)).save(root / "ant" / "2.jpg")  # not one of the eight that are looked at beforehand
    crop = {"crop": RandomResizedCrop(16), "num_workers": 0}
    made = data(root, **crop)
    assert made.choices["in_memory"] is False and len(list(made.train.epoch(0))) == 5
    with pytest.raises(UserError, match=r"2.jpg\) has 7x9 pixels, but the first image has 30x30"):
        data(root, in_memory=True, **crop)
    with pytest.raises(UserError, match="7x9 pixels, but the first image has 30x30.*Set data.preprocess.resize"):
        data(root, preprocess=Preprocess([0.0] * 3, [1.0] * 3), image_size=30)
    with monkeypatch.context() as patch:  # the next run knows, and decodes nothing
        patch.setattr(placement, "gather", None)
        assert data(root, **crop).choices["in_memory"] is False


def test_a_set_is_decoded_once_for_all_runs(
    folder: MakeFolder, own_cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = folder()
    with caplog.at_level(logging.INFO, logger="torchlite"):
        first = data(root)
    assert "data.train: decoding 12 images" in caplog.text
    (stored,) = (path for path in (own_cache / "decoded").iterdir() if path.suffix != ".lock")
    assert stored.stat().st_size == 12 * 3 * 16 * 16
    with monkeypatch.context() as patch:
        patch.setattr(placement, "gather", None)
        again = data(root)
    assert all(torch.equal(a.images, b.images) for a, b in zip(first.train.epoch(0), again.train.epoch(0), strict=True))
    other = data(root, preprocess=Preprocess([0.0] * 3, [1.0] * 3, resize=20, crop=16))
    assert not torch.equal(next(other.train.epoch(0)).images, next(first.train.epoch(0)).images)
    stored.write_bytes(stored.read_bytes()[:-1])  # cut off, by whatever
    assert torch.equal(next(data(root).train.epoch(0)).images, next(first.train.epoch(0)).images)


def test_what_is_written_to_the_pixels_of_a_run_stays_in_it(folder: MakeFolder) -> None:
    root = folder()
    made = data(root)
    before = made.train.samples.images.clone()
    made.train.samples.images.zero_()
    assert torch.equal(data(root).train.samples.images, before)


def test_without_a_place_for_it_a_set_is_decoded_in_every_run(
    folder: MakeFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    root = folder()
    expected = next(data(root).train.epoch(0)).images
    (tmp_path / "no folder").write_text("")
    monkeypatch.setenv("TORCHLITE_CACHE", str(tmp_path / "no folder"))
    assert torch.equal(next(data(root).train.epoch(0)).images, expected)
    assert "decoded again in every run" in caplog.text


def _decode(root: str, started: Any, place: Any) -> None:
    started.wait()
    part = open_source(image_folder(root), "data.train", 2, 3)
    fit = Preprocess([0.0] * 3, [1.0] * 3, resize=16, crop=16).fit
    kept = placement.kept(part, fit, "16 16")
    place.put((str(kept.file), kept.images.long().sum().item()))


def test_two_processes_at_once_make_one_whole_file(folder: MakeFolder, own_cache: Path) -> None:
    root = folder(per_class=60)
    context = multiprocessing.get_context("fork")
    started, place = context.Barrier(3), context.Queue()
    processes = [context.Process(target=_decode, args=(str(root), started, place)) for _ in range(3)]
    for process in processes:
        process.start()
    found = [place.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert len(set(found)) == 1 and found[0][1] > 0
    assert len([path for path in (own_cache / "decoded").iterdir() if path.suffix != ".lock"]) == 1


def test_what_a_killed_process_left_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "it.part").write_bytes(b"half")

    def fill(new: Any) -> torch.Tensor:
        tensor = new((2, 3))
        tensor[:] = torch.arange(6).reshape(2, 3)
        return tensor

    path = cache.made_once(tmp_path / "it", fill)
    assert cache.mapped(path, (2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]

    def fail(new: Any) -> torch.Tensor:
        new((2, 3))
        raise UserError("a file is broken")

    with pytest.raises(UserError):
        cache.made_once(tmp_path / "other", fail)
    assert not (tmp_path / "other").exists() and not (tmp_path / "other.part").exists()
