"""The first screen of one audit or of several: cards, banners, a dot plot, a row per method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._examine import MOST_ENTROPY
from fair_tta.lab.report import _verdict as verdict
from fair_tta.lab.report._drawings import Chart, Dot, ReferenceLine, difference_dots, dot_plot
from fair_tta.lab.report._numbers import group_name, interval, of_hundred, points, whole_percent
from fair_tta.lab.report._sentences import MANY_CHANGED, of_clusters
from fair_tta.lab.report._verdict import MethodOnTasks, MethodRow, NamedAudit

MOST_DOTS = 14  # more groups are not drawn; the worst are

MOST_METHODS = 12  # more methods on several tasks are not listed; the best are

NEAR_CHANCE = 0.1
"""Of the way from chance to certain: a median confidence below is called near chance."""


def first_screen(document: AuditDocument) -> dict[str, Any]:
    """What the template needs."""
    run, rows = document.runs[0], verdict.method_rows(document)
    cells, usual = verdict.cells_of(run), verdict.commonest(run)
    level = 100 * document.settings.level
    below = f". {len(cells) - MOST_DOTS} more groups are below" if len(cells) > MOST_DOTS else ""
    dashed = f"; dashed: always answering {usual[0]}" if usual else ""
    together = " Intervals and marks allow for all comparisons made." if document.compared else ""
    return {
        "cards": verdict.audit_cards(document),
        "banners": banners([("", document)]),
        "dots": _groups(document, cells),
        "dots_heading": "Right answers by class and group",
        "dots_caption": f"{run.name}, percent, with {level:g} % intervals; the worst first. "
        f"Hollow: fewer than {document.settings.small} images. "
        f"Line: all images{dashed}{below}.",
        "is_one": True,
        "methods": _with_charts([(row, [row]) for row in rows]),
        "methods_caption": f"Against {run.name} on the same images, in points. Gap: accuracy "
        f"minus that of the worst group; left is better.{together} Cost: times plain zero-shot.",
    }


def screen_of_many(tasks: Sequence[NamedAudit]) -> dict[str, Any]:
    """The same over several tasks; of a single one its own."""
    if len(tasks) == 1:
        return first_screen(tasks[0][1])
    tasks = verdict.by_gap(tasks)
    if not tasks:
        return {"cards": [verdict.NOTHING_MEASURED], "banners": [], "dots": None, "methods": []}
    methods, level = verdict.methods_on(tasks), 100 * tasks[0][1].settings.level
    left = len(methods) - MOST_METHODS
    more = f" {left} more methods are below." if left > 0 else ""
    reference = tasks[0][1].runs[0].name
    together = ", and intervals allow for all methods" * any(d.compared for _, d in tasks)
    return {
        "cards": verdict.cards_of_many(tasks),
        "banners": banners(tasks),
        "dots": _tasks(tasks),
        "dots_heading": "Right answers on each task",
        "dots_caption": f"{reference}, percent, with {level:g} % intervals: of all images, and "
        "of the worst group of class and attribute. The largest gap first.",
        "is_one": False,
        "methods": _with_charts([(method, method.rows) for method in methods])[:MOST_METHODS],
        "methods_caption": f"Against {reference} on the same images. Gap: the change of accuracy "
        "minus that of the worst group, a line for each task with its number on the left; left of "
        f"the upright is better{together}. Harm: a wider gap, or less accuracy. Cost: times plain "
        f"zero-shot.{more}",
    }


def _with_charts(
    methods: Sequence[tuple[MethodRow | MethodOnTasks, Sequence[MethodRow | None]]],
) -> list[tuple[MethodRow | MethodOnTasks, Chart]]:
    """Each method with the change of the gap on each task, all drawn on the same scale."""
    gaps = [row.gap for _, rows in methods for row in rows if row is not None]
    most = max((abs(x) for gap in gaps for x in (gap.low, gap.high) if x is not None), default=1.0)
    found = []
    for method, rows in methods:
        changes = [(None, "") if row is None else (row.gap, row.gap_tone) for row in rows]
        figures = ["not run" if gap is None else points(gap, signed=True) for gap, _ in changes]
        alt = f"Change of the gap by {method.name}: {'; '.join(figures)}"
        found.append((method, difference_dots(changes, most, alt)))
    return found


def banners(tasks: Sequence[NamedAudit]) -> list[str]:
    """What must not be overlooked, a sentence for each kind; of several tasks with their names."""
    several, found = len(tasks) > 1, dict[str, list[str]]()
    for name, document in tasks:
        for head, detail in _banners(document):
            found.setdefault(head, []).append(f"{name}: {detail}" if several else detail)
    sentences = [f"{head}: {'; '.join(details)}." for head, details in found.items()]
    if not several:
        warnings = tasks[0][1].warnings
        sentences += [text for text in warnings if not text.startswith("Fewer than ")]
        sentences += filter(None, [of_clusters(tasks[0][1])])
    counts = [document.compared for _, document in tasks]
    n, here = max(counts), max(len(document.comparisons) for _, document in tasks)
    if n:
        up_to = "Up to " if min(counts) < n else ""
        where = " on each task" if several else f", {here} of them here" if here < n else ""
        single = "single groups"
        if any(document.data.harmful for _, document in tasks):
            single += " and sets of classes"
        sentences.append(
            f"{up_to}{n} methods were compared{where}: intervals and marks of metrics allow for "
            f"that (Holm), those of {single} do not."
        )
    return sentences


def _banners(document: AuditDocument) -> Iterator[tuple[str, str]]:
    """For each banner the sentence that tasks share, and what is special to this one."""
    run = document.runs[0]
    eod = run.metrics.equalized_odds_difference
    odds = "not defined" if eod.value is None else points(eod)
    if verdict.gap_exists(run) and not eod.low:
        head = "The gap may lie between classes, as no difference between groups is shown"
        yield head, f"equalized-odds difference (EOD) {odds}"
    if not verdict.gap_exists(run) and eod.low:
        head = "A difference between groups is shown, though no gap is"
        yield head, f"equalized-odds difference (EOD) {odds}"
    accuracy, usual = run.metrics.accuracy, verdict.commonest(run)
    if usual is not None and accuracy.low is not None and accuracy.low <= usual[1]:
        head = f"{run.name} is not shown to be better than always giving the commonest answer"
        yield head, f"{usual[0]!r} is right in {of_hundred(usual[1])}"
    median, chance = run.median_confidence, 1 / len(document.data.targets)
    if median is not None and median < chance + NEAR_CHANCE * (1 - chance):
        head = f"{run.name} is hardly sure of any answer"
        yield head, f"median confidence {whole_percent(median)}, by chance {whole_percent(chance)}"
    before = run.sensitive_indifference
    if run.zero_shot_scores is not None:
        before = run.zero_shot_scores.sensitive_indifference
    for attribute, entropy in before.items():
        if entropy.value is not None and entropy.value > MOST_ENTROPY:
            yield "The model does not perceive this, so every correction by it is noise", attribute
    for row in verdict.method_rows(document):
        if row.changed > MANY_CHANGED:
            head = f"More than {whole_percent(MANY_CHANGED)} of the answers change"
            yield head, f"{row.name} {whole_percent(row.changed)}"
    for name in document.data.harmful:
        shares = sorted(
            (-harm.rate.value, f"of {group_name(harm.sensitive)} {interval(harm.rate)}".rstrip())
            for harm in run.harm
            if harm.classes == name and harm.sensitive and harm.rate.value is not None
        )
        if shares:
            ends = shares if len(shares) < 2 else [shares[0], shares[-1]]
            rates = " and ".join(f"in {whole_percent(-share)} {group}" for share, group in ends)
            yield f"{run.name} answers with a class of the set {name!r}", rates
    cells = verdict.cells_of(run)
    small = sum(cell.n < document.settings.small for cell in cells)
    if small:
        head = (
            f"Groups with fewer than {document.settings.small} images, whose figures are uncertain"
        )
        yield head, f"{small} of {len(cells)}"


def _groups(document: AuditDocument, cells: Sequence[verdict.CellOfGroup]) -> Chart:
    run = document.runs[0]
    dots = [
        Dot(
            f"{cell.name} (n = {cell.n})",
            cell.figure,
            "bad" if place == 0 and verdict.is_worse(run, cell) else "",
            cell.n < document.settings.small,
        )
        for place, cell in enumerate(cells[:MOST_DOTS])
    ]
    lines = []
    if run.metrics.accuracy.value is not None:
        lines.append(ReferenceLine(run.metrics.accuracy.value, "all images", "all"))
    usual = verdict.commonest(run)
    if usual is not None:
        lines.append(ReferenceLine(usual[1], f"always answering {usual[0]}", "dashed"))
    what = f"Right answers of {run.name} by class and group in percent, the worst first"
    return dot_plot(dots, what, reach=(0.0, 1.0), lines=lines)


def _tasks(tasks: Sequence[NamedAudit]) -> Chart:
    dots = []
    for place, (name, document) in enumerate(tasks[: MOST_DOTS // 2], start=1):
        run, worst = document.runs[0], verdict.cells_of(document.runs[0])[0]
        dots.append(Dot(f"{place}. {name}", run.metrics.accuracy))
        small = worst.n < document.settings.small
        lowest = run.metrics.worst_group_accuracy
        tone = "bad" if verdict.is_worse(run, worst) else ""
        dots.append(Dot(f"{worst.name} (n = {worst.n})", lowest, tone, small))
    return dot_plot(
        dots, "Right answers in percent, all and worst group of each task", reach=(0.0, 1.0)
    )
