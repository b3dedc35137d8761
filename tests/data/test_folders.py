"""Folders of images: found whatever their names, in a stated order, and what is wrong with a layout is said."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from torchlite.data.folders import image_folder
from torchlite.data.image_data import ImageData
from torchlite.data.preprocess import Preprocess
from torchlite.errors import UserError

MakeFolder = Callable[..., Path]


def data(root: Path, **changes: Any) -> ImageData:
    options: dict[str, Any] = {
        "train": changes.pop("train", None) or image_folder(str(root), "train"),
        "val": image_folder(str(root), "val", optional=True),
        "test": image_folder(str(root), "test", optional=True),
        "num_classes": 4,
        "channels": 3,
        "image_size": 16,
        "batch_size": 4,
        "preprocess": Preprocess([0.0] * 3, [1.0] * 3, resize=16, crop=16),
        "val_fraction": 0,
        "seed": 0,
        "device": "cpu",
    }
    return ImageData(**{**options, **changes})


def test_h08_extensions_in_capitals_count_and_what_is_left_out_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "x").mkdir()
    for name in ("a.JPG", "b.JPEG", "d.jpg"):
        Image.new("RGB", (8, 8)).save(tmp_path / "x" / name, "JPEG")
    Image.new("RGB", (8, 8)).save(tmp_path / "x" / "c.Png", "PNG")
    (tmp_path / "x" / "notes.txt").write_text("")
    (tmp_path / "x" / "Thumbs.db").write_text("")
    (tmp_path / "x" / "._a.JPG").write_text("")
    (tmp_path / ".DS_Store").write_text("")
    with caplog.at_level(logging.INFO, logger="torchlite"):
        found = image_folder(str(tmp_path))
    assert found is not None and [Path(path).name for path, _ in found.samples] == ["a.JPG", "b.JPEG", "c.Png", "d.jpg"]
    assert "2 no images" in caplog.text and "2 hidden" in caplog.text


def test_classes_are_in_natural_order_or_the_given_one(folder: MakeFolder) -> None:
    root = folder(classes=("10", "9", "b2", "b10"), per_class=1)
    natural = image_folder(str(root))
    assert natural is not None and natural.classes == ["9", "10", "b2", "b10"]
    given = image_folder(str(root), classes=["b10", "10", "b2", "9"])
    assert given is not None and given.classes == ["b10", "10", "b2", "9"]
    with pytest.raises(UserError, match=re.escape("not the given classes: also there: b2; missing: c")):
        image_folder(str(root), classes=["9", "10", "b10", "c"])
    made = data(root, class_names=["b10", "10", "b2", "9"], drop_last=False)
    assert made.class_names == ["b10", "10", "b2", "9"]
    assert made.train.samples.targets.tolist() == [3, 1, 2, 0]


def test_h05_classes_are_matched_by_name(folder: MakeFolder) -> None:
    folder("set/train", classes=("a", "b", "c", "d"), per_class=2)
    root = folder("set/val", classes=("a", "b", "d"), per_class=2).parent
    made = data(root)
    assert made.class_names == ["a", "b", "c", "d"] and made.val is not None
    assert made.val.samples.targets.tolist() == [0, 0, 1, 1, 3, 3]
    (root / "val" / "e").mkdir()
    Image.new("RGB", (20, 20)).save(root / "val" / "e" / "x.png")
    said = "data.val has a class that data.train (a, b, c, d) has not: e, such as that of sample 6 "
    with pytest.raises(UserError, match=re.escape(f"{said}({root}/val/e/x.png). Rename")):
        data(root)
    (root / "val" / "e").rename(root / "val" / "0")  # which shifts the numbers of all others
    with pytest.raises(UserError, match=re.escape(f"has not: 0, such as that of sample 0 ({root}/val/0/x.png)")):
        data(root)


def test_class_names_that_do_not_fit_the_folders_are_named(
    folder: MakeFolder, caplog: pytest.LogCaptureFixture
) -> None:
    root = folder(classes=("a", "b"))
    said = (
        f"data.train has a class that data.class_names (b, c) has not: a, such as that of sample 0 ({root}/a/0.jpg). "
    )
    with pytest.raises(UserError, match=re.escape(f"{said}Name every class of the data there; it has none called c.")):
        data(root, class_names=["b", "c"], num_classes=2)
    with caplog.at_level(logging.WARNING, logger="torchlite"):
        made = data(root, class_names=["c", "b", "a"], num_classes=3)
    assert made.train.samples.targets.tolist() == [2] * 6 + [1] * 6
    assert "no training sample is of class c;" in caplog.text
    numbers = folder("numbers", classes=("1", "2"))  # yaml makes whole numbers of such names
    assert data(numbers, class_names=[2, 1], num_classes=2).class_names == ["2", "1"]


def test_bad_files_of_all_parts_are_named_at_once_and_counted(folder: MakeFolder) -> None:
    """H01"""
    for part in ("train", "val", "test"):
        root = folder(f"set/{part}", classes=("a", "b", "c", "d"), per_class=2).parent
        (root / part / "b" / "1.jpg").write_text("no image")
    with pytest.raises(UserError) as raised:
        data(root)
    lines = str(raised.value).splitlines()
    assert [
        str(root / part / "b" / "1.jpg") in line for part, line in zip(("train", "val", "test"), lines, strict=True)
    ]
    for path in sorted(root.glob("*/*/*.jpg")):
        path.write_text("no image")
    with pytest.raises(UserError) as raised:
        data(root)
    lines = str(raised.value).splitlines()
    assert len(lines) == 11 and lines[-1] == "… and 14 more: 24 files cannot be read."


def test_bad_files_that_only_decoding_shows_are_named_at_once(folder: MakeFolder) -> None:
    for part in ("train", "val"):
        root = folder(f"set/{part}", classes=("a", "b", "c", "d"), per_class=2, kind="png").parent
        broken = root / part / "b" / "1.png"
        content = broken.read_bytes()
        middle = len(content) // 2
        broken.write_bytes(content[: middle - 40] + bytes(80) + content[middle + 40 :])  # both ends are right
    with pytest.raises(UserError) as raised:
        data(root, in_memory=True)
    assert [
        f"{part}/b/1.png" in line for part, line in zip(("train", "val"), str(raised.value).splitlines(), strict=True)
    ]


@pytest.mark.parametrize("aliases", [("train", "val", "test"), ("training", "validation", "testing")])
def test_parts_are_folders(folder: MakeFolder, aliases: tuple[str, str, str]) -> None:
    for number, name in enumerate(aliases):
        root = folder(f"set/{name}", classes=("a", "b", "c", "d"), per_class=number + 1).parent
    made = data(root)
    assert [p.num_samples for p in (made.train, made.val, made.test) if p] == [4, 8, 12]
    assert made.split["validation"] == "own source"


def test_without_a_validation_folder_a_part_of_train_is_held_out_and_stored(folder: MakeFolder) -> None:
    root = folder(classes=("a", "b", "c", "d"), per_class=5)
    made, again = data(root, val_fraction=0.2), data(root, val_fraction=0.2, seed=9)
    assert made.val is not None and made.val.num_samples == 4 and made.test is None
    assert made.split == again.split and len(made.split["held_out"].split()) == 4
    assert made.split["held_out"] != data(root, val_fraction=0.2, split_seed=1).split["held_out"]


def test_h09_an_empty_class_folder_is_named_or_allowed(folder: MakeFolder) -> None:
    root = folder(classes=("a", "b", "c"), per_class=2)
    (root / "d").mkdir()
    (root / "d" / "readme.txt").write_text("")
    with pytest.raises(UserError, match=f"class folder {root / 'd'} has no images"):
        image_folder(str(root))
    made = data(root, train=image_folder(str(root), allow_empty_classes=True))
    assert made.class_names == ["a", "b", "c", "d"] and made.num_classes == 4


def test_h09_a_root_that_is_missing_empty_or_of_another_level_is_named(folder: MakeFolder, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"data.root={tmp_path / 'gone'}: there is no such folder"):
        image_folder(str(tmp_path / "gone"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=f"{tmp_path / 'empty'} has no folders in it"):
        image_folder(str(tmp_path / "empty"))
    root = folder("high/pets", classes=("cat", "dog"), per_class=2)
    with pytest.raises(UserError, match=re.escape(f"Try data.root={root}.")):
        image_folder(str(root.parent))
    with pytest.raises(UserError, match="has no folders in it"):
        image_folder(str(root / "cat"))
    with pytest.raises(UserError, match="has no folder test/"):
        image_folder(str(root), "test")
    assert image_folder(str(root), "test", optional=True) is None


def test_a_class_may_be_called_as_a_part_is(folder: MakeFolder) -> None:
    root = folder(classes=("bus", "train", "valid"), per_class=2)
    found = image_folder(str(root))
    assert found is not None and found.classes == ["bus", "train", "valid"]
    assert image_folder(str(root), "val", optional=True) is None
    folder("set/test", classes=("bus", "train"))
    with pytest.raises(
        UserError, match=re.escape("has test/ with folders in it, but no such train/ beside it: put the")
    ):
        image_folder(str(root))


def test_a_part_without_labels_is_named_with_the_way_to_leave_it_out(folder: MakeFolder) -> None:
    root = folder("set/train").parent
    (root / "test").mkdir()
    Image.new("RGB", (8, 8)).save(root / "test" / "1.png")
    with pytest.raises(UserError, match=re.escape(f"{root}/test has no folders in it: one a class is wanted. Without")):
        image_folder(str(root), "test", optional=True)


def test_links_that_lead_nowhere_are_left_out_or_named(folder: MakeFolder) -> None:
    root = folder(classes=("a", "b"), per_class=2)
    (root / "a" / "loop").symlink_to("loop")
    (root / "loop").symlink_to("loop")
    found = image_folder(str(root))
    assert found is not None and len(found) == 4
    (root / "a" / "loop.jpg").symlink_to("loop.jpg")
    (root / "b" / "gone.jpg").symlink_to("nowhere")
    with pytest.raises(
        UserError, match=r"a/loop.jpg cannot be read: Too many levels .*\n.*b/gone.jpg cannot be read: No such"
    ):
        data(root, num_classes=2)


def test_folders_within_a_class_are_read_and_a_loop_of_links_ends(folder: MakeFolder) -> None:
    root = folder(classes=("a", "b"), per_class=2)
    (root / "a" / "more").mkdir()
    (root / "a" / "0.jpg").rename(root / "a" / "more" / "0.jpg")
    (root / "a" / "more" / "loop").symlink_to(root / "a")
    found = image_folder(str(root))
    assert found is not None and len(found) == 4


def test_h04_one_folder_of_every_mode_gives_one_shape(tmp_path: Path) -> None:
    for number, mode in enumerate(["L", "LA", "RGBA", "P", "CMYK", "RGB", "1"]):
        (tmp_path / "abcdefg"[number]).mkdir()
        image = Image.new("L", (20, 20), 255).convert(mode)
        kind, options = ("TIFF", {}) if mode == "CMYK" else ("PNG", {"transparency": 0} if mode == "P" else {})
        image.save(tmp_path / "abcdefg"[number] / "it.png", kind, **options)
    for channels in (1, 3):
        made = data(
            tmp_path,
            channels=channels,
            num_classes=7,
            batch_size=7,
            preprocess=Preprocess([0.0] * channels, [1 / 255] * channels, resize=16, crop=16),
        )
        (batch,) = made.train.epoch(0)
        torch.testing.assert_close(batch.images, torch.full((7, channels, 16, 16), 255.0))
    with pytest.raises(
        UserError, match="data.preprocess.mean and data.preprocess.std have 3 numbers, but data.channels is 1"
    ):
        data(tmp_path, channels=1, num_classes=7)


def test_a09_odd_names_go_through(folder: MakeFolder) -> None:
    root = folder("d@ta 100%#1/日本, a=b", classes=("a,b=c", "ü '\"$x"), per_class=3)
    broken = root.rename(root.parent / "not utf-8 \udcff")
    found = image_folder(str(broken))
    assert found is not None and len(found) == 6 and found.classes == ["a,b=c", "ü '\"$x"]
    made = data(broken, train=found, num_classes=2)
    assert len(list(made.train.epoch(0))) == 1
    made.fingerprint.encode(), str(made.class_names).encode()
