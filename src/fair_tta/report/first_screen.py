"""The first screen of an audit: cards, banners, groups as dots, a row for each method."""

from __future__ import annotations

from typing import Any

from fair_tta.auditing.document import AuditDocument
from fair_tta.report import verdict
from fair_tta.report.drawings import Dot, Upright, difference_dot, dot_plot
from fair_tta.report.numbers import interval, percent
from fair_tta.report.svg import Chart

MOST_DOTS = 14
"""More groups are not drawn; the worst are."""


def first_screen(document: AuditDocument) -> dict[str, Any]:
    """What the template needs."""
    rows = verdict.method_rows(document)
    ends = [abs(x) for row in rows for x in (row.gap.low, row.gap.high) if x is not None]
    most = max(ends, default=1.0)
    return {
        "cards": verdict.audit_cards(document),
        "banners": verdict.audit_banners(document),
        "dots": _groups(document),
        "left_out": max(0, len(verdict.cells_of(document.runs[0])) - MOST_DOTS),
        "commonest": verdict.commonest(document.runs[0]),
        "methods": [
            (row, difference_dot(row.gap, most, row.tone, _alt(row)), _cost(row.cost))
            for row in rows
        ],
    }


def _groups(document: AuditDocument) -> Chart:
    run = document.runs[0]
    cells = verdict.cells_of(run)
    dots = [
        Dot(
            f"{cell.name} (n = {cell.n})",
            cell.figure,
            "bad" if place == 0 and len(cells) > 1 else "",
            cell.n < document.settings.small,
        )
        for place, cell in enumerate(cells[:MOST_DOTS])
    ]
    lines = []
    if run.metrics.accuracy.value is not None:
        lines.append(Upright(run.metrics.accuracy.value, "all pictures", "all"))
    usual = verdict.commonest(run)
    if usual is not None:
        lines.append(Upright(usual[1], f"always answering {usual[0]}", "usual"))
    what = f"Right answers of {run.name} by class and group in percent, the worst first"
    return dot_plot(dots, what, most=1.0, lines=lines)


def _alt(row: verdict.MethodRow) -> str:
    figures = f"{percent(row.gap.value, signed=True)} points {interval(row.gap, signed=True)}"
    return f"Change of the gap by {row.name}: {figures}".strip()


def _cost(multiple: float | None) -> str:
    """``1.0``, ``27``, as a multiple of plain zero-shot."""
    if multiple is None:
        return "n/a"
    return f"{multiple:.1f}" if multiple < 9.95 else f"{multiple:.0f}"
