"""Banners of an audit, or of several: sentences that must not be overlooked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fair_tta.auditing._document import AuditDocument, RunFigures
from fair_tta.auditing._judge import images_of_small_groups
from fair_tta.lab.report._changed_groups import cells_of, most_frequent_class
from fair_tta.lab.report._legends import cluster_sentence
from fair_tta.lab.report._method_rows import NamedAudit, method_rows
from fair_tta.lab.report._numbers import (
    group_name,
    interval,
    of_hundred,
    percent,
    percent_with_sign,
    points_text,
    shown_value,
)

# Shares of answers: a method that changes more has a banner
MANY_CHANGED = 0.2

# Of the way from chance to certainty: a median confidence below is near chance
_NEAR_CHANCE = 0.1

# How warnings of an audit begin that `label_cautions` give at greater length
_WARNINGS_OF_CAUTIONS = ("Fewer than ", "No images, ")

Banner = tuple[str, str]
"""A sentence that tasks may share, and the figures of one task."""


def audit_banners(tasks: Sequence[NamedAudit]) -> list[str]:
    """Return a sentence for each kind of banner; of several tasks with their names."""
    details_by_head: dict[str, list[str]] = {}
    for name, document in tasks:
        for head, detail in _banners_of(document):
            text = f"{name}: {detail}" if len(tasks) > 1 else detail
            details_by_head.setdefault(head, []).append(text)
    sentences = []
    for head, details in details_by_head.items():
        sentences.append(f"{head}: {'; '.join(details)}.")
    if len(tasks) == 1:
        for warning in tasks[0][1].warnings:
            if not warning.startswith(_WARNINGS_OF_CAUTIONS):
                sentences.append(warning)
    return sentences


def balanced_accuracy_text(document: AuditDocument) -> str:
    """Return balanced accuracy of the reference, without which no gap is shown."""
    return percent(shown_value(document.runs[0].metrics.balanced_accuracy))


def _banners_of(document: AuditDocument) -> Iterator[Banner]:
    run = document.runs[0]
    yield from _gap_banners(document)
    yield from _confidence_banners(document)
    for row in method_rows(document):
        if row.changed > MANY_CHANGED:
            head = f"More than {percent_with_sign(MANY_CHANGED)} of the answers change"
            yield head, f"{row.name} {percent_with_sign(row.changed)}"
    for set_name in document.data.harmful:
        shares = _harm_detail(run, set_name)
        if shares:
            yield f"{run.name} answers with a class of the set {set_name!r}", shares
    data = document.data
    # A warning says it where clusters are only images that come several times
    if data.clusters is not None and data.clusters != data.different_images:
        yield cluster_sentence(document), "intervals allow for that"
    n_small = len(images_of_small_groups(document))
    if n_small:
        head = f"Groups with fewer than {document.settings.small} images"
        yield (
            f"{head}, whose figures are uncertain",
            f"{n_small} of {len(cells_of(run))}",
        )


def _gap_banners(document: AuditDocument) -> Iterator[Banner]:
    """Yield a banner if the worst group is worse, but groups of a class do not differ."""
    # A class that is hard in every group makes a worst group, but no gap within a class.
    metrics = document.runs[0].metrics
    gap = metrics.typical_gap
    # Both are at least 0: an interval whose low end is above 0 shows that there is a difference.
    is_worst_group_worse = bool(metrics.bias.low)
    is_gap_shown = bool(gap.low)
    if is_worst_group_worse and not gap.is_withheld and not is_gap_shown:
        balanced_accuracy = balanced_accuracy_text(document)
        yield (
            "The worst group may be a matter of its class: no gap between groups is shown",
            f"typical gap {points_text(gap)} at balanced accuracy {balanced_accuracy}",
        )


def _confidence_banners(document: AuditDocument) -> Iterator[Banner]:
    """Yield banners if the reference may be guessing."""
    run = document.runs[0]
    accuracy = run.metrics.accuracy
    target, share = most_frequent_class(run)
    if accuracy.low is not None and accuracy.low <= share:
        yield (
            f"{run.name} is not shown to be better than always giving the commonest answer",
            f"{target!r} is right in {of_hundred(share)}",
        )
    median = run.median_confidence
    chance = 1 / len(document.data.targets)
    if median is not None and median < chance + _NEAR_CHANCE * (1 - chance):
        yield (
            f"{run.name} is barely confident in any answer",
            f"median confidence {percent_with_sign(median)}, by chance {percent_with_sign(chance)}",
        )


def _harm_detail(run: RunFigures, set_name: str) -> str:
    """Return in how many images of which groups answers fall into a set: most and least often."""
    rates = []
    for harm in run.harm:
        # The rate of all images has no attribute values
        if harm.classes == set_name and harm.sensitive and harm.rate.value is not None:
            bounds = interval(harm.rate)
            group = f"of {group_name(harm.sensitive)} {bounds}".rstrip()
            rates.append((-harm.rate.value, group))
    # Negative rates: the most frequent first
    rates.sort()
    if len(rates) > 1:
        rates = [rates[0], rates[-1]]
    return " and ".join(
        f"in {percent_with_sign(-rate)} {group}" for rate, group in rates
    )
