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
from fair_tta.lab.report._sentences import Sweep
from fair_tta.metrics._estimates import Estimate
from fair_tta.metrics.definitions import METRICS

DRAWING_WIDTH = 400

_MORE = "\N{HORIZONTAL ELLIPSIS}"
_PAIR, _DOT = 30, 40  # from row to row of what is before and after, and of dots
_EDGE = 8

TRADED = ("accuracy", "balanced_accuracy", "worst_group_accuracy")

MOST_DRAWN = 6
"""Sweeps: a grid of two settings would have one for each row and column."""


class Dot(NamedTuple):
    """A figure of a dot plot; tone is ``good``, ``bad`` or none, hollow rests on few images.

    A click on it leads to `link`, such as ``#images-1``.
    """

    name: str
    figure: Estimate
    tone: str = ""
    hollow: bool = False
    link: str = ""


class BeforeAfter(NamedTuple):
    """Two shares below a name, as a text on its right, and what else is known of the change."""

    name: str
    n: int
    before: float
    after: float
    text: str
    more: str
    tone: str
    link: str = ""


def dot_plot(dots: Sequence[Dot], what: str, reach: Sequence[float] = (0.0,)) -> str:
    """A dot with its interval below each name; `what` begins the text alternative.

    The axis covers `reach` besides the dots.
    """
    in_words = [f"{dot.name}: {figure_text(dot.figure)}" for dot in dots]
    bottom = _DOT * len(dots) + 4
    svg = _svg(bottom + 22, f"{what}. {'; '.join(in_words)}.")
    shown = [x for _, f, *_ in dots for x in (f.value, f.low, f.high) if x is not None]
    at = _scale(svg, [*shown, *reach] or [0.0, 1.0], bottom)
    for place, dot in enumerate(dots):
        y, text = _DOT * place, figure_text(dot.figure)
        row = _linked(svg, dot.link, y, _DOT)
        _text(row, _EDGE, y + 17, short(dot.name, 50 - len(text)), "start", "name halo")
        _text(row, DRAWING_WIDTH - _EDGE, y + 17, text, "end", "tick halo")
        value, low, high, y = dot.figure.value, dot.figure.low, dot.figure.high, y + 30
        if low is not None and high is not None:
            _add(
                row,
                "line",
                f"ci {dot.tone}".strip(),
                x1=at(low),
                x2=at(high),
                y1=y,
                y2=y,
            )
        if value is not None:
            kind = f"{dot.tone}{' hollow' * dot.hollow}".strip()
            _add(row, "circle", kind, cx=at(value), cy=y, r=5)
    return tostring(svg, "unicode")


def before_and_after(
    rows: Sequence[BeforeAfter], what: str, reach: Sequence[float] = ()
) -> str:
    """A hollow and a filled dot for each name, and a bar between them."""
    in_words = [f"{row.name} (n = {row.n:,}): {row.text}, {row.more}" for row in rows]
    bottom = _PAIR * len(rows) + 4
    svg = _svg(bottom + 22, f"{what}. {'; '.join(in_words)}.")
    at = _scale(
        svg, [*reach, *(x for row in rows for x in (row.before, row.after))], bottom
    )
    right = DRAWING_WIDTH - _EDGE
    middle = right - 16 - 7 * max(len(row.more) for row in rows)
    for place, row in enumerate(rows):
        y = _PAIR * place
        _add(svg, "line", "grid", x1=_EDGE, x2=right, y1=y, y2=y)
        group = _linked(svg, row.link, y, _PAIR)
        name = _text(group, _EDGE, y + 13, short(row.name, 32), "start", "name halo")
        _add(name, "tspan", "tick").text = f"  n = {row.n:,}"
        _text(group, middle, y + 13, row.text, "end", "name halo")
        _text(group, right, y + 13, row.more, "end", "tick halo")
        x, y = at(row.before), y + 23
        _add(
            group, "line", f"bar {row.tone}".strip(), x1=x, x2=at(row.after), y1=y, y2=y
        )
        _add(group, "circle", "hollow", cx=x, cy=y, r=3.5)
        _add(group, "circle", row.tone, cx=at(row.after), cy=y, r=5)
    return tostring(svg, "unicode")


def tradeoff_charts(sweep: Sweep, reference: RunFigures) -> list[tuple[str, str]]:
    """Accuracy, balanced accuracy and worst group over the setting, below the reference."""
    runs = {f"{sweep.setting} = {value:g}": run for value, run in sweep.runs.items()}
    if reference.name not in {run.name for run in runs.values()}:
        runs = {reference.name: reference} | runs
    found = []
    for metric in TRADED:
        figures = {
            name: run.metrics.by_name().get(metric) for name, run in runs.items()
        }
        dots = [
            Dot(name, figure) for name, figure in figures.items() if figure is not None
        ]
        what = (
            f"{sweep.method}: {METRICS[metric].title} in percent over {sweep.setting}"
        )
        found += [(METRICS[metric].title, dot_plot(dots, what, ()))] if dots else []
    return found


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


def _scale(
    svg: Element, values: Sequence[float], bottom: float
) -> Callable[[float], float]:
    """Upright lines with their percent below; returns where a share lies."""
    low, high, step = axis(values)

    def at(share: float) -> float:
        return _EDGE + (DRAWING_WIDTH - 2 * _EDGE) * (share - low) / (high - low)

    for k in range(round((high - low) / step) + 1):
        share = low + k * step
        kind = "zero" if low < 0 and abs(share) < 1e-9 else "grid"
        _add(svg, "line", kind, x1=at(share), x2=at(share), y1=4, y2=bottom)
        anchor = "start" if k == 0 else "end" if share >= high - 1e-9 else "middle"
        text = f"{round(100 * share, 6):g}".replace("-", MINUS)
        _text(svg, at(share), bottom + 16, text, anchor, "tick")
    return at


def _svg(height: float, alt: str) -> Element:
    box = f"0 0 {DRAWING_WIDTH} {height:g}"
    attributes = {"viewBox": box, "role": "img", "aria-label": alt, "class": "drawing"}
    return Element("svg", attributes)


def _linked(svg: Element, link: str, y: float, height: float) -> Element:
    """Where a row is drawn: inside a link, if there is one, that covers all of it."""
    if not link:
        return svg
    svg.set("role", "group")  # screen readers do not look into an image
    made = SubElement(svg, "a", {"href": link})
    _add(made, "rect", "row", x=0, y=y, width=DRAWING_WIDTH, height=height)
    return made


def _add(parent: Element, tag: str, kind: str = "", **numbers: float) -> Element:
    attributes = {name: f"{value:.6g}" for name, value in numbers.items()}
    if kind:
        attributes["class"] = kind
    return SubElement(parent, tag, attributes)


def _text(
    parent: Element, x: float, y: float, text: str, anchor: str, kind: str
) -> Element:
    made = _add(parent, "text", kind, x=x, y=y)
    made.set("text-anchor", anchor)
    made.text = text
    return made
