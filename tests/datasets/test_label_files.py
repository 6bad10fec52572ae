"""Label files as people have them: formats, types of cells, and limits."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from time import process_time
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import dataset_fixtures as fixtures
import openpyxl
import pyarrow
import pyarrow.parquet
import pytest
from internals import LabelRow, Labels, LabelTable

from fair_tta.datasets import read_folder
from fair_tta.errors import DatasetError

DICTIONARY = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
Writer = Callable[[Path, list[list[Any]]], None]

HEADER = ["path", "animal", "place", "age", "is_wild"]
ROWS: list[list[Any]] = [
    ["0.png", "cat", "Zürich, CH", 3, True],
    ["1.png", "dog", "a;b|c\td", 4.0, False],
    ["2.png", "cat", "in", None, None],
]


def write_excel(path: Path, rows: list[list[Any]]) -> None:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.create_sheet("notes").append(["not", "read"])
    book.save(path)


def write_parquet(path: Path, rows: list[list[Any]]) -> None:
    header, *body = rows
    columns: dict[str, Any] = {}
    for index, name in enumerate(header):
        columns[name] = [row[index] for row in body]
    columns["vector"] = [[0.0, 1.0]] * len(body)  # columns of lists are ignored
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def write_json_lines(path: Path, rows: list[list[Any]]) -> None:
    header, *body = rows
    lines = []
    for row in body:
        cells = zip(header, row, strict=True)
        present = {name: cell for name, cell in cells if cell is not None}
        lines.append(json.dumps(present))
    path.write_text("\n".join(lines) + "\n\n", encoding="utf-8")


def rows_of(file: Path, columns: list[str]) -> list[tuple[str, ...]]:
    """Return some cells of each row."""
    cells = []
    for row in LabelTable(file, []).rows(columns):
        assert isinstance(row, LabelRow)
        cells.append(tuple(row.cells.values()))
    return cells


def cpu_seconds(work: Callable[[], Any]) -> float:
    start = process_time()
    work()
    return process_time() - start


@pytest.mark.parametrize("write", [write_excel, write_parquet, write_json_lines])
def test_formats(write: Writer, tmp_path: Path) -> None:
    """The content decides, not the name."""
    images, file = fixtures.folder(tmp_path)
    write(file, [HEADER, *ROWS])
    assert LabelTable(file, ["animal", "place"]).header == HEADER
    assert rows_of(file, HEADER) == [
        ("0.png", "cat", "Zürich, CH", "3", "true"),
        ("1.png", "dog", "a;b|c\td", "4", "false"),
        ("2.png", "cat", "in", "", ""),
    ]
    dataset = read_folder(
        images, file, target_column="animal", sensitive_columns="place"
    )
    records = [[record.key, *record.group] for record in dataset]
    assert records == [row[:3] for row in ROWS]


@pytest.mark.skipif(sys.platform == "win32", reason="no such device")
def test_a_label_file_that_never_ends() -> None:
    with pytest.raises(DatasetError, match="'/dev/zero': not a regular file"):
        LabelTable(Path("/dev/zero"), [])


def test_without_the_extra_the_error_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_excel(tmp_path / "labels.xlsx", [HEADER])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ImportError, match=r"pip install 'fair-tta\[tables\]'"):
        LabelTable(tmp_path / "labels.xlsx", [])


def test_tables_with_too_many_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_excel(tmp_path / "labels.xlsx", [HEADER])
    monkeypatch.setattr("fair_tta.datasets._label_files._MAX_COLUMNS", 4)
    with pytest.raises(DatasetError, match="has 5 columns, more than 4"):
        LabelTable(tmp_path / "labels.xlsx", [])


def test_tables_with_too_many_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are not read to find out."""
    write_excel(tmp_path / "labels.xlsx", [HEADER, *ROWS])
    write_parquet(tmp_path / "labels.parquet", [HEADER, *ROWS])
    monkeypatch.setattr("fair_tta.datasets._label_files._MAX_CELLS", 14)
    with pytest.raises(DatasetError, match="more than 14 cells"):
        rows_of(tmp_path / "labels.xlsx", HEADER)
    with pytest.raises(DatasetError, match=r"3 rows x 5 columns.*at most 14 cells"):
        rows_of(tmp_path / "labels.parquet", HEADER)
    assert len(rows_of(tmp_path / "labels.parquet", HEADER[:4])) == 3


def test_sheets_begin_anywhere_and_have_empty_rows(tmp_path: Path) -> None:
    file = tmp_path / "labels.xlsx"
    header = ["path", " animal ", None]
    write_excel(file, [[], header, ["0.png", "cat"], [], ["1.png"]])
    table = LabelTable(file, ["animal"])
    assert table.header == ["path", "animal"]
    assert list(table.rows(["path", "animal"])) == [
        LabelRow(3, {"path": "0.png", "animal": "cat"}),
        LabelRow(5, {"path": "1.png", "animal": ""}),
    ]


def write_sheet(path: Path, rows: str) -> None:
    """Write an Excel file whose first sheet has a header and these rows, as XML."""
    write_excel(path, [HEADER])
    with ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    before, start, _ = parts[sheet].partition(b"<sheetData>")
    _, end, after = parts[sheet].partition(b"</sheetData>")
    header = f'<row r="1">{xml_cell("A1", "path")}{xml_cell("B1", "animal")}</row>'
    data = f"{header}{rows}".encode()
    parts[sheet] = before + start + data + end + after
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


def xml_cell(place: str, text: str) -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{text}</t></is></c>'


def test_a_sheet_is_not_unpacked_to_gigabytes(tmp_path: Path) -> None:
    write_sheet(tmp_path / "labels.xlsx", " " * 2**25)
    assert (tmp_path / "labels.xlsx").stat().st_size < 2**16
    with pytest.raises(DatasetError, match=r"33,5..,... bytes when it is unpacked"):
        LabelTable(tmp_path / "labels.xlsx", [])


def test_rows_of_a_sheet_cost_what_their_named_columns_cost(tmp_path: Path) -> None:
    """A cell at the right edge made 16,384 cells of each row: 6 kB took seconds."""
    rows = []
    for i in range(2, 1002):
        cells = xml_cell(f"A{i}", "0.png") + xml_cell(f"XFD{i}", "x")
        rows.append(f'<row r="{i}">{cells}</row>')
    file = tmp_path / "labels.xlsx"
    write_sheet(file, "".join(rows))
    assert cpu_seconds(lambda: rows_of(file, ["path", "animal"])) < 1
    assert rows_of(file, ["path", "animal"]) == [("0.png", "")] * 1000


def test_a_sheet_has_no_more_rows_than_excel_writes(tmp_path: Path) -> None:
    row = f'<row r="{2**40}">{xml_cell("A2", "0.png")}</row>'
    write_sheet(tmp_path / "labels.xlsx", row)
    with pytest.raises(DatasetError, match="more than 1,048,576 rows"):
        LabelTable(tmp_path / "labels.xlsx", [])


def test_parquet_is_not_unpacked_to_gigabytes(tmp_path: Path) -> None:
    """Only the columns that are read count."""
    notes = [" " * 2**20 + str(i) for i in range(40)]
    table = pyarrow.table({"path": ["0.png"] * 40, "note": notes})
    file = tmp_path / "labels.parquet"
    pyarrow.parquet.write_table(table, file, compression="zstd")
    assert file.stat().st_size < 2**16
    assert len(rows_of(file, ["path"])) == 40
    with pytest.raises(DatasetError, match="bytes when it is unpacked"):
        rows_of(file, ["path", "note"])


def test_a_long_text_in_many_rows_is_kept_once(tmp_path: Path) -> None:
    """Parquet writes it once; as text of each row it would take 10 GB."""
    indices = pyarrow.array([0] * 80_000, pyarrow.int32())
    texts = pyarrow.DictionaryArray.from_arrays(indices, ["x" * 2**17])
    file = tmp_path / "labels.parquet"
    table = pyarrow.table({"animal": texts})
    pyarrow.parquet.write_table(table, file, store_schema=False)
    objects = {id(cell) for (cell,) in rows_of(file, ["animal"])}
    assert len(objects) < 10


def test_a_million_rows_of_parquet(tmp_path: Path) -> None:
    """They took some 60 s of a processor."""
    n = 10**6
    columns = {
        "path": [f"sub/{i}.png" for i in range(n)],
        "animal": ["cat", "dog"] * (n // 2),
        "place": [0, 1, 2, 3] * (n // 4),
    }
    file = tmp_path / "labels.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    labels = Labels(tmp_path, file, "animal", ("place",))
    start = process_time()
    values = labels.scan()
    # 5 s on the slowest machine of the project's tests; here there is room for a slower one
    assert process_time() - start < 10
    assert values.value_counts["place"] == {str(i): n // 4 for i in range(4)}


def test_names_of_parquet_columns_are_stripped(tmp_path: Path) -> None:
    file = tmp_path / "labels.parquet"
    header = ["path", " animal", "place "]
    write_parquet(file, [header, ["0.png", "cat", "in"]])
    table = LabelTable(file, ["animal", "place"])
    assert table.header == ["path", "animal", "place"]
    assert rows_of(file, ["place", "animal"]) == [("in", "cat")]


@pytest.mark.parametrize(
    ("values", "array_type", "texts"),
    [
        ([1.5, None, 2.0, float("nan")], None, "1.5,,2,nan"),
        ([True, None, False, True], None, "true,,false,true"),
        ([None] * 4, None, ",,,"),
        ([date(2020, 1, 2), None] * 2, None, "2020-01-02,,2020-01-02,"),
        ([Decimal("1.10"), None] * 2, None, "1.10,,1.10,"),
        (["a", None, " b ", "a"], pyarrow.large_string(), "a,,b,a"),
        (["a", None, " b ", "a"], DICTIONARY, "a,,b,a"),
        ([1, None, 3, 4], pyarrow.uint64(), "1,,3,4"),
        ([1, 2, 3, 4], pyarrow.float16(), "1,2,3,4"),
    ],
)
def test_types_of_parquet_columns(
    values: Any, array_type: Any, texts: str, tmp_path: Path
) -> None:
    """In several row groups, each with its own dictionary."""
    column = pyarrow.array(values, array_type)
    file = tmp_path / "labels.parquet"
    table = pyarrow.table({"a": column})
    pyarrow.parquet.write_table(table, file, row_group_size=2)
    cells = rows_of(file, ["a"])
    assert cells == [(text,) for text in texts.split(",")]
