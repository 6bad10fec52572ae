"""An examination as tables for people."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from fair_tta.auditing.examination import Examination
from fair_tta.auditing.examination_document import ExaminationDocument, PerceivedAttribute
from fair_tta.cli.audit_tables import figure_cell
from fair_tta.data.csv_rows import printable
from fair_tta.report import examination_sentences as sentences
from fair_tta.report.terminal import Fitted, columns

_TONES = {"": "bold", "good": "bold green", "bad": "bold red"}
_CLASSES = 6  # that a table shows
_NOT_CORRECTED = (
    "Intervals, and what is said by them, do not allow for the number of methods: of twenty that "
    "change nothing, one seems to."
)


def print_examination(examination: Examination) -> None:
    """What is perceived of each attribute, stop signs, and what each method would change."""
    document, console = examination.document, Console()
    level = f"{document.settings.level:.0%} intervals in brackets"
    console.print(Text(f"{document.n} pictures without labels; {level}; percent\n"))
    for attribute, of in document.attributes.items():
        for card in sentences.cards(document, attribute):
            console.print(Text(f"{card.heading}: {printable(card.text)}", style=_TONES[card.tone]))
        console.print(Text())
        console.print(_perceived_attribute(attribute, of))
        console.print(Text(_sureness(of)))
        for sign in of.stop_signs:
            console.print(Text(f"STOP: {printable(sign)}", style="bold red"))
        console.print(Text())
        console.print(_methods(attribute, of, document))
        if len(document.adapters) > 1:
            console.print(Text(_NOT_CORRECTED))
        if document.adapters:
            console.print(_needed(attribute, document))
        for sentence in sentences.label_plan(document, attribute):
            console.print(Text(printable(sentence)))
        console.print(Text())
    if document.adapters:
        console.print(Text(document.notice))
    for warning in sentences.banners(document):
        console.print(Text(f"Note: {printable(warning)}"))


def _perceived_attribute(attribute: str, of: PerceivedAttribute) -> Fitted:
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
    rows = [[Text("zero-shot, as it is"), Text(figure_cell(of.pseudo_eod, "")), Text(), Text()]]
    for adapter in sentences.ranked(document, attribute):
        odds = adapter.pseudo_eod[attribute]
        rows.append(
            [
                Text(printable(adapter.name)),
                Text(figure_cell(odds.after, "")),
                Text(figure_cell(odds.change, "+")),
                Text(f"{adapter.changed}: {figure_cell(adapter.changed_share, '')}"),
            ]
        )
    titles = ["method", "pseudo-EOD", "change of it", "answers changed"]
    return Fitted(columns(titles, rows), rows, f"{printable(attribute)}: by the model's perception")


def _needed(attribute: str, document: ExaminationDocument) -> Fitted:
    """Pictures that would settle what is only perceived."""
    rows = []
    for adapter in sentences.ranked(document, attribute):
        plan = adapter.labels_needed
        numbers = plan.pictures, plan.labels, adapter.pseudo_eod[attribute].images_needed
        shown = [Text("none" if number is None else f"{number}") for number in numbers]
        rows.append([Text(printable(adapter.name)), *shown])
    titles = ["method", "if they become right", "of which labelled", "this change, of one group"]
    title = f"{printable(attribute)}: pictures that would tell"
    return Fitted(columns(titles, rows), rows, title)
