"""Any folder with a CSV file of labels, however odd."""

from __future__ import annotations

import csv
import io
import ntpath
import os
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dataset_fixtures as made
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from internals import (
    MISSING_CELLS,
    PAPER_TASKS,
    Dataset,
    Labels,
    Problem,
    ProblemKind,
    Record,
)
from internals import image_paths_module as paths
from PIL import Image

from fair_tta.datasets import BenchmarkTask, read_folder
from fair_tta.errors import DatasetError

COLUMNS: dict[str, Any] = {"target_column": "animal", "sensitive_columns": "place"}


def read(root: Path, text: str | bytes, **changes: Any) -> Dataset:
    """Labels of the pictures that `made.folder` draws."""
    data = text.encode() if isinstance(text, str) else text
    (root / "labels.csv").write_bytes(data)
    return read_folder(root / "images", root / "labels.csv", **{**COLUMNS, **changes})


def rows_of(
    images: Path, labels: Path, *, check_images: bool = True
) -> list[Record | Problem]:
    """Without what is about the folder as a whole."""
    rows = (
        Labels(images, labels, "animal", ("place",))
        .scan()
        .records(check_images=check_images)
    )
    return [
        row for row in rows if not isinstance(row, Problem) or not row.kind.is_of_file
    ]


def problem_kinds(rows: list[Record | Problem]) -> list[ProblemKind]:
    """Of rows; the folder has images that they do not name."""
    kinds = [row.kind for row in rows if isinstance(row, Problem)]
    assert kinds.pop(0) is ProblemKind.UNPAIRED
    return kinds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made.folder(tmp_path)
    return tmp_path


def test_records(root: Path) -> None:
    dataset = read_folder(root / "images", root / "labels.csv", **COLUMNS)
    assert [(r.key, r.target, r.sensitive) for r in dataset] == [
        (
            f"{i}.png",
            ("cat", "dog")[i % 2],
            {"place": ("indoors", "outdoors")[i // 2 % 2]},
        )
        for i in range(6)
    ]
    assert all(r.path == root / "images" / r.key for r in dataset)
    assert not dataset.problems
    assert str(dataset.problems) == "no problems"
    assert dataset.task is None
    assert dataset.parameters == {"labels": "labels.csv", "target": "animal"}
    assert str(dataset).startswith(
        "images: 6 records (labels labels.csv, target animal)"
    )


TABLE = [
    ["path", "animal", "place"],
    ["0.png", "cat", "Zürich, CH"],
    ["1.png", "dog", "a;b|c\td"],
]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_separators_encodings_and_line_ends(
    separator: str, encoding: str, end: str, root: Path
) -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator=end).writerows(TABLE)
    dataset = read(root, out.getvalue().encode(encoding))
    assert [[r.key, r.target, r.sensitive["place"]] for r in dataset] == TABLE[1:]
    assert set(dataset.problems.counts) == (
        {ProblemKind.ENCODING} if encoding == "cp1252" else set()
    )
    assert dataset.problems.lost == 0


def test_what_spreadsheets_add(root: Path) -> None:
    text = "sep=;\r\n path ; animal;place;;\r\n 0.png ;cat; in ;;\r\n"
    text += "\r\n1.png;dog;out;;\r\n;;;;\r\n"
    dataset = read(root, text)
    assert [(r.key, r.target, r.sensitive["place"]) for r in dataset] == [
        ("0.png", "cat", "in"),
        ("1.png", "dog", "out"),
    ]
    assert not dataset.problems


cells = (
    st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1
    )
    .map(str.strip)
    .filter(lambda text: text.lower() not in MISSING_CELLS and text != "")
)


@example(rows=[("0", "0", path, "0") for path in ("0/", "./a//b", "../c", "/d")], separator=",",
         encoding="utf-8")  # fmt: skip
@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    rows=st.lists(st.tuples(cells, cells, cells, cells), max_size=6),
    separator=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_any_text_comes_back(
    rows: list[tuple[str, str, str, str]], separator: str, encoding: str, tmp_path: Path
) -> None:
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator, quoting=csv.QUOTE_ALL)
    writer.writerows([("extra", "animal", "path", "place"), *rows])
    labels = tmp_path / "labels.csv"
    labels.write_bytes(out.getvalue().encode(encoding))
    values = Labels(tmp_path, labels, "animal", ("place",), "path").scan()
    found = [record for record, _ in values._read_records({}, False)]
    assert found == [
        Record(tmp_path / path, animal, {"place": place}, os.path.normpath(path))
        for _, animal, path, place in rows
    ]


def test_paths(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.draw(root / "images" / "deep er" / "an, other.png")
    made.draw(root / "more" / "3.png")
    composed = unicodedata.normalize("NFC", "früh.png")
    apart = unicodedata.normalize("NFD", composed)
    assert composed != apart
    made.draw(root / "images" / apart)
    rows = [
        [str(root / "images" / "0.png"), root / "images" / "0.png"],
        ["deep er/an, other.png", root / "images" / "deep er" / "an, other.png"],
        ["more/3.png", root / "more" / "3.png"],  # beside the file of labels
        ["images/1.png", root / "images" / "1.png"],
        [composed, root / "images" / apart],
    ]
    made.write_csv(
        root / "labels.csv",
        [["path", "animal", "place"], *([name, "cat", "in"] for name, _ in rows)],
    )
    dataset = read_folder(root / "images", root / "labels.csv", **COLUMNS)
    assert [r.path for r in dataset] == [path for _, path in rows]
    keys = ["0.png", "deep er/an, other.png", "more/3.png", "1.png", apart]
    assert [r.key for r in dataset] == keys
    assert paths.key_of(Path("/b/c.png"), Path("/a"), "..\\b/c.png") == "..\\b/c.png"
    assert paths.key_of(Path("/b/c.png"), Path("/"), "/b/c.png") == "b/c.png"
    with monkeypatch.context() as as_on_windows:
        as_on_windows.setattr(paths, "os", SimpleNamespace(path=ntpath, sep="\\"))
        assert paths.key_of(Path("C:/a/b/c.png"), Path("C:/a"), "b/c.png") == "b/c.png"
        assert (
            paths.key_of(Path("c:/A/b/c.png"), Path("C:/a"), "c:/A/b/c.png")
            == "b/c.png"
        )
        assert (
            paths.key_of(Path("C:/b/c.png"), Path("C:/a"), "..\\b/c.png")
            == "../b/c.png"
        )
    windows = read(root, 'path,animal,place\n"deep er\\an, other.png",cat,in\n')
    assert [r.path for r in windows] == [rows[1][1]]


def spellings(root: Path) -> list[str]:
    """Of images/sub/0.png, as it is found from `root`."""
    made.draw(root / "images" / "sub" / "0.png")
    (root / "linked").symlink_to(root / "images" / "sub")
    return [
        "sub/0.png", "sub\\0.png", "./sub//0.png", str(root / "images" / "sub" / "0.png"),
        "images/sub/0.png", "../images/sub/0.png", "linked/0.png",
    ]  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("images", ["images", "./images/../images", "absolute"])
def test_one_file_is_one_picture_however_it_is_spelt(
    images: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the file of labels, and in the scan before a run."""
    monkeypatch.chdir(root)
    names = spellings(root)
    for animals, kinds in (
        (["cat"] * 7, [ProblemKind.DUPLICATE] * 6),
        (["cat", "dog"] * 3 + ["cat"], [ProblemKind.CONFLICT] * 7),
    ):
        rows = [
            [name, animal, "in"] for name, animal in zip(names, animals, strict=True)
        ]
        made.write_csv(
            root / "labels.csv",
            [["path", "animal", "place"], *rows, ["1.png", "x", "in"]],
        )
        where = root / "images" if images == "absolute" else Path(images)
        labels = Labels(where, Path("labels.csv"), "animal", ("place",))
        found = labels.scan().records()
        assert problem_kinds(found) == kinds
        dataset = read_folder(where, "labels.csv", **COLUMNS)
        assert [r.key for r in dataset] == ["sub/0.png", "1.png"][len(kinds) > 6 :]


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_are_spelt_as_the_disk_has_them(form: Any, root: Path) -> None:
    made.draw(root / "images" / unicodedata.normalize(form, "früh.png"))
    both = [unicodedata.normalize(of, "früh.png") for of in ("NFC", "NFD")]
    rows = [[both[0], "cat", "in"], [both[1], "dog", "in"], ["0.png", "cat", "in"]]
    made.write_csv(root / "labels.csv", [["path", "animal", "place"], *rows])
    labels = Labels(root / "images", root / "labels.csv", "animal", ("place",))
    assert problem_kinds(labels.scan().records()) == [ProblemKind.CONFLICT] * 2


def test_different_files_of_one_name_stay_apart(root: Path) -> None:
    for place in ("images/a/0.png", "images/b/0.png", "0.png"):
        made.draw(root / place)
    text = "path,animal,place\na/0.png,cat,in\nb/0.png,dog,in\n../0.png,dog,out\n0.png,cat,out\n"
    dataset = read(root, text)
    assert [r.key for r in dataset] == ["a/0.png", "b/0.png", "../0.png", "0.png"]
    assert not dataset.problems


def test_the_column_of_paths(root: Path) -> None:
    text = (root / "labels.csv").read_text()
    for name in ("file", "Filename", "IMAGE_PATH", "img_filename"):
        assert len(read(root, text.replace("path", name))) == 6
    named = text.replace("path", "where it is")
    assert len(read(root, named, path_column="where it is")) == 6
    with pytest.raises(
        DatasetError, match=r"has no column of paths that is known by its values or"
    ):
        read(root, named.replace(".png", ""))


def test_faults_are_counted_row_by_row(root: Path) -> None:
    (root / "images" / "5.png").write_bytes(b"")
    (root / "images" / "folder.png").mkdir()
    rows = [
        "path,animal,place,extra",
        "0.png,cat,in,",
        "gone.png,cat,in,",
        "1.png,,in,",
        "2.png,dog,NaN,",
        ",dog,in,",
        "3.png,dog",
        "3.png,dog,in,x,too,many",
        "5.png,dog,in,",
        "folder.png,dog,in,",
        "0.png,cat,in,again",
        "4.png,dog,in,",
        "4.png,cat,in,",
        "4.png,dog,in,",
        "http://example.org/a.png,cat,in,",
        "3.png,fish,in,",
    ]
    dataset = read(root, "\n".join(rows))
    assert [(r.key, r.target) for r in dataset] == [("0.png", "cat"), ("3.png", "fish")]
    assert dict(dataset.problems.counts) == {
        ProblemKind.MISSING_IMAGE: 3,
        ProblemKind.MISSING_VALUE: 3,
        ProblemKind.MALFORMED_ROW: 2,
        ProblemKind.EMPTY_IMAGE: 1,
        ProblemKind.DUPLICATE: 1,
        ProblemKind.CONFLICT: 3,
    }
    assert dataset.problems.examples[ProblemKind.MISSING_VALUE] == (
        "labels.csv line 4 (animal)",
        "labels.csv line 5 (place)",
        "labels.csv line 6 (path)",
    )
    assert dataset.problems.examples[ProblemKind.MALFORMED_ROW] == (
        "labels.csv line 7",
        "labels.csv line 8",
    )
    stream = rows_of(root / "images", root / "labels.csv")
    assert len(stream) == len(rows) - 1
    assert [isinstance(row, Record) for row in stream] == [
        (r.startswith("0.png,cat,in,") and "again" not in r) or "fish" in r
        for r in rows[1:]
    ]
    problem = stream[1]
    assert isinstance(problem, Problem)
    assert str(problem) == "image file is missing: gone.png"


def test_values_may_be_restricted(root: Path) -> None:
    allowed = {"animal": ["cat"], "place": {"indoors", "outdoors"}}
    values = Labels(root / "images", root / "labels.csv", "animal", ("place",)).scan()
    rows = values.records(allowed)
    assert [row.detail for row in rows if isinstance(row, Problem)] == [
        f"labels.csv line {line} (animal 'dog')" for line in (3, 5, 7)
    ]
    assert [row.target for row in rows if isinstance(row, Record)] == ["cat"] * 3


def test_a_task_goes_with_the_dataset(root: Path) -> None:
    task = BenchmarkTask(
        "pets",
        "animal",
        {"cat": "a cat", "dog": "a dog"},
        {"place": {"indoors": "in a house", "garden": "in a garden"}},
        "{target} {sensitive}",
    )
    dataset = read_folder(root / "images", root / "labels.csv", **COLUMNS, task=task)
    assert dataset.task is task
    assert dataset.groups() == {("cat", "indoors"): 2, ("dog", "indoors"): 2}
    assert dataset.problems.counts == {ProblemKind.UNKNOWN_VALUE: 2}
    with pytest.raises(
        DatasetError, match=r"`task` should have the sensitive attributes \['place"
    ):
        read_folder(
            root / "images",
            root / "labels.csv",
            **COLUMNS,
            task=replace(PAPER_TASKS[0], target="animal"),
        )


def test_several_sensitive_columns(root: Path) -> None:
    dataset = read(
        root,
        "path,animal,place,light\n0.png,cat,in,dark\n1.png,dog,out,bright\n",
        sensitive_columns=["light", "place"],
    )
    assert [r.sensitive for r in dataset] == [
        {"light": "dark", "place": "in"},
        {"light": "bright", "place": "out"},
    ]


def test_what_is_wrong_with_the_whole_file_is_said_at_once(root: Path) -> None:
    images, labels = root / "images", root / "labels.csv"
    with pytest.raises(
        DatasetError, match=r"`images_dir` should be a folder \(got '.*nowhere'\)"
    ):
        read_folder(root / "nowhere", labels, **COLUMNS)
    with pytest.raises(
        DatasetError, match=r"`labels_csv` should be a file \(got '.*images'\)\."
    ):
        read_folder(images, images, **COLUMNS)
    with pytest.raises(
        DatasetError, match=r"`sensitive_columns` should name at least one column"
    ):
        read_folder(images, labels, target_column="animal", sensitive_columns=[])
    with pytest.raises(
        DatasetError,
        match=r"labels.csv' should have the columns \['animal', 'color'\], but lacks \['color'\] "
        r"\(it has \['path', 'animal', 'place'\]\)\.",
    ):
        read_folder(images, labels, target_column="animal", sensitive_columns="color")
    labels.write_text("path,animal,place,animal\n0.png,cat,in,dog\n")
    with pytest.raises(
        DatasetError, match=r"has more than one column called \['animal'\]\."
    ):
        read_folder(images, labels, **COLUMNS)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"labels.csv' is empty\. Get it again\."),
        (b" \n\n", r"labels.csv' is empty\. Get it again\."),
        (
            b"version https://git-lfs.github.com/spec/v1\noid",
            r"is a Git LFS pointer: run `git lfs",
        ),
        (
            b"PK\3\4\0\0\0xl/workbook.xml",
            r"cannot be read as an Excel file: File is not a zip",
        ),
        (b"PAR1 and no more", r"cannot be read as parquet: "),
        (
            b'{"path": "0.png"}\n[1]\n',
            r"cannot be read as JSON lines, in line 2: not an object\.",
        ),
        (b"\xd0\xcf\x11\xe0\0\0", r"is not text .* Save it as \.xlsx or \.csv\)\."),
        (
            b"<HTML lang=en><title>\n Sign in </title>",
            r"is a web page \(HTML\) .* titled 'Sign in'",
        ),
        (
            b'path,animal,place\n0.png,"cat,in\n',
            r"cannot be read from line 2 on: .*not closed\?",
        ),
        (
            b"path,animal,place\ngone.png,cat,in\n",
            r"no usable record in '.*'\.\n1 x image file is ",
        ),
        (b'"path\n', r"cannot be read from line 1 on: unexpected end of data"),
        (b"sep=;\n", r"but lacks \['animal', 'place'\] \(it has \[\]\)"),
        (b"path,animal,place\n", r"no usable record in '.*labels.csv'\.\nno problems"),
    ],
)
def test_files_that_hold_no_labels(data: bytes, message: str, root: Path) -> None:
    with pytest.raises(DatasetError, match=message):
        read(root, data)


def test_an_unreadable_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("fair_tta.datasets._label_files.open_file", refuse)
    with pytest.raises(
        DatasetError, match=r"cannot read '.*labels.csv': Permission denied\."
    ):
        read_folder(root / "images", root / "labels.csv", **COLUMNS)


def test_images_are_not_looked_for_unless_asked(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values_of = Labels(root / "images", root / "labels.csv", "animal", ("place",))
    looked: list[str] = []
    stat = os.stat

    def noted(path: Any, *arguments: Any, **options: Any) -> Any:
        looked.append(os.fspath(path))
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", noted)
    values = values_of.scan()
    records = rows_of(root / "images", root / "labels.csv", check_images=False)
    assert len(records) == values.row_count > 1
    assert not [path for path in looked if path.endswith(".png")]
    assert [r for r in values.records() if isinstance(r, Record)] == records
    assert len([path for path in looked if path.endswith(".png")]) == len(records), (
        "once each"
    )


def test_a_picture_has_one_key_however_its_path_is_spelt(tmp_path: Path) -> None:
    images = tmp_path / "images"
    (images / "sub").mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(images / "a.png")
    spellings = ["a.png", "./a.png", "sub/../a.png", str(images / "a.png")]
    labels = tmp_path / "labels.csv"
    labels.write_text("path,y,s\n" + "".join(f"{name},cat,in\n" for name in spellings))
    found = Labels(images, labels, "y", ("s",)).scan().records()
    keys = [row.key if isinstance(row, Record) else row.detail for row in found]
    assert keys == ["a.png"] * 4
