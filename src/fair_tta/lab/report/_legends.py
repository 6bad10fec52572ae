"""Legends, marks, thresholds and limits of an audit, for page, card and terminal alike.

Notes on what intervals are corrected for stand here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from fair_tta.auditing import _document as doc
from fair_tta.auditing._judge import judged_estimate
from fair_tta.lab.report._numbers import (
    count,
    figure_in_words,
    image_count,
    percent,
    shown_value,
)
from fair_tta.metrics._estimates import Estimate, direction
from fair_tta.metrics.definitions import METRICS

MARKS: dict[str, str] = {
    "better": "\N{CHECK MARK} better",
    "worse": "\N{MULTIPLICATION X} worse",
    "higher": "\N{UPWARDS ARROW} higher",
    "lower": "\N{DOWNWARDS ARROW} lower",
    "unclear": "\N{ALMOST EQUAL TO} not distinguishable",
    "unknown": "no paired interval",
}

GROUP_INTERVALS = (
    "Intervals of each group alone; that of worst-group accuracy also allows for which group is "
    "the worst."
)

METHODS_NOT_CORRECTED = (
    "Intervals and verdicts do not allow for the number of methods: of twenty that change nothing, "
    "one seems to."
)


def mark_of(metric: str, change: Estimate | None) -> str:
    """Return the key in `MARKS` of a change: a direction only if its paired interval excludes 0."""
    if change is None or change.value is None or change.low is None:
        return "unknown"
    sign = direction(change.low, change.high)
    if sign == 0:
        return "unclear"
    better = METRICS[metric].better if metric in METRICS else 0
    # Answers in a harmful set are no metric; fewer of them are better
    if metric == "harm":
        better = -1
    if better == 0:
        return "higher" if sign > 0 else "lower"
    return "better" if sign == better else "worse"


def percent_legend(document: doc.AuditDocument) -> str:
    """Return the unit of figures and the level of their intervals."""
    return f"Percent, with {100 * document.settings.level:g} % intervals"


def difference_legend(document: doc.AuditDocument) -> str:
    """Return what differences are taken from, and what their intervals are corrected for."""
    legend = f"Differences from {document.runs[0].name} are paired, in points."
    return f"{legend} {correction_note(document, 'metrics')}".rstrip()


def correction_note(
    document: doc.AuditDocument, corrected: str = "", uncorrected: str = ""
) -> str:
    """Return which intervals of changes are corrected, empty if there was one comparison.

    Args:
        document: the audit.
        corrected: what they allow for all comparisons of.
        uncorrected: what they do not.
    """
    if not document.compared:
        return ""
    notes = []
    if corrected:
        notes.append(
            f"Intervals of changes of {corrected} allow for all {document.compared} "
            "comparisons (Holm)."
        )
    if uncorrected:
        notes.append(
            f"Intervals of changes of {uncorrected} do not allow for the number of "
            "comparisons."
        )
    return " ".join(notes)


def metric_legend(document: doc.AuditDocument) -> str:
    """Return the legend of the table of all metrics."""
    legend = f"{percent_legend(document)}."
    if document.comparisons:
        legend += (
            f" {difference_legend(document)} Better or worse: the interval excludes 0."
        )
    return legend


def metric_meanings(names: Mapping[str, str]) -> list[str]:
    """Return the first sentence on each metric, by the name that a table gives it."""
    sentences = []
    for metric, name in names.items():
        meaning = first_sentence(METRICS[metric].meaning)
        sentences.append(f"{name}: {meaning[0].lower()}{meaning[1:]}.")
    return sentences


def first_sentence(text: str) -> str:
    """Return the first sentence of a text, without its full stop."""
    return text.split(". ")[0].rstrip(".")


def harm_title(document: doc.AuditDocument, set_name: str) -> str:
    """Return the title of a table of answers that fall into a set of classes."""
    names = ", ".join(document.data.harmful[set_name])
    return f"Answers in the set {set_name} ({names}), percent of each group"


def pseudo_eod_title(document: doc.AuditDocument) -> str:
    """Return the title of the table of EOD by labels and by the model's beliefs."""
    title = (
        "Equalized odds difference (EOD) in points, by labels and by the model's own zero-shot "
        "beliefs (pseudo-EOD)."
    )
    return f"{title} {correction_note(document, uncorrected='both')}".rstrip()


def cluster_sentence(document: doc.AuditDocument) -> str:
    """Return how many persons, sources or different images there are, and by which column."""
    data = document.data
    if data.clusters == data.different_images:
        return f"{count(data.n)} rows of {count(data.clusters)} different images"
    text = f"{image_count(data.n)} of {count(data.clusters)} clusters"
    # Users may write any value into a provenance
    origin = document.provenance.get("data")
    column = origin.get("cluster_column") if isinstance(origin, Mapping) else None
    return f"{text} (column {column})" if column else text


def threshold_sentences(document: doc.AuditDocument) -> list[str]:
    """Return the outcome of each threshold, and the figure that was judged."""
    level = f"{100 * document.settings.level:g} % CI "
    sentences = []
    for threshold in document.thresholds:
        estimate = judged_estimate(threshold, document)
        figure = "no such figure"
        if estimate is not None:
            figure = figure_in_words(estimate, "", label=level)
        rule = f"Fail if {threshold.metric} {threshold.sign} {threshold.points:g}"
        figure += _balanced_beside(threshold, document)
        sentences.append(f"{rule}: {threshold.outcome}; {threshold.run} has {figure}.")
    return sentences


def _balanced_beside(threshold: doc.Threshold, document: doc.AuditDocument) -> str:
    """Return balanced accuracy of the run, without which no gap is shown."""
    # A threshold of a document that was not written here may name any metric
    metric = METRICS.get(threshold.metric)
    balanced = judged_estimate(replace(threshold, metric="balanced_accuracy"), document)
    if metric is None or metric.better >= 0 or balanced is None:
        return ""
    return f" at balanced accuracy {percent(shown_value(balanced))}"


def limits(document: doc.AuditDocument) -> dict[str, str]:
    """Return what the figures do not show, by a catchword."""
    settings = document.settings
    attributes = " and ".join(document.data.sensitive)
    texts = {
        "Only chance in drawing images": "Intervals are made to cover the truth in "
        f"{100 * settings.level:g} of 100 samples of images from the same source. They do not "
        "cover other data, wrong labels, other wordings of the prompts, another model or a later "
        "time.",
        "Not distinguishable is not equal": "An interval that contains 0 means that these images "
        "do not settle the matter. The true change may lie anywhere inside it.",
    }
    if document.comparisons:
        marks = "Marks and p-values are not corrected for the number of comparisons."
        if document.compared:
            marks = (
                "Marks of a metric allow for the number of runs compared, not for that of "
                "metrics; intervals by group, of sets of classes and of what is perceived, and "
                "p-values are not corrected."
            )
        texts["Many comparisons"] = (
            f"{marks} Picking the best of several methods on these images picks luck too: on new "
            "images it will do less well on average. Confirm a choice on images that took no part "
            "in it."
        )
    return texts | {
        "The worst group is a minimum": "The lowest of several measured accuracies is lower, on "
        "average, than the accuracy which that group really has, the more so the smaller the "
        "groups. Intervals of worst-group accuracy, of gaps and of their changes are therefore "
        "wide: they allow for every group that these images do not rule out as the worst.",
        "Small groups": f"Groups with fewer than {settings.small} images are flagged. An interval "
        "on so few is wide, and one wrong label moves it.",
        "Groups that were not named": f"Only {attributes} was looked at, with the values and "
        "labels given. Gaps along other attributes, and inside a group, are not seen. Labels of "
        "people's attributes are often someone's impression.",
        "Numbers of images are plans": "How many images a claim would need takes the observed "
        "rates for the truth. They are uncertain themselves.",
    }


def limits_of_all(documents: Iterable[doc.AuditDocument]) -> list[tuple[str, str]]:
    """Return the limits of several audits, no sentence twice, by catchword."""
    limits_of_each = [limits(document) for document in documents]
    texts: dict[tuple[str, str], None] = {}
    # An audit without comparisons has fewer limits: the longest has the order
    for name in max(limits_of_each, key=len):
        for limits_of_one in limits_of_each:
            if name in limits_of_one:
                texts[name, limits_of_one[name]] = None
    return list(texts)


def comparison_of(document: doc.AuditDocument, run: str) -> doc.Comparison | None:
    """Return the comparison of a run with the reference, None for the reference."""
    for comparison in document.comparisons:
        if comparison.run == run:
            return comparison
    return None
