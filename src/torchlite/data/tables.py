"""Sets listed in a CSV file: path,label or path,label,split."""

import csv
import os
from collections.abc import Sequence
from typing import Literal

from torchlite.data.files import ImageFiles, natural
from torchlite.data.pixels import shown
from torchlite.errors import UserError

SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}


def image_table(
    file: str,
    root: str | None = None,
    part: Literal["train", "val", "test"] = "train",
    optional: bool = False,
    classes: Sequence[str] | None = None,
) -> ImageFiles | None:
    """The images of one part of a CSV file, in its order; None if optional and the file has none.

    The first row names the columns: `path` and `label`, and, if rows are of several parts, `split` (train, val or
    test); without it all are of "train". Further columns are not read. Labels are whole numbers from 0, or else class
    names.

    Args:
        file: the CSV, in UTF-8, with commas.
        root: folder that paths are relative to; None for the CSV's own.
        part: of the set.
        optional: a part without rows is None; else it is an error.
        classes: names in label order; None: numbers as they are, or names in natural order ("9" before "10").

    Raises:
        UserError: names the file, and the row, column or image at fault.
    """
    rows = [(row, path, label) for row, path, label, split in _rows(file) if split == part]
    if not rows:
        if optional:
            return None
        raise UserError(f"{shown(file)} has no rows of split {part}.")
    folder = os.path.dirname(os.path.abspath(file)) if root is None else root
    missing = [(row, path) for row, path, _ in rows if not os.path.isfile(os.path.join(folder, path))]
    if missing:
        row, path = missing[0]
        more = f", nor {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(f"{shown(file)}, row {row}: there is no file {shown(os.path.join(folder, path))}{more}.")
    labels, names = _numbered(file, [(row, label) for row, _, label in rows], classes)
    notes = (shown(os.path.basename(file)), [row for row, _, _ in rows])
    return ImageFiles(folder, [path for _, path, _ in rows], labels, names, notes)


def _rows(file: str) -> list[tuple[int, str, str, str]]:
    """(row, path, label, split) of each row; rows count as an editor counts, the names of columns being 1."""
    found = []
    try:
        with open(file, newline="", encoding="utf-8-sig", errors="surrogateescape") as opened:
            reader = csv.DictReader(opened, skipinitialspace=True)
            columns = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = columns
            missing = [name for name in ("path", "label") if name not in columns]
            if missing:
                has = ", ".join(columns) if columns else "nothing"
                raise UserError(
                    f"{shown(file)} has no column {' and no column '.join(missing)}; its first row is: {has}."
                )
            for values in reader:
                row = reader.line_num
                path, label = ((values[name] or "").strip() for name in ("path", "label"))
                split = (values.get("split") or "").strip().lower() if "split" in columns else "train"
                for name, value in (("path", path), ("label", label)):
                    if not value:
                        raise UserError(f"{shown(file)}, row {row}: the {name} is empty.")
                if split not in SPLITS:
                    raise UserError(f"{shown(file)}, row {row}: split {split!r} is none of train, val, test.")
                found.append((row, path, label, SPLITS[split]))
    except OSError as error:
        raise UserError(f"{shown(file)} cannot be read: {error.strerror or error}. Is data.root right?") from error
    except csv.Error as error:
        raise UserError(f"{shown(file)} is no CSV file: {error}.") from error
    return found


def _numbered(
    file: str, labels: list[tuple[int, str]], classes: Sequence[str] | None
) -> tuple[list[int], list[str] | None]:
    """Labels as numbers, and the class names they count in if they were names."""
    if classes is not None:
        numbers = {name: number for number, name in enumerate(classes)}
        for row, label in labels:
            if label not in numbers:
                raise UserError(
                    f"{shown(file)}, row {row}: {label} is none of the given classes: {', '.join(classes)}."
                )
        return [numbers[label] for _, label in labels], list(classes)
    whole = [_is_whole(label) for _, label in labels]
    if all(whole):
        return [int(label) for _, label in labels], None
    numeric = [is_whole or _is_number(label) for is_whole, (_, label) in zip(whole, labels, strict=True)]
    if any(whole) or all(numeric):
        row, label = next(entry for entry, is_whole in zip(labels, whole, strict=True) if not is_whole)
        raise UserError(
            f"{shown(file)}, row {row}: the label {label!r} is no whole number. Labels are whole numbers from 0 in "
            "every row, or class names in every row (list them as `classes` where names look like numbers)."
        )
    names = sorted({label for _, label in labels}, key=natural)
    numbers = {name: number for number, name in enumerate(names)}
    return [numbers[label] for _, label in labels], names


def _is_whole(label: str) -> bool:
    return label.removeprefix("-").isdecimal() and label.isascii()


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True
