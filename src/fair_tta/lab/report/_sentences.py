"""The words of a report on an audit, for both the HTML page and the Markdown block."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from fair_tta.auditing import _document as doc
from fair_tta.auditing._judge import judged_estimate
from fair_tta.lab.report._numbers import (
    count,
    group_name,
    images,
    in_words,
    percent,
    shown,
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


MANY_CHANGED = 0.2
"""The report points at a method that changes more of the answers than this."""

_LARGE = 1e12  # a setting that is larger is not a position on an axis


class Card(NamedTuple):
    """A question, its answer, what stands behind it in smaller letters; tone is good or bad."""

    heading: str
    text: str
    more: str
    tone: str = ""


def verdict(metric: str, difference: Estimate | None) -> str:
    """The direction of a change, a key of `MARKS`: only if its paired interval excludes 0 is there
    one.
    """
    if difference is None or difference.value is None or difference.low is None:
        return "unknown"
    up = direction(difference.low, difference.high)
    if up == 0:
        return "unclear"
    good = (
        -1 if metric == "harm" else METRICS[metric].better if metric in METRICS else 0
    )
    if good == 0:
        return "higher" if up > 0 else "lower"
    return "better" if up == good else "worse"


def limits(document: doc.AuditDocument) -> dict[str, str]:
    """What the figures do not show, each with a catchword."""
    settings, attributes = document.settings, " and ".join(document.data.sensitive)
    marks = (
        "Marks of a metric allow for the number of runs compared, not for that of "
        "metrics; intervals by group, of sets of classes and of what is perceived, and "
        "p-values are not corrected."
        if document.compared
        else "Marks and p-values are not corrected for the number of comparisons."
    )
    comparisons = {
        "Many comparisons": f"{marks} Whoever picks "
        "the best of several methods on these images picks luck too: on new images it will "
        "do less well on average. Confirm a choice on images that took no part in it."
    }
    return {
        "Only chance in drawing images": "Intervals are made to cover the truth in "
        f"{100 * settings.level:g} of 100 samples of images from the same source. They do not "
        "cover other data, wrong labels, other wordings of the prompts, another model or a later "
        "time.",
        "Not distinguishable is not equal": "An interval that contains 0 means that these images "
        "do not settle the matter. The true change may lie anywhere inside it.",
        **(comparisons if document.comparisons else {}),
        "The worst group is a minimum": "The lowest of several measured accuracies is lower, on "
        "average, than the accuracy which that group really has, the more so the smaller the "
        "groups. Intervals of worst-group accuracy, of gaps and of their changes are therefore "
        "wide: they allow for every group that these images do not rule out as the worst.",
        "Small groups": f"Groups with fewer than {settings.small} images are flagged. An interval "
        "on so few is wide, and one wrong label moves it.",
        "Groups that were not named": f"Only {attributes} was looked at, with the values and "
        "labels given. Gaps along other attributes, and inside a group, are not seen. Labels of "
        "people's attributes are often somebody's impression.",
        "Numbers of images are plans": "How many images a claim would need takes the observed "
        "rates for the truth. They are uncertain themselves.",
    }


def of_clusters(document: doc.AuditDocument) -> str:
    """How many persons, sources or different images there are, and by which column."""
    data = document.data
    if data.clusters == data.different_images:
        return f"{count(data.n)} rows of {count(data.clusters)} different images"
    made = document.provenance.get("data")  # users may write down anything
    column = made.get("cluster_column") if isinstance(made, Mapping) else None
    called = f" (column {column})" if column else ""
    return f"{images(data.n)} of {count(data.clusters)} clusters{called}"


def of_thresholds(document: doc.AuditDocument) -> list[str]:
    """How each threshold came out, and the figure it was about."""
    sentences = []
    for t in document.thresholds:
        figure, level = (
            judged_estimate(t, document),
            f"{100 * document.settings.level:g} % CI ",
        )
        found = (
            "no such figure" if figure is None else in_words(figure, "", label=level)
        )
        found += _balanced_beside(t, document)
        rule = f"Fail if {t.metric} {t.sign} {t.points:g}"
        sentences.append(f"{rule}: {t.outcome}; {t.run} has {found}.")
    return sentences


def _balanced_beside(threshold: doc.Threshold, document: doc.AuditDocument) -> str:
    """Balanced accuracy of the run, without which no gap is shown."""
    figure = METRICS.get(threshold.metric)
    balanced = replace(threshold, metric="balanced_accuracy")
    found = judged_estimate(balanced, document)
    if figure is None or figure.better >= 0 or found is None:
        return ""
    return f" at balanced accuracy {percent(shown(found))}"


def every_limit(documents: list[doc.AuditDocument]) -> list[tuple[str, str]]:
    """Limits of several audits on one page, with no sentence twice."""
    found = [limits(document) for document in documents]
    order = max(map(list, found), key=len)
    every = dict.fromkeys(limit for some in found for limit in some.items())
    return sorted(every, key=lambda limit: order.index(limit[0]))


def comparison_of(document: doc.AuditDocument, run: str) -> doc.Comparison | None:
    """How a run compares with the first, None for the first."""
    return next((c for c in document.comparisons if c.run == run), None)


def cells_of_runs(
    document: doc.AuditDocument, most: int
) -> list[tuple[str, list[doc.ClassInGroup]]]:
    """Each class in each group with its figures in every run; the worst first if they are many."""
    runs = document.runs
    cells = [
        (
            group_name(group.sensitive, cell.target),
            [run.groups[g].classes[c] for run in runs],
        )
        for g, group in enumerate(runs[0].groups)
        for c, cell in enumerate(group.classes)
    ]

    def rank(cell: tuple[str, list[doc.ClassInGroup]]) -> float:
        value = cell[1][0].true_positive_rate.value
        return 2.0 if value is None else value

    return cells if len(cells) <= most else sorted(cells, key=rank)


class Sweep(NamedTuple):
    """Runs of one method by the value of the setting that differs, such as ``rate.beta``."""

    method: str
    setting: str
    runs: Mapping[float, doc.RunFigures]


def sweeps(document: doc.AuditDocument) -> list[Sweep]:
    """Runs that differ in one number only, at least two of them; the longest first."""
    found: dict[tuple[str, str, str], dict[float, doc.RunFigures]] = {}
    for run in document.runs:
        if run.adapter is None or run.provenance is not None:
            continue
        settings = dict(_leaves(run.adapter.settings))
        for name, value in settings.items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if is_number and abs(value) < _LARGE:
                rest = {key: item for key, item in settings.items() if key != name}
                key = run.adapter.name, name, json.dumps(rest, sort_keys=True)
                found.setdefault(key, {}).setdefault(float(value), run)
    several = [
        Sweep(method, setting, dict(sorted(runs.items())))
        for (method, setting, _), runs in found.items()
        if len(runs) > 1
    ]
    return sorted(several, key=lambda sweep: -len(sweep.runs))


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as ``("rate.beta", "0.01")``; an adapter's own nesting is left out."""
    for key, item in _leaves(value, name):
        if isinstance(item, list | tuple):
            items = [", ".join(text for _, text in flat(one, key)) for one in item]
            yield key, "; ".join(items) or "none"
        else:
            yield key, "none" if item is None or item == {} else str(item)


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Struct):
        value = asdict(value)
    if (
        isinstance(value, Mapping)
        and set(value) <= {"name", "settings", "repr"}
        and value
    ):
        yield name, value.get("name")
        yield from _leaves(value.get("settings", {}), name)
    elif isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}" if name else str(key))
    elif name:
        yield name, value
