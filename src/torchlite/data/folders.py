"""Sets laid out as folders: one folder a class, perhaps below train/, val/ and test/."""

import logging
import os
from collections.abc import Sequence
from typing import Literal

from torchlite.data.files import EXTENSIONS, ImageFiles, is_image, natural
from torchlite.data.pixels import shown
from torchlite.errors import UserError

log = logging.getLogger("torchlite")
PART_NAMES = {"train": ("train", "training"), "val": ("val", "valid", "validation"), "test": ("test", "testing")}


def image_folder(
    root: str,
    part: Literal["train", "val", "test"] = "train",
    optional: bool = False,
    classes: Sequence[str | int] | None = None,
    allow_empty_classes: bool = False,
) -> ImageFiles | None:
    """The images of one part of ROOT/<part>/<class>/…, or of ROOT/<class>/… as "train"; None if optional and not there.

    A folder ROOT/train that holds images, and no folders, is a class like any other. Files whose names begin with a dot
    and files that are no images by their extension (upper or lower case) are left out and counted in the log. Samples are
    ordered by class, then by name.

    Args:
        root: folder.
        part: of the set.
        optional: a part that has no folder is None; else it is an error.
        classes: names of class folders in label order; None for natural order ("9" before "10").
        allow_empty_classes: a class folder without images keeps its place in the class list; else it is an error.

    Raises:
        UserError: a folder is missing, has no images, or lies at another level than it should; names it.
    """
    if not os.path.isdir(root):
        what = "this is no folder" if os.path.exists(root) else "there is no such folder"
        raise UserError(f"data.root={shown(root)}: {what}. Give data.root=FOLDER with a folder a class in it.")
    try:
        folder = _part_folder(root, part)
        found, left_out = ({}, {}) if folder is None else _classes(folder)
    except OSError as error:
        raise UserError(f"{shown(error.filename or root)} cannot be read: {error.strerror}.") from error
    given = None if classes is None else [str(name) for name in classes]
    if folder is None:
        if optional:
            return None
        raise UserError(f"{shown(root)} has no folder {part}/ with a folder a class in it.")
    if part != "train" and not found:
        raise UserError(
            f"{shown(folder)} has no folders in it: one a class is wanted. Without labels it cannot be scored: to leave it "
            f"out set data.{part}=null."
        )
    names = _chosen(sorted(found, key=natural), given, folder, allow_empty_classes)
    key = f"+data.{part}" if part in ("val", "test") else "data.train"
    for name in names:
        if not found.get(name) and not allow_empty_classes:
            raise UserError(
                f"the class folder {shown(os.path.join(folder, name))} has no images ({', '.join(EXTENSIONS[:4])}, …). "
                f"Take it away, or set {key}.allow_empty_classes=true to keep the class without samples."
            )
    _check_level(folder, {name: found[name] for name in names if found.get(name)})
    if left_out:
        kinds = ", ".join(f"{count} {kind} (such as {shown(example)})" for kind, (count, example) in left_out.items())
        log.info(f"{shown(folder)}: left out {kinds}")
    paths = [os.path.join(name, path) for name in names for path in found.get(name, ())]
    labels = [label for label, name in enumerate(names) for _ in found.get(name, ())]
    return ImageFiles(folder, paths, labels, [shown(name) for name in names])


def _part_folder(root: str, part: str) -> str | None:
    """The folder that holds the class folders of a part; None where there is none."""
    named = {
        name: next((path for path in (os.path.join(root, alias) for alias in aliases) if os.path.isdir(path)), None)
        for name, aliases in PART_NAMES.items()
    }
    if named["train"] is not None and not _is_class(named["train"]):
        return named[part]
    parts = [path for path in named.values() if path is not None and not _is_class(path)]
    if parts:
        raise UserError(
            f"{shown(root)} has {shown(os.path.basename(parts[0]))}/ with folders in it, but no such train/ beside it: put "
            f"the class folders to learn from into {shown(os.path.join(root, 'train'))}."
        )
    return root if part == "train" else None


def _is_class(folder: str) -> bool:
    """Whether images, and no folders, lie in a folder."""
    images = False
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                if os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir():
                    return False
                images = images or is_image(entry.name)
    return images


def _classes(folder: str) -> tuple[dict[str, list[str]], dict[str, tuple[int, str]]]:
    """Images by class folder, as sorted paths below it; and what was left out: by kind its number and an example."""
    found: dict[str, list[str]] = {}
    left_out: dict[str, tuple[int, str]] = {}
    for entry in sorted(os.listdir(folder), key=os.fsencode):
        path = os.path.join(folder, entry)
        if entry.startswith("."):
            _count(left_out, "hidden", path)
        elif os.path.isdir(path):
            found[entry] = sorted(_images(path, "", left_out, set()), key=os.fsencode)
        elif is_image(entry):
            _count(left_out, "images outside class folders", path)
        else:
            _count(left_out, "no images", path)
    return found, left_out


def _images(folder: str, below: str, left_out: dict[str, tuple[int, str]], seen: set[tuple[int, int]]) -> list[str]:
    """Images in a folder and the folders in it; one that a link leads to twice is read once."""
    status = os.stat(folder)  # the same by way of a link
    if (status.st_dev, status.st_ino) in seen:
        return []
    seen.add((status.st_dev, status.st_ino))
    paths = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                _count(left_out, "hidden", entry.path)
            elif os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir():  # of a loop of links it is False
                paths += _images(entry.path, os.path.join(below, entry.name), left_out, seen)
            elif is_image(entry.name):
                paths.append(os.path.join(below, entry.name))
            else:
                _count(left_out, "no images", entry.path)
    return paths


def _count(left_out: dict[str, tuple[int, str]], kind: str, path: str) -> None:
    count, example = left_out.get(kind, (0, path))
    left_out[kind] = count + 1, example


def _chosen(names: list[str], classes: list[str] | None, folder: str, allow_empty: bool) -> list[str]:
    """The class folders in label order."""
    if classes is None:
        if not names:
            raise UserError(f"{shown(folder)} has no folders in it: one a class is wanted. Is data.root right?")
        return names
    more = [name for name in names if name not in classes]
    fewer = [] if allow_empty else [name for name in classes if name not in names]
    if more or fewer:
        raise UserError(
            f"the folders of {shown(folder)} are not the given classes: "
            + "; ".join(
                f"{what} {', '.join(map(shown, some))}"
                for what, some in (("also there:", more), ("missing:", fewer))
                if some
            )
        )
    return classes


def _check_level(folder: str, found: dict[str, list[str]]) -> None:
    """Raise UserError where the folders in `folder` hold only further folders: then those are the classes."""
    if not found:
        raise UserError(f"{shown(folder)} has no images in it. Is data.root right?")
    if all(os.sep in path for paths in found.values() for path in paths):
        name, paths = next(iter(found.items()))
        inner = os.path.dirname(paths[0])
        hint = next((n for n in found if n in {alias for names in PART_NAMES.values() for alias in names}), name)
        raise UserError(
            f"{shown(folder)} seems one level too high: its folder {shown(name)} holds folders with images "
            f"(such as {shown(inner)}), not images. Try data.root={shown(os.path.join(folder, hint))}."
        )
