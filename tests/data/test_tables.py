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
    said = r"data.val has a class that data.train \(a, b, c\) has not: e, such as that of sample 0 "
    with pytest.raises(UserError, match=said + r"\(.*3.jpg, row 5 of labels.csv\)"):
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
        ([0, "9" * 30], "labels.csv, row 3: the label 999999999999999999999999999999 is no number of a class"),
        (
            [0, 2**40],
            "the label of sample 1 ({x}/1.jpg, row 3 of labels.csv) is 1099511627776; labels are integers 0..9",
        ),
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
        ("path,label", r"x\0.jpg,1", "Folders are separated by /."),
        ("path,label,split", "x/0.jpg,1,dev", "row 2: split 'dev' is none of train, val, test"),
        ("path,label,split", "x/0.jpg,1,val", "has no rows of split train"),
        ("path,label", "", "has no rows, only the names of columns"),
        (
            "path;label",
            "x/0.jpg;1",
            "first row is: path;label. Its fields seem to be separated by semicolons. Expected are",
        ),
        ("path\tlabel", "x/0.jpg\t1", "separated by tabs. Expected are commas, and a first row that names the columns"),
        ("x/1.jpg,0", "x/0.jpg,1", "its first row is: x/1.jpg, 0. Expected are commas, and a first row that names the"),
        ("path,label,label", "x/0.jpg,1,1", "has 2 columns called label; keep one"),
        ("path,label", "x/0.jpg,1,2", "row 2 has 3 fields, but the first row names 2 columns"),
        ("path,label", "x/0.jpg,a, b", "row 2 has 3 fields, but the first row names 2 columns"),
        ("path,label", '"x/0.jpg,1', "row 2: this is no CSV: unexpected end of data. Is a quote not closed?"),
        (
            "path,label",
            "x/0.jpg,1\nx/0.jpg,2",
            "rows 2 and 3: x/0.jpg has two labels, 1 and 2. Take one of the rows out",
        ),
        ("path,label", "x/0.jpg,1\nx/../x/0.jpg,2", "rows 2 and 3: x/../x/0.jpg has two labels, 1 and 2"),
        (
            "path,label,split",
            "x/0.jpg,1,train\nx/0.jpg,1,test",
            "rows 2 and 3: x/0.jpg is of two parts, train and test",
        ),
        ("path,label,split", "x/0.jpg,cat,train\nx/1.jpg,1,val", "row 2: the label 'cat' is no whole number"),
    ],
)
def test_rows_and_columns_that_do_not_fit_are_named(table: Any, header: str, row: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        data(table(row, header=header))


@pytest.mark.parametrize(
    ("encoding", "said"),
    [
        ("latin-1", "labels.csv, row 3: byte 29 (0xfc) is not UTF-8; the file may be Latin-1. Save it as UTF-8"),
        ("cp1252", "labels.csv, row 3: byte 29 (0xfc) is not UTF-8"),
        ("utf-16", "labels.csv is in UTF-16, not in UTF-8. Save it as UTF-8"),
        ("utf-16-le", "labels.csv, row 1: byte 1 is zero, as in UTF-16 or a file that is no text. Save it as UTF-8"),
        ("utf-32", "labels.csv is in UTF-32, not in UTF-8. Save it as UTF-8"),
    ],
)
def test_another_encoding_is_named_with_its_row_and_what_to_do(table: Any, encoding: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        data(table("x/0.jpg,a", "x/1.jpg,ü", "x/2.jpg,ü", encoding=encoding))


def test_a_byte_that_is_not_utf_8_behind_a_mark_is_found_where_it_is(table: Any) -> None:
    file = table("x/0.jpg,a")
    with open(file, "wb") as opened:
        opened.write(b"\xef\xbb\xbfpath,label\nx/0.jpg,\xfc\n")
    with pytest.raises(UserError, match=re.escape("row 2: byte 22 (0xfc) is not UTF-8")):
        image_table(file)


def test_a_line_separator_in_a_name_does_not_end_a_row(table: Any) -> None:
    made = data(table("x/0.jpg,a\u2028b", "x/1.jpg,a\u2028b", "", " , "), 1)
    assert made.class_names == ["a\\u2028b"] and made.train.num_samples == 2


def test_an_image_that_is_listed_again_counts_again_and_is_said(table: Any, caplog: pytest.LogCaptureFixture) -> None:
    made = data(table("x/0.jpg,0", "x/1.jpg,1", "./x/0.jpg,0"), 2)
    assert made.train.num_samples == 3
    (record,) = caplog.records
    assert "lists 1 images again, such as ./x/0.jpg in rows 2 and 4" in record.getMessage()


def test_missing_files_are_counted_over_all_parts_and_their_folder_is_said(table: Any, tmp_path: Path) -> None:
    listed = ["x/0.jpg,0,train", "y/1.jpg,1,train", "y/2.jpg,1,val"]
    said = f"row 3: there is no file {tmp_path}/set/y/1.jpg, nor 1 more of the 3 listed. Paths are relative to {tmp_path}/set."
    with pytest.raises(UserError, match=re.escape(said)):
        data(table(*listed, header="path,label,split"), 2)


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
    found = image_table(table(*rows("1", "0")), classes=["cat", "dog"])
    assert found is not None and found.targets.tolist() == [1, 0] and found.classes == ["cat", "dog"]
    with pytest.raises(UserError, match="row 3: 1 is none of the given classes: cat, dog"):
        image_table(table(*rows("cat", "1")), classes=["cat", "dog"])
