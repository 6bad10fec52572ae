"""The words of a report besides its figures: meanings, limits, what it is evidence for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fair_tta.auditing._document import AuditDocument, Difference
from fair_tta.metrics import definitions as metrics
from fair_tta.metrics._estimate import direction

Verdict = Literal["better", "worse", "higher", "lower", "unclear", "unknown"]

MARKS: dict[str, str] = {
    "better": "\N{CHECK MARK} better",
    "worse": "\N{MULTIPLICATION X} worse",
    "higher": "\N{UPWARDS ARROW} higher",
    "lower": "\N{DOWNWARDS ARROW} lower",
    "unclear": "\N{ALMOST EQUAL TO} not distinguishable",
    "unknown": "no paired interval",
}


@dataclass(frozen=True)
class Meaning:
    """What to call a figure, which way is better (+1, -1, or 0 if neither), and its meaning."""

    name: str
    good: int
    meaning: str


METRICS = {m.name: Meaning(m.title, m.better, m.meaning) for m in metrics.METRICS.values()}

_GOOD = {name: metric.good for name, metric in METRICS.items()} | {"harm": -1}
"""Which way is better, also of the share of answers in a set of harmful classes."""

INDIFFERENCE = (
    "Average sensitive indifference (ASI): the normalised entropy of the sensitive attribute as "
    "the model sees it, on average. 0: its values are distinguished with certainty; 100: not at "
    "all."
)

PERCEIVED = (
    "Pseudo-EOD takes the model's own zero-shot beliefs for labels of class and attribute. Its "
    "level is usually too small, because a model that errs with the attribute believes its own "
    "errors; look at whether its changes have the sign and the size of those by the labels. If "
    "they do, examining other images of this kind without labels is informative."
)


def verdict(metric: str, difference: Difference | None) -> Verdict:
    """The direction of a change: only if its paired interval excludes 0 is there one."""
    if difference is None or difference.value is None or difference.low is None:
        return "unknown"
    up = direction(difference.low, difference.high)
    if up == 0:
        return "unclear"
    good = _GOOD.get(metric, 0)
    if good == 0:
        return "higher" if up > 0 else "lower"
    return "better" if up == good else "worse"


def limits(document: AuditDocument) -> list[tuple[str, str]]:
    """What the figures do not show, each with a catchword."""
    settings, attributes = document.settings, " and ".join(document.data.sensitive)
    others = len(document.comparisons)
    found = [
        (
            "Only chance in drawing images",
            f"Intervals are made to cover the truth in {100 * settings.level:g} of 100 samples "
            "of images from the same source. They do not cover other data, wrong labels, other "
            "wordings of the prompts, another model or a later time.",
        ),
        (
            "Not distinguishable is not equal",
            "An interval that contains 0 means that these images do not settle the matter. The "
            "true change may lie anywhere inside it.",
        ),
    ]
    if others:
        marks = (
            "Marks of a metric allow for the number of runs compared (Holm), not for that of "
            "metrics; intervals by group, of sets of classes and of what is perceived, and "
            "p-values are not corrected."
            if document.compared
            else "Marks and p-values are not corrected for the number of comparisons."
        )
        found.append(
            (
                "Many comparisons",
                f"{marks} Whoever picks "
                "the best of several methods on these images picks luck too: on new images it will "
                "do less well on average. Confirm a choice on images that took no part in it.",
            )
        )
    found += [
        (
            "The worst group is a minimum",
            "The lowest of several measured accuracies is lower, on average, than the accuracy "
            "which that group really has, the more so the smaller the groups. Intervals of "
            "worst-group accuracy, of gaps and of their changes are therefore wide: they allow for "
            "every group that these images do not rule out as the worst.",
        ),
        (
            "Small groups",
            f"Groups with fewer than {settings.small} images are flagged. An interval on so few "
            "is wide, and one wrong label moves it.",
        ),
        (
            "Groups that were not named",
            f"Only {attributes} was looked at, with the values and labels given. Gaps along other "
            "attributes, and inside a group, are not seen. Labels of people's attributes are often "
            "somebody's impression.",
        ),
        (
            "A smaller gap is not yet a better model",
            "A gap also narrows when the better served group is served worse. Read the group table "
            "next to it.",
        ),
        (
            "Numbers of images are plans",
            "How many images a claim would need takes the observed rates for the truth. They are "
            "uncertain themselves.",
        ),
    ]
    return found


def every_limit(documents: list[AuditDocument]) -> list[tuple[str, str]]:
    """Limits of several audits on one page, with no sentence twice."""
    found: dict[tuple[str, str], None] = {}
    order = [name for name, _ in max(map(limits, documents), key=len)]
    for document in documents:
        found.update(dict.fromkeys(limits(document)))
    return sorted(found, key=lambda item: order.index(item[0]))


EVIDENCE = (
    (
        "EU AI Act, Article 10(2)(f), (g)",
        "Data governance: examine data sets for possible biases; measures to detect, prevent and "
        "mitigate them.",
        "Figures by group with counts and intervals on a labelled test set; what changed under "
        "each adapter, measured on the same images.",
        "How the data were collected and labelled, and whether other attributes matter.",
    ),
    (
        "EU AI Act, Article 10(2)(h), (3)",
        "Name gaps in the data; data sets that are sufficiently representative, also as regards "
        "the groups concerned.",
        "Counts by class and group, small and empty groups flagged, and how many images a claim "
        "would need.",
        "Whether the images represent those on which the system will be used.",
    ),
    (
        "EU AI Act, Article 15(1), (3)",
        "An appropriate level of accuracy; accuracy and its metrics declared in the instructions "
        "for use.",
        "Accuracy, worst-group accuracy and calibration, defined, with intervals and with the "
        "settings needed to measure them again.",
        "Which level is appropriate for the intended purpose.",
    ),
    (
        "EU AI Act, Article 15(4)",
        "Resilience to errors, faults and inconsistencies.",
        "Warnings of the adapters, counted; how far prompts moved; worst-group figures.",
        "Behaviour on corrupted, shifted or hostile inputs, which were not tried here.",
    ),
    (
        "NIST AI RMF 1.0, MEASURE 2.11",
        "Fairness and bias, as identified in the MAP function, are evaluated and results are "
        "documented.",
        "This document: metrics, groups, intervals, limits and provenance.",
        "The MAP function: which harms and which groups matter in the context of use.",
    ),
)
"""Provision, what it asks in short, what here can serve as evidence, what is not shown."""

NO_CLAIM = (
    "This report can serve as evidence for the provisions below, next to other evidence. It does "
    "not establish compliance with any of them, nor that they apply. It measures gaps; it does not "
    "show a system to be fair."
)
