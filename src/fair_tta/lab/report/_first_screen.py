"""The first screen of one audit or of several: cards, banners, a figure, a row per method."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._judge import images_of_small_groups, label_cautions
from fair_tta.lab.report import _verdict as verdict
from fair_tta.lab.report._drawings import BeforeAfter, Dot, before_and_after, dot_plot
from fair_tta.lab.report._method_rows import (
    MethodRow,
    NamedAudit,
    featured,
    method_rows,
    methods_on,
    typical_gap,
)
from fair_tta.lab.report._numbers import (
    ARROW,
    MINUS,
    count,
    group_name,
    interval,
    of_hundred,
    percent,
    points,
    shown,
    whole,
    whole_percent,
)
from fair_tta.lab.report._sentences import MANY_CHANGED, of_clusters

MOST_ROWS = 14  # of a figure; more groups are not drawn, the worst are

MOST_METHODS = 12  # more methods on several tasks are not listed; the best are

SAID_FIRST = ("Fewer than ", "No images, ")
"""How warnings begin that `not_measurable` give at greater length."""

NEAR_CHANCE = 0.1
"""Of the way from chance to certain: a median confidence below is called near chance."""


class Figure(NamedTuple):
    """Groups or tasks before and after a method, and sentences on some of them."""

    heading: str
    rows: list[BeforeAfter]
    caption: str
    sentences: list[str]
    reach: tuple[float, ...]


def first_screen(
    tasks: Sequence[NamedAudit], images: Mapping[str, str]
) -> dict[str, Any]:
    """What the template needs, of one audit or of several.

    `images` has links to the places on the page that show images of a group, by its name.
    """
    several, tasks = len(tasks) > 1, verdict.by_gap(tasks)
    if not tasks:
        return {
            "not_measurable": [],
            "cards": [verdict.NOTHING_MEASURED],
            "banners": [],
            "chart": None,
        }
    first, figure = tasks[0][1], figure_of(tasks)
    if several:
        methods: list[Any] = methods_on(tasks)
        caption = "In points, means over tasks."
    else:
        methods = method_rows(first)
        allow = " that allows for all comparisons" * bool(first.compared)
        caption = (
            f"In points; below the typical gap its change with an interval{allow}."
        )
    level = 100 * first.settings.level
    if figure:
        rows = [row._replace(link=images.get(row.name, "")) for row in figure.rows]
        heading, drawn = (
            figure.heading,
            before_and_after(rows, figure.heading, figure.reach),
        )
    else:
        heading, drawn = _dots(tasks, images)
    left = len(methods) - MOST_METHODS
    more = f" {left} more methods are below." if left > 0 else ""
    return {
        "not_measurable": [] if several else label_cautions(first),
        "cards": verdict.cards(tasks),
        "banners": banners(tasks),
        "chart": drawn,
        "heading": heading,
        "figure_caption": (
            figure.caption if figure else f"Intervals: {level:g} %, of each alone."
        )
        + " A click on a group shows its images." * bool(images),
        "sentences": figure.sentences if figure else [],
        "methods": methods[:MOST_METHODS],
        "caption": f"{caption} Cost: times plain zero-shot.{more}",
    }


def figure_of(tasks: Sequence[NamedAudit]) -> Figure | None:
    """Each group, or each of several tasks, before and after the method that cards speak of."""
    document = tasks[0][1]
    best = (
        featured(document) if len(tasks) == 1 else next(iter(methods_on(tasks)), None)
    )
    if best is None or shown(document.runs[0].metrics.accuracy) is None:
        return None
    method = f"before (○) and after (●) {best.name}"
    if isinstance(best, MethodRow):
        groups = verdict.changed_groups(document, best.comparison)
        more = (
            f" The worst {MOST_ROWS} of {len(groups)}."
            if len(groups) > MOST_ROWS
            else ""
        )
        caption = f"Right answers in percent; + became right, {MINUS} became wrong."
        return Figure(
            f"Each group {method}",
            [_group(group) for group in groups[:MOST_ROWS]],
            f"{caption} Coloured: its interval, which allows for all groups, excludes 0.{more}",
            verdict.group_sentences(groups),
            (),
        )
    rows = []
    for (name, _), row in zip(tasks, best.rows, strict=True):
        before = shown(row.before) if row else None
        after = shown(row.after) if row else None
        if row is None or before is None or after is None:
            continue
        more = f"at {row.balanced_values}"
        images = row.comparison.changes.n
        rows.append(
            BeforeAfter(name, images, before, after, row.values, more, row.tone)
        )
    caption = "In points, at balanced accuracy before and after. "
    caption += "Coloured: the verdict of the report."
    found = Figure(
        f"Typical gap of each task {method}", rows[:MOST_ROWS], caption, [], (0.0,)
    )
    return found if rows else None


def _group(group: verdict.ChangedGroup) -> BeforeAfter:
    changes, before, after = group.changes, group.before, group.after
    return BeforeAfter(
        group.name,
        changes.n,
        before,
        after,
        f"{whole(before)} {ARROW} {whole(after)}",
        f"+{count(changes.wrong_to_right)} / {MINUS}{count(changes.right_to_wrong)}",
        ("", "good", "bad")[group.direction],
    )


def _dots(tasks: Sequence[NamedAudit], images: Mapping[str, str]) -> tuple[str, str]:
    """What there is where nothing was compared: groups, or the typical gap of each task."""
    if len(tasks) > 1:
        heading = "Typical gap of each task in points, at balanced accuracy"
        dots = [
            Dot(f"{name}, at {balanced_of(document)}", typical_gap(document.runs[0]))
            for name, document in tasks
            if shown(typical_gap(document.runs[0])) is not None
        ]
        return heading, dot_plot(dots[:MOST_ROWS], heading)
    document, heading = tasks[0][1], "Right answers in percent, the worst first"
    dots = [
        Dot(
            f"{name} (n = {cell.n})",
            cell.true_positive_rate,
            hollow=cell.images < document.settings.small,
            link=images.get(name, ""),
        )
        for name, cell in verdict.cells_of(document.runs[0])[:MOST_ROWS]
        if not cell.true_positive_rate.is_withheld
    ]
    return heading, dot_plot(dots, heading, reach=(0.0, 1.0))


def balanced_of(document: AuditDocument) -> str:
    """Balanced accuracy of the first run, without which no gap is shown."""
    return percent(shown(document.runs[0].metrics.balanced_accuracy))


def banners(tasks: Sequence[NamedAudit]) -> list[str]:
    """What must not be overlooked, a sentence for each kind; of several tasks with their names."""
    several, found = len(tasks) > 1, dict[str, list[str]]()
    for name, document in tasks:
        for head, detail in _banners(document):
            found.setdefault(head, []).append(
                f"{name}: {detail}" if several else detail
            )
    sentences = [f"{head}: {'; '.join(details)}." for head, details in found.items()]
    warnings = (
        [] if several else [text for _, document in tasks for text in document.warnings]
    )
    return sentences + [text for text in warnings if not text.startswith(SAID_FIRST)]


def _banners(document: AuditDocument) -> Iterator[tuple[str, str]]:
    """For each banner the sentence that tasks share, and what is special to this one."""
    run = document.runs[0]
    gap = typical_gap(run)
    if run.metrics.bias.low and not gap.is_withheld and not gap.low:
        head = "The worst group may be a matter of its class: no gap between groups is shown"
        at = f"at balanced accuracy {balanced_of(document)}"
        yield head, f"typical gap {points(gap)} {at}"
    accuracy, usual = run.metrics.accuracy, verdict.commonest(run)
    if usual is not None and accuracy.low is not None and accuracy.low <= usual[1]:
        head = f"{run.name} is not shown to be better than always giving the commonest answer"
        yield head, f"{usual[0]!r} is right in {of_hundred(usual[1])}"
    median, chance = run.median_confidence, 1 / len(document.data.targets)
    if median is not None and median < chance + NEAR_CHANCE * (1 - chance):
        head = f"{run.name} is hardly sure of any answer"
        yield (
            head,
            f"median confidence {whole_percent(median)}, by chance {whole_percent(chance)}",
        )
    for row in method_rows(document):
        if row.changed > MANY_CHANGED:
            head = f"More than {whole_percent(MANY_CHANGED)} of the answers change"
            yield head, f"{row.name} {whole_percent(row.changed)}"
    for name in document.data.harmful:
        shares = sorted(
            (
                -harm.rate.value,
                f"of {group_name(harm.sensitive)} {interval(harm.rate)}".rstrip(),
            )
            for harm in run.harm
            if harm.classes == name and harm.sensitive and harm.rate.value is not None
        )
        if shares:
            ends = shares if len(shares) < 2 else [shares[0], shares[-1]]
            rates = " and ".join(
                f"in {whole_percent(-share)} {group}" for share, group in ends
            )
            yield f"{run.name} answers with a class of the set {name!r}", rates
    data = document.data
    if (
        data.clusters is not None and data.clusters != data.different_images
    ):  # a warning says it
        yield of_clusters(document), "intervals allow for that"
    cells = verdict.cells_of(run)
    small = len(images_of_small_groups(document))
    if small:
        few = f"Groups with fewer than {document.settings.small} images"
        yield f"{few}, whose figures are uncertain", f"{small} of {len(cells)}"
