"""An SVG picture of a few shapes and words, on a background of its own: pages may be dark."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

from PIL import Image

INK, MUTED, LINE, PAPER = "#1b1f24", "#4d5863", "#c3ccd4", "#ffffff"
TEAL, PALE, RED = "#00796b", "#e0f2f1", "#b3261e"


class Canvas:
    """Shapes from back to front.

    Args:
        width: in pixels.
        height: in pixels.
        title: the picture in words.
    """

    def __init__(self, width: int, height: int, title: str) -> None:
        self._parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" '
            'font-family="system-ui, Segoe UI, Roboto, DejaVu Sans, sans-serif" font-size="15">',
            f"<title>{escape(title)}</title>",
        ]
        self.rect(0, 0, width, height, fill=PAPER)

    def rect(
        self, x: float, y: float, width: float, height: float, **style: object
    ) -> None:
        """A box; `rx` makes it round."""
        self._add("rect", x=x, y=y, width=width, height=height, **style)

    def line(self, x1: float, y1: float, x2: float, y2: float, **style: object) -> None:
        """From here to there."""
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, **{"stroke": LINE, **style})

    def dot(self, x: float, y: float, r: float, **style: object) -> None:
        """A circle."""
        self._add("circle", cx=x, cy=y, r=r, **style)

    def path(self, d: str, **style: object) -> None:
        """A path."""
        self._add("path", d=d, **style)

    def text(self, x: float, y: float, text: str, **style: object) -> None:
        """A line of text; `anchor` is start, middle or end."""
        style = {"fill": INK, **style}
        if "anchor" in style:
            style["text_anchor"] = style.pop("anchor")
        self._parts.append(
            f"<text{_attributes(x=x, y=y, **style)}>{escape(text)}</text>"
        )

    def arrow(self, x1: float, x2: float, y: float) -> None:
        """To the right."""
        self.line(x1, y, x2 - 6, y, stroke=MUTED, stroke_width=2)
        self.path(f"M{x2} {y}l-9 -5v10z", fill=MUTED)

    def pixels(self, x: float, y: float, side: float, picture: Image.Image) -> None:
        """A small picture as boxes: an image inside an SVG is not shown everywhere."""
        reduced = (
            picture.convert("RGB").quantize(24, dither=Image.Dither.NONE).convert("RGB")
        )
        n, step = reduced.width, side / reduced.width
        runs: dict[tuple[int, ...], list[str]] = {}
        for row in range(reduced.height):
            start = 0
            for colour, run_of_pixels in groupby(
                reduced.getpixel((k, row)) for k in range(n)
            ):
                length = len(list(run_of_pixels))
                assert isinstance(colour, tuple)
                runs.setdefault(colour, []).append(
                    f"M{start} {row}h{length}v1h-{length}z"
                )
                start += length
        self._parts.append(
            f'<g transform="translate({x:g} {y:g}) scale({step:g})" shape-rendering="crispEdges">'
        )
        for colour, ways in runs.items():
            self.path("".join(ways), fill="#{:02x}{:02x}{:02x}".format(*colour))
        self._parts.append("</g>")

    def save(self, path: Path) -> None:
        """Write the file."""
        path.write_text("\n".join([*self._parts, "</svg>"]) + "\n", "utf-8")

    def _add(self, tag: str, **attributes: object) -> None:
        self._parts.append(f"<{tag}{_attributes(**attributes)}/>")


def _attributes(**values: object) -> str:
    attributes = {
        name.replace("_", "-"): f"{value:g}" if isinstance(value, float) else str(value)
        for name, value in values.items()
    }
    return "".join(f" {name}={quoteattr(value)}" for name, value in attributes.items())
