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
from fair_tta.lab._folder import (
    AUDIT_FILE,
    CARD_FILE,
    PREDICTIONS_FILE,
    PROBLEMS_FILE,
    REPORT_FILE,
    FolderAudit,
)
from fair_tta.lab._terminal import make_table, print_rich_table, print_text
from fair_tta.lab.report import _examination_text as examination_text
from fair_tta.lab.report import _legends as legends
from fair_tta.lab.report._drawings import axis, short
from fair_tta.lab.report._first_screen import Chart, FirstScreen, first_screen
from fair_tta.lab.report._method_rows import NamedAudit
from fair_tta.lab.report._method_sentences import cost_sentence
from fair_tta.lab.report._numbers import (
    ARROW,
    MINUS,
    NO_BREAK_SPACE,
    figure_text,
    group_name,
    image_count,
)
from fair_tta.lab.report._verdict import audit_title
from fair_tta.lab.runs._store import ROWS_FILE
from fair_tta.metrics._estimates import Estimate

SHOWN_METRICS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "worst_group_accuracy": "worst group",
    "typical_gap": "typical gap",
    "equalized_odds_difference": "EOD",
}
"""Five fit into 80 columns, with names that are shorter than those of the page."""

# Signs of pages as characters that every terminal has
_PLAIN = str.maketrans(
    {
        NO_BREAK_SPACE: " ",
        MINUS: "-",
        ARROW: "->",
        "\N{MULTIPLICATION SIGN}": "x",
        "\N{WHITE CIRCLE}": "o",
        "\N{BLACK CIRCLE}": "*",
        "\N{HORIZONTAL ELLIPSIS}": "~",
    }
)

# Columns of a chart: a name, and the track between the lowest and the highest value
_MAX_NAME_WIDTH = 30
_MIN_TRACK_WIDTH = 10
_MAX_TRACK_WIDTH = 60

_CARD_HEADINGS = "^(What|How)( [a-z]+)+:"


def print_audit(result: FolderAudit) -> None:
    """Print the figures of each run with intervals, differences, and what was left out."""
    document = result.audit.document
    screen = first_screen([("", document)])
    for sentence in [*screen.cautions, audit_title(document)]:
        print_text(sentence, "bold")
    _print_screen(screen)

    figures = {run.name: run.metrics.by_name() for run in document.runs}
    n_images = image_count(document.data.n)
    title = f"{n_images}. {legends.percent_legend(document)}"
    print_rich_table(_metric_table(title, figures, signed=False))
    if document.comparisons:
        changes = {}
        for comparison in document.comparisons:
            changes[comparison.run] = comparison.adjusted.by_name()
        title = legends.difference_legend(document)
        print_rich_table(_metric_table(title, changes, signed=True))
    meanings = legends.metric_meanings(SHOWN_METRICS)
    for sentence in [
        *meanings,
        *_withheld_sentences(document),
        cost_sentence(document),
    ]:
        if sentence:
            print_text(sentence)
    print_text()

    for set_name in document.data.harmful:
        print_rich_table(_harm_table(document, set_name))
    if any(run.perceived for run in document.runs):
        print_rich_table(_pseudo_eod_table(document))
    if result.problems:
        print_text(f"{result.problems.headline()}:")
        for line in result.problems.lines():
            print_text(line, indent=2)
    if result.out is not None:
        files = [
            AUDIT_FILE,
            f"{REPORT_FILE} {embedded_images_text(result.embedded)}",
            CARD_FILE,
        ]
        # Answers that others made have no rows
        if result.adapters:
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
    return f"({image_count(n) if n else 'no images'} inside)"


def print_verdict(tasks: Sequence[NamedAudit]) -> None:
    """Print the first screen of the page: cards, banners, and the chart in plain characters."""
    _print_screen(first_screen(tasks))


def _print_screen(screen: FirstScreen) -> None:
    for card in screen.cards:
        _print_plain(f"{card.heading}: {card.text} {card.details}".strip())
    for text in screen.banners:
        _print_plain(f"Note: {text}")
    chart = screen.chart
    if chart is not None and chart.rows:
        print_text()
        _print_plain(chart.heading)
        for line in _chart_lines(chart, Console().width):
            print_text(line)
        for sentence in chart.sentences:
            _print_plain(f"{sentence}.")
    print_text()


def _print_plain(text: str, style: str = "") -> None:
    """Print a sentence of a page in characters that every terminal has."""
    print_text(text.translate(_PLAIN), style, bold=_CARD_HEADINGS)


def _chart_lines(chart: Chart, width: int) -> list[str]:
    """Return a line for each name: o before, * after, and both as numbers."""
    rows = chart.rows
    name_width = min(_MAX_NAME_WIDTH, max(cell_len(row.name) for row in rows))
    text_width = max(len(row.text) for row in rows)
    texts = []
    for row in rows:
        text = f"  {row.text:>{text_width}}  {row.details}"
        texts.append(text.translate(_PLAIN))

    # Between names and numbers there is a track, from the lowest to the highest value
    n_columns = width - name_width - len(" 12345 ||") - max(map(len, texts))
    n_columns = max(_MIN_TRACK_WIDTH, min(_MAX_TRACK_WIDTH, n_columns))
    values = [*chart.reach]
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
        name = short(row.name, name_width).translate(_PLAIN)
        name = set_cell_size(name, name_width)
        lines.append(f"{name} {row.n:>5} |{''.join(track)}|{text}")
    lowest = f"{100 * low:g}"
    highest = f"{100 * high:g}"
    indent = " " * (name_width + len(" 12345 "))
    lines.append(f"{indent}{lowest:<{n_columns - len(highest) + 2}}{highest}")
    return lines


def _metric_table(
    title: str, runs: Mapping[str, Mapping[str, Estimate]], signed: bool
) -> Group:
    """Return a row for each run, a column for each metric."""
    rows = []
    for name, figures in runs.items():
        row = [name]
        for metric in SHOWN_METRICS:
            row.append(_figure_cell(figures[metric], signed))
        rows.append(row)
    return make_table(title, ["method", *SHOWN_METRICS.values()], rows)


def _harm_table(document: AuditDocument, set_name: str) -> Group:
    """Return how often answers fall into a set of classes: rows of each group for each run."""
    rows = []
    for run in document.runs:
        for harm in run.harm:
            if harm.classes == set_name:
                group = group_name(harm.sensitive)
                rate = _figure_cell(harm.rate)
                rows.append([run.name, group, str(harm.rate.n), rate])
    title = legends.harm_title(document, set_name)
    return make_table(title, ["method", "group", "n", "rate"], rows, words=(0, 1))


def _pseudo_eod_table(document: AuditDocument) -> Group:
    """Return EOD by labels and by the model's beliefs, and how both change."""
    rows = []
    for run in document.runs:
        perceived = run.perceived or {}
        comparison = legends.comparison_of(document, run.name)
        changes = (comparison.perceived if comparison else None) or {}
        balanced = _figure_cell(run.metrics.balanced_accuracy)
        for attribute, odds in perceived.items():
            name = f"{run.name}, {attribute}" if len(perceived) > 1 else run.name
            row = [
                name,
                balanced,
                _figure_cell(odds.eod),
                _figure_cell(odds.pseudo_eod),
            ]
            change = changes.get(attribute)
            if change is None:
                row += ["", ""]
            else:
                row.append(_figure_cell(change.eod, signed=True))
                row.append(_figure_cell(change.pseudo_eod, signed=True))
            rows.append(row)
    header = ["method", SHOWN_METRICS["balanced_accuracy"]]
    header += ["EOD by labels", "without labels", "its change", "without labels"]
    return make_table(legends.pseudo_eod_title(document), header, rows)


def _figure_cell(figure: Estimate | None, signed: bool = False) -> str:
    """Return a figure as pages have it, in plain characters; nothing if there is none."""
    return "" if figure is None else figure_text(figure, signed).translate(_PLAIN)


# Styles of rich for the tones of cards
_TONES = {"": "bold", "good": "bold green", "bad": "bold red"}

# As many classes as have room in 80 columns
_MAX_CLASSES = 6


def print_examination(examination: Examination) -> None:
    """Print what is perceived of each attribute, and what each method would change."""
    document = examination.document
    level = f"{100 * document.settings.level:g}% intervals in brackets"
    print_text(f"{document.n} images without labels; {level}; percent\n")
    for attribute, perceived in document.attributes.items():
        for card in examination_text.examination_cards(document, attribute):
            _print_plain(f"{card.heading}: {card.text}", _TONES[card.tone])
        print_text()
        print_rich_table(_association_table(attribute, perceived))
        _print_plain(examination_text.certainty_sentence(attribute, perceived))
        print_text()
        print_rich_table(_change_table(attribute, perceived, document))
        if len(document.adapters) > 1:
            print_text(legends.METHODS_NOT_CORRECTED)
        if document.adapters:
            print_rich_table(_label_plan_table(attribute, document))
        for sentence in examination_text.label_plan(document, attribute):
            print_text(sentence)
        print_text()
    if document.adapters:
        print_text(document.notice)
    for warning in examination_text.examination_banners(document):
        _print_plain(f"Note: {warning}")


def _association_table(attribute: str, perceived: PerceivedAttribute) -> Group:
    """Return shares of values, and the classes that lean to them most."""
    associations = perceived.associations
    strengths: dict[str, float] = {}
    for logits in associations.values():
        for target, logit in logits.items():
            strengths[target] = max(strengths.get(target, 0.0), abs(logit))
    strongest = sorted(strengths, key=strengths.__getitem__, reverse=True)
    columns = [target for target in strengths if target in strongest[:_MAX_CLASSES]]
    rows = []
    for value, logits in associations.items():
        row = [value, _figure_cell(perceived.shares[value])]
        rows.append(row + [f"{logits[target]:+.2f}" for target in columns])
    title = f"{attribute}: shares perceived; prompt associations in logits"
    if len(columns) < len(strengths):
        title += f", {len(columns)} of {len(strengths)} classes"
    header = ["value", "perceived", *(f"towards {target}" for target in columns)]
    return make_table(title, header, rows)


def _change_table(
    attribute: str, perceived: PerceivedAttribute, document: ExaminationDocument
) -> Group:
    """Return methods in the order of the ranking, below zero-shot."""
    rows = [[examination_text.ZERO_SHOT, _figure_cell(perceived.pseudo_eod), "", ""]]
    for adapter in examination_text.ranked_adapters(document, attribute):
        odds = adapter.pseudo_eod[attribute]
        row = [
            adapter.name,
            _figure_cell(odds.after),
            _figure_cell(odds.change, signed=True),
            f"{adapter.changed}: {_figure_cell(adapter.changed_share)}",
        ]
        rows.append(row)
    header = ["method", "pseudo-EOD", "change of it", "answers changed"]
    return make_table(f"{attribute}: by the model's perception", header, rows)


def _label_plan_table(attribute: str, document: ExaminationDocument) -> Group:
    """Return how many images would settle what is only perceived."""
    rows = []
    for adapter in examination_text.ranked_adapters(document, attribute):
        plan = adapter.labels_needed
        images_needed = adapter.pseudo_eod[attribute].images_needed
        row = [adapter.name]
        for n in (plan.pictures, plan.labels, images_needed):
            row.append("none" if n is None else str(n))
        rows.append(row)
    header = [
        "method",
        "if they become right",
        "of which labelled",
        "this change, of one group",
    ]
    return make_table(f"{attribute}: images that would show it", header, rows)
