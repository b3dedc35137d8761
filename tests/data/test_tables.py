"""CSV lists of images: labels as numbers or names, parts by a column, and every kind of wrong row named."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchlite.data.image_data import ImageData
from torchlite.data.preprocess import Preprocess
from torchlite.data.tables import image_table
from torchlite.errors import UserError

MakeFolder = Callable[..., Path]


@pytest.fixture
def table(folder: MakeFolder) -> Any:
    """Writes a CSV of rows beside twelve images x/0.jpg to x/11.jpg, and gives its path."""
    root = folder("set", classes=("x",), per_class=12)

    def write(*rows: str, header: str = "path,label", encoding: str = "utf-8") -> str:
        (root / "labels.csv").write_text("\n".join([header, *rows]) + "\n", encoding=encoding)
        return str(root / "labels.csv")

    return write


def rows(*labels: object) -> list[str]:
    return [f"x/{number}.jpg,{label}" for number, label in enumerate(labels)]


def data(file: str, num_classes: int = 10) -> ImageData:
    return ImageData(
        train=image_table(file, part="train"),
        val=image_table(file, part="val", optional=True),
        test=image_table(file, part="test", optional=True),
        num_classes=num_classes,
        channels=3,
        image_size=16,
        batch_size=2,
        preprocess=Preprocess([0.0] * 3, [1.0] * 3, resize=16, crop=16),
        val_fraction=0,
        seed=0,
        device="cpu",
    )


def test_labels_are_numbers_or_names(table: Any) -> None:
    made = data(table(*rows(*range(10))))
    assert made.train.samples.targets.tolist() == list(range(10)) and made.class_names == [str(i) for i in range(10)]
    made = data(table(*rows("cat", "dog", "cat", "a,b=c".join('""'))), 3)
    assert made.class_names == ["a,b=c", "cat", "dog"] and made.train.samples.targets.tolist() == [1, 2, 1, 0]


def test_parts_are_a_column_and_classes_are_matched_by_name(table: Any) -> None:
    listed = [
        f"{row},{part}"
        for row, part in zip(rows("b", "a", "c", "c", "a"), ["train", "train", "Train", "val", "test"], strict=True)
    ]
    made = data(table(*listed, header="path, label ,split"), 3)
    assert [p.num_samples for p in (made.train, made.val, made.test) if p] == [3, 1, 1]
    assert made.val is not None and made.val.samples.targets.tolist() == [2]
    listed[3] = listed[3].replace(",c,", ",e,")
    with pytest.raises(UserError, match="data.val has classes that data.train has not: e"):
        data(table(*listed, header="path,label,split"), 3)


def test_a_byte_order_mark_quotes_and_absolute_paths_are_read(table: Any, tmp_path: Path) -> None:
    absolute = tmp_path / "set" / "x" / "3.jpg"
    file = table('"x/0.jpg",1', f"{absolute},0", "x/1.jpg,1", encoding="utf-8-sig")
    found = image_table(file)
    assert found is not None and [label for _, label in found.samples] == [1, 0, 1] and found.path(1) == str(absolute)
    other = image_table(file, root=str(tmp_path / "set"))
    assert other is not None and other.path(0) == found.path(0)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (range(1, 11), "the label of sample 9 ({x}/9.jpg, row 11 of labels.csv) is 10; labels are integers 0..9 "),
        (range(1, 11), "They seem to start at 1."),
        ([0, -1], "the label of sample 1 ({x}/1.jpg, row 3 of labels.csv) is -1; labels are integers 0..9"),
        ([0, "3.0"], "labels.csv, row 3: the label '3.0' is no whole number"),
        (["1.0", "2.0"], "labels.csv, row 2: the label '1.0' is no whole number"),
        ([0, "cat"], "labels.csv, row 3: the label 'cat' is no whole number"),
        ([0, "²"], "labels.csv, row 3: the label '²' is no whole number"),
        ([0, ""], "labels.csv, row 3: the label is empty"),
    ],
)
def test_h10_labels_that_do_not_fit_are_named(table: Any, tmp_path: Path, labels: Any, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said.format(x=tmp_path / "set" / "x"))):
        data(table(*rows(*labels)))


@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        ("file,label", "x/0.jpg,1", "has no column path; its first row is: file, label"),
        ("file,class", "x/0.jpg,1", "has no column path and no column label"),
        ("path,label", "x/0.jpg", "row 2: the label is empty"),
        ("path,label", ",1", "row 2: the path is empty"),
        ("path,label", "x/99.jpg,1", "row 2: there is no file"),
        ("path,label,split", "x/0.jpg,1,dev", "row 2: split 'dev' is none of train, val, test"),
        ("path,label,split", "x/0.jpg,1,val", "has no rows of split train"),
    ],
)
def test_rows_and_columns_that_do_not_fit_are_named(table: Any, header: str, row: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        data(table(row, header=header))


def test_h01_a_file_that_cannot_be_read_is_named_with_its_row(table: Any, tmp_path: Path) -> None:
    (tmp_path / "set" / "x" / "1.jpg").write_text("no image")
    with pytest.raises(UserError, match=re.escape(f"{tmp_path / 'set' / 'x' / '1.jpg'} cannot be read as an image")):
        data(table(*rows(0, 1, 2)))


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gone.csv cannot be read: No such file"):
        image_table(str(tmp_path / "gone.csv"))


def test_given_classes_number_the_labels(table: Any) -> None:
    found = image_table(table(*rows("7", "3", "7")), classes=["3", "7"])
    assert found is not None and found.targets.tolist() == [1, 0, 1]
    with pytest.raises(UserError, match="row 3: 4 is none of the given classes: 3, 7"):
        image_table(table(*rows("7", "4")), classes=["3", "7"])
