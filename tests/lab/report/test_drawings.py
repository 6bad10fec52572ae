"""Dot plots: every number is there, also in words, and nothing is cut."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from internals import (
    DRAWING_WIDTH,
    BeforeAfter,
    Dot,
    Estimate,
    before_and_after,
    dot_plot,
    short,
)


def alt(svg: str) -> str:
    return ElementTree.fromstring(svg).get("aria-label") or ""


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("text")]


def test_dots_lie_where_their_values_are() -> None:
    figures = [Estimate(0.2, 9, 0.1, 0.3), Estimate(0.4, 9, 0.4, 0.5)]
    chart = dot_plot([Dot("first", figures[0]), Dot("then", figures[1], "good")], "Gap")
    root = ElementTree.fromstring(chart)
    at = [float(circle.get("cx") or 0) for circle in root.iter("circle")]
    ticks = {t.text: float(t.get("x") or 0) for t in root.iter("text")}
    assert at == pytest.approx([ticks["20"], ticks["40"]])
    lines = [line for line in root.iter("line") if "ci" in (line.get("class") or "")]
    assert float(lines[0].get("x1") or 0) == pytest.approx(ticks["10"])
    assert [line.get("class") for line in lines] == ["ci", "ci good"]
    assert alt(chart) == "Gap. first: 20.0 [10.0, 30.0]; then: 40.0 [40.0, 50.0]."
    assert "20.0 [10.0, 30.0]" in texts(chart)


def test_before_is_hollow_and_after_is_filled() -> None:
    rows = [
        BeforeAfter("a", 1200, 0.4, 0.6, "40 to 60", "+9 / -3", "good"),
        BeforeAfter("b", 10, 0.9, 0.8, "90 to 80", "+0 / -1", ""),
    ]
    chart = before_and_after(rows, "Groups")
    assert (
        alt(chart)
        == "Groups. a (n = 1,200): 40 to 60, +9 / -3; b (n = 10): 90 to 80, +0 / -1."
    )
    root = ElementTree.fromstring(chart)
    circles = [(c.get("class"), float(c.get("cx") or 0)) for c in root.iter("circle")]
    assert [kind for kind, _ in circles] == ["hollow", "good", "hollow", None]
    (_, a0), (_, a1), (_, b0), (_, b1) = circles
    assert a0 == 8
    assert a1 - a0 == pytest.approx(2 * (b0 - b1))
    assert root.get("role") == "img"


def test_a_row_with_a_link_leads_there_wherever_it_is_clicked() -> None:
    row = BeforeAfter("a", 9, 0.4, 0.6, "40 to 60", "+2 / -0", "good")
    dot = Dot("a", Estimate(0.2, 9, 0.1, 0.3))
    drawn = before_and_after([row._replace(link="#here"), row], "x")
    for chart in (drawn, dot_plot([dot._replace(link="#here"), dot], "x")):
        root = ElementTree.fromstring(chart)
        assert root.get("role") == "group"  # what is in an image is not read aloud
        (link,) = root.iter("a")
        assert link.get("href") == "#here"
        (area,) = link.iter("rect")
        assert float(area.get("width") or 0) == DRAWING_WIDTH
        assert len(list(link.iter("circle"))) * 2 == len([*root.iter("circle")])


@pytest.mark.parametrize("high", [0.0, 0.004, 0.03, 0.2, 0.77, 1.0])
def test_axes_reach_far_enough(high: float) -> None:
    root = ElementTree.fromstring(dot_plot([Dot("x", Estimate(high, 1, 0, high))], "x"))
    (line,) = [line for line in root.iter("line") if line.get("class") == "ci"]
    assert float(line.get("x2") or 0) <= DRAWING_WIDTH - 8 + 1e-6
    assert (
        2
        <= len([line for line in root.iter("line") if line.get("class") == "grid"])
        <= 6
    )


def test_an_axis_of_changes_has_a_line_at_zero() -> None:
    dots = [Dot("a", Estimate(-0.1, 9, -0.2, 0.04), hollow=True)]
    root = ElementTree.fromstring(dot_plot(dots, "x"))
    assert [line.get("class") for line in root.iter("line")].count("zero") == 1
    assert [circle.get("class") for circle in root.iter("circle")] == ["hollow"]
    assert "\N{MINUS SIGN}20" in texts(ElementTree.tostring(root, "unicode"))


def test_what_is_not_known_is_not_drawn() -> None:
    unknown = Estimate(None, 0, reason="no images")
    root = ElementTree.fromstring(dot_plot([Dot("x", unknown)], "x"))
    assert not list(root.iter("circle"))
    assert "n/a" in texts(ElementTree.tostring(root, "unicode"))


def test_long_names_keep_both_ends() -> None:
    assert short("short", 5) == "short"
    assert short("a" * 40 + "b" * 40, 11) == "aaaaa\N{HORIZONTAL ELLIPSIS}bbbbb"
