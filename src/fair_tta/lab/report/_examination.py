"""The page of an examination, and its sentences, which the terminal shares."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from fair_tta.auditing import _examination as doc
from fair_tta.lab.report import _numbers as numbers
from fair_tta.lab.report._drawings import Dot, dot_plot
from fair_tta.lab.report._numbers import count, of_hundred, percent, points, whole
from fair_tta.lab.report._page import embedded, render
from fair_tta.lab.report._sentences import MANY_CHANGED, Card
from fair_tta.metrics._estimates import Estimate, direction

LITTLE = 0.1
"""Logits: smaller associations of prompts are called hardly any."""

_SHOWN = 3  # values or classes that a sentence lists


def cards(document: doc.ExaminationDocument, attribute: str) -> list[Card]:
    """What is perceived, how far answers lean, what to do."""
    of = document.attributes[attribute]
    return [_seen(attribute, of), _leaning(attribute, of), _advice(document, attribute)]


def banners(document: doc.ExaminationDocument) -> list[str]:
    """What must not be overlooked."""
    found = [
        f"{adapter.name} changes {of_hundred(adapter.changed_share.value)} answers, more than one "
        "in five. Nobody knows yet whether they become right."
        for adapter in document.adapters
        if (adapter.changed_share.value or 0) > MANY_CHANGED
    ]
    return [*found, *document.warnings]


def gap_verdict(change: Estimate) -> tuple[str, str]:
    """What a change of the perceived gap is called, and its tone."""
    up = direction(change.low, change.high)
    if up == 0:
        return "not shown", ""
    return ("widens it", "bad") if up > 0 else ("narrows it", "good")


def ranked(
    document: doc.ExaminationDocument, attribute: str
) -> list[doc.ExaminedAdapter]:
    """The methods in the order of the ranking."""
    by_name = {adapter.name: adapter for adapter in document.adapters}
    return [by_name[name] for name in document.ranking[attribute]]


def label_plan(document: doc.ExaminationDocument, attribute: str) -> list[str]:
    """How many labels would settle the matter, and under which assumptions."""
    plan, level = document.attributes[attribute].labels_needed, document.settings.level
    rarest = f"{plan.rarest_target} / {plan.rarest_value}"
    text = (
        f"To know the accuracy of each of the {plan.groups} groups of class and {attribute} up to "
        f"{percent(plan.half_width)} points, label {count(plan.each)} images of each, whatever "
        f"that accuracy is. The rarest is {rarest}, perceived in "
        f"{percent(plan.rarest_share)} % of the images"
    )
    text += (
        f": that is {count(plan.at_random)} images drawn at random, fewer if you look for them."
        if plan.at_random is not None
        else ": it is not there to be drawn."
    )
    methods = [
        "Whether a method makes answers right shows only on images whose answer changes. The table "
        "takes it that two of three of them change the same way; of the other images no label is "
        "needed.",
        "Whether it changes the gap as much as perceived: the table takes it that the change falls "
        "on one group, whose answers change as often as all.",
    ]
    formulas = (
        f"Level {100 * level:g} %, power 80 %, by the formulas of audits (Wald's for a rate, "
        "Connor's for McNemar's test). They are plans: they take what is assumed for the truth."
    )
    return [text, *(methods if document.adapters else []), formulas]


def _seen(attribute: str, of: doc.PerceivedAttribute) -> Card:
    heading = "What is perceived"
    sure = f"The value it finds most probable has {whole(of.confidence.value)} %, on average."
    shares = sorted(of.shares.items(), key=lambda item: -(item[1].value or 0))
    listed = [f"{name} {whole(share.value)} %" for name, share in shares[:_SHOWN]]
    left = len(shares) - len(listed)
    text = ", ".join(listed) + (f" and {left} more" if left else "")
    return Card(heading, f"The model perceives {attribute}: {text}.", sure)


def _leaning(attribute: str, of: doc.PerceivedAttribute) -> Card:
    heading, gap = "How far answers lean", of.pseudo_eod
    if gap.value is None:
        return Card(heading, f"This cannot be seen: {gap.reason}.", "")
    text = f"By its own beliefs they differ by {points(gap)} between values of {attribute}."
    value, name, lean = max(
        ((v, y, x) for v, row in of.associations.items() for y, x in row.items()),
        key=lambda cell: cell[2],
    )
    more = "The true gap is usually larger."
    if lean < LITTLE:
        more += " The words of the prompts hardly associate them."
    else:
        more += f" By words alone, {name} leans most to {value} ({lean:+.2f} logits)."
    return Card(heading, text, more)


def _advice(document: doc.ExaminationDocument, attribute: str) -> Card:
    heading, of = "What to do", document.attributes[attribute]
    each = count(of.labels_needed.each)
    measure = f"To measure the gap, label {each} images of each group."
    if not document.adapters:
        return Card(
            heading, "No method was tried: name some to see what they change.", measure
        )
    order = ranked(document, attribute)
    best = next(
        (m for m in order if gap_verdict(m.pseudo_eod[attribute].change)[1] == "good"),
        None,
    )
    if best is None:
        return Card(
            heading, "No method tried is seen to narrow the perceived gap.", measure
        )
    change = best.pseudo_eod[attribute].change
    text = (
        f"Try {best.name}: perceived gap {points(change, signed=True)}, "
        f"{of_hundred(best.changed_share.value)} answers change."
    )
    labels = best.labels_needed.labels
    more = f"About {count(labels)} labels of changed answers would show whether they become right."
    return Card(heading, text, more, "good")


def examination_html(
    examination: doc.Examination, *, title: str | None = None, images: bool = False
) -> str:
    """What was seen without labels as one HTML page.

    Args:
        examination: what `FairTPTClassifier.examine` gave, or `Examination.load`.
        title: what to call it.
        images: embed some whose answer would change, if the examination has any; else there is
            neither image nor name of them in the page.
    """
    document = examination.document
    name, n = (
        numbers.model_name(document.origin) or "a model",
        numbers.images(document.n),
    )
    named = f"{numbers.task_name(document.targets, document.attributes)}: {name}"
    return render(
        "examination.html.jinja",
        title=title or f"{named} on {n} without labels",
        d=document,
        p=document.origin,
        sub=numbers.below_title(document.origin, n),
        banners=banners(document),
        attributes=[
            _attribute(document, name, f"attribute-{i}")
            for i, name in enumerate(document.attributes, start=1)
        ],
        gallery=[
            (adapter, [(one, embedded(one.image)) for one in some])
            for adapter, some in groupby(
                examination.images, key=lambda image: image.adapter
            )
            if images
        ],
        counts={adapter.name: adapter.changed for adapter in document.adapters},
    )


def _upright(
    table: Mapping[str, Mapping[str, float]],
) -> Mapping[str, Mapping[str, float]]:
    """A table whose shorter side goes across."""
    columns = list(next(iter(table.values())))
    if len(columns) <= len(table):
        return table
    return {name: {row: table[row][name] for row in table} for name in columns}


def _attribute(
    document: doc.ExaminationDocument, name: str, place: str
) -> dict[str, Any]:
    of, methods = document.attributes[name], ranked(document, name)
    verdicts = [gap_verdict(m.pseudo_eod[name].change) for m in methods]
    dots = [Dot("zero-shot, as it is", of.pseudo_eod)]
    dots += [
        Dot(method.name, method.pseudo_eod[name].after, tone)
        for method, (_, tone) in zip(methods, verdicts, strict=True)
    ]
    return {
        "id": place,
        "name": name,
        "of": of,
        "cards": cards(document, name),
        "plan": label_plan(document, name),
        "associations": _upright(of.associations),
        "most": max(
            1.0, *(abs(x) for row in of.associations.values() for x in row.values())
        ),
        "odds": dot_plot(dots, f"Perceived gap by {name} in points, with intervals"),
        "shares": dot_plot(
            [Dot(value, share) for value, share in of.shares.items()],
            f"Shares perceived of {name} in percent, with intervals",
            reach=(0.0, 1.0),
        ),
        "methods": [
            {
                "adapter": method,
                "verdict": verdict,
                "tone": tone,
                "odds": method.pseudo_eod[name],
            }
            for method, (verdict, tone) in zip(methods, verdicts, strict=True)
        ],
    }
