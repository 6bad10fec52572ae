"""Numbers as text: no exponent, no digit that is not known, no 0 that is not 0."""

from __future__ import annotations

import pytest
from internals import (
    Estimate,
    duration,
    interval,
    p_value,
    percent,
    plain_number,
    table_cell,
)


def test_percent() -> None:
    shares = (0.81249, 1.0, 0.0, 1e-9, 0.0003, None)
    texts = ["81.2", "100.0", "0.0", "0.0", "0.03", "n/a"]
    assert [percent(share) for share in shares] == texts
    assert percent(-0.1, signed=True) == "\N{MINUS SIGN}10.0"
    assert [percent(share, signed=True) for share in (0.1, 0.0)] == ["+10.0", "0.0"]


def test_a_table_has_a_reason_instead_of_a_withheld_value() -> None:
    assert interval(Estimate(0.5, 1)) == ""
    assert table_cell(Estimate(0.5, 9, 0.4, 0.6)) == ("50.0", "[40.0, 60.0]", "")
    assert table_cell(Estimate(0.5, 9, reason="few")) == ("n/a", "", "few")


def test_p_values() -> None:
    texts = [p_value(p) for p in (None, 1.0, 0.0149, 0.00015)]
    assert texts == ["n/a", "1.00", "0.015", "0.00015"]
    assert p_value(1e-9) == "<\N{NO-BREAK SPACE}0.0001"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.01, "0.01"),
        (0.99951, "1"),
        (999.7, "1000"),
        (1e6, "1000000"),
        (-12.345, "-12.3"),
        (1e-7, "0.0000001"),
        (float("nan"), "n/a"),
        (float("inf"), "n/a"),
    ],
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    assert plain_number(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1e-8, "0.00001 ms"),
        (0.0246, "24.6 ms"),
        (0.99996, "1000 ms"),
        (1.234, "1.23 s"),
        (999.4, "999 s"),
        (999.9, "1,000 s"),
        (1e6, "1,000,000 s"),
    ],
)
def test_durations_have_no_exponent(seconds: float, text: str) -> None:
    assert duration(seconds).replace("\N{NO-BREAK SPACE}", " ") == text
