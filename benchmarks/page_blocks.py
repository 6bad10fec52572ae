"""Figures as Markdown, and blocks of a page that are written anew.

A block begins with ``<!-- KIND: NAME -->`` and ends with ``<!-- end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from fair_tta.metrics import Estimate
from fair_tta.metrics._estimates import direction

PAGE = Path(__file__).parents[1] / "docs" / "real-clip.md"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def level(figure: Estimate) -> str:
    """``81.2 [77.1, 84.6]``, percent; a dash where there is no figure."""
    if figure.value != figure.value:
        return "-"
    return f"{100 * figure.value:.1f}{_ends(figure, '.1f')}"


def change(figure: Estimate, better: int) -> str:
    """With its sign and interval; bold if it is shown to be better, marked if it is shown to be
    worse. `better` is 1 where more is better."""
    if figure.value != figure.value:
        return "-"
    text = f"{100 * figure.value:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")
    side = better * direction(figure.low, figure.high)
    text = {1: f"**{text}**", -1: f"{text} (worse)", 0: text}[side]
    return text + _ends(figure, "+.1f")


def _ends(figure: Estimate, how: str) -> str:
    if figure.low is None or figure.high is None:
        return ""
    return f" [{100 * figure.low:{how}}, {100 * figure.high:{how}}]"


def write_blocks(kind: str, blocks: Mapping[str, str], page: Path) -> None:
    """Write the blocks of a kind anew where the page has them."""

    def block(match: re.Match[str]) -> str:
        return f"<!-- {kind}: {match[1]} -->\n\n{blocks[match[1]]}\n\n<!-- end -->"

    pattern = rf"<!-- {kind}: ([\w-]+) -->.*?<!-- end -->"
    page.write_text(re.sub(pattern, block, page.read_text("utf-8"), flags=re.DOTALL), "utf-8")
