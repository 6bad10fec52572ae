"""Matplotlib figures as SVG inside a page: no pyplot, no global state, the page's own colours."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 4.4  # inches: text of 10 points can be read on a phone and is not huge on a screen

INK, LINE, BACKGROUND = "#010101", "#020202", "#030303"
SERIES = tuple(f"#0401{i:02x}" for i in range(8))
EDGES = tuple(f"#0402{i:02x}" for i in range(8))
"""Stand-ins that become variables of the style sheet, which has a light and a dark set."""

_VARIABLES = (
    {INK: "var(--ink)", LINE: "var(--line)", BACKGROUND: "var(--paper)"}
    | {colour: f"var(--series-{i})" for i, colour in enumerate(SERIES)}
    | {colour: f"var(--edge-{i})" for i, colour in enumerate(EDGES)}
)

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fair-tta",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "hatch.color": INK,
}


@dataclass(frozen=True)
class Chart:
    """A picture and the same in words."""

    svg: str
    alt: str


def chart(height: float, draw: Callable[[Figure], None], prefix: str, alt: str) -> Chart:
    """Draw on a figure of this height (in inches) and make it part of a page.

    Args:
        height: in inches.
        draw: draws.
        prefix: what ids begin with, so that none comes twice on a page.
        alt: the finding in words.
    """
    from matplotlib import style
    from matplotlib.figure import Figure

    buffer = BytesIO()
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        # names in scripts that the font lacks: the reader's browser has them
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        draw(figure)
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return Chart(inline(buffer.getvalue(), prefix, alt), alt)


def inline(svg: bytes, prefix: str, alt: str) -> str:
    """For the inside of an HTML page: own ids, the page's colours and fonts, a name in words."""
    root = ElementTree.fromstring(svg)
    used = set(re.findall(rb"(?:url\(|href=\")#([^)\"]+)", svg))
    names = {name.decode(): f"{prefix}-{i}" for i, name in enumerate(sorted(used))}
    for parent in list(root.iter()):
        for child in list(parent):
            if _plain(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _plain(element.tag)
        attributes = {_plain(key): value for key, value in element.attrib.items()}
        element.attrib.clear()
        for key, value in attributes.items():
            if key == "id" and value not in names:
                continue
            element.set(key, _translate(key, value, names))
    box = root.get("viewBox", "")
    root.attrib.clear()
    for key, value in (
        ("viewBox", box),
        ("role", "img"),
        ("aria-label", alt),
        ("stroke-linejoin", "round"),
    ):
        root.set(key, value)
    text = ElementTree.tostring(root, "unicode")
    return re.sub(r">\s+<", ">\n<", text)


def _plain(tag: str) -> str:
    return tag.rpartition("}")[2]


def _translate(key: str, value: str, names: dict[str, str]) -> str:
    if key == "id":
        return names[value]
    if key == "href":
        return "#" + names[value[1:]]
    if key == "style":
        value = re.sub(r"font: *(?:[a-z0-9]+ )*?([\d.]+px)[^;]*", r"font-size: \1", value)
        value = re.sub(r"font-family:[^;]*;? *", "", value)
    value = re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{names[found[1]]})", value)
    return re.sub(r"#[0-9a-f]{6}", lambda found: _VARIABLES.get(found[0], found[0]), value)
