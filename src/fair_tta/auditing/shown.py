"""An audit in notebooks and papers: a data frame, a picture, a table for LaTeX, a table of HTML."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from fair_tta.auditing.document import AuditDocument, EstimateFields, RunFigures
from fair_tta.errors import require
from fair_tta.metrics.estimate import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHOWN_FIGURES = {
    "accuracy": "accuracy",
    "worst_group_accuracy": "worst group",
    "bias": "gap",
    "equalized_odds_difference": "EOD",
}
"""The figures that fit into a narrow table, and their heads."""

_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {sign: f"\\{sign}" for sign in "&%$#_{}"}


def document_frame(document: AuditDocument) -> Any:
    """A pandas DataFrame with a row for each figure: those of runs, and accuracy by group."""
    pandas = require("pandas", "fairlearn")
    return pandas.DataFrame(list(_figures(document)))


def _figures(document: AuditDocument) -> Iterator[dict[str, Any]]:
    empty = dict.fromkeys(["target", *map(_column, document.data.sensitive)])
    for run in document.runs:
        for name, figure in run.metrics.by_name().items():
            yield {"run": run.name, "figure": name, **empty, **_numbers(figure)}
        for group in run.groups:
            names = {_column(attribute): value for attribute, value in group.sensitive.items()}
            for cell in group.classes:
                numbers = _numbers(cell.true_positive_rate)
                about = {"run": run.name, "figure": "group_accuracy", "target": cell.target}
                yield {**about, **names, **numbers}


def _column(attribute: str) -> str:
    """As `to_dataframe` calls it: no attribute takes the place of a figure."""
    return f"sensitive: {attribute}"


def _numbers(figure: EstimateFields) -> dict[str, float | int | None]:
    return {"value": figure.value, "low": figure.low, "high": figure.high, "n": figure.n}


def plot_groups(run: RunFigures, small: int, axes: Axes | None = None) -> Axes:
    """Accuracy of each class in each group as dots with intervals, the worst at the bottom.

    Args:
        run: whose groups.
        small: groups with fewer images are hollow.
        axes: of matplotlib, new ones if None.
    """
    from matplotlib.figure import Figure

    cells = [
        (label(cell.target, *group.sensitive.values()), cell.true_positive_rate)
        for group in run.groups
        for cell in group.classes
        if cell.true_positive_rate.value is not None
    ]
    cells.sort(key=lambda cell: cell[1].value or 0.0)
    if axes is None:
        axes = Figure(figsize=(6.4, 1 + 0.3 * len(cells)), layout="constrained").add_subplot()
    for y, (_, figure) in enumerate(cells):
        value, low, high = (100 * (x or 0.0) for x in (figure.value, figure.low, figure.high))
        axes.plot([low, high], [y, y], color="tab:gray", linewidth=1.5, zorder=1)
        face = "white" if figure.n < small else "tab:blue"
        axes.plot([value], [y], "o", color="tab:blue", markerfacecolor=face, zorder=2)
    if run.metrics.accuracy.value is not None:
        axes.axvline(100 * run.metrics.accuracy.value, color="tab:orange", label="accuracy of all")
        axes.legend(loc="best", frameon=False)
    axes.set_yticks(range(len(cells)), [name for name, _ in cells], parse_math=False)
    axes.set_xlabel("right answers, percent")
    axes.set_title(run.name, parse_math=False)
    return axes


def to_latex(document: AuditDocument) -> str:
    """A table of the runs for LaTeX (package booktabs): percent with intervals."""
    head = " & ".join(["", *map(_escaped, SHOWN_FIGURES.values())])
    lines = [rf"\begin{{tabular}}{{l{'r' * len(SHOWN_FIGURES)}}}", r"\toprule", rf"{head} \\"]
    lines.append(r"\midrule")
    for run in document.runs:
        cells = [_escaped(run.name), *_row(run.metrics.by_name())]
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def to_html_table(document: AuditDocument) -> str:
    """The same for notebooks, and what a reader must know."""
    heads = "".join(f"<th>{escape(head)}</th>" for head in ("", *SHOWN_FIGURES.values()))
    rows = "".join(
        f"<tr><th>{escape(run.name)}</th>"
        + "".join(f"<td>{cell}</td>" for cell in _row(run.metrics.by_name()))
        + "</tr>"
        for run in document.runs
    )
    notes = "".join(f"<p>{escape(sentence)}</p>" for sentence in document.warnings)
    level = f"{100 * document.settings.level:g}"
    caption = f"<p>{document.data.n} images; percent with {level} % intervals</p>"
    return f"{caption}<table><tr>{heads}</tr>{rows}</table>{notes}"


def _row(figures: Mapping[str, EstimateFields]) -> Sequence[str]:
    return [_shown(figures[name]) for name in SHOWN_FIGURES]


def _shown(figure: EstimateFields) -> str:
    if figure.value is None or math.isnan(figure.value):
        return "n/a"
    text = f"{100 * figure.value:.1f}"
    if figure.low is None or figure.high is None:
        return text
    return f"{text} [{100 * figure.low:.1f}, {100 * figure.high:.1f}]"


def _escaped(text: str) -> str:
    return re.sub(r"[\\~^&%$#_{}]", lambda sign: _LATEX[sign.group()], " ".join(text.split()))
