"""An audit as tables for people."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fair_tta.folders import FolderAudit
from fair_tta.folders.result import AUDIT, CARD, PREDICTIONS, PROBLEMS, REPORT, ROWS
from fair_tta.folders.tally import shown

METRICS = {
    "accuracy": "accuracy",
    "worst_group_accuracy": "worst group (y, s)",
    "bias": "bias",
    "equalized_odds_difference": "EOD",
}


def print_audit(result: FolderAudit) -> None:
    """The figures of each run with intervals, differences, and what was left out."""
    document, console = result.audit.document, Console()
    level = f"{document['settings']['level']:.0%} intervals in brackets; percent"
    console.print(_table(f"{document['data']['n']} pictures; {level}", document["runs"], "metrics"))
    if document["comparisons"]:
        title = f"Difference from {document['comparisons'][0]['reference']}, paired"
        console.print(_table(title, document["comparisons"], "differences"))
    for run in document["runs"]:
        worst = run["worst_group"]["(y, s)"]
        if worst is not None:
            group = ", ".join([worst["target"], *worst["sensitive"].values()])
            console.print(Text(f"Worst group of {run['name']}: {shown(group)}"))
    for warning in result.audit.warnings:
        console.print(Text(f"Note: {shown(warning)}"))
    if result.problems:
        console.print(Text(f"{result.problems.headline()}:"))
        for line in result.problems.lines():
            console.print(Text(f"  {line}"))
    files = [AUDIT, REPORT, CARD, PREDICTIONS, ROWS, *([PROBLEMS] if result.problems else [])]
    console.print(Text(f"Written to {shown(str(result.out))}: {', '.join(files)}"))


def _table(title: str, runs: list[dict[str, Any]], part: str) -> Table:
    table = Table(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    table.add_column("method", overflow="fold", max_width=14)  # 80 columns in all
    for name in METRICS.values():
        table.add_column(name, justify="right", min_width=14)
    for run in runs:
        cells = [Text(_figure(run[part][metric], part == "differences")) for metric in METRICS]
        table.add_row(Text(shown(run["name" if part == "metrics" else "run"])), *cells)
    return table


def _figure(figure: dict[str, Any], signed: bool) -> str:
    """Percent with its interval."""
    plus = "+" if signed else ""
    if figure["value"] is None:
        return f"not defined ({figure['reason']})"
    text = f"{100 * figure['value']:{plus}.1f}"
    if figure["low"] is None:
        return text
    return f"{text}\n[{100 * figure['low']:{plus}.1f}, {100 * figure['high']:{plus}.1f}]"
