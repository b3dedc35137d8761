"""The fingerprint follows content, all of it and nothing else; it is computed once."""

import os
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from torchlite.data import fingerprint as module
from torchlite.data.decode import Opened, open_source
from torchlite.data.files import ImageFiles
from torchlite.data.fingerprint import Fingerprint, fingerprint, together
from torchlite.data.sources import Arrays
from torchlite.errors import UserError


def part(seed: int = 0) -> Opened:
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 4, 4), dtype=np.uint8)
    return open_source(Arrays(pixels, np.arange(9) % 3, None), "data.train", 3, 1)


def of(opened: Opened) -> str:
    return fingerprint(opened).digest


def files(folder: Path, number: int = 3) -> ImageFiles:
    folder.mkdir()
    for index in range(number):
        Image.new("RGB", (8, 8), (index, 0, 0)).save(folder / f"{index}.png")
    return ImageFiles(str(folder), [f"{index}.png" for index in range(number)], [0] * number, ["a"])


def test_equal_content_has_an_equal_fingerprint() -> None:
    assert of(part()) == of(part())
    assert len(of(part())) == 64 and fingerprint(part()).of == "pixels"


def test_one_pixel_one_label_and_the_part_all_count() -> None:
    pixel, label = part(), part()
    pixel.images[8, 0, 3, 3] ^= 1
    label.targets[8] = 0
    prints = {name: Fingerprint(of(opened), "") for name, opened in {"a": part(), "b": pixel, "c": label}.items()}
    assert len({print.digest for print in prints.values()}) == 3
    a, b = prints["a"], prints["b"]
    sets = [{"train": a}, {"train": b}, {"test": a}, {"train": a, "test": b}, {"train": b, "test": a}]
    assert len({together(parts) for parts in sets}) == len(sets)


def test_files_count_by_content_and_name_wherever_they_lie(tmp_path: Path) -> None:
    one, same = files(tmp_path / "one"), files(tmp_path / "same")
    opened = [open_source(source, "data.train", 1, 3) for source in (one, same)]
    first = [fingerprint(each) for each in opened]
    assert first[0] == first[1] and first[0].of == "files"
    times = os.stat(same.path(1))
    Image.new("RGB", (8, 8), (9, 0, 0)).save(same.path(1))
    os.utime(same.path(1), ns=(times.st_atime_ns, times.st_mtime_ns))  # the change of the file's status still shows
    assert fingerprint(opened[1]) != first[0]


def test_files_are_read_once_for_all_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_source(files(tmp_path / "one"), "data.train", 1, 3)
    first = fingerprint(opened)
    monkeypatch.setattr(module, "_hashed", None)
    assert fingerprint(opened) == first
    monkeypatch.setattr(module, "_COMPUTED", {})  # as another process
    assert fingerprint(opened) == first


def test_without_a_place_for_the_cache_it_is_computed_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "no folder").write_text("")
    monkeypatch.setenv("TORCHLITE_CACHE", str(tmp_path / "no folder"))
    opened = open_source(files(tmp_path / "one"), "data.train", 1, 3)
    assert fingerprint(opened) == fingerprint(opened)


@pytest.mark.parametrize(
    ("size", "said"), [((0, 5), "no image that Pillow knows"), ((60_000, 60_000), "exceeds limit")]
)
def test_an_image_without_pixels_or_with_far_too_many_is_named_beforehand(
    tmp_path: Path, size: tuple[int, int], said: str
) -> None:
    source = files(tmp_path / "bad")
    content = bytearray((tmp_path / "bad" / "1.png").read_bytes())
    content[16:24] = size[0].to_bytes(4, "big") + size[1].to_bytes(4, "big")
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    (tmp_path / "bad" / "1.png").write_bytes(content)
    with pytest.raises(UserError, match=rf"bad/1.png cannot be read as an image: .*{said}"):
        fingerprint(open_source(source, "data.train", 1, 3))


@pytest.mark.parametrize("junk", [b"", b"\xff\xfe", b"x" * 64, b"0" * 63])
def test_a_damaged_cache_is_computed_again(
    tmp_path: Path, own_cache: Path, junk: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_source(files(tmp_path / "one"), "data.train", 1, 3)
    first = fingerprint(opened)
    (stored,) = (own_cache / "fingerprints").iterdir()
    stored.write_bytes(junk)
    monkeypatch.setattr(module, "_COMPUTED", {})
    assert fingerprint(opened) == first and stored.read_text() != junk


def test_h01_all_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    source = files(tmp_path / "bad", 5)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(tmp_path / "half.jpg")
    content = (tmp_path / "half.jpg").read_bytes()
    names = ["0.png", "half.jpg", "empty.png", "text.png"]
    (tmp_path / "bad" / "half.jpg").write_bytes(content[: len(content) // 2])
    (tmp_path / "bad" / "empty.png").write_bytes(b"")
    (tmp_path / "bad" / "text.png").write_text("no image")
    source = ImageFiles(str(tmp_path / "bad"), names, [0] * 4, ["a"])
    with pytest.raises(UserError) as raised:
        fingerprint(open_source(source, "data.train", 1, 3))
    lines = str(raised.value).splitlines()
    assert [str(tmp_path / "bad" / name) in line for name, line in zip(names[1:], lines, strict=True)] == [True] * 3


def test_of_items_that_are_neither_files_nor_in_memory_some_count() -> None:
    class Items:
        def __init__(self, changed: int | None = None) -> None:
            self.changed = changed

        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return torch.full((4, 4), index + (index == self.changed), dtype=torch.uint8), 0

    first = fingerprint(open_source(Items(), "data.train", 1, 1))
    assert first.of == "20 items"
    assert first == fingerprint(open_source(Items(), "data.train", 1, 1))
    assert first != fingerprint(open_source(Items(changed=7), "data.train", 1, 1))
