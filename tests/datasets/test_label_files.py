"""Label files as people have them: other formats, paths of other machines, any column of paths."""

from __future__ import annotations

import json
import ntpath
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from time import process_time
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import dataset_fixtures as made
import openpyxl
import pyarrow
import pyarrow.parquet
import pytest
from internals import (
    LabelRow,
    Labels,
    LabelTable,
    Problem,
    ProblemKind,
    Record,
    match_by_ends,
)

from fair_tta.datasets import read_folder
from fair_tta.errors import DatasetError

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
    objects[-1] = {
        name: value for name, value in objects[-1].items() if value is not None
    }
    path.write_text("\n".join(map(json.dumps, objects)) + "\n\n", encoding="utf-8")


WRITERS = {"labels.xlsx": xlsx, "labels.parquet": parquet, "labels.jsonl": jsonl}


@pytest.mark.parametrize("name", WRITERS)
def test_formats(name: str, root: Path) -> None:
    WRITERS[name](root / name, [HEADER, *ROWS])
    table = LabelTable(root / name, ["animal", "place"])
    assert table.header == HEADER
    rows = list(table.rows(HEADER))
    assert [
        list(row.cells.values()) for row in rows if not isinstance(row, Problem)
    ] == [
        ["0.png", "cat", "Zürich, CH", "3", "true"],
        ["1.png", "dog", "a;b|c\td", "4", "false"],
        ["2.png", "cat", "in", "", ""],
    ]
    options: Any = {"target_column": "animal", "sensitive_columns": "place"}
    dataset = read_folder(root / "images", root / name, **options)
    assert [(r.key, *r.group) for r in dataset] == [tuple(row[:3]) for row in ROWS]
    with pytest.raises(
        DatasetError, match=r"lacks \['animals'\] .*\. Did you mean 'animal'\?$"
    ):
        LabelTable(root / name, ["animals"])


def test_the_content_decides_not_the_name(root: Path) -> None:
    for name, write in WRITERS.items():
        write(root / "labels.csv", [HEADER, *ROWS])
        assert LabelTable(root / "labels.csv", []).header == HEADER, name


def test_sheets_begin_anywhere_and_have_empty_rows(root: Path) -> None:
    xlsx(
        root / "labels.xlsx",
        [[], ["path", " animal ", None], ["0.png", "cat"], [], ["1.png"]],
    )
    table = LabelTable(root / "labels.xlsx", ["animal"])
    assert table.header == ["path", "animal"]
    rows = [
        row for row in table.rows(["path", "animal"]) if not isinstance(row, Problem)
    ]
    assert [(row.line, *row.cells.values()) for row in rows] == [
        (3, "0.png", "cat"),
        (5, "1.png", ""),
    ]


def sheet_of(path: Path, rows: str) -> None:
    """An Excel file whose first sheet has these rows as XML."""
    xlsx(path, [HEADER])
    with ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    start, end = b"<sheetData>", b"</sheetData>"
    before, _, rest = parts["xl/worksheets/sheet1.xml"].partition(start)
    after = rest.partition(end)[2]
    parts["xl/worksheets/sheet1.xml"] = before + start + rows.encode() + end + after
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def cell(place: str, text: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>'


SHEET_HEADER = f'<row r="1">{cell("A1", "path")}{cell("B1", "animal")}</row>'


def cpu_seconds(work: Callable[[], Any]) -> float:
    before = process_time()
    work()
    return process_time() - before


def test_a_bomb_is_not_unpacked(root: Path) -> None:
    sheet_of(root / "labels.xlsx", SHEET_HEADER + " " * 2**25)
    assert (root / "labels.xlsx").stat().st_size < 2**16
    with pytest.raises(DatasetError, match=r"33,5..,... bytes when it is unpacked"):
        LabelTable(root / "labels.xlsx", [])


def test_rows_of_a_sheet_cost_what_their_named_columns_cost(root: Path) -> None:
    """A cell at the right edge of each row made 16,384 cells of it: 6 kB took seconds."""
    rows = "".join(f'<row r="{i}">{cell(f"A{i}", "0.png")}{cell(f"XFD{i}", "x")}</row>'
                   for i in range(2, 1002))  # fmt: skip
    sheet_of(root / "labels.xlsx", SHEET_HEADER + rows)
    found: list[Any] = []

    def read() -> None:
        found.extend(LabelTable(root / "labels.xlsx", []).rows(["path", "animal"]))

    assert cpu_seconds(read) < 1
    assert len(found) == 1000
    assert found[-1].cells == {"path": "0.png", "animal": ""}


def test_a_sheet_has_no_more_rows_than_excel_writes(root: Path) -> None:
    sheet_of(
        root / "labels.xlsx",
        SHEET_HEADER + f'<row r="{2**40}">{cell("A2", "0.png")}</row>',
    )
    with pytest.raises(DatasetError, match="more than 1,048,576 rows"):
        LabelTable(root / "labels.xlsx", [])


def test_tables_with_too_many_cells(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By rows and columns, before rows become objects."""
    for name in ("labels.xlsx", "labels.parquet"):
        WRITERS[name](root / name, [HEADER, *ROWS])
    monkeypatch.setattr("fair_tta.datasets._label_files._MAX_CELLS", 14)
    with pytest.raises(DatasetError, match="more than 14 cells"):
        list(LabelTable(root / "labels.xlsx", []).rows(HEADER))
    with pytest.raises(DatasetError, match=r"3 rows x 5 columns.*at most 14 cells"):
        list(LabelTable(root / "labels.parquet", []).rows(HEADER))
    assert len(list(LabelTable(root / "labels.parquet", []).rows(HEADER[:4]))) == 3


@pytest.mark.parametrize("name", ["labels.csv", *WRITERS])
def test_tables_with_too_many_columns(
    name: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "labels.csv":
        (root / name).write_text("a,b,c,d,e\n1,2,3,4,5\n")
    else:
        WRITERS[name](root / name, [HEADER, *ROWS])
    monkeypatch.setattr("fair_tta.datasets._label_files._MAX_COLUMNS", 4)
    with pytest.raises(DatasetError, match="has 5 columns, more than 4"):
        LabelTable(root / name, [])


def test_parquet_that_would_be_unpacked_to_gigabytes(root: Path) -> None:
    """Only the columns that are read count."""
    columns = {
        "path": ["0.png"] * 40,
        "note": [" " * 2**20 + str(i) for i in range(40)],
    }
    table = pyarrow.table(columns)
    pyarrow.parquet.write_table(table, root / "labels.parquet", compression="zstd")
    assert (root / "labels.parquet").stat().st_size < 2**16
    found = LabelTable(root / "labels.parquet", ["path"])
    assert len(list(found.rows(["path"]))) == 40
    with pytest.raises(DatasetError, match="bytes when it is unpacked"):
        list(found.rows(["path", "note"]))


def test_a_long_text_in_many_rows_is_kept_once(root: Path) -> None:
    """Parquet writes it once; as text of each row it would take 10 GB."""
    long, n = "x" * 2**17, 80_000
    column = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * n, pyarrow.int32()), [long]
    )
    table = pyarrow.table({"path": ["0.png"] * n, "animal": column})
    pyarrow.parquet.write_table(table, root / "labels.parquet", store_schema=False)
    rows = list(
        LabelTable(root / "labels.parquet", ["animal"]).rows(["path", "animal"])
    )
    assert (
        len({id(row.cells["animal"]) for row in rows if not isinstance(row, Problem)})
        < 10
    )


def test_a_million_rows_of_parquet(root: Path) -> None:
    """They took some 60 s of a processor."""
    n = 10**6
    columns = {
        "path": [f"sub/{i}.png" for i in range(n)],
        "animal": ["cat", "dog"] * (n // 2),
        "place": [0, 1, 2, 3] * (n // 4),
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), root / "labels.parquet")
    labels = Labels(root / "images", root / "labels.parquet", "animal", ("place",))
    found: list[Any] = []
    # 5 s on the slowest machine of the project's tests; here there is room for a slower one
    assert cpu_seconds(lambda: found.append(labels.scan())) < 10
    assert found[0].value_counts["place"] == {str(i): n // 4 for i in range(4)}


def test_names_of_parquet_columns_are_stripped(root: Path) -> None:
    parquet(
        root / "labels.parquet", [["path", " animal", "place "], ["0.png", "cat", "in"]]
    )
    table = LabelTable(root / "labels.parquet", ["animal", "place"])
    assert table.header == ["path", "animal", "place"]
    (row,) = table.rows(["place", "animal"])
    assert isinstance(row, LabelRow)
    assert row.cells == {"place": "in", "animal": "cat"}
    parquet(
        root / "labels.parquet", [["path", " animal", "animal"], ["0.png", "cat", "in"]]
    )
    with pytest.raises(DatasetError, match=r"more than one column called \['animal'\]"):
        LabelTable(root / "labels.parquet", ["animal"])


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pyarrow.array([1.5, None, 2.0, float("nan")]), ["1.5", "", "2", "nan"]),
        (pyarrow.array([True, None, False, True]), ["true", "", "false", "true"]),
        (pyarrow.array([None] * 4), [""] * 4),
        (pyarrow.array([date(2020, 1, 2), None] * 2), ["2020-01-02", ""] * 2),
        (pyarrow.array([Decimal("1.10"), None] * 2), ["1.10", ""] * 2),
        (
            pyarrow.array(["a", None, " b ", "a"]).dictionary_encode(),
            ["a", "", "b", "a"],
        ),
        (
            pyarrow.array(["a", None, " b ", "a"], pyarrow.large_string()),
            ["a", "", "b", "a"],
        ),
        (pyarrow.array([1, None, 3, 4], pyarrow.uint64()), ["1", "", "3", "4"]),
        (pyarrow.array([1, 2, 3, 4], pyarrow.float16()), ["1", "2", "3", "4"]),
    ],
)
def test_types_of_parquet_columns(column: Any, texts: list[str], root: Path) -> None:
    """In several row groups, each with a dictionary of its own."""
    table = pyarrow.table({"path": ["0.png", "1.png", "2.png", "3.png"], "a": column})
    pyarrow.parquet.write_table(table, root / "labels.parquet", row_group_size=2)
    rows = list(LabelTable(root / "labels.parquet", []).rows(["a"]))
    assert [row.cells["a"] for row in rows if isinstance(row, LabelRow)] == texts


def test_without_the_extra_the_error_names_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    xlsx(root / "labels.xlsx", [HEADER])
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"pip install 'fair-tta\[tables\]'"):
        LabelTable(root / "labels.xlsx", [])


def scanned(root: Path, text: str, **more: Any) -> list[Record | Problem]:
    (root / "labels.csv").write_text(text)
    return (
        Labels(root / "images", root / "labels.csv", "animal", ("place",), **more)
        .scan()
        .records()
    )


@pytest.mark.parametrize(
    "start", ["C:\\Users\\me\\pets\\", "/mnt/disk/pets/", "\\\\nas\\share\\"]
)
def test_paths_of_another_machine(start: str, root: Path) -> None:
    made.draw(root / "images" / "sub" / "0.png")
    windows = "\\" in start
    names = [start + (ntpath.join("sub", "0.png") if windows else "sub/0.png")]
    names += [f"{start}{i}.png" for i in range(1, 6)] + [f"{start}9.png"]
    rows = [f"{name},{'cat' if i % 2 else 'dog'},in" for i, name in enumerate(names)]
    found = scanned(root, "\n".join(["path,animal,place", *rows]))
    records = [row for row in found if isinstance(row, Record)]
    assert [record.key for record in records] == [
        "sub/0.png",
        *(f"{i}.png" for i in range(1, 6)),
    ]
    assert [record.target for record in records] == ["dog", "cat"] * 3
    problems = {row.kind: row.detail for row in found if isinstance(row, Problem)}
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
    found = match_by_ends(wanted, files)
    assert found == {name: file for name, file in wanted.items() if file}
    assert match_by_ends(["D:/1.jpg"], []) == {}


def test_the_column_of_paths_is_found_by_its_values(root: Path) -> None:
    rows = [f"{i},http://x/{i}.png,{i}.png,mask{i}.png,cat,in" for i in range(6)]
    text = "\n".join(["id,url,what it shows,mask,animal,place", *rows])
    records = [row for row in scanned(root, text) if isinstance(row, Record)]
    assert [record.key for record in records] == [f"{i}.png" for i in range(6)]
    other = text.replace("what it shows", "photo").replace("id,url", "number,image")
    assert len(scanned(root, other)) == 6
