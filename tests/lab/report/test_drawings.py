"""Heat maps and dot plots: every number is there, also in words, and nothing is cut."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from fair_tta.auditing._document import Difference, Measured
from fair_tta.lab.report._drawings import (
    DRAWING_WIDTH,
    BeforeAfter,
    Dot,
    DotRow,
    ReferenceLine,
    before_and_after,
    difference_dot,
    dot_plot,
    dot_rows,
    heat_map,
)

TABLE = {"on water": {"gull": 0.54, "wren": -0.54}, "on land": {"gull": -0.541, "wren": 0.004}}


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("text")]


def test_a_heat_map_has_a_number_in_each_cell() -> None:
    chart = heat_map(TABLE, "Associations")
    shown = texts(chart.svg)
    assert [x for x in shown if x[0] in "+\N{MINUS SIGN}0"] == [
        "+0.54", "\N{MINUS SIGN}0.54", "\N{MINUS SIGN}0.54", "0.00",
    ]  # fmt: skip
    for value, row in TABLE.items():
        assert value in shown
        assert f"{value}: gull" in chart.alt
        assert set(row) <= set(shown)
    root = ElementTree.fromstring(chart.svg)
    assert (root.get("role"), root.get("aria-label")) == ("img", chart.alt)
    cells = list(root.iter("rect"))
    assert [cell.get("class") for cell in cells] == ["up", "down", "down", "up"]
    assert cells[0].find("title") is not None
    # the scale is that of a logit, so that little looks like little
    assert float(cells[0].get("fill-opacity") or 1) == pytest.approx(0.06 + 0.6 * 0.54, abs=1e-3)


def test_the_shorter_side_goes_across_and_wide_ones_say_how_wide_they_are() -> None:
    many = {f"value {i}": {f"class {j}": 0.1 * i - j for j in range(30)} for i in range(12)}
    root = ElementTree.fromstring(heat_map(many, "x").svg)
    box = [float(x) for x in (root.get("viewBox") or "").split()]
    assert box[3] > box[2] > DRAWING_WIDTH
    assert root.get("style") == f"min-width: {box[2]:g}px"
    seven = {f"Southeastern {i}": {f"{j} to {j + 9}": 0.1 for j in range(9)} for i in range(7)}
    root = ElementTree.fromstring(heat_map(seven, "x").svg)
    assert root.get("style") is None
    assert float((root.get("viewBox") or "").split()[2]) < 1.25 * DRAWING_WIDTH
    assert "rotate(-60" in heat_map(seven, "x").svg
    narrow = {f"value {i}": {"yes": 0.1, "no": -0.1} for i in range(7)}
    root = ElementTree.fromstring(heat_map(narrow, "x").svg)
    assert float((root.get("viewBox") or "").split()[2]) <= DRAWING_WIDTH
    assert root.get("style") is None


def test_a_flat_table_and_hostile_names() -> None:
    names = ["<script>", '"&', "a" * 200, "\N{BIRD}"]
    chart = heat_map({name: dict.fromkeys(names, 0.0) for name in names}, "x & <y>")
    assert "<script>" not in chart.svg
    assert texts(chart.svg).count("0.00") == 16
    assert max(map(len, texts(chart.svg))) <= 18


def test_dots_lie_where_their_values_are() -> None:
    figures = [Measured(0.2, 0.1, 0.3, 9, None), Measured(0.4, 0.4, 0.5, 9, None)]
    chart = dot_plot([Dot("first", figures[0]), Dot("then", figures[1], "good")], "Gap")
    root = ElementTree.fromstring(chart.svg)
    at = [float(circle.get("cx") or 0) for circle in root.iter("circle")]
    ticks = {t.text: float(t.get("x") or 0) for t in root.iter("text")}
    assert at == pytest.approx([ticks["20"], ticks["40"]])
    lines = [line for line in root.iter("line") if "ci" in (line.get("class") or "")]
    assert float(lines[0].get("x1") or 0) == pytest.approx(ticks["10"])
    assert [line.get("class") for line in lines] == ["ci", "ci good"]
    assert chart.alt == "Gap. first: 20.0 [10.0, 30.0]; then: 40.0 [40.0, 50.0]."
    assert "20.0 [10.0, 30.0]" in texts(chart.svg)


def test_lines_stand_beside_dots_and_cross_no_words() -> None:
    dots = [Dot(name, Measured(0.5, 0.4, 0.6, 9, None)) for name in ("first", "then")]
    lines = [ReferenceLine(0.9, "all images", "dashed")]
    rows = [DotRow(dot.name, [dot]) for dot in dots]
    root = ElementTree.fromstring(dot_rows(rows, "Right", reach=(0.0, 1.0), lines=lines).svg)
    found = [line for line in root.iter("line") if line.get("class") == "dashed"]
    tops = [float(line.get("y1") or 0) for line in found]
    dot_ys = [float(circle.get("cy") or 0) for circle in root.iter("circle")]
    words = [float(t.get("y") or 0) for t in root.iter("text") if t.get("class") == "name halo"]
    assert len(found) == len(words) == 2
    assert all(word < top < y for word, top, y in zip(words, tops, dot_ys, strict=True))
    assert float(found[0].get("y2") or 0) < words[1] - 10  # the height of a letter


def test_before_is_hollow_and_after_is_filled() -> None:
    rows = [
        BeforeAfter("a", 1200, 0.4, 0.6, "40 to 60", "+9 / -3", "good"),
        BeforeAfter("b", 10, 0.9, 0.8, "90 to 80", "+0 / -1", ""),
    ]
    chart = before_and_after(rows, "Groups")
    assert chart.alt == "Groups. a (n = 1,200): 40 to 60, +9 / -3; b (n = 10): 90 to 80, +0 / -1."
    root = ElementTree.fromstring(chart.svg)
    circles = [(c.get("class"), float(c.get("cx") or 0)) for c in root.iter("circle")]
    assert [kind for kind, _ in circles] == ["hollow", "good", "hollow", None]
    (_, a0), (_, a1), (_, b0), (_, b1) = circles
    assert a0 == 8
    assert a1 - a0 == pytest.approx(2 * (b0 - b1))


@pytest.mark.parametrize("high", [0.0, 0.004, 0.03, 0.2, 0.77, 1.0])
def test_axes_reach_far_enough(high: float) -> None:
    root = ElementTree.fromstring(dot_plot([Dot("x", Measured(high, 0, high, 1, None))], "x").svg)
    (line,) = [line for line in root.iter("line") if line.get("class") == "ci"]
    assert float(line.get("x2") or 0) <= DRAWING_WIDTH - 8 + 1e-6
    assert 2 <= len([line for line in root.iter("line") if line.get("class") == "grid"]) <= 6


def test_several_dots_in_a_row_are_numbered_and_named() -> None:
    figures = [Measured(x, x - 0.1, x + 0.1, 9, None) for x in (0.8, 0.6)]
    dots = [Dot(name, figure) for name, figure in zip(("all", "worst"), figures, strict=True)]
    chart = dot_rows([DotRow("run", dots)], "Rates", reach=())
    assert chart.alt == "Rates. run: all 80.0 [70.0, 90.0], worst 60.0 [50.0, 70.0]."
    shown = texts(chart.svg)
    assert {"1  all", "2  worst", "1", "2", "50", "90"} <= set(shown)
    circles = [c.get("class") for c in ElementTree.fromstring(chart.svg).iter("circle")]
    assert circles == ["series-0", "series-1"] * 2  # of the legend and of the row
    many = [DotRow(str(i), dots) for i in range(30)]
    assert dot_rows(many, "Rates").alt == "Rates. The tables have the figures."


def test_an_axis_of_changes_has_a_line_at_zero() -> None:
    dots = [Dot("a", Difference(-0.1, -0.2, 0.04, 9, None), hollow=True)]
    root = ElementTree.fromstring(dot_plot(dots, "x").svg)
    assert [line.get("class") for line in root.iter("line")].count("zero") == 1
    assert [circle.get("class") for circle in root.iter("circle")] == ["hollow"]
    assert "\N{MINUS SIGN}20" in texts(ElementTree.tostring(root, "unicode"))


def test_what_is_not_known_is_not_drawn() -> None:
    unknown = Measured(None, None, None, 0, "no images")
    root = ElementTree.fromstring(dot_plot([Dot("x", unknown)], "x").svg)
    assert not list(root.iter("circle"))
    assert "n/a" in texts(ElementTree.tostring(root, "unicode"))
    mini = ElementTree.fromstring(
        difference_dot(Difference(None, None, None, 0, "x"), "", 0, "y").svg
    )
    assert not list(mini.iter("circle"))


def test_a_change_lies_beside_the_line_of_no_change() -> None:
    chart = difference_dot(Difference(-0.1, -0.2, 0.05, 9, None), "good", 0.2, "down")
    root = ElementTree.fromstring(chart.svg)
    (circle,) = root.iter("circle")
    zero, interval = root.iter("line")
    assert float(circle.get("cx") or 0) < float(zero.get("x1") or 0)
    ends = [float(interval.get(end) or 0) for end in ("x1", "x2")]
    assert ends == pytest.approx([8, 98])
    assert root.get("aria-label") == "down"
