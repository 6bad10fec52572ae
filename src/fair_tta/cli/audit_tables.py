"""An audit as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from fair_tta.auditing.document import AuditDocument, EstimateFields
from fair_tta.data.csv_rows import printable
from fair_tta.folders import FolderAudit
from fair_tta.folders.outputs import AUDIT, CARD, PREDICTIONS, PROBLEMS, REPORT, ROWS
from fair_tta.report.banners import NamedAudit
from fair_tta.report.first_screen import screen_of_many
from fair_tta.report.method_rows import cost_sentence
from fair_tta.report.numbers import SPACE, group_name
from fair_tta.report.terminal import Fitted, columns

SHOWN_METRICS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "worst_group_accuracy": "worst group",
    "bias": "gap",
    "equalized_odds_difference": "EOD",
}
LEGEND = (
    "Worst group: of class and attribute; balanced accuracy: the mean of all groups; gap: accuracy "
    "minus worst group; EOD: equalized-odds difference."
)


def print_audit(result: FolderAudit) -> None:
    """The figures of each run with intervals, differences, and what was left out."""
    document, console = result.audit.document, Console()
    print_verdict(console, [("", document)], result.audit.warnings)
    level = f"{document.settings.level:.0%} intervals in brackets; percent"
    title = f"{document.data.n} pictures; {level}"
    console.print(_table(title, {run.name: run.metrics.by_name() for run in document.runs}, ""))
    if document.comparisons:
        title = f"Difference from {document.comparisons[0].reference}, paired"
        changes = {c.run: c.told.by_name() for c in document.comparisons}
        console.print(_table(title, changes, "+"))
    console.print(Text(LEGEND))
    cost = cost_sentence(document)
    if cost:
        console.print(Text(printable(cost)))
    console.print()
    for name in document.data.harmful:
        console.print(harm_table(document, name))
    if any(run.perceived for run in document.runs):
        console.print(_perceived(document))
    for run in document.runs:
        worst = run.worst_group.target_and_sensitive
        if worst is not None:
            group = group_name(worst.sensitive, worst.target)
            console.print(Text(f"Worst group of {run.name}: {printable(group)}"))
    if result.problems:
        console.print(Text(f"{result.problems.headline()}:"))
        for line in result.problems.lines():
            console.print(Text(f"  {line}"))
    files = [AUDIT, REPORT, CARD, PREDICTIONS, ROWS, *([PROBLEMS] if result.problems else [])]
    console.print(Text(f"Written to {printable(str(result.out))}: {', '.join(files)}"))


def print_verdict(
    console: Console, tasks: Sequence[NamedAudit], warnings: Sequence[str] = ()
) -> None:
    """What is wrong, how sure, what to do, and banners: the first screen of the report."""
    screen = screen_of_many(tasks)
    said = [f"{card.heading}: {card.text} {card.more}".strip() for card in screen["cards"]]
    said += [f"Note: {text}" for text in dict.fromkeys([*screen["banners"], *warnings])]
    for text in said:
        console.print(Text(printable(text.replace(SPACE, " "))))
    console.print()


def _perceived(document: AuditDocument) -> Fitted:
    """EOD by the labels and by the model's beliefs, and how both change."""
    changes = {c.run: c.perceived or {} for c in document.comparisons}
    rows = []
    for run in document.runs:
        for attribute, odds in (run.perceived or {}).items():
            change = changes.get(run.name, {}).get(attribute)
            cells: list[tuple[EstimateFields | None, str]] = [
                (odds.eod, ""),
                (odds.pseudo_eod, ""),
                (change.eod if change else None, "+"),
                (change.pseudo_eod if change else None, "+"),
            ]
            name = f"{run.name}, {attribute}" if len(run.perceived or {}) > 1 else run.name
            texts = [Text("" if figure is None else figure_cell(figure, s)) for figure, s in cells]
            rows.append([Text(printable(name)), *texts])
    titles = ["method", "EOD by labels", "without labels", "its change", "without labels"]
    title = "EOD by labels, and by the model's own beliefs in their place (pseudo-EOD)"
    if document.compared:
        title += "; changes do not allow for the number of methods"
    return Fitted(columns(titles, rows), rows, title)


def _table(title: str, runs: Mapping[str, Mapping[str, EstimateFields]], sign: str) -> Fitted:
    rows = [
        [Text(printable(name)), *(Text(figure_cell(figures[m], sign)) for m in SHOWN_METRICS)]
        for name, figures in runs.items()
    ]
    return Fitted(columns(["method", *SHOWN_METRICS.values()], rows), rows, title)


def harm_table(document: AuditDocument, classes: str) -> Fitted:
    """How often answers fall into a set of classes: a row for each group, a column for each run."""
    every = [[harm for harm in run.harm if harm.classes == classes] for run in document.runs]
    rows = [
        [
            Text(printable(" / ".join(group[0].sensitive.values()) or "everybody")),
            Text(str(group[0].rate.n)),
            *(Text(figure_cell(harm.rate, "")) for harm in group),
        ]
        for group in zip(*every, strict=True)
    ]
    titles = ["group", "n", *(printable(run.name) for run in document.runs)]
    named = ", ".join(document.data.harmful[classes])
    title = printable(f"Answers in the set {classes} ({named}), percent of each group")
    return Fitted(columns(titles, rows), rows, title)


def figure_cell(figure: EstimateFields, sign: str) -> str:
    """Percent with its interval."""
    if figure.value is None:
        return f"not defined ({figure.reason})"
    text = f"{100 * figure.value:{sign}.1f}"
    if figure.low is None or figure.high is None:
        return text
    return f"{text}\n[{100 * figure.low:{sign}.1f}, {100 * figure.high:{sign}.1f}]"
