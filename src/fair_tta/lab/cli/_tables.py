"""Audits and examinations as tables in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._examination import Examination, ExaminationDocument, PerceivedAttribute
from fair_tta.auditing._judge import not_measurable
from fair_tta.lab._folder import AUDIT, CARD, PREDICTIONS, PROBLEMS, REPORT, FolderAudit
from fair_tta.lab._terminal import NarrowTable, show
from fair_tta.lab.report import _examination as sentences
from fair_tta.lab.report import _verdict as verdict
from fair_tta.lab.report._drawings import axis, short
from fair_tta.lab.report._first_screen import SAID_FIRST, Figure, banners, figure_of
from fair_tta.lab.report._method_rows import NamedAudit, cost_sentence
from fair_tta.lab.report._numbers import ARROW, MINUS, NONE, SPACE, images
from fair_tta.lab.runs._store import ROWS
from fair_tta.metrics._estimates import Estimate

SHOWN_METRICS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "worst_group_accuracy": "worst group",
    "typical_gap": "typical gap",
    "equalized_odds_difference": "EOD",
}
LEGEND = (
    "Worst group: of class and attribute; balanced accuracy: the mean of all groups; typical gap: "
    "by how much two groups of a class typically differ; EOD: equalized-odds difference."
)

_SIGNS = "\N{MULTIPLICATION SIGN}\N{WHITE CIRCLE}\N{BLACK CIRCLE}\N{HORIZONTAL ELLIPSIS}"
_PLAIN = str.maketrans(dict(zip(SPACE + MINUS + _SIGNS, " -xo*~", strict=True)) | {ARROW: "->"})
"""Signs of reports as characters that every terminal has."""


def print_audit(result: FolderAudit) -> None:
    """The figures of each run with intervals, differences, and what was left out."""
    document = result.audit.document
    for sentence in not_measurable(document):
        show(sentence, "bold")
    show(verdict.audit_title(document), "bold")
    others = [text for text in result.audit.warnings if not text.startswith(SAID_FIRST)]
    print_verdict([("", document)], others)
    level = f"{document.settings.level:.0%} intervals in brackets; percent"
    title = f"{document.data.n} images; {level}"
    show(_table(title, {run.name: run.metrics.by_name() for run in document.runs}, ""))
    if document.comparisons:
        title = f"Difference from {document.comparisons[0].reference}, paired"
        changes = {c.run: c.adjusted.by_name() for c in document.comparisons}
        show(_table(title, changes, "+"))
    show(LEGEND)
    every = [run.metrics.by_name() for run in document.runs]
    reasons = {
        f"{name} is not defined: {figures[metric].reason}."
        if figures[metric].value is None
        else f"{name} is withheld: {figures[metric].reason}."
        for figures in every
        for metric, name in SHOWN_METRICS.items()
        if figures[metric].is_withheld
    }
    for sentence in sorted(reasons):
        show(sentence)
    cost = cost_sentence(document)
    if cost:
        show(cost)
    show()
    for name in document.data.harmful:
        show(harm_table(document, name))
    if any(run.perceived for run in document.runs):
        show(_perceived(document))
    if result.problems:
        show(f"{result.problems.headline()}:")
        for line in result.problems.lines():
            show(f"  {line}")
    files = [AUDIT, f"{REPORT} {images_inside(result.embedded)}", CARD]
    if result.adapters:
        files += [PREDICTIONS, ROWS, *([PROBLEMS] if result.problems else [])]
    if result.out is not None:
        show(f"Written to {result.out}: {', '.join(files)}")


def images_inside(n: int) -> str:
    """How many images a page has inside."""
    return f"({images(n) if n else 'no images'} inside)"


def print_verdict(tasks: Sequence[NamedAudit], warnings: Sequence[str] = ()) -> None:
    """The first screen of the report: cards, banners, and the figure in plain characters."""
    known = verdict.by_gap(tasks)
    lines = [f"{card.heading}: {card.text} {card.more}".strip() for card in verdict.cards(known)]
    lines += [f"Note: {text}" for text in dict.fromkeys([*banners(tasks), *warnings])]
    figure = figure_of(known) if known else None
    if figure is not None:
        lines += ["", figure.heading.translate(_PLAIN), *_drawn(figure, Console().width)]
        lines += [f"{text}." for text in figure.sentences]
    for line in lines:
        show(line.translate(_PLAIN), bold="^What (is|was|helps|to)[^:]*:")
    show()


def _drawn(figure: Figure, width: int) -> list[str]:
    """A line for each name: o before, * after, and both as numbers."""
    rows = figure.rows
    most = min(30, max(cell_len(row.name) for row in rows))
    names = [f"{set_cell_size(short(row.name, most), most)} {row.n:>5}" for row in rows]
    numbers = max(len(row.text) for row in rows) + 1
    texts = [f" {row.text:>{numbers}}  {row.more}".translate(_PLAIN) for row in rows]
    wide = max(10, min(60, width - most - 9 - max(map(len, texts))))
    low, high, _ = axis([*figure.reach, *(x for row in rows for x in (row.before, row.after))])
    lines = []
    for row, name, text in zip(rows, names, texts, strict=True):
        o, x = (round((wide - 1) * (s - low) / (high - low)) for s in (row.before, row.after))
        track = ["-" if min(o, x) < i < max(o, x) else " " for i in range(wide)]
        track[o], track[x] = "o", "*"
        lines.append(f"{name} |{''.join(track)}|{text}")
    ends = f"{100 * low:g}", f"{100 * high:g}"
    return [*lines, f"{'':{most + 7}}{ends[0]:<{wide - len(ends[1]) + 2}}{ends[1]}"]


def _perceived(document: AuditDocument) -> NarrowTable:
    """EOD by the labels and by the model's beliefs, and how both change, at balanced accuracy."""
    changes = {c.run: c.perceived or {} for c in document.comparisons}
    rows = []
    for run in document.runs:
        for attribute, odds in (run.perceived or {}).items():
            change = changes.get(run.name, {}).get(attribute)
            cells: list[tuple[Estimate | None, str]] = [(odds.eod, ""), (odds.pseudo_eod, "")]
            cells += [(change.eod, "+"), (change.pseudo_eod, "+")] if change else [(None, "")] * 2
            name = f"{run.name}, {attribute}" if len(run.perceived or {}) > 1 else run.name
            texts = ["" if figure is None else figure_cell(figure, sign) for figure, sign in cells]
            balanced = run.metrics.by_name().get("balanced_accuracy")
            beside = NONE if balanced is None else figure_cell(balanced, "")
            rows.append([name, beside, *texts])
    titles = ["method", SHOWN_METRICS["balanced_accuracy"]]
    titles += ["EOD by labels", "without labels", "its change", "without labels"]
    title = "EOD by labels, and by the model's own beliefs in their place (pseudo-EOD)"
    if document.compared:
        title += "; changes do not allow for the number of methods"
    return NarrowTable(titles, rows, title)


def _table(title: str, runs: Mapping[str, Mapping[str, Estimate]], sign: str) -> NarrowTable:
    rows = [
        [name, *(figure_cell(figures[metric], sign) for metric in SHOWN_METRICS)]
        for name, figures in runs.items()
    ]
    return NarrowTable(["method", *SHOWN_METRICS.values()], rows, title)


def harm_table(document: AuditDocument, classes: str) -> NarrowTable:
    """How often answers fall into a set of classes: a row for each group, a column for each run."""
    every = [[harm for harm in run.harm if harm.classes == classes] for run in document.runs]
    rows = []
    for group in zip(*every, strict=True):
        name = " / ".join(group[0].sensitive.values()) or "everybody"
        rows.append([name, str(group[0].rate.n), *(figure_cell(h.rate, "") for h in group)])
    titles = ["group", "n", *(run.name for run in document.runs)]
    named = ", ".join(document.data.harmful[classes])
    title = f"Answers in the set {classes} ({named}), percent of each group"
    return NarrowTable(titles, rows, title)


def figure_cell(figure: Estimate, sign: str) -> str:
    """Percent with its interval."""
    if figure.is_withheld:
        return NONE
    text = f"{100 * (figure.value or 0.0):{sign}.1f}"
    if figure.low is None or figure.high is None:
        return text
    return f"{text}\n[{100 * figure.low:{sign}.1f}, {100 * figure.high:{sign}.1f}]"


_TONES = {"": "bold", "good": "bold green", "bad": "bold red"}
_CLASSES = 6  # that a table shows
_NOT_CORRECTED = (
    "Intervals and verdicts do not allow for the number of methods: of twenty that change nothing, "
    "one seems to."
)


def print_examination(examination: Examination) -> None:
    """What is perceived of each attribute, and what each method would change."""
    document = examination.document
    level = f"{document.settings.level:.0%} intervals in brackets"
    show(f"{document.n} images without labels; {level}; percent\n")
    for attribute, of in document.attributes.items():
        for card in sentences.cards(document, attribute):
            show(f"{card.heading}: {card.text}", _TONES[card.tone])
        show()
        show(_perceived_attribute(attribute, of))
        show(_sureness(of))
        show()
        show(_methods(attribute, of, document))
        if len(document.adapters) > 1:
            show(_NOT_CORRECTED)
        if document.adapters:
            show(_needed(attribute, document))
        for sentence in sentences.label_plan(document, attribute):
            show(sentence)
        show()
    if document.adapters:
        show(document.notice)
    for warning in sentences.banners(document):
        show(f"Note: {warning}")


def _perceived_attribute(attribute: str, of: PerceivedAttribute) -> NarrowTable:
    """Shares of values, and the classes that lean to them most."""
    first = next(iter(of.associations.values()))
    lean = {y: max(abs(row[y]) for row in of.associations.values()) for y in first}
    most = sorted(lean, key=lambda y: -lean[y])[:_CLASSES]
    shown = [y for y in first if y in most]
    rows = [
        [v, figure_cell(of.shares[v], ""), *(f"{row[y]:+.2f}" for y in shown)]
        for v, row in of.associations.items()
    ]
    titles = ["value", "perceived", *(f"towards {y}" for y in shown)]
    more = "" if len(shown) == len(first) else f", {len(shown)} of {len(first)} classes"
    title = f"{attribute}: shares perceived; prompt associations in logits{more}"
    return NarrowTable(titles, rows, title)


def _sureness(of: PerceivedAttribute) -> str:
    explained = "not defined" if of.r_squared is None else f"{100 * of.r_squared:.1f}"
    text = (
        f"The most probable value has {figure_cell(of.confidence, '')}; entropy (100 is "
        f"indifferent) {figure_cell(of.entropy, '')}; R^2 of the target's logits on what is "
        f"perceived {explained}."
    )
    return text.replace("\n", " ")


def _methods(attribute: str, of: PerceivedAttribute, document: ExaminationDocument) -> NarrowTable:
    """Methods in the order of the ranking, below zero-shot."""
    rows = [["zero-shot, as it is", figure_cell(of.pseudo_eod, ""), "", ""]]
    for adapter in sentences.ranked(document, attribute):
        odds = adapter.pseudo_eod[attribute]
        changed = f"{adapter.changed}: {figure_cell(adapter.changed_share, '')}"
        figures = [figure_cell(odds.after, ""), figure_cell(odds.change, "+"), changed]
        rows.append([adapter.name, *figures])
    titles = ["method", "pseudo-EOD", "change of it", "answers changed"]
    return NarrowTable(titles, rows, f"{attribute}: by the model's perception")


def _needed(attribute: str, document: ExaminationDocument) -> NarrowTable:
    """Images that would settle what is only perceived."""
    rows = []
    for adapter in sentences.ranked(document, attribute):
        plan = adapter.labels_needed
        numbers = plan.pictures, plan.labels, adapter.pseudo_eod[attribute].images_needed
        rows.append([adapter.name, *("none" if n is None else f"{n}" for n in numbers)])
    titles = ["method", "if they become right", "of which labelled", "this change, of one group"]
    title = f"{attribute}: images that would show it"
    return NarrowTable(titles, rows, title)
