"""What a reader must know before the figures, of one audit or of several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fair_tta.auditing.document import AuditDocument
from fair_tta.report.examination_sentences import MANY_CHANGED
from fair_tta.report.method_rows import method_rows
from fair_tta.report.numbers import group_name, interval, points
from fair_tta.report.verdict import cells_of, commonest, gap_exists, of_hundred, whole_percent

NEAR_CHANCE = 0.1
"""Of the way from chance to certain: a median confidence below is called near chance."""

NOT_PERCEIVED = 0.8
"""Mean normalised entropy of an attribute: above it is not perceived."""

NamedAudit = tuple[str, AuditDocument]
"""What a task is called, and its audit."""


def audit_banners(document: AuditDocument) -> list[str]:
    """The banners of one audit."""
    run = document.runs[0]
    usual, chance = _guessing(document), _near_chance(document)
    found = []
    eod = run.metrics.equalized_odds_difference
    odds = "not defined" if eod.value is None else points(eod)
    if _between_classes(document):
        found.append(
            "This gap may lie between classes: no difference between groups is shown "
            f"(equalized-odds difference, EOD: {odds})."
        )
    if _between_groups(document):
        found.append(
            f"But a difference between groups is shown: equalized-odds difference (EOD) {odds}."
        )
    if usual is not None:
        found.append(
            f"{run.name} is not shown to be better than always answering {usual[0]!r}, which is "
            f"right in {of_hundred(usual[1])}."
        )
    if chance is not None:
        found.append(
            f"{run.name} is hardly sure of any answer: median confidence {whole_percent(chance)}, "
            f"by chance {whole_percent(1 / len(document.data.targets))}."
        )
    found += [
        f"The model does not perceive {attribute}: do not correct by it, every correction is noise."
        for attribute in _not_perceived(document)
    ]
    found += [
        f"{name} changes {whole_percent(share)} of the answers."
        for name, share in _many_changed(document)
    ]
    found += [f"{text}." for text in _harm(document)]
    cells = cells_of(run)
    small = [cell for cell in cells if cell.n < document.settings.small]
    if small:
        found.append(
            f"{len(small)} of {len(cells)} groups have fewer than {document.settings.small} "
            "pictures."
        )
    found += [text for text in document.warnings if not text.startswith("Fewer than ")]
    n, here = document.compared, len(document.comparisons)
    if n:
        some = f", {here} of them here" if here < n else ""
        single = "single groups and sets of classes" if document.data.harmful else "single groups"
        found.append(
            f"{n} methods were compared{some}: intervals and marks of metrics allow for that "
            f"(Holm), those of {single} do not."
        )
    return found


def banners_of_many(tasks: Sequence[NamedAudit]) -> list[str]:
    """The banners of several audits, one sentence for each kind."""
    found = []
    classes = [name for name, document in tasks if _between_classes(document)]
    if classes:
        found.append(
            "The gap may lie between classes, as no difference between groups is shown (EOD): "
            f"{', '.join(classes)}."
        )
    groups = [name for name, document in tasks if _between_groups(document)]
    if groups:
        found.append(
            f"A difference between groups is shown (EOD), though no gap is: {', '.join(groups)}."
        )
    guessing = [
        f"{name} ({usual[0]!r} is right in {of_hundred(usual[1])})"
        for name, document in tasks
        if (usual := _guessing(document)) is not None
    ]
    if guessing:
        found.append(
            f"{tasks[0][1].runs[0].name} is not shown to be better than always giving the "
            f"commonest answer: {', '.join(guessing)}."
        )
    unsure = [
        f"{name} (median confidence {whole_percent(chance)}, by chance "
        f"{whole_percent(1 / len(document.data.targets))})"
        for name, document in tasks
        if (chance := _near_chance(document)) is not None
    ]
    if unsure:
        found.append(f"Hardly sure of any answer: {', '.join(unsure)}.")
    unseen = [
        f"{attribute} ({name})"
        for name, document in tasks
        for attribute in _not_perceived(document)
    ]
    if unseen:
        found.append(
            f"Not perceived by the model: {', '.join(unseen)}. Do not correct by what it does not "
            "perceive, every correction is noise."
        )
    changed: dict[str, list[str]] = {}
    for name, document in tasks:
        for method, share in _many_changed(document):
            changed.setdefault(method, []).append(f"{name} {whole_percent(share)}")
    if changed:
        listed = "; ".join(f"{method} ({', '.join(on)})" for method, on in changed.items())
        found.append(
            f"More than {whole_percent(MANY_CHANGED)} of the answers are changed by {listed}."
        )
    found += [f"{name}: {text}." for name, document in tasks for text in _harm(document)]
    cells = [(cell, d.settings.small) for _, d in tasks for cell in cells_of(d.runs[0])]
    small = sum(cell.n < least for cell, least in cells)
    if small:
        found.append(
            f"{small} of {len(cells)} groups have fewer than {cells[0][1]} pictures: their figures "
            "are uncertain."
        )
    compared = [document.compared for _, document in tasks]
    n = max(compared)
    if n:
        several = f"{n} methods were compared on each task"
        if min(compared) < n:
            several = f"Up to {n} methods were compared on a task"
        found.append(
            f"{several}: intervals and marks of metrics allow for that, task by task (Holm)."
        )
    return found


def _between_classes(document: AuditDocument) -> bool:
    """Whether the gap that is shown may be one of classes that are hard in every group."""
    low = document.runs[0].metrics.equalized_odds_difference.low
    return gap_exists(document.runs[0]) and not low


def _between_groups(document: AuditDocument) -> bool:
    """Whether groups are shown to differ although the gap is not."""
    low = document.runs[0].metrics.equalized_odds_difference.low
    return not gap_exists(document.runs[0]) and bool(low)


def _guessing(document: AuditDocument) -> tuple[str, float] | None:
    """The commonest answer and its share, if the first run is not shown to be better."""
    accuracy, usual = document.runs[0].metrics.accuracy, commonest(document.runs[0])
    is_guess = usual is not None and accuracy.low is not None and accuracy.low <= usual[1]
    return usual if is_guess else None


def _near_chance(document: AuditDocument) -> float | None:
    """The median confidence, if it is near chance."""
    median, chance = document.runs[0].median_confidence, 1 / len(document.data.targets)
    if median is None or median >= chance + NEAR_CHANCE * (1 - chance):
        return None
    return median


def _not_perceived(document: AuditDocument) -> Iterator[str]:
    run = document.runs[0]
    before = run.sensitive_indifference
    if run.zero_shot_scores is not None:
        before = run.zero_shot_scores.sensitive_indifference
    for attribute, entropy in before.items():
        if entropy.value is not None and entropy.value > NOT_PERCEIVED:
            yield attribute


def _harm(document: AuditDocument) -> Iterator[str]:
    """For each set of harmful classes the groups that are answered so most and least often."""
    run = document.runs[0]
    for name in document.data.harmful:
        shares = [
            (harm.rate.value, f"of {group_name(harm.sensitive)} {interval(harm.rate)}".rstrip())
            for harm in run.harm
            if harm.classes == name and harm.sensitive and harm.rate.value is not None
        ]
        if shares:
            ordered = sorted(shares, key=lambda share: -share[0])
            ends = ordered if len(ordered) < 2 else [ordered[0], ordered[-1]]
            told = " and in ".join(f"{whole_percent(share)} {group}" for share, group in ends)
            yield f"{run.name} answers with a class of the set {name!r} in {told}"


def _many_changed(document: AuditDocument) -> Iterator[tuple[str, float]]:
    for row in method_rows(document):
        if row.changed > MANY_CHANGED:
            yield row.name, row.changed
