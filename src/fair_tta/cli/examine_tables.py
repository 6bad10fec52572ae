"""An examination as tables for people."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from fair_tta.auditing.examination import Examination
from fair_tta.auditing.examination_document import ExaminationDocument, PerceivedAttribute
from fair_tta.cli.audit_tables import figure_cell
from fair_tta.data.problems import printable
from fair_tta.report.terminal import Fitted, columns

_CLASSES = 6  # that a table shows


def print_examination(examination: Examination) -> None:
    """What is perceived of each attribute, stop signs, and what each method would change."""
    document, console = examination.document, Console()
    level = f"{document.settings.level:.0%} intervals in brackets"
    console.print(Text(f"{document.n} pictures without labels; {level}; percent\n"))
    for attribute, of in document.attributes.items():
        console.print(_perceived(attribute, of))
        console.print(Text(_sureness(of)))
        for sign in of.stop_signs:
            console.print(Text(f"STOP: {printable(sign)}", style="bold red"))
        console.print(Text())
        console.print(_methods(attribute, of, document))
    if document.adapters:
        console.print(Text(document.notice))
    for warning in document.warnings:
        console.print(Text(f"Note: {printable(warning)}"))


def _perceived(attribute: str, of: PerceivedAttribute) -> Fitted:
    """Shares of values, and the classes that lean to them most."""
    first = next(iter(of.associations.values()))
    lean = {y: max(abs(row[y]) for row in of.associations.values()) for y in first}
    most = sorted(lean, key=lambda y: -lean[y])[:_CLASSES]
    shown = [y for y in first if y in most]
    rows = [
        [
            Text(printable(value)),
            Text(figure_cell(share, "")),
            *(Text(f"{of.associations[value][y]:+.2f}") for y in shown),
        ]
        for value, share in of.shares.items()
    ]
    titles = ["value", "perceived", *(f"towards {printable(y)}" for y in shown)]
    more = "" if len(shown) == len(first) else f", {len(shown)} of {len(first)} classes"
    return Fitted(
        columns(titles, rows),
        rows,
        f"{printable(attribute)}: shares perceived; prompt associations in logits{more}",
    )


def _sureness(of: PerceivedAttribute) -> str:
    explained = "not defined" if of.r_squared is None else f"{100 * of.r_squared:.1f}"
    text = (
        f"The most probable value has {figure_cell(of.confidence, '')}; entropy (100 is "
        f"indifferent) {figure_cell(of.entropy, '')}; R^2 of the target's logits on what is "
        f"perceived {explained}."
    )
    return text.replace("\n", " ")


def _methods(attribute: str, of: PerceivedAttribute, document: ExaminationDocument) -> Fitted:
    """Methods in the order of the ranking, below zero-shot."""
    by_name = {adapter.name: adapter for adapter in document.adapters}
    rows = [[Text("zero-shot, as it is"), Text(figure_cell(of.pseudo_eod, "")), Text(), Text()]]
    for name in document.ranking[attribute]:
        adapter = by_name[name]
        odds = adapter.pseudo_eod[attribute]
        rows.append(
            [
                Text(printable(name)),
                Text(figure_cell(odds.after, "")),
                Text(figure_cell(odds.change, "+")),
                Text(f"{adapter.changed}: {figure_cell(adapter.changed_share, '')}"),
            ]
        )
    titles = ["method", "pseudo-EOD", "change of it", "answers changed"]
    return Fitted(columns(titles, rows), rows, f"{printable(attribute)}: by the model's perception")
