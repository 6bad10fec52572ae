"""No number is cut, at any width; names are what gives way."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from cli_fixtures import call
from internals import (
    SHOWN_METRICS,
    Estimate,
    _metric_table,
    estimate_text,
    make_progress,
    make_table,
    terminal_table,
    times,
    undefined_estimate,
)
from internals import predict_module as predict_output
from internals import terminal_module as terminal
from rich.console import Console
from rich.text import Text

from fair_tta import Prediction
from fair_tta.lab.report import Overview

WIDTHS = [60, 80, 120]
NAMES = [
    "Zero",
    "fair-tpt:lam=1000,rho=0.5,rate.beta=0.01",
    "a_name_of_forty_letters_that_never_ends_",
]
MILLISECONDS = [0.01, 0.999, 9.96, 99.6, 12_345.6, 999_999.0, 1e6]


def printed(renderable: Any, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(renderable)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    return text


def test_names_are_broken_at_hyphens() -> None:
    names = ["logit-balance", "association-correction", "zero-shot, time"]
    rows = [
        [Text(name, "red"), *(Text("80.5 [76.9, 83.9]") for _ in range(3))]
        for name in names
    ]
    text = printed(make_table("", ["method", "a", "b", "c"], rows), 51)
    firsts = [line[:12].strip() for line in text.splitlines()[3:]]
    assert firsts == [
        "logit-",
        "balance",
        "association-",
        "correction",
        "zero-shot,",
        "time",
        "",
    ]


def test_five_figures_fit_80_columns() -> None:
    rows = [["association-correction", *["80.5 [76.9, 83.9]"] * 5]]
    lines = printed(make_table("Title", ["method", *"abcde"], rows), 80).splitlines()
    assert lines[0] == "Title"
    assert lines[3].split() == ["association-", *["80.5"] * 5]
    assert lines[4].split() == ["correction", *["[76.9,", "83.9]"] * 5]
    assert len(lines) == 6


def test_nothing_is_lost_where_there_is_no_room() -> None:
    rows = [["n" * 60, *["80.5 [76.9, 83.9]"] * 3]]
    text = printed(make_table("", ["name", "x", "y", "z"], rows), 30)
    assert text.count("n") == 61
    assert "".join(text.split()).count("[76.9") == 3


def all_there(numbers: Iterable[str], text: str) -> None:
    """Every number stands between spaces, as often as it should."""
    expected = Counter(word for number in numbers for word in number.split())
    assert not [word for word in expected if re.search(r"\de[+-]?\d", word)]
    assert not expected - Counter(text.split())


def a_figure(i: int) -> Estimate:
    value = (1.0, 0.0, 0.999, float("nan"))[i % 4]
    return Estimate(value, 9, *((0.0, 1.0), (0.123, 0.456), (None, None))[i % 3])


@pytest.mark.parametrize("width", [80, 120])  # names of methods stay whole there
def test_demo(width: int) -> None:
    rows = []
    for i, name in enumerate(NAMES + NAMES + NAMES[:1]):
        sides = [
            (estimate_text(a_figure(i + k), i % 3 - 1), i % 3 - 1) for k in range(5)
        ]
        rows.append([(f"{name} {i}", 0), *sides, (times(MILLISECONDS[i]), 0)])
    header = ["method", "Acc", "WGA", "EOD", "ASI", "ATC", "cost"]
    text = printed(terminal_table(Overview("scenes", header, rows)), width)
    figures = [cell for row in rows for cell, _ in row[1:-1]]
    costs = ["0.01 ×", "1.0 ×", "10 ×", "100 ×", "12346 ×", "999999 ×", "1000000 ×"]
    all_there([*figures, *costs], text)
    assert all(title in text.split() for title in header[1:])


@pytest.mark.parametrize("width", WIDTHS)
def test_audit(width: int) -> None:
    figures = [
        Estimate(1.0, 9, 0.999, 1.0),
        Estimate(-1.0, 9, -1.0, -0.123),
        Estimate(0.5, 9),
        undefined_estimate("no images: a_name_of_forty_letters_that_never_ends_ / 12"),
    ]
    runs = {
        name: {key: figures[(i + k) % 4] for k, key in enumerate(SHOWN_METRICS)}
        for i, name in enumerate(NAMES)
    }
    text = printed(_metric_table("10000000 images", runs, signed=True), width)
    expected = ["+100.0", "[+99.9, +100.0]", "-100.0", "[-100.0, -12.3]", "+50.0"]
    all_there(["10000000 images", *expected * 3], text)


def prediction(p: float, attributes: Iterable[str]) -> Prediction:
    pairs = {"a_label_of_thirty_letters_or_so": p, "b": 1 - p}
    values = {attribute: {"x": 0.5, "y": 0.5} for attribute in attributes}
    entropies = dict.fromkeys(values, 1.0)
    return Prediction(
        label="b", probabilities=pairs, zero_shot=pairs, sensitive=values,
        sensitive_zero_shot=values, entropy=0.5, entropy_zero_shot=0.5,
        sensitive_entropy=entropies, sensitive_entropy_zero_shot=dict.fromkeys(values, 0.0),
        distance=0.0, flip_margin=1.0, certified_unchanged=True, learning_rate=None,
        relative_step=None, views_kept=None, warnings=(),
    )  # fmt: skip


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("many", [0, 1, 2, 6])
def test_predict(width: int, many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    attributes = tuple(f"an attribute {i}" for i in range(many))
    console = Console(
        width=width, file=io.StringIO(), force_terminal=True, no_color=True
    )
    monkeypatch.setattr(terminal, "Console", lambda **_: console)
    answered: list[tuple[str, Prediction | str]] = [
        ("a/folder/of/images/1.png", prediction(0.125, attributes)), ("x.png", "no"),
    ]  # fmt: skip
    for is_first in (True, False):
        targets = ("a_label_of_thirty_letters_or_so", "b")
        predict_output.print_table_rows(answered, targets, attributes, is_first)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    text = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert max(map(len, text.splitlines())) <= width
    all_there(["0.875"] * 2 + ["0.00 -> 1.00"] * 2 * many, text)


@pytest.mark.parametrize("width", WIDTHS)
def test_methods(width: int) -> None:
    text = call("predict", "--adapter", "help", columns=width).stdout
    whole = call("predict", "--adapter", "help", columns=1000).stdout
    settings = [word for word in whole.split() if "=" in word]
    assert "rate.max_relative_step=inf," in settings
    all_there(settings, text)


@pytest.mark.parametrize("width", WIDTHS)
def test_progress(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1000.0
    monkeypatch.setattr("fair_tta.lab._terminal.time.monotonic", lambda: clock)
    console = Console(width=width, file=io.StringIO())
    progress = make_progress(console, is_terminal=True)
    task = progress.add_task("images", total=10**7)
    progress.update(task, completed=1)
    clock += 0.01
    progress.update(task, completed=9_876_543)
    shown = printed(progress.get_renderable(), width)
    all_there(["9876543/10000000", "987654200.00/s"], shown)
    assert re.search(r"0:00:\d\d", shown)
