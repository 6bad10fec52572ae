"""Audits and examinations as tables in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group

from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._examination import (
    Examination,
    ExaminationDocument,
    PerceivedAttribute,
)
from fair_tta.auditing._judge import label_cautions
from fair_tta.lab._folder import (
    AUDIT_FILE,
    CARD_FILE,
    PREDICTIONS_FILE,
    PROBLEMS_FILE,
    REPORT_FILE,
    FolderAudit,
)
from fair_tta.lab._terminal import make_table, print_table, print_text
from fair_tta.lab.report import _examination as sentences
from fair_tta.lab.report import _verdict as verdict
from fair_tta.lab.report._drawings import axis, short
from fair_tta.lab.report._first_screen import SAID_FIRST, Figure, banners, figure_of
from fair_tta.lab.report._method_rows import NamedAudit, cost_sentence
from fair_tta.lab.report._numbers import ARROW, MINUS, NONE, SPACE, figure_text, images
from fair_tta.lab.runs._store import ROWS_FILE
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

_REPORT_SIGNS = (
    "\N{MULTIPLICATION SIGN}\N{WHITE CIRCLE}\N{BLACK CIRCLE}\N{HORIZONTAL ELLIPSIS}"
)
_PLAIN = str.maketrans(
    dict(zip(SPACE + MINUS + _REPORT_SIGNS, " -xo*~", strict=True)) | {ARROW: "->"}
)
"""Signs of reports as characters that every terminal has."""

_LONGEST_NAME = 30  # cells of a name beside a track
_SHORTEST_TRACK = 10  # of a figure in a narrow terminal
_LONGEST_TRACK = 60  # wider ones are not read better


def print_audit(result: FolderAudit) -> None:
    """Print the figures of each run with intervals, differences, and what was left out."""
    document = result.audit.document
    for sentence in label_cautions(document):
        print_text(sentence, "bold")
    print_text(verdict.audit_title(document), "bold")
    warnings = [
        text for text in result.audit.warnings if not text.startswith(SAID_FIRST)
    ]
    print_verdict([("", document)], warnings)

    level = f"{document.settings.level:.0%} intervals in brackets; percent"
    figures = {run.name: run.metrics.by_name() for run in document.runs}
    print_table(
        _metric_table(f"{document.data.n} images; {level}", figures, signed=False)
    )
    if document.comparisons:
        title = f"Difference from {document.comparisons[0].reference}, paired"
        changes = {each.run: each.adjusted.by_name() for each in document.comparisons}
        print_table(_metric_table(title, changes, signed=True))
    print_text(LEGEND)
    for sentence in _withheld_sentences(document):
        print_text(sentence)
    cost = cost_sentence(document)
    if cost:
        print_text(cost)
    print_text()

    for name in document.data.harmful:
        print_table(harm_table(document, name))
    if any(run.perceived for run in document.runs):
        print_table(_pseudo_eod_table(document))
    if result.problems:
        print_text(f"{result.problems.headline()}:")
        for line in result.problems.lines():
            print_text(f"  {line}")
    if result.out is not None:
        files = [
            AUDIT_FILE,
            f"{REPORT_FILE} {embedded_images_text(result.embedded)}",
            CARD_FILE,
        ]
        if result.adapters:  # predictions of others have no rows
            files += [PREDICTIONS_FILE, ROWS_FILE]
            if result.problems:
                files.append(PROBLEMS_FILE)
        print_text(f"Written to {result.out}: {', '.join(files)}")


def _withheld_sentences(document: AuditDocument) -> list[str]:
    """Return why figures are not in the tables, each reason once."""
    reasons = set()
    for run in document.runs:
        figures = run.metrics.by_name()
        for metric, name in SHOWN_METRICS.items():
            figure = figures[metric]
            if figure.is_withheld:
                state = "not defined" if figure.value is None else "withheld"
                reasons.add(f"{name} is {state}: {figure.reason}.")
    return sorted(reasons)


def embedded_images_text(n: int) -> str:
    """Return how many images a page has inside."""
    return f"({images(n) if n else 'no images'} inside)"


def print_verdict(tasks: Sequence[NamedAudit], warnings: Sequence[str] = ()) -> None:
    """Print the first screen of the report: cards, banners, and the figure in plain characters."""
    ranked = verdict.by_gap(tasks)
    lines = [
        f"{card.heading}: {card.text} {card.more}".strip()
        for card in verdict.cards(ranked)
    ]
    for text in dict.fromkeys([*banners(tasks), *warnings]):
        lines.append(f"Note: {text}")
    figure = figure_of(ranked) if ranked else None
    if figure is not None:
        lines += [
            "",
            figure.heading.translate(_PLAIN),
            *_chart_lines(figure, Console().width),
        ]
        lines += [f"{text}." for text in figure.sentences]
    for line in lines:
        print_text(line.translate(_PLAIN), bold="^What (is|was|helps|to)[^:]*:")
    print_text()


def _chart_lines(figure: Figure, width: int) -> list[str]:
    """Return a line for each name: o before, * after, and both as numbers."""
    rows = figure.rows
    name_width = min(_LONGEST_NAME, max(cell_len(row.name) for row in rows))
    text_width = max(len(row.text) for row in rows)
    texts = [
        f"  {row.text:>{text_width}}  {row.more}".translate(_PLAIN) for row in rows
    ]

    # Between names and numbers there is a track, from the lowest to the highest value
    n_columns = width - name_width - len(" 12345 ||") - max(map(len, texts))
    n_columns = max(_SHORTEST_TRACK, min(_LONGEST_TRACK, n_columns))
    values = [*figure.reach]
    for row in rows:
        values += [row.before, row.after]
    low, high, _ = axis(values)

    lines = []
    for row, text in zip(rows, texts, strict=True):
        before = round((n_columns - 1) * (row.before - low) / (high - low))
        after = round((n_columns - 1) * (row.after - low) / (high - low))
        track = [" "] * n_columns
        for column in range(min(before, after) + 1, max(before, after)):
            track[column] = "-"
        track[before] = "o"
        track[after] = "*"
        name = set_cell_size(short(row.name, name_width), name_width)
        lines.append(f"{name} {row.n:>5} |{''.join(track)}|{text}")
    left = f"{100 * low:g}"
    right = f"{100 * high:g}"
    indent = " " * (name_width + len(" 12345 "))
    lines.append(f"{indent}{left:<{n_columns - len(right) + 2}}{right}")
    return lines


def _pseudo_eod_table(document: AuditDocument) -> Group:
    """Return EOD by labels and by the model's beliefs, and how both change."""
    changes = {each.run: each.perceived or {} for each in document.comparisons}
    rows = []
    for run in document.runs:
        perceived = run.perceived or {}
        balanced = run.metrics.by_name().get("balanced_accuracy")
        for attribute, odds in perceived.items():
            row = [f"{run.name}, {attribute}" if len(perceived) > 1 else run.name]
            row.append(NONE if balanced is None else figure_cell(balanced))
            row += [figure_cell(odds.eod), figure_cell(odds.pseudo_eod)]
            change = changes.get(run.name, {}).get(attribute)
            if change is None:
                row += ["", ""]
            else:
                row += [
                    figure_cell(change.eod, signed=True),
                    figure_cell(change.pseudo_eod, signed=True),
                ]
            rows.append(row)
    header = ["method", SHOWN_METRICS["balanced_accuracy"]]
    header += ["EOD by labels", "without labels", "its change", "without labels"]
    title = "EOD by labels, and by the model's own beliefs in their place (pseudo-EOD)"
    if document.compared:
        title += "; changes do not allow for the number of methods"
    return make_table(title, header, rows)


def _metric_table(
    title: str, runs: Mapping[str, Mapping[str, Estimate]], signed: bool
) -> Group:
    """Return a row for each run, a column for each metric."""
    rows = []
    for name, figures in runs.items():
        rows.append(
            [name, *(figure_cell(figures[metric], signed) for metric in SHOWN_METRICS)]
        )
    return make_table(title, ["method", *SHOWN_METRICS.values()], rows)


def harm_table(document: AuditDocument, classes: str) -> Group:
    """Return how often answers fall into a set of classes: rows of each group for each run."""
    rows = []
    for run in document.runs:
        for harm in run.harm:
            if harm.classes == classes:
                group = " / ".join(harm.sensitive.values()) or "everybody"
                rows.append([run.name, group, str(harm.rate.n), figure_cell(harm.rate)])
    names = ", ".join(document.data.harmful[classes])
    title = f"Answers in the set {classes} ({names}), percent of each group"
    return make_table(title, ["method", "group", "n", "rate"], rows, words=(0, 1))


def figure_cell(figure: Estimate | None, signed: bool = False) -> str:
    """Return a figure as pages have it, in plain characters; nothing if there is none."""
    return "" if figure is None else figure_text(figure, signed).translate(_PLAIN)


_TONES = {"": "bold", "good": "bold green", "bad": "bold red"}
_SHOWN_CLASSES = 6  # as many as have room in 80 columns
_NOT_CORRECTED = (
    "Intervals and verdicts do not allow for the number of methods: of twenty that change nothing, "
    "one seems to."
)


def print_examination(examination: Examination) -> None:
    """Print what is perceived of each attribute, and what each method would change."""
    document = examination.document
    level = f"{document.settings.level:.0%} intervals in brackets"
    print_text(f"{document.n} images without labels; {level}; percent\n")
    for attribute, perceived in document.attributes.items():
        for card in sentences.cards(document, attribute):
            print_text(f"{card.heading}: {card.text}", _TONES[card.tone])
        print_text()
        print_table(_association_table(attribute, perceived))
        print_text(_confidence_sentence(perceived))
        print_text()
        print_table(_change_table(attribute, perceived, document))
        if len(document.adapters) > 1:
            print_text(_NOT_CORRECTED)
        if document.adapters:
            print_table(_label_plan_table(attribute, document))
        for sentence in sentences.label_plan(document, attribute):
            print_text(sentence)
        print_text()
    if document.adapters:
        print_text(document.notice)
    for warning in sentences.banners(document):
        print_text(f"Note: {warning}")


def _association_table(attribute: str, perceived: PerceivedAttribute) -> Group:
    """Return shares of values, and the classes that lean to them most."""
    associations = perceived.associations
    classes = list(next(iter(associations.values())))
    strengths = {y: max(abs(row[y]) for row in associations.values()) for y in classes}
    strongest = sorted(classes, key=lambda y: -strengths[y])[:_SHOWN_CLASSES]
    shown = [y for y in classes if y in strongest]
    rows = []
    for value, row in associations.items():
        share = figure_cell(perceived.shares[value])
        rows.append([value, share, *(f"{row[y]:+.2f}" for y in shown)])
    title = f"{attribute}: shares perceived; prompt associations in logits"
    if len(shown) < len(classes):
        title += f", {len(shown)} of {len(classes)} classes"
    return make_table(
        title, ["value", "perceived", *(f"towards {y}" for y in shown)], rows
    )


def _confidence_sentence(perceived: PerceivedAttribute) -> str:
    """Return how sure the model is of an attribute, and how much of its answers goes with it."""
    explained = "not defined"
    if perceived.r_squared is not None:
        explained = f"{100 * perceived.r_squared:.1f}"
    return (
        f"The most probable value has {figure_cell(perceived.confidence)}; entropy (100 is "
        f"indifferent) {figure_cell(perceived.entropy)}; R^2 of the target's logits on what is "
        f"perceived {explained}."
    )


def _change_table(
    attribute: str, perceived: PerceivedAttribute, document: ExaminationDocument
) -> Group:
    """Return methods in the order of the ranking, below zero-shot."""
    rows = [["zero-shot, as it is", figure_cell(perceived.pseudo_eod), "", ""]]
    for adapter in sentences.ranked(document, attribute):
        odds = adapter.pseudo_eod[attribute]
        changed = f"{adapter.changed}: {figure_cell(adapter.changed_share)}"
        after = figure_cell(odds.after)
        rows.append(
            [adapter.name, after, figure_cell(odds.change, signed=True), changed]
        )
    header = ["method", "pseudo-EOD", "change of it", "answers changed"]
    return make_table(f"{attribute}: by the model's perception", header, rows)


def _label_plan_table(attribute: str, document: ExaminationDocument) -> Group:
    """Return how many images would settle what is only perceived."""
    rows = []
    for adapter in sentences.ranked(document, attribute):
        row = [adapter.name]
        plan = adapter.labels_needed
        for n in (
            plan.pictures,
            plan.labels,
            adapter.pseudo_eod[attribute].images_needed,
        ):
            row.append("none" if n is None else str(n))
        rows.append(row)
    header = [
        "method",
        "if they become right",
        "of which labelled",
        "this change, of one group",
    ]
    return make_table(f"{attribute}: images that would show it", header, rows)
