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

import dataset_fixtures as fixtures
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

from fair_tta.datasets import BenchmarkTask, read_folder
from fair_tta.errors import DatasetError

COLUMNS: dict[str, Any] = {"target_column": "animal", "sensitive_columns": "place"}


def read(root: Path, text: str | bytes, **changes: Any) -> Dataset:
    """Read labels of the images that `fixtures.folder` draws."""
    data = text.encode() if isinstance(text, str) else text
    (root / "labels.csv").write_bytes(data)
    return read_folder(root / "images", root / "labels.csv", **{**COLUMNS, **changes})


def labels_of(root: Path) -> Labels:
    return Labels(root / "images", root / "labels.csv", "animal", ("place",))


def rows_of(root: Path, *, check_images: bool = True) -> list[Record | Problem]:
    """Return records and problems of rows, without those of the whole folder."""
    rows = []
    for row in labels_of(root).scan().records(check_images=check_images):
        if isinstance(row, Record) or not row.kind.is_of_file:
            rows.append(row)
    return rows


def problem_kinds(rows: list[Record | Problem]) -> list[ProblemKind]:
    """Return the kinds of rows that are problems; some images have no row, which is another."""
    kinds = [row.kind for row in rows if isinstance(row, Problem)]
    assert kinds.pop(0) is ProblemKind.UNPAIRED
    return kinds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fixtures.folder(tmp_path)
    return tmp_path


def test_records(root: Path) -> None:
    dataset = read_folder(root / "images", root / "labels.csv", **COLUMNS)
    places = ["indoors", "indoors", "outdoors", "outdoors", "indoors", "indoors"]
    assert len(dataset) == 6
    for index, record in enumerate(dataset):
        assert record.key == f"{index}.png"
        assert record.target == ("cat", "dog")[index % 2]
        assert record.sensitive == {"place": places[index]}
        assert record.path == root / "images" / record.key
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


def table_of(dataset: Dataset) -> list[list[str]]:
    return [[row.key, row.target, row.sensitive["place"]] for row in dataset]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_separators_encodings_and_line_ends(
    separator: str, encoding: str, end: str, root: Path
) -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator=end).writerows(TABLE)
    dataset = read(root, out.getvalue().encode(encoding))
    assert table_of(dataset) == TABLE[1:]
    problems = {ProblemKind.ENCODING} if encoding == "cp1252" else set()
    assert set(dataset.problems.counts) == problems
    assert dataset.problems.lost == 0


def test_what_spreadsheets_add(root: Path) -> None:
    text = "sep=;\r\n path ; animal;place;;\r\n 0.png ;cat; in ;;\r\n"
    text += "\r\n1.png;dog;out;;\r\n;;;;\r\n"
    dataset = read(root, text)
    assert table_of(dataset) == [["0.png", "cat", "in"], ["1.png", "dog", "out"]]
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
    records = [record for record, _ in values._read_records({}, False)]
    expected = []
    for _, animal, path, place in rows:
        key = os.path.normpath(path)
        expected.append(Record(tmp_path / path, animal, {"place": place}, key))
    assert records == expected


def test_paths(root: Path) -> None:
    fixtures.draw(root / "images" / "deep er" / "an, other.png")
    fixtures.draw(root / "more" / "3.png")
    composed = unicodedata.normalize("NFC", "früh.png")
    apart = unicodedata.normalize("NFD", composed)
    assert composed != apart
    fixtures.draw(root / "images" / apart)
    rows = [
        [str(root / "images" / "0.png"), root / "images" / "0.png"],
        ["deep er/an, other.png", root / "images" / "deep er" / "an, other.png"],
        ["more/3.png", root / "more" / "3.png"],  # beside the file of labels
        ["images/1.png", root / "images" / "1.png"],
        [composed, root / "images" / apart],
    ]
    fixtures.write_csv(
        root / "labels.csv",
        [["path", "animal", "place"], *([name, "cat", "in"] for name, _ in rows)],
    )
    dataset = read_folder(root / "images", root / "labels.csv", **COLUMNS)
    assert [record.path for record in dataset] == [path for _, path in rows]
    keys = ["0.png", "deep er/an, other.png", "more/3.png", "1.png", apart]
    assert [record.key for record in dataset] == keys
    windows = read(root, 'path,animal,place\n"deep er\\an, other.png",cat,in\n')
    assert [record.path for record in windows] == [rows[1][1]]


@pytest.mark.parametrize(
    ("path", "images", "written", "key"),
    [
        ("C:/a/b/c.png", "C:/a", "b/c.png", "b/c.png"),
        ("c:/A/b/c.png", "C:/a", "c:/A/b/c.png", "b/c.png"),
        ("C:/b/c.png", "C:/a", "..\\b/c.png", "../b/c.png"),
    ],
)
def test_keys_on_windows(
    path: str, images: str, written: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "os", SimpleNamespace(path=ntpath, sep="\\"))
    assert paths.key_of(Path(path), Path(images), written) == key


def test_keys_elsewhere() -> None:
    assert paths.key_of(Path("/b/c.png"), Path("/a"), "..\\b/c.png") == "..\\b/c.png"
    assert paths.key_of(Path("/b/c.png"), Path("/"), "/b/c.png") == "b/c.png"


def spellings(root: Path) -> list[str]:
    """Return spellings of images/sub/0.png, as seen from `root`."""
    fixtures.draw(root / "images" / "sub" / "0.png")
    (root / "linked").symlink_to(root / "images" / "sub")
    return [
        "sub/0.png", "sub\\0.png", "./sub//0.png", str(root / "images" / "sub" / "0.png"),
        "images/sub/0.png", "../images/sub/0.png", "linked/0.png",
    ]  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("images", ["images", "./images/../images", "absolute"])
def test_one_file_has_one_key_however_it_is_spelled(
    images: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the scan before a run."""
    monkeypatch.chdir(root)
    names = spellings(root)
    duplicates = [ProblemKind.DUPLICATE] * 6, ["sub/0.png", "1.png"]
    conflicts = [ProblemKind.CONFLICT] * 7, ["1.png"]
    for animals, (kinds, keys) in (
        (["cat"] * 7, duplicates),
        (["cat", "dog"] * 3 + ["cat"], conflicts),
    ):
        rows = [["path", "animal", "place"]]
        for name, animal in zip(names, animals, strict=True):
            rows.append([name, animal, "in"])
        fixtures.write_csv(root / "labels.csv", [*rows, ["1.png", "x", "in"]])
        folder = root / "images" if images == "absolute" else Path(images)
        labels = Labels(folder, Path("labels.csv"), "animal", ("place",))
        assert problem_kinds(labels.scan().records()) == kinds
        dataset = read_folder(folder, "labels.csv", **COLUMNS)
        assert [record.key for record in dataset] == keys


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_are_spelled_as_the_disk_has_them(form: Any, root: Path) -> None:
    fixtures.draw(root / "images" / unicodedata.normalize(form, "früh.png"))
    composed = unicodedata.normalize("NFC", "früh.png")
    decomposed = unicodedata.normalize("NFD", "früh.png")
    rows = [["path", "animal", "place"], ["0.png", "cat", "in"]]
    rows += [[composed, "cat", "in"], [decomposed, "dog", "in"]]
    fixtures.write_csv(root / "labels.csv", rows)
    kinds = problem_kinds(labels_of(root).scan().records())
    assert kinds == [ProblemKind.CONFLICT] * 2


def test_different_files_of_one_name_stay_apart(root: Path) -> None:
    for name in ("images/a/0.png", "images/b/0.png", "0.png"):
        fixtures.draw(root / name)
    text = "path,animal,place\na/0.png,cat,in\nb/0.png,dog,in\n../0.png,dog,out\n0.png,cat,out\n"
    dataset = read(root, text)
    assert [record.key for record in dataset] == [
        "a/0.png",
        "b/0.png",
        "../0.png",
        "0.png",
    ]
    assert not dataset.problems


def test_the_column_of_paths(root: Path) -> None:
    text = (root / "labels.csv").read_text()
    for name in ("file", "Filename", "IMAGE_PATH", "img_filename"):
        assert len(read(root, text.replace("path", name))) == 6
    named = text.replace("path", "where it is")
    assert len(read(root, named, path_column="where it is")) == 6


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
    assert table_of(dataset) == [["0.png", "cat", "in"], ["3.png", "fish", "in"]]
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
    stream = rows_of(root)
    assert len(stream) == len(rows) - 1
    records = [index for index, row in enumerate(stream) if isinstance(row, Record)]
    assert records == [0, 14]
    assert str(stream[1]) == "image file is missing: gone.png"


def test_values_may_be_restricted(root: Path) -> None:
    allowed = {"animal": ["cat"], "place": {"indoors", "outdoors"}}
    rows = labels_of(root).scan().records(allowed)
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
    assert [record.sensitive for record in dataset] == [
        {"light": "dark", "place": "in"},
        {"light": "bright", "place": "out"},
    ]


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
    labels = labels_of(root)
    images: list[str] = []
    stat = os.stat

    def noted_stat(path: Any, *arguments: Any, **options: Any) -> Any:
        if os.fspath(path).endswith(".png"):
            images.append(path)
        return stat(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", noted_stat)
    values = labels.scan()
    records = rows_of(root, check_images=False)
    assert len(records) == values.row_count > 1
    assert images == []
    assert [row for row in values.records() if isinstance(row, Record)] == records
    # Once each
    assert len(images) == len(records)
