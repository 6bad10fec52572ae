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


class Drawing:
    """A drawing, parsed."""

    def __init__(self, svg: str) -> None:
        self.root = ElementTree.fromstring(svg)

    @property
    def alternative(self) -> str:
        return self.root.get("aria-label") or ""

    @property
    def texts(self) -> list[str]:
        return [element.text or "" for element in self.root.iter("text")]

    def classes(self, tag: str) -> list[str | None]:
        return [element.get("class") for element in self.root.iter(tag)]

    def numbers(self, tag: str, name: str) -> list[float]:
        return [float(element.get(name) or 0) for element in self.root.iter(tag)]


def test_dots_lie_where_their_values_are() -> None:
    first = Dot("first", Estimate(0.2, 9, 0.1, 0.3))
    second = Dot("then", Estimate(0.4, 9, 0.4, 0.5), "good")
    drawing = Drawing(dot_plot([first, second], "Gap"))
    x_of = dict(zip(drawing.texts, drawing.numbers("text", "x"), strict=True))
    assert drawing.numbers("circle", "cx") == pytest.approx([x_of["20"], x_of["40"]])
    bars = [line for line in drawing.root.iter("line") if "ci" in line.attrib["class"]]
    assert float(bars[0].attrib["x1"]) == pytest.approx(x_of["10"])
    assert [bar.get("class") for bar in bars] == ["ci", "ci good"]
    assert drawing.alternative == (
        "Gap. first: 20.0 [10.0, 30.0]; then: 40.0 [40.0, 50.0]."
    )
    assert "20.0 [10.0, 30.0]" in drawing.texts


def test_before_is_hollow_and_after_is_filled() -> None:
    rows = [
        BeforeAfter("a", 1200, 0.4, 0.6, "40 to 60", "+9 / -3", "good"),
        BeforeAfter("b", 10, 0.9, 0.8, "90 to 80", "+0 / -1", ""),
    ]
    drawing = Drawing(before_and_after(rows, "Groups"))
    assert drawing.alternative == (
        "Groups. a (n = 1,200): 40 to 60, +9 / -3; b (n = 10): 90 to 80, +0 / -1."
    )
    assert drawing.classes("circle") == ["hollow", "good", "hollow", None]
    a_before, a_after, b_before, b_after = drawing.numbers("circle", "cx")
    assert a_before == 8
    assert a_after - a_before == pytest.approx(2 * (b_before - b_after))
    assert drawing.root.get("role") == "img"


def test_a_row_with_a_link_leads_there_wherever_it_is_clicked() -> None:
    row = BeforeAfter("a", 9, 0.4, 0.6, "40 to 60", "+2 / -0", "good")
    dot = Dot("a", Estimate(0.2, 9, 0.1, 0.3))
    for svg in (
        before_and_after([row._replace(link="#here"), row], "x"),
        dot_plot([dot._replace(link="#here"), dot], "x"),
    ):
        drawing = Drawing(svg)
        # Screen readers do not look into an image
        assert drawing.root.get("role") == "group"
        (link,) = drawing.root.iter("a")
        assert link.get("href") == "#here"
        assert [area.get("width") for area in link.iter("rect")] == [str(DRAWING_WIDTH)]
        linked_circles = list(link.iter("circle"))
        assert len(drawing.classes("circle")) == 2 * len(linked_circles)


@pytest.mark.parametrize("high", [0.0, 0.004, 0.03, 0.2, 0.77, 1.0])
def test_axes_reach_far_enough(high: float) -> None:
    drawing = Drawing(dot_plot([Dot("x", Estimate(high, 1, 0, high))], "x"))
    assert max(drawing.numbers("line", "x2")) <= DRAWING_WIDTH - 8 + 1e-6
    assert 2 <= drawing.classes("line").count("grid") <= 6


def test_an_axis_of_changes_has_a_line_at_zero() -> None:
    change = Dot("a", Estimate(-0.1, 9, -0.2, 0.04), hollow=True)
    drawing = Drawing(dot_plot([change], "x"))
    assert drawing.classes("line").count("zero") == 1
    assert drawing.classes("circle") == ["hollow"]
    assert "\N{MINUS SIGN}20" in drawing.texts


def test_what_is_not_known_is_not_drawn() -> None:
    unknown = Dot("x", Estimate(None, 0, reason="no images"))
    drawing = Drawing(dot_plot([unknown], "x"))
    assert drawing.classes("circle") == []
    assert "n/a" in drawing.texts


def test_long_names_keep_both_ends() -> None:
    assert short("short", 5) == "short"
    assert short("a" * 40 + "b" * 40, 11) == "aaaaa\N{HORIZONTAL ELLIPSIS}bbbbb"
