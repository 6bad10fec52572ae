"""Names in CSV files: text for spreadsheets and terminals, whatever they begin with."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from internals import csv_cell, write_csv_row


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "'  =1"),
        ("\t=1", r"'\t=1"),
        ("\r=1", r"'\r=1"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("a\udce9", r"a\udce9"),
        ("a\nb", r"a\nb"),
        ("a=b", "a=b"),
        ("-", "-"),  # "worse" in table.csv
        ("東京", "東京"),
        ("", ""),
        (-1.5, "-1.5"),
        (-3, "-3"),
        (None, ""),
    ],
)
def test_the_rule(cell: object, written: str) -> None:
    text = io.StringIO(newline="")
    write_csv_row(text, ["x", cell])
    assert [*csv.reader(text.getvalue().splitlines())] == [["x", written]]


@given(st.text(st.characters(categories=None), max_size=8))
def test_no_text_is_a_formula_or_a_control_character(name: str) -> None:
    shown = str(csv_cell(name))
    assert shown.isprintable()
    assert len(shown) < 2 or shown.lstrip()[0] not in "=+-@"
    shown.encode()


@given(st.floats(allow_nan=False))
def test_numbers_stay_numbers(number: float) -> None:
    text = io.StringIO(newline="")
    write_csv_row(text, [number])
    assert float(text.getvalue()) == number
