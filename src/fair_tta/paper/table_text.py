"""Figures as tables of text, for Markdown, the terminal and the report, and what explains them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fair_tta.paper.cells import COLUMNS, shown_figure
from fair_tta.paper.figures import SECONDS, Figure
from fair_tta.report.numbers import times
from fair_tta.report.templating import for_markdown
from fair_tta.report.terminal import plain_number
from fair_tta.runs.settings import Grid

LEGEND = (
    "Percent, of the images of all seeds together, each once with its first seed; 95 % intervals "
    "in brackets. + better, - worse than zero-shot: the paired interval of the difference excludes "
    "0, at a level that allows for all settings of the table (Holm); averages have none. Acc: "
    "accuracy; WGA: accuracy of the worst group of class and attribute; Bias: Acc - WGA, the gap; "
    "EOD: equalized-odds difference; ASI: indifference to the attribute; ATC: confidence in the "
    "target; cost: times the time of a zero-shot answer, views included (settings of a sweep share "
    "work, so that a later one looks cheaper than it is alone; the table `runtime` does not "
    "share); s: the same in seconds per image."
)
PAPER_LEGEND = (
    "paper: the paper's figure, a mean over seeds; ours as means over seeds, with standard errors "
    "and minus the paper's, are in table.md and table.csv. A question mark: it contradicts its own "
    "row in the paper and is most likely a slip."
)
TITLES = {**{column.key: column.title for column in COLUMNS}, SECONDS: "s"}
"""Metrics and what their columns are called."""


@dataclass(frozen=True)
class FigureTable:
    """The table of one task, or of the average: cells as text."""

    title: str
    header: list[str]
    rows: list[list[str]]


def tables_by_task(figures: Sequence[Figure]) -> Iterator[FigureTable]:
    """A table for each task; where the paper has figures of a metric, they have a column."""
    for task in dict.fromkeys(str(f.task or "Average") for f in figures):
        mine = [f for f in figures if str(f.task or "Average") == task]
        cells = {(f.setting.name, f.metric): f for f in mine}
        settings = list(dict.fromkeys(f.setting.name for f in mine))
        header, columns = ["setting"], [settings]
        for key, title in TITLES.items():
            found = [cells[name, key] for name in settings if (name, key) in cells]
            if not found:
                continue  # averages have no cost
            if key == SECONDS:
                header.append("cost")
                columns.append([_cost(f, found[0]) for f in found])
            header.append(title)
            columns.append([shown_cell(f) for f in found])
            if any(f.printed is not None for f in found):
                header.append(f"{title}, paper")
                columns.append([_paper(f) for f in found])
        yield FigureTable(task, header, [list(row) for row in zip(*columns, strict=True)])


def to_markdown(grid: Grid, figures: Sequence[Figure]) -> str:
    """A table for each task and one for the average, and means over seeds beside the paper's."""
    parts = [f"# {for_markdown(grid.name)}", "", legend(figures), ""]
    if grid.model:
        parts += [f"The paper's model is {for_markdown(grid.model)}.", ""]
    for table in tables_by_task(figures):
        parts += [f"## {for_markdown(table.title)}", "", *_markdown_table(table), ""]
    over_seeds = [
        [str(f.task or "Average"), f.setting.name, TITLES[f.metric], str(f.cell), *_beside(f)]
        for f in figures
        if f.printed is not None and f.metric != SECONDS
    ]
    if over_seeds:
        header = ["task", "setting", "metric", "mean over seeds", "paper", "ours minus paper"]
        table = FigureTable("Means over seeds, beside the paper's", header, over_seeds)
        parts += [f"## {table.title}", "", "With their standard errors.", ""]
        parts += [*_markdown_table(table), ""]
    return "\n".join(parts)


def _markdown_table(table: FigureTable) -> Iterator[str]:
    yield f"| {' | '.join(table.header)} |"
    yield "|---" * len(table.header) + "|"
    for name, *cells in table.rows:
        yield f"| {for_markdown(name)} | {' | '.join(map(for_markdown, cells))} |"


def legend(figures: Sequence[Figure]) -> str:
    """What tables of these figures show."""
    return f"{LEGEND} {PAPER_LEGEND}" if any(f.printed for f in figures) else LEGEND


def shown_cell(figure: Figure) -> str:
    """Ours as text."""
    if figure.pooled is None:
        return plain_number(figure.cell.mean)
    return shown_figure(figure.pooled, figure.cell.mark)


def _paper(figure: Figure) -> str:
    if figure.printed is None:
        return ""
    return f"{figure.printed.value:g}{'?' * figure.printed.suspect}"


def _beside(figure: Figure) -> tuple[str, str]:
    minus = figure.minus_paper
    return _paper(figure), "" if minus is None or math.isnan(minus) else f"{minus:+.1f}"


def _cost(figure: Figure, zero_shot: Figure) -> str:
    seconds = zero_shot.cell.mean
    return times(figure.cell.mean / seconds if seconds > 0 else None)
