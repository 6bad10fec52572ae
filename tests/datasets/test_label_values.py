"""Values that read alike, and that the renames in messages can be pasted."""

from __future__ import annotations

import csv
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from internals import Labels, LabelValues, parse_renames, rename_option, rename_values

from fair_tta.errors import DatasetError

TEXT = st.text(st.characters(codec="utf-8")).map(str.strip).filter(bool)


def values_of(folder: Path, cells: list[str], **options: Any) -> LabelValues:
    """Return the values of a label file with a column ``shape``."""
    rows = [(f"{i}.png", cell, "in") for i, cell in enumerate(cells)]
    with (folder / "labels.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("path", "shape", "place"), *rows])
    labels = Labels(folder, folder / "labels.csv", "shape", ("place",), **options)
    return labels.scan()


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("circle circle CIRCLE square", "circle"),
        ("caf\u00e9 cafe\u0301 cafe\u0301 bar", "caf\u00e9"),
        ("land land\u200b \u202eland sea", "land"),
        ("stra\u00dfe STRASSE STRASSE weg", "STRASSE"),
        ("1 1.0 1 01 2", "1"),
        ("0 0 0.0 00 -0 1", "0"),
        ("True 1 1 true 2", "1"),
        ("0 False False 1.5", "0"),  # the shortest number, however rare
        ("1e1 10 10 9", "10"),
    ],
)
def test_values_that_read_alike(text: str, label: str, tmp_path: Path) -> None:
    cells = text.split()
    with pytest.raises(DatasetError, match="values that read alike: ") as error:
        values_of(tmp_path, cells).labels_in("shape")
    options = shlex.split(str(error.value).splitlines()[-1])
    assert set(options[::2]) == {"--rename"}
    renamed = values_of(tmp_path, cells, rename=parse_renames(options[1::2]))
    assert renamed.labels_in("shape") == sorted([label, cells[-1]])
    assert len(renamed.records(check_images=False)) == len(cells)


def test_different_values_stay(tmp_path: Path) -> None:
    cells = "-1,1,US,us citizen,1.5,1-2,false,1e9999999999,1.x".split(",")
    assert values_of(tmp_path, cells).labels_in("shape") == sorted(cells)


@pytest.mark.parametrize(
    ("cells", "names", "option"),
    [
        (["circle", "CIRCLE"], ["circle"], "--rename 'shape: CIRCLE=circle'"),
        (["1", "1.0", "0"], ["1", "0"], "--rename 'shape: 1.0=1'"),
    ],
)
def test_a_value_that_reads_like_a_name(
    cells: list[str], names: list[str], option: str, tmp_path: Path
) -> None:
    values = values_of(tmp_path, cells)
    named = {"shape": names, "place": ["in"]}
    with pytest.raises(DatasetError) as error:
        values.allowed_values(named, skip_unknown=False)
    assert str(error.value).endswith(option)
    allowed = values.allowed_values(named, skip_unknown=True)
    assert allowed == {"shape": set(names), "place": {"in"}}


def values_in(column: str, *values: str) -> LabelValues:
    """Return a table with one column, without its rows."""
    labels = Labels(Path(), Path("labels.csv"), column, ())
    counts = {column: dict.fromkeys(values, 1)}
    return LabelValues(labels, counts, len(values), [], [])


@given(st.lists(TEXT, min_size=3, max_size=3, unique=True))
def test_printed_options_are_understood(names: list[str]) -> None:
    column, value, label = names
    option, text = shlex.split(rename_option(column, value, label))
    assert option == "--rename"
    values = values_in(column, value, label)
    (renamed,) = rename_values([values], parse_renames([text]))
    assert renamed.labels.rename == {column: {value: label}}


def test_renames_apply_where_their_column_is() -> None:
    tables = [values_in("shape", "circle"), values_in("answer", "Circle")]
    rename = {"answer": {"Circle": "circle"}}
    truth, answers = rename_values(tables, rename)
    assert truth.labels.rename == {}
    assert answers.labels.rename == rename
