"""Tables of results: files in benchmarks/results/, and the few of them that pages repeat.

``NAME.md`` has every table of a command, ``NAME/TABLE.csv`` one of them. A table that a page
repeats stands there between ``<!-- NAME: TABLE -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from fair_tta.metrics import Estimate
from fair_tta.metrics._estimates import direction

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "real-clip.md"

_NUMBER = r"[+-]?\d+\.?\d*"
# As `level` and `change` write it: "62.1, -8.6 [-12.1, -5.1]", "-8.6 (-9.1 to -8.0)", "95.4".
_FIGURE = re.compile(
    rf"(?:(?P<level>{_NUMBER}), )?(?P<value>{_NUMBER})"
    rf"(?: [\[(](?P<low>{_NUMBER})(?:,| to) (?P<high>{_NUMBER})[\])])?(?:: (?P<group>.+))?"
)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def level(figure: Estimate) -> str:
    """Return ``81.2 [77.1, 84.6]``, percent; a dash where there is no figure."""
    if figure.value is None:
        return "-"
    return f"{100 * figure.value:.1f}{_bound(figure, '.1f')}"


def change(figure: Estimate, better: int) -> str:
    """Return a change with its sign and interval.

    It is bold if it is shown to be better, and marked if it is shown to be worse; `better` is 1
    where more is better.
    """
    if figure.value is None:
        return "-"
    text = f"{100 * figure.value:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")
    side = better * direction(figure.low, figure.high)
    text = {1: f"**{text}**", -1: f"{text} (worse)", 0: text}[side]
    return text + _bound(figure, "+.1f")


def _bound(figure: Estimate, bound_format: str) -> str:
    if figure.low is None or figure.high is None:
        return ""
    return f" [{100 * figure.low:{bound_format}}, {100 * figure.high:{bound_format}}]"


def write_results(
    name: str, introduction: str, blocks: Mapping[str, str], folder: Path = RESULTS
) -> None:
    """Write ``NAME.md`` with an introduction and all blocks, and each table as a CSV file."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = [
        introduction,
        *(f"## {title}\n\n{text}" for title, text in blocks.items()),
    ]
    (folder / f"{name}.md").write_text("\n\n".join(sections) + "\n", "utf-8")
    for title, text in blocks.items():
        lines = [line for line in text.splitlines() if line.startswith("| ")]
        if not lines:
            continue  # a list, not a table
        path = folder / name / f"{re.sub(r'[^a-z0-9@.]+', '-', title.lower())}.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(numbers_of(lines))


def numbers_of(lines: Iterable[str]) -> list[list[str]]:
    """Return the rows of a Markdown table with its intervals in columns of their own.

    A column whose cells have intervals becomes ``X``, ``X low`` and ``X high``; where a cell has a
    level and its change, ``X`` is the level, ``X change`` the change, and the ends are those of the
    change. A named group gets a column too. Marks (bold, "worse") go: the ends say as much.
    """
    cells = [[_plain(cell) for cell in line.split("|")[1:-1]] for line in lines]
    head, _, *rows = cells
    columns = [[row[i] for row in rows] for i in range(len(head))]
    parts: list[list[str]] = []
    for title, column in zip(head, columns, strict=True):
        parts += _split(title, column)
    return [list(row) for row in zip(*parts, strict=True)]


def _split(title: str, column: list[str]) -> list[list[str]]:
    """Return one column of cells as columns of numbers, each with its title first."""
    matches = [_FIGURE.fullmatch(cell) for cell in column]
    if not any(match and (match["low"] or match["level"]) for match in matches):
        return [[title, *column]]
    changes = any(match and match["level"] for match in matches)
    first = [title]
    second = [f"{title} change"]
    bounds = [[f"{title} low"], [f"{title} high"]]
    named = [f"{title} of"]
    for cell, match in zip(column, matches, strict=True):
        fields = match.groupdict() if match else {}
        value = fields.get("value") or cell
        moved = changes and fields.get("level")
        first.append(str(fields["level"]) if moved else value)
        second.append(value if moved else "")
        bounds[0].append(fields.get("low") or "")
        bounds[1].append(fields.get("high") or "")
        named.append(fields.get("group") or "")
    return [
        first,
        *(further for further in (second, *bounds, named) if any(further[1:])),
    ]


def _plain(cell: str) -> str:
    text = cell.strip().replace("**", "").replace("`", "").replace(" (worse)", "")
    return re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)  # 1,832


def filled(text: str, kind: str, blocks: Mapping[str, str]) -> str:
    """Return a page with its blocks of a kind written anew."""

    def block(match: re.Match[str]) -> str:
        return f"<!-- {kind}: {match[1]} -->\n\n{blocks[match[1]]}\n\n<!-- end -->"

    return re.sub(
        rf"<!-- {kind}: ([\w-]+) -->.*?<!-- end -->", block, text, flags=re.DOTALL
    )


def write_blocks(kind: str, blocks: Mapping[str, str], page: Path) -> None:
    """Write the blocks of a kind anew where a page repeats them."""
    page.write_text(filled(page.read_text("utf-8"), kind, blocks), "utf-8")
