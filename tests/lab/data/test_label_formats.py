"""Label files as people have them: other formats, paths of other machines, any column of paths."""

from __future__ import annotations

import json
import ntpath
from pathlib import Path
from typing import Any

import dataset_fixtures as made
import openpyxl
import pyarrow
import pyarrow.parquet
import pytest

from fair_tta.errors import DatasetError
from fair_tta.lab.data import Problem, ProblemKind, Record, read_folder
from fair_tta.lab.data._label_files import LabelTable, _match_ends
from fair_tta.lab.data._labels import Labels

HEADER = ["path", "animal", "place", "age", "is_wild"]
ROWS: list[list[Any]] = [
    ["0.png", "cat", "Zürich, CH", 3, True],
    ["1.png", "dog", "a;b|c\td", 4.0, False],
    ["2.png", "cat", "in", None, None],
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made.folder(tmp_path)
    return tmp_path


def xlsx(path: Path, rows: list[list[Any]]) -> None:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.create_sheet("notes").append(["not", "read"])
    book.save(path)


def parquet(path: Path, rows: list[list[Any]]) -> None:
    header, *cells = rows
    columns = dict(zip(header, map(list, zip(*cells, strict=True)), strict=True))
    columns["vector"] = [[0.0, 1.0]] * len(cells)  # columns of lists are left aside
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def jsonl(path: Path, rows: list[list[Any]]) -> None:
    header, *cells = rows
    objects = [dict(zip(header, row, strict=True)) for row in cells]
    objects[-1] = {name: value for name, value in objects[-1].items() if value is not None}
    path.write_text("\n".join(map(json.dumps, objects)) + "\n\n", encoding="utf-8")


WRITERS = {"labels.xlsx": xlsx, "labels.parquet": parquet, "labels.jsonl": jsonl}


@pytest.mark.parametrize("name", WRITERS)
def test_formats(name: str, root: Path) -> None:
    WRITERS[name](root / name, [HEADER, *ROWS])
    table = LabelTable(root / name, ["animal", "place"])
    assert table.header == HEADER
    rows = list(table.rows(HEADER))
    assert [list(row.cells.values()) for row in rows if not isinstance(row, Problem)] == [
        ["0.png", "cat", "Zürich, CH", "3", "true"],
        ["1.png", "dog", "a;b|c\td", "4", "false"],
        ["2.png", "cat", "in", "", ""],
    ]
    options: Any = {"target_column": "animal", "sensitive_columns": "place"}
    dataset = read_folder(root / "images", root / name, **options)
    assert [(r.key, *r.group) for r in dataset] == [tuple(row[:3]) for row in ROWS]
    with pytest.raises(DatasetError, match=r"lacks \['animals'\] .*\. Did you mean 'animal'\?$"):
        LabelTable(root / name, ["animals"])


def test_the_content_decides_not_the_name(root: Path) -> None:
    for name, write in WRITERS.items():
        write(root / "labels.csv", [HEADER, *ROWS])
        assert LabelTable(root / "labels.csv", []).header == HEADER, name


def test_sheets_begin_anywhere_and_have_empty_rows(root: Path) -> None:
    xlsx(root / "labels.xlsx", [[], ["path", " animal ", None], ["0.png", "cat"], [], ["1.png"]])
    table = LabelTable(root / "labels.xlsx", ["animal"])
    assert table.header == ["path", "animal"]
    rows = [row for row in table.rows(["path", "animal"]) if not isinstance(row, Problem)]
    assert [(row.line, *row.cells.values()) for row in rows] == [
        (3, "0.png", "cat"),
        (5, "1.png", ""),
    ]


def test_a_bomb_is_not_unpacked(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xlsx(root / "labels.xlsx", [HEADER])
    monkeypatch.setattr("fair_tta.lab.data._label_files._MOST_UNPACKED", 1000)
    with pytest.raises(DatasetError, match="more than 1000 bytes when it is unpacked"):
        LabelTable(root / "labels.xlsx", [])


def test_without_the_extra_the_error_names_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    xlsx(root / "labels.xlsx", [HEADER])
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"pip install 'fair-tta\[tables\]'"):
        LabelTable(root / "labels.xlsx", [])


def scanned(root: Path, text: str, **more: Any) -> list[Record | Problem]:
    (root / "labels.csv").write_text(text)
    return (
        Labels(root / "images", root / "labels.csv", "animal", ("place",), **more).scan().records()
    )


@pytest.mark.parametrize("start", ["C:\\Users\\me\\pets\\", "/mnt/disk/pets/", "\\\\nas\\share\\"])
def test_paths_of_another_machine(start: str, root: Path) -> None:
    made.draw(root / "images" / "sub" / "0.png")
    windows = "\\" in start
    names = [start + (ntpath.join("sub", "0.png") if windows else "sub/0.png")]
    names += [f"{start}{i}.png" for i in range(1, 6)] + [f"{start}9.png"]
    rows = [f"{name},{'cat' if i % 2 else 'dog'},in" for i, name in enumerate(names)]
    found = scanned(root, "\n".join(["path,animal,place", *rows]))
    records = [row for row in found if isinstance(row, Record)]
    assert [record.key for record in records] == ["sub/0.png", *(f"{i}.png" for i in range(1, 6))]
    assert [record.target for record in records] == ["dog", "cat"] * 3
    problems = {row.kind: row.what for row in found if isinstance(row, Problem)}
    assert problems == {
        ProblemKind.OTHER_MACHINE: f"6 in labels.csv, such as {names[0]} for sub/0.png",
        ProblemKind.UNPAIRED: "images without a row: 1 ('0.png'); rows without an image: 1",
        ProblemKind.MISSING_IMAGE: names[-1],
    }


def test_ends_are_never_guessed() -> None:
    files = ["/h/test/1.jpg", "/h/test/2.jpg", "/h/a/x.jpg", "/h/b/x.jpg", "/h/c/y.jpg"]
    wanted = {
        "D:/f/test/1.jpg": "/h/test/1.jpg",
        "D:/f/train/2.jpg": None,  # below D:/f, which is /h
        "D:/f/x.jpg": None,  # of two
        "D:/f/b/x.jpg": "/h/b/x.jpg",
        "E:/other/y.jpg": "/h/c/y.jpg",
        "c/y.jpg": "/h/c/y.jpg",
        "d/y.jpg": None,  # relative: the whole of it should be there
        "nothing.jpg": None,
    }
    found = _match_ends(wanted, files)
    assert found == {name: file for name, file in wanted.items() if file}
    assert _match_ends(["D:/1.jpg"], []) == {}


def test_the_column_of_paths_is_found_by_its_values(root: Path) -> None:
    rows = [f"{i},http://x/{i}.png,{i}.png,mask{i}.png,cat,in" for i in range(6)]
    text = "\n".join(["id,url,what it shows,mask,animal,place", *rows])
    records = [row for row in scanned(root, text) if isinstance(row, Record)]
    assert [record.key for record in records] == [f"{i}.png" for i in range(6)]
    other = text.replace("what it shows", "photo").replace("id,url", "number,image")
    assert len(scanned(root, other)) == 6
