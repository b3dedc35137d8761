"""Sets listed in a CSV file: path,label or path,label,split."""

import csv
import io
import logging
import os
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from torchlite.data.encoding import text_of
from torchlite.data.files import ImageFiles, natural
from torchlite.data.pixels import shown
from torchlite.errors import UserError

log = logging.getLogger("torchlite")
SPLITS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
EXPECTED = "Expected are commas, and a first row that names the columns: path,label or path,label,split"


class Row(NamedTuple):
    """One image of a table; `number` counts as an editor does, the names of columns being 1."""

    number: int
    path: str
    label: str
    split: str


def image_table(
    file: str,
    root: str | None = None,
    part: Literal["train", "val", "test"] = "train",
    optional: bool = False,
    classes: Sequence[str | int] | None = None,
) -> ImageFiles | None:
    """The images of one part of a CSV file, in its order; None if optional and the file has none.

    The first row names the columns: `path` and `label`, and, if rows are of several parts, `split` (train, val or
    test); without it all are of "train". Further columns are not read. Labels are whole numbers from 0, or else class
    names, one or the other in the whole file. A path that stands there twice has one label and is of one part; it counts
    as often as it stands there.

    Args:
        file: the CSV, in UTF-8, with commas.
        root: folder that paths are relative to; None for the CSV's own.
        part: of the set.
        optional: a part without rows is None; else it is an error.
        classes: names in label order; numbers in the file count in it, unless names are numbers themselves. None: numbers
            as they are, or names in natural order ("9" before "10").

    Raises:
        UserError: names the file, and the row, column or image at fault.
    """
    listed = list(_rows(file))
    rows = [row for row in listed if row.split == part]
    if not rows and not optional:
        raise UserError(f"{shown(file)} has no rows{f' of split {part}' if listed else ', only the names of columns'}.")
    folder = os.path.dirname(os.path.abspath(file)) if root is None else root
    _once(file, folder, listed, part)
    are_names = _are_names(file, listed, classes)
    if not rows:
        return None
    _there(file, folder, listed if part == "train" else rows)  # what is missing is told of all parts at once
    names = None if classes is None else [str(name) for name in classes]
    if are_names:
        names = names or sorted({row.label for row in rows}, key=natural)
        labels = _numbered(file, rows, names)
    else:
        labels = _numbers(file, rows)
    notes = (shown(os.path.basename(file)), [row.number for row in rows])
    return ImageFiles(folder, [row.path for row in rows], labels, names, notes)


def _rows(file: str) -> Iterator[Row]:
    try:
        with open(file, "rb") as opened:
            content = opened.read()
    except OSError as error:
        what = "it is a folder; data.root is the CSV file" if os.path.isdir(file) else error.strerror or str(error)
        raise UserError(f"{shown(file)} cannot be read: {what}. Is data.root right?") from error
    reader = csv.reader(io.StringIO(text_of(content, file), newline=""), skipinitialspace=True, strict=True)
    try:
        columns = [name.strip() for name in next(reader, [])]
        path, label, split = _places(file, columns)
        for values in reader:
            if not any(value.strip() for value in values):
                continue  # an empty line
            where = f"{shown(file)}, row {reader.line_num}"
            if len(values) > len(columns):
                raise UserError(
                    f"{where} has {len(values)} fields, but the first row names {len(columns)} columns. "
                    "A field with a comma in it stands in double quotes."
                )
            values += [""] * (len(columns) - len(values))
            for index in (path, label):
                if not values[index].strip():
                    raise UserError(f"{where}: the {columns[index]} is empty. Fill it in, or take the row out.")
            part = "train" if split is None else values[split].strip().lower()
            if part not in SPLITS:
                raise UserError(f"{where}: split {part!r} is none of train, val, test.")
            yield Row(reader.line_num, values[path].strip(), values[label].strip(), SPLITS[part])
    except csv.Error as error:
        raise UserError(
            f"{shown(file)}, row {reader.line_num}: this is no CSV: {error}. Is a quote not closed?"
        ) from error


def _places(file: str, columns: list[str]) -> tuple[int, int, int | None]:
    """Where path, label and split stand in a row."""
    missing = [name for name in ("path", "label") if name not in columns]
    if missing:
        has = ", ".join(columns) if any(columns) else "nothing"
        marks = {";": "semicolons", "\t": "tabs", "|": "bars"}
        mark = (
            next((word for mark, word in marks.items() if mark in "".join(columns)), None)
            if len(columns) == 1
            else None
        )
        raise UserError(
            f"{shown(file)} has no column {' and no column '.join(missing)}; its first row is: {has}. "
            f"{f'Its fields seem to be separated by {mark}. ' if mark else ''}{EXPECTED}."
        )
    for name in ("path", "label", "split"):
        if columns.count(name) > 1:
            raise UserError(f"{shown(file)} has {columns.count(name)} columns called {name}; keep one.")
    return columns.index("path"), columns.index("label"), columns.index("split") if "split" in columns else None


def _once(file: str, folder: str, rows: Sequence[Row], part: str) -> None:
    """Raise UserError where an image has two labels or is of two parts; a warning where this part has it twice."""
    first: dict[str, Row] = {}
    repeated: list[tuple[Row, Row]] = []
    for row in rows:
        path = os.path.normpath(os.path.join(folder, row.path))
        before = first.setdefault(path, row)
        if before is row:
            continue
        where = f"{shown(file)}, rows {before.number} and {row.number}: {shown(row.path)} "
        if before.label != row.label:
            raise UserError(f"{where}has two labels, {before.label} and {row.label}. Take one of the rows out.")
        if before.split != row.split:
            raise UserError(
                f"{where}is of two parts, {before.split} and {row.split}: what a model has seen says nothing of how it "
                "does on new images. Take one of the rows out."
            )
        repeated += [(before, row)] if row.split == part else []
    if repeated:
        before, row = repeated[0]
        log.warning(
            f"{shown(file)} lists {len(repeated)} images again, such as {shown(row.path)} in rows {before.number} and "
            f"{row.number}: each counts as often as it is listed, and a held-out part may share it with training."
        )


def _there(file: str, folder: str, rows: Sequence[Row]) -> None:
    missing = [row for row in rows if not os.path.isfile(os.path.join(folder, row.path))]
    if missing:
        path = shown(os.path.join(folder, missing[0].path))
        more = f", nor {len(missing) - 1} more of the {len(rows)} listed" if len(missing) > 1 else ""
        base = "" if os.path.isabs(missing[0].path) else f" Paths are relative to {shown(os.path.abspath(folder))}."
        hint = " Folders are separated by /." if "\\" in missing[0].path else ""
        raise UserError(f"{shown(file)}, row {missing[0].number}: there is no file {path}{more}.{base}{hint}")


def _are_names(file: str, rows: Sequence[Row], classes: Sequence[str | int] | None) -> bool:
    """Whether labels are class names rather than whole numbers; in all rows, of whichever part, it is the same."""
    whole = [_is_whole(row.label) for row in rows]
    if classes is not None and any(_is_whole(str(name)) for name in classes):
        return True
    if all(whole) or classes is not None:
        return not all(whole)
    if any(whole) or all(_is_number(row.label) for row in rows):
        row = next(row for row, is_whole in zip(rows, whole, strict=True) if not is_whole)
        raise UserError(
            f"{shown(file)}, row {row.number}: the label {row.label!r} is no whole number. Labels are whole numbers from 0 "
            "in every row, or class names in every row (list them in data.class_names where names look like numbers)."
        )
    return True


def _numbers(file: str, rows: Sequence[Row]) -> list[int]:
    for row in rows:
        if len(row.label) > 18:  # which 64 bits may not hold
            raise UserError(f"{shown(file)}, row {row.number}: the label {row.label[:30]} is no number of a class.")
    return [int(row.label) for row in rows]


def _numbered(file: str, rows: Sequence[Row], names: Sequence[str]) -> list[int]:
    numbers = {name: number for number, name in enumerate(names)}
    for row in rows:
        if row.label not in numbers:
            raise UserError(
                f"{shown(file)}, row {row.number}: {row.label} is none of the given classes: {', '.join(names)}."
            )
    return [numbers[row.label] for row in rows]


def _is_whole(label: str) -> bool:
    return label.removeprefix("-").isdecimal() and label.isascii()


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True
