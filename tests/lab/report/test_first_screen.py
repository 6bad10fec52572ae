"""The first screen: what is on it, in which order, on the page and in the terminal.

`tests/messages/report_inputs.py` has its words.
"""

from __future__ import annotations

import re

import pytest
from internals import MAX_METHODS, audit_banners, first_screen, print_verdict
from report_samples import Page
from verdict_samples import BETTER, CLEAR, made

from fair_tta import compare
from fair_tta.auditing import Audit
from fair_tta.lab.report import html, html_many

SMALL_GAP = dict.fromkeys(CLEAR, (90, 100)) | {("dog", "out"): (60, 100)}


@pytest.fixture(scope="module")
def better() -> Audit:
    return compare([made(CLEAR), made(BETTER, "M")])


def test_the_chart_has_each_group_before_and_after(better: Audit) -> None:
    chart = first_screen([("", better.document)]).chart
    assert chart is not None
    worst, *others = chart.rows
    assert (worst.name, worst.n, worst.before, worst.after) == (
        "dog / out",
        100,
        0.2,
        0.8,
    )
    assert (worst.details, worst.tone) == ("+60 / \N{MINUS SIGN}0", "good")
    assert {row.tone for row in others} == {""}
    headings = ("What is wrong", "Each group before", "All methods")
    page = Page(html(better)).text
    assert sorted(headings, key=page.index) == list(headings)


def test_one_run_has_dots_and_no_advice_on_methods() -> None:
    screen = first_screen([("", made(CLEAR).document)])
    assert screen.chart is not None
    assert screen.chart.rows == []
    assert screen.chart.dots[0].name == "dog / out"
    assert screen.methods == []


def test_tasks_are_ordered_by_their_gap(better: Audit) -> None:
    small = compare([made(SMALL_GAP), made(SMALL_GAP, "M")])
    tasks = [("small", small.document), ("large", better.document)]
    chart = first_screen(tasks).chart
    assert chart is not None
    assert [(row.name, row.tone) for row in chart.rows] == [
        ("large", "good"),
        ("small", ""),
    ]


def test_a_clear_gap_alone_has_no_banner() -> None:
    assert audit_banners([("", made(CLEAR).document)]) == []


def test_the_page_of_tasks_begins_with_a_screen_over_all(better: Audit) -> None:
    small = compare([made(SMALL_GAP), made(SMALL_GAP, "M")])
    text = html_many("Two", [("s", small, []), ("l", better, [])], intro="Legend.")
    Page(text)  # tags match
    parts = (
        "<h1>Two: M narrows the gap on 1 of 2",
        "800 images",
        "What is wrong",
        "What helps",
        "What to do",
        'id="overview-figure-dots"',
        'id="overview-methods"',
        "<details>",
        "Legend.",
        'id="audit-1"',
        'id="audit-2"',
        'id="limits"',
    )
    assert sorted(parts, key=text.index) == list(parts)
    assert text.index("sha256") > text.index('id="audit-1"')


def test_the_screen_of_a_single_task_comes_once(better: Audit) -> None:
    page = html_many("One", [("the task", better, [])])
    assert page.count("What is wrong") == 1
    assert "M narrows the gap: two groups" in page


def test_many_methods_are_cut_and_nothing_measured_is_said() -> None:
    runs = [made(CLEAR), *(made(CLEAR, f"m{i}") for i in range(MAX_METHODS + 2))]
    document = compare(runs).document
    screen = first_screen([("a", document), ("b", document)])
    assert len(screen.methods) == MAX_METHODS
    assert "2 more methods are below." in screen.legend
    (card,) = first_screen([]).cards
    assert card.text == "Nothing was measured: no group has images."


def test_the_terminal_draws_it_in_80_columns_and_plain_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = "a group with quite a long name, in two parts, such as these"
    rates = {("cat", long): (20, 100), ("cat", "short"): (90, 100)}
    rates |= {("dog", long): (90, 100), ("dog", "short"): (90, 100)}
    after = {**rates, ("cat", long): (80, 100), ("dog", "short"): (84, 100)}
    document = compare([made(rates), made(after, "M")]).document
    print_verdict([("", document)])
    lines = capsys.readouterr().out.splitlines()
    assert all(line.isascii() and len(line) <= 80 for line in lines)
    first = lines.index("Each group before (o) and after (*) M") + 1
    assert re.fullmatch(
        r"cat / a group.* 100 \|o-+\* +\|  20 -> 80  \+60 / -0", lines[first]
    )
    (short,) = [line for line in lines if line.startswith("dog / short  ")]
    assert re.fullmatch(r"dog / short +100 \| +\*-?o *\|  90 -> 84  \+0 / -6", short)
    assert re.fullmatch(r" +20 +100", lines[first + 4])
    print_verdict([("", made(rates).document)])
    assert "before (o)" not in capsys.readouterr().out
