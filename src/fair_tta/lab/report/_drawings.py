"""Dot plots as SVG of a few elements, and those of an audit.

They have the page's colours, and are as wide as a phone, so that their text can be read there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

from fair_tta.auditing._document import RunFigures
from fair_tta.lab.report._numbers import MINUS, figure_text
from fair_tta.lab.report._settings import Sweep
from fair_tta.metrics._estimates import Estimate
from fair_tta.metrics.definitions import METRICS

# All sizes are in pixels of a phone
DRAWING_WIDTH = 400
_MARGIN = 8
_RIGHT = DRAWING_WIDTH - _MARGIN
_DOT_ROW_HEIGHT = 40
_PAIR_ROW_HEIGHT = 30
_AXIS_HEIGHT = 22
_TICK_LETTER_WIDTH = 7

# Letters of a name that have room beside the numbers of its row
_LETTERS_OF_DOT_ROW = 50
_LETTERS_OF_PAIR = 32

_MAX_AXIS_STEPS = 5

TRADED = ("accuracy", "balanced_accuracy", "worst_group_accuracy")

MAX_SWEEPS = 6
"""More are not drawn: a grid of two settings has one for each row and column."""


class Dot(NamedTuple):
    """A figure of a dot plot.

    Attributes:
        name: above the dot.
        figure: the dot and its interval.
        tone: ``good``, ``bad`` or empty.
        n: images, None to leave them out.
        hollow: it rests on few images.
        link: where a click leads, such as ``#images-1``.
    """

    name: str
    figure: Estimate
    tone: str = ""
    n: int | None = None
    hollow: bool = False
    link: str = ""

    @property
    def label(self) -> str:
        return self.name if self.n is None else f"{self.name} (n = {self.n})"


class BeforeAfter(NamedTuple):
    """Two shares below a name, and on its right both as a text and details of the change."""

    name: str
    n: int
    before: float
    after: float
    text: str
    details: str
    tone: str
    link: str = ""


def dot_plot(dots: Sequence[Dot], title: str, reach: Sequence[float] = (0.0,)) -> str:
    """Draw a dot with its interval below each name.

    Args:
        dots: from top to bottom.
        title: begins the text alternative.
        reach: values that the axis covers besides the dots.
    """
    texts = [f"{dot.label}: {figure_text(dot.figure)}" for dot in dots]
    values = [*reach]
    for dot in dots:
        for end in (dot.figure.value, dot.figure.low, dot.figure.high):
            if end is not None:
                values.append(end)
    svg, x_of = _new_plot(title, texts, values or [0.0, 1.0], _DOT_ROW_HEIGHT)

    for row_index, dot in enumerate(dots):
        top = _DOT_ROW_HEIGHT * row_index
        row = _linked_row(svg, dot.link, top, _DOT_ROW_HEIGHT)
        text = figure_text(dot.figure)
        name = short(dot.label, _LETTERS_OF_DOT_ROW - len(text))
        _add_text(row, _MARGIN, top + 17, name, "start", "name halo")
        _add_text(row, _RIGHT, top + 17, text, "end", "tick halo")

        value, low, high = dot.figure.value, dot.figure.low, dot.figure.high
        y = top + 30
        if low is not None and high is not None:
            _add_bar(row, f"ci {dot.tone}", x_of(low), x_of(high), y)
        if value is not None:
            css_class = f"{dot.tone} hollow" if dot.hollow else dot.tone
            _add(row, "circle", css_class, cx=x_of(value), cy=y, r=5)
    return tostring(svg, "unicode")


def before_and_after(
    rows: Sequence[BeforeAfter], title: str, reach: Sequence[float] = ()
) -> str:
    """Draw a hollow and a filled dot for each name, and a bar between them.

    Args:
        rows: from top to bottom.
        title: begins the text alternative.
        reach: values that the axis covers besides the rows.
    """
    texts = [f"{row.name} (n = {row.n:,}): {row.text}, {row.details}" for row in rows]
    values = [*reach]
    for row in rows:
        values += [row.before, row.after]
    svg, x_of = _new_plot(title, texts, values, _PAIR_ROW_HEIGHT)

    # Numbers end where the longest details begin
    longest = max(len(row.details) for row in rows)
    numbers_right = _RIGHT - 16 - _TICK_LETTER_WIDTH * longest
    for row_index, row in enumerate(rows):
        top = _PAIR_ROW_HEIGHT * row_index
        _add(svg, "line", "grid", x1=_MARGIN, x2=_RIGHT, y1=top, y2=top)
        group = _linked_row(svg, row.link, top, _PAIR_ROW_HEIGHT)
        name = short(row.name, _LETTERS_OF_PAIR)
        label = _add_text(group, _MARGIN, top + 13, name, "start", "name halo")
        _add(label, "tspan", "tick").text = f"  n = {row.n:,}"
        _add_text(group, numbers_right, top + 13, row.text, "end", "name halo")
        _add_text(group, _RIGHT, top + 13, row.details, "end", "tick halo")

        y = top + 23
        _add_bar(group, f"bar {row.tone}", x_of(row.before), x_of(row.after), y)
        _add(group, "circle", "hollow", cx=x_of(row.before), cy=y, r=3.5)
        _add(group, "circle", row.tone, cx=x_of(row.after), cy=y, r=5)
    return tostring(svg, "unicode")


def tradeoff_charts(sweep: Sweep, reference: RunFigures) -> list[tuple[str, str]]:
    """Return a title and a chart over the setting for each of `TRADED`, below the reference."""
    runs = {f"{sweep.setting} = {value:g}": run for value, run in sweep.runs.items()}
    if reference.name not in {run.name for run in runs.values()}:
        runs = {reference.name: reference} | runs
    # Runs keep the order of the setting, below the reference
    charts = []
    for metric in TRADED:
        dots = [Dot(name, run.metrics.by_name()[metric]) for name, run in runs.items()]
        title = METRICS[metric].title
        chart_title = f"{sweep.method}: {title} in percent over {sweep.setting}"
        charts.append((title, dot_plot(dots, chart_title, reach=())))
    return charts


def axis(values: Sequence[float]) -> tuple[float, float, float]:
    """Return where an axis begins and ends, and the step of its marks."""
    for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        # Without rounding 0.3 / 0.1 lies below 3
        first = math.floor(round(min(values) / step, 6))
        last = max(first + 1, math.ceil(round(max(values) / step, 6)))
        if last - first <= _MAX_AXIS_STEPS:
            break
    return first * step, last * step, step


def short(name: str, max_letters: int) -> str:
    """Return a name that fits; long ones keep both ends, which tell them apart."""
    if len(name) <= max_letters:
        return name
    n_end = (max_letters - 1) // 2
    n_start = max_letters - 1 - n_end
    return f"{name[:n_start]}\N{HORIZONTAL ELLIPSIS}{name[-n_end:]}"


def _new_plot(
    title: str, row_texts: Sequence[str], values: Sequence[float], row_height: int
) -> tuple[Element, Callable[[float], float]]:
    """Return a drawing with upright lines and their percent, and the function from share to x.

    Args:
        title: begins the text alternative.
        row_texts: continue it, one for each row.
        values: the axis covers them.
        row_height: in pixels.
    """
    bottom = row_height * len(row_texts) + 4
    attributes = {
        "viewBox": f"0 0 {DRAWING_WIDTH} {bottom + _AXIS_HEIGHT:g}",
        "role": "img",
        "aria-label": f"{title}. {'; '.join(row_texts)}.",
        "class": "drawing",
    }
    svg = Element("svg", attributes)
    low, high, step = axis(values)

    def x_of(share: float) -> float:
        return _MARGIN + (_RIGHT - _MARGIN) * (share - low) / (high - low)

    n_steps = round((high - low) / step)
    for index in range(n_steps + 1):
        share = low + index * step
        x = x_of(share)
        is_zero = low < 0 and abs(share) < 1e-9
        _add(svg, "line", "zero" if is_zero else "grid", x1=x, x2=x, y1=4, y2=bottom)
        # The outer numbers stay inside the drawing
        anchor = "middle"
        if index == 0:
            anchor = "start"
        elif index == n_steps:
            anchor = "end"
        text = f"{round(100 * share, 6):g}".replace("-", MINUS)
        _add_text(svg, x, bottom + 16, text, anchor, "tick")
    return svg, x_of


def _linked_row(svg: Element, link: str, top: float, height: float) -> Element:
    """Return the element that a row is drawn into: a link, if there is one, that covers the row."""
    if not link:
        return svg
    # Screen readers do not look into an image
    svg.set("role", "group")
    anchor = SubElement(svg, "a", {"href": link})
    _add(anchor, "rect", "row", x=0, y=top, width=DRAWING_WIDTH, height=height)
    return anchor


def _add_bar(parent: Element, css_class: str, x1: float, x2: float, y: float) -> None:
    _add(parent, "line", css_class, x1=x1, x2=x2, y1=y, y2=y)


def _add(parent: Element, tag: str, css_class: str = "", **numbers: float) -> Element:
    attributes = {name: f"{value:.6g}" for name, value in numbers.items()}
    if css_class.strip():
        attributes["class"] = css_class.strip()
    return SubElement(parent, tag, attributes)


def _add_text(
    parent: Element, x: float, y: float, text: str, anchor: str, css_class: str
) -> Element:
    element = _add(parent, "text", css_class, x=x, y=y)
    element.set("text-anchor", anchor)
    element.text = text
    return element
