"""Heat maps and dot plots as SVG of a few elements, and those of an audit.

They have the page's colours, and are as wide as a phone, so that their text can be read there.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from fair_tta.auditing._document import EstimateFields, RunFigures
from fair_tta.lab.report._numbers import MINUS, figure_text, percent
from fair_tta.lab.report._sentences import Sweep
from fair_tta.metrics._definitions import METRICS

DRAWING_WIDTH = 400
ACROSS = 8  # so many columns of a heat map fit on a phone

_NAMES, _CELL, _ROW = 112, 44, 36  # of a heat map
_MORE = "\N{HORIZONTAL ELLIPSIS}"
_PAIR = 30  # from row to row of what is before and after
_SUBROW = 16  # from dot to dot in a row of a dot plot
_EDGE = 8
_SERIES = 8  # colours of the style sheet
_IN_WORDS = 40  # figures that a text alternative lists


TRADED = ("accuracy", "balanced_accuracy", "worst_group_accuracy")

MOST_DRAWN = 6
"""Sweeps: a grid of two settings would have one for each row and column."""


class Chart(NamedTuple):
    """A drawing and its text alternative."""

    svg: str
    alt: str


class Dot(NamedTuple):
    """A figure of a dot plot; tone is ``good``, ``bad`` or none, hollow rests on few images."""

    name: str
    figure: EstimateFields
    tone: str = ""
    hollow: bool = False


class DotRow(NamedTuple):
    """Dots below a common name."""

    name: str
    dots: Sequence[Dot]


class BeforeAfter(NamedTuple):
    """Two shares below a name, as a text on its right, and what else is known of the change."""

    name: str
    n: int
    before: float
    after: float
    text: str
    more: str
    tone: str


class ReferenceLine(NamedTuple):
    """An upright line beside each dot, such as the accuracy of all images; kind is for CSS."""

    at: float
    name: str
    kind: str


def heat_map(table: Mapping[str, Mapping[str, float]], what: str) -> Chart:
    """``{value: {class: logits}}``, a number in each cell; the shorter side goes across."""
    in_words = [
        f"{value}: " + ", ".join(f"{name} {_logits(x)}" for name, x in row.items())
        for value, row in table.items()
    ]
    first = next(iter(table.values()))
    cells = {(value, name): x for value, row in table.items() for name, x in row.items()}
    rows, columns = list(table), list(first)
    if len(columns) > len(rows):
        rows, columns = columns, rows
        cells = {(name, value): x for (value, name), x in cells.items()}
    wide = min(110, max(_CELL, (DRAWING_WIDTH - _NAMES) // max(1, len(columns))))
    heads = [_lines(name, wide // 8, 2) for name in columns]
    is_steep = any(
        len(word) > wide // 8 or lines[-1].endswith(_MORE)
        for name, lines in zip(columns, heads, strict=True)
        for word in name.split()
    )
    names = [short(name, 18) for name in columns]
    top = 7 * max(map(len, names)) + 8 if is_steep else 16 * max(map(len, heads)) + 8
    right = max(0.0, 4 * len(names[-1]) - wide / 2) if is_steep else 0.0
    most = max(1.0, *map(abs, cells.values()))  # a tenth of a logit should look like little
    svg = _svg(
        _NAMES + wide * len(columns) + right,
        top + _ROW * len(rows),
        f"{what}. {'. '.join(in_words)}.",
    )
    for k, lines in enumerate([[name] for name in names] if is_steep else heads):
        x = _NAMES + wide * k + wide / 2
        for i, line in enumerate(lines):
            y = top - 8 - 16 * (len(lines) - 1 - i)
            head = _text(svg, x, y, line, "start" if is_steep else "middle", "tick")
            if is_steep:
                head.set("transform", f"rotate(-60 {x:g} {y:g})")
    for r, name in enumerate(rows):
        y = top + _ROW * r
        lines = _lines(name, 16, 2)
        for i, line in enumerate(lines):
            down = y + _ROW / 2 + 4.5 + 15 * (i - (len(lines) - 1) / 2)
            _text(svg, _NAMES - 8, down, line, "end", "name")
        for k, column in enumerate(columns):
            value = cells[name, column]
            cell = _add(
                svg, "rect", x=_NAMES + wide * k + 1, y=y + 1, width=wide - 2, height=_ROW - 2, rx=3
            )
            cell.set("class", "up" if value >= 0 else "down")
            cell.set("fill-opacity", f"{0.06 + 0.6 * abs(value) / most:.3f}")
            _add(cell, "title").text = f"{name}, {column}: {_logits(value)}"
            x = _NAMES + wide * k + wide / 2
            _text(svg, x, y + _ROW / 2 + 4.5, _logits(value), "middle", "cell")
    return _chart(svg)


def dot_plot(dots: Sequence[Dot], what: str, reach: Sequence[float] = (0.0,)) -> Chart:
    """A dot with its interval for each name, see `dot_rows`."""
    return dot_rows([DotRow(dot.name, [dot._replace(name="")]) for dot in dots], what, reach=reach)


def dot_rows(
    rows: Sequence[DotRow],
    what: str,
    *,
    reach: Sequence[float] = (0.0,),
    lines: Sequence[ReferenceLine] = (),
) -> Chart:
    """Dots with their intervals; several in a row are numbered, and a legend has their names, which
    are the same in each row.

    The axis covers `reach` besides the dots; `what` begins the text alternative.
    """
    names = [dot.name for dot in rows[0].dots] if rows else []
    several = len(names) > 1
    across = 2 if several and max(map(len, names)) <= 20 else 1
    top = 20 * -(-len(names) // across) + 8 if several else 0
    heights = [(30 if several else 24) + _SUBROW * len(row.dots) for row in rows]
    bottom = top + sum(heights) + 4
    left = _EDGE + (20 if several else 0)
    figures = [dot.figure for row in rows for dot in row.dots]
    shown = [x for f in figures for x in (f.value, f.low, f.high) if x is not None]
    low, high, step = axis([*shown, *reach, *(line.at for line in lines)] or [0.0, 1.0])
    svg = _svg(DRAWING_WIDTH, bottom + 22, _in_words(what, rows, lines))

    def at(share: float) -> float:
        return left + (DRAWING_WIDTH - _EDGE - left) * (share - low) / (high - low)

    for k, name in enumerate(names if several else []):
        x, y = _EDGE + 6 + DRAWING_WIDTH / 2 * (k % across), 20 * (k // across) + 10
        _add(svg, "circle", _series(k + 1), cx=x, cy=y, r=5)
        _text(svg, x + 12, y + 4.5, f"{k + 1}  {short(name, 44 // across)}", "start", "tick")
    _scale(svg, (low, high, step), at, top + 4, bottom)
    for row, height in zip(rows, heights, strict=True):
        y, end = top + 30, top + 23 + _SUBROW * len(row.dots)
        for line in lines:  # beside the dots only: they do not cross words and numbers
            x = at(line.at)
            _add(svg, "line", line.kind, x1=x, x2=x, y1=y - 9, y2=end)
        text = "" if several else figure_text(row.dots[0].figure)
        _text(svg, _EDGE, y - 13, short(row.name, 50 - len(text)), "start", "name halo")
        _text(svg, DRAWING_WIDTH - _EDGE, y - 13, text, "end", "tick halo")
        for k, dot in enumerate(row.dots):
            tone = _series(k + 1) if several else dot.tone
            if several:
                _text(svg, _EDGE, y + 4, str(k + 1), "start", "tick")
            _dot(svg, dot, tone, at, y)
            y += _SUBROW
        top += height
    return _chart(svg)


def _scale(
    svg: ElementTree.Element,
    axis: tuple[float, float, float],
    at: Callable[[float], float],
    top: float,
    bottom: float,
) -> None:
    """Upright lines with their percent below."""
    low, high, step = axis
    for k in range(round((high - low) / step) + 1):
        share = low + k * step
        kind = "zero" if low < 0 and abs(share) < 1e-9 else "grid"
        _add(svg, "line", kind, x1=at(share), x2=at(share), y1=top, y2=bottom)
        anchor = "start" if k == 0 else "end" if share >= high - 1e-9 else "middle"
        text = f"{round(100 * share, 6):g}".replace("-", MINUS)
        _text(svg, at(share), bottom + 16, text, anchor, "tick")


def before_and_after(rows: Sequence[BeforeAfter], what: str, reach: Sequence[float] = ()) -> Chart:
    """A hollow and a filled dot for each name, and a bar between them."""
    in_words = [f"{row.name} (n = {row.n:,}): {row.text}, {row.more}" for row in rows]
    bottom = _PAIR * len(rows) + 4
    svg = _svg(DRAWING_WIDTH, bottom + 22, f"{what}. {'; '.join(in_words)}.")
    low, high, step = axis([*reach, *(x for row in rows for x in (row.before, row.after))])
    right = DRAWING_WIDTH - _EDGE
    middle = right - 16 - 7 * max(len(row.more) for row in rows)

    def at(share: float) -> float:
        return _EDGE + (DRAWING_WIDTH - 2 * _EDGE) * (share - low) / (high - low)

    _scale(svg, (low, high, step), at, 4, bottom)
    for place, row in enumerate(rows):
        y = _PAIR * place
        _add(svg, "line", "grid", x1=_EDGE, x2=right, y1=y, y2=y)
        y += 13
        name = _text(svg, _EDGE, y, short(row.name, 32), "start", "name halo")
        _add(name, "tspan", "tick").text = f"  n = {row.n:,}"
        _text(svg, middle, y, row.text, "end", "name halo")
        _text(svg, right, y, row.more, "end", "tick halo")
        x, y = at(row.before), y + 10
        _add(svg, "line", f"bar {row.tone}".strip(), x1=x, x2=at(row.after), y1=y, y2=y)
        _add(svg, "circle", "hollow", cx=x, cy=y, r=3.5)
        _add(svg, "circle", row.tone, cx=at(row.after), cy=y, r=5)
    return _chart(svg)


def _in_words(what: str, rows: Sequence[DotRow], lines: Sequence[ReferenceLine]) -> str:
    """The text alternative; of very many figures it is where to find them."""
    if sum(len(row.dots) for row in rows) > _IN_WORDS:
        return f"{what}. The tables have the figures."
    found = []
    for row in rows:
        dots = [f"{dot.name} {figure_text(dot.figure)}".strip() for dot in row.dots]
        found.append(f"{row.name}: {', '.join(dots)}")
    found += [f"{line.name}: {percent(line.at)}" for line in lines]
    return f"{what}. {'; '.join(found)}."


def _dot(
    svg: ElementTree.Element,
    dot: Dot,
    tone: str,
    at: Callable[[float], float],
    y: float,
) -> None:
    figure = dot.figure
    if figure.value is None:
        return
    if figure.low is not None and figure.high is not None:
        ci = f"ci {tone}".strip()
        _add(svg, "line", ci, x1=at(figure.low), x2=at(figure.high), y1=y, y2=y)
    kind = f"{tone}{' hollow' * dot.hollow}".strip()
    circle = _add(svg, "circle", kind, cx=at(figure.value), cy=y, r=5)
    if dot.name:
        _add(circle, "title").text = f"{dot.name}: {figure_text(figure)}"


def _series(number: int) -> str:
    """A class of the style sheet for the dots of this number."""
    return f"series-{(number - 1) % _SERIES}"


def difference_dot(figure: EstimateFields, tone: str, most: float, alt: str) -> Chart:
    """A change with its interval around an upright line at no change, for a cell of a table.

    The axis ends at `most` on both sides.
    """
    svg = _svg(160, 22, alt, "mini")

    def at(share: float) -> float:
        return 80 + 72 * max(-1.0, min(1.0, share / (most or 1.0)))

    _add(svg, "line", "zero", x1=80, x2=80, y1=1, y2=21)
    _dot(svg, Dot("", figure), tone, at, 11)
    return _chart(svg)


def axis(values: Sequence[float]) -> tuple[float, float, float]:
    """Where an axis begins and ends, and the steps of its marks."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        first = math.floor(round(min(values) / step, 6))
        last = max(first + 1, math.ceil(round(max(values) / step, 6)))
        if last - first <= 5:
            break
    return first * step, last * step, step


def short(name: str, most: int = 34) -> str:
    """A name that fits into a drawing; long ones keep both ends, which tell them apart."""
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return name[: most - 1 - end] + _MORE + name[-end:]


def _logits(x: float) -> str:
    text = f"{abs(x):.2f}"
    return text if text == "0.00" else (MINUS if x < 0 else "+") + text


def _lines(name: str, wide: int, most: int) -> list[str]:
    """A name on a few short lines."""
    found = textwrap.wrap(name, max(4, wide), max_lines=most, placeholder=_MORE)
    return found or [""]


def _svg(width: float, height: float, alt: str, kind: str = "drawing") -> ElementTree.Element:
    svg = ElementTree.Element("svg", {"viewBox": f"0 0 {width:g} {height:g}", "role": "img"})
    svg.set("aria-label", alt)
    svg.set("class", kind)
    if width > _NAMES + (ACROSS + 1) * _CELL:
        svg.set("style", f"min-width: {width:g}px")
    return svg


def _add(
    parent: ElementTree.Element, tag: str, kind: str = "", **numbers: float
) -> ElementTree.Element:
    attributes = {name: f"{value:.6g}" for name, value in numbers.items()}
    if kind:
        attributes["class"] = kind
    return ElementTree.SubElement(parent, tag, attributes)


def _text(
    parent: ElementTree.Element, x: float, y: float, text: str, anchor: str, kind: str
) -> ElementTree.Element:
    made = _add(parent, "text", kind, x=x, y=y)
    made.set("text-anchor", anchor)
    made.text = text
    return made


def _chart(svg: ElementTree.Element) -> Chart:
    return Chart(ElementTree.tostring(svg, "unicode"), svg.get("aria-label", ""))


def tradeoff_chart(sweep: Sweep, reference: RunFigures) -> Chart:
    """Accuracy, balanced accuracy and worst group over the setting; dashed: the reference."""
    rows = [
        DotRow(f"{sweep.setting} = {value:g}", [Dot(*figure) for figure in _traded(run)])
        for value, run in sweep.runs.items()
    ]
    is_inside = reference.name in {run.name for run in sweep.runs.values()}
    lines = [
        ReferenceLine(figure.value, f"Dashed, {reference.name}, {name}", f"dashed series-{i}")
        for i, (name, figure) in enumerate([] if is_inside else _traded(reference))
        if figure.value is not None
    ]
    what = f"{sweep.method}: percent over {sweep.setting}, with intervals"
    return dot_rows(rows, what, reach=(), lines=lines)


def _traded(run: RunFigures) -> list[tuple[str, EstimateFields]]:
    """What is drawn over the setting of a sweep; audits of version 0.1 lack some of it."""
    figures = run.metrics.by_name()
    return [(METRICS[m].title, figures[m]) for m in TRADED if figures.get(m) is not None]
