"""An examination in plain sentences, for the page and the terminal: the verdict comes first."""

from __future__ import annotations

from typing import NamedTuple

from fair_tta.auditing._document import EstimateFields
from fair_tta.auditing._examination import ExaminationDocument, ExaminedAdapter, PerceivedAttribute
from fair_tta.lab.report._numbers import count, percent, points, whole
from fair_tta.metrics._estimate import direction

MANY_CHANGED = 0.2
"""A method that changes more of the answers than this is pointed at."""

LITTLE = 0.1
"""Logits: smaller associations of prompts are called hardly any."""

_SHOWN = 3  # values or classes that a sentence lists

CANNOT = (
    (
        "The size of the gap",
        "The perceived gap (pseudo-EOD) takes the model's own beliefs for labels. Where the model "
        "errs with the attribute it believes its own errors, so the true gap is usually larger: on "
        "drawn pictures, where it is known, 1.3 to 3.1 times as large.",
    ),
    (
        "Accuracy",
        "Whether an answer that changes becomes right or wrong is not known without labels.",
    ),
    (
        "What the model does not perceive",
        "Nor can groups be seen that nobody named.",
    ),
    (
        "People",
        "What is perceived is how a picture looks to a model, not who somebody is. Do not keep it "
        "by person.",
    ),
    (
        "Chance alone",
        "Intervals are for pictures like these and for the perceived figures; they do not hold the "
        "true ones.",
    ),
)
"""What an examination does not show, each with a catchword."""


class Card(NamedTuple):
    """A finding in two sentences.

    Attributes:
        heading: which question it answers.
        text: the answer.
        more: what stands behind it, smaller.
        tone: ``good``, ``bad`` or none.
    """

    heading: str
    text: str
    more: str
    tone: str = ""


def title(document: ExaminationDocument) -> str:
    """Task, attribute, model and number of pictures."""
    targets = document.targets
    task = " or ".join(targets) if len(targets) <= _SHOWN else f"{len(targets)} classes"
    model = document.origin.model
    name = model.name if model is not None and model.name else "a model"
    n = count(document.n)
    pictures = f"{n} picture{'' if document.n == 1 else 's'}"
    return f"{task}, by {' and '.join(document.attributes)}: {name} on {pictures} without labels"


def cards(document: ExaminationDocument, attribute: str) -> list[Card]:
    """What is perceived, how far answers lean, what to do."""
    of = document.attributes[attribute]
    return [_seen(attribute, of), _leaning(attribute, of), _advice(document, attribute)]


def banners(document: ExaminationDocument) -> list[str]:
    """What must not be overlooked."""
    found = [
        f"{adapter.name} changes {_of_hundred(adapter.changed_share.value)} answers, more than one "
        "in five. Nobody knows yet whether they become right."
        for adapter in document.adapters
        if (adapter.changed_share.value or 0) > MANY_CHANGED
    ]
    return [*found, *document.warnings]


def gap_verdict(change: EstimateFields) -> tuple[str, str]:
    """What a change of the perceived gap is called, and its tone."""
    up = direction(change.low, change.high)
    if up == 0:
        return "not shown", ""
    return ("widens it", "bad") if up > 0 else ("narrows it", "good")


def ranked(document: ExaminationDocument, attribute: str) -> list[ExaminedAdapter]:
    """The methods in the order of the ranking."""
    by_name = {adapter.name: adapter for adapter in document.adapters}
    return [by_name[name] for name in document.ranking[attribute]]


def label_plan(document: ExaminationDocument, attribute: str) -> list[str]:
    """How many labels would settle the matter, and under which assumptions."""
    plan, level = document.attributes[attribute].labels_needed, document.settings.level
    rarest = f"{plan.rarest_target} / {plan.rarest_value}"
    text = (
        f"To know the accuracy of each of the {plan.groups} groups of class and {attribute} up to "
        f"{percent(plan.half_width)} points, label {count(plan.each)} pictures of each, whatever "
        f"that accuracy is. The rarest is {rarest}, perceived in "
        f"{percent(plan.rarest_share)} % of the pictures"
    )
    text += (
        f": that is {count(plan.at_random)} pictures drawn at random, fewer if you look for them."
        if plan.at_random is not None
        else ": it is not there to be drawn."
    )
    found = [text]
    if document.adapters:
        found.append(
            "Whether a method makes answers right, only pictures whose answer changes can tell. "
            "The table takes it that two of three of them change the same way; of the other "
            "pictures no label is needed."
        )
        found.append(
            "Whether it changes the gap as much as perceived: the table takes it that the change "
            "falls on one group, whose answers change as often as all."
        )
    found.append(
        f"Level {100 * level:g} %, power 80 %, by the formulas of audits (Wald's for a "
        "rate, Connor's for McNemar's test). They are plans: they take what is assumed for the "
        "truth."
    )
    return found


def _seen(attribute: str, of: PerceivedAttribute) -> Card:
    heading = "What is perceived"
    sure = f"The value it finds most probable has {whole(of.confidence.value)} %, on average."
    shares = sorted(of.shares.items(), key=lambda item: -(item[1].value or 0))
    listed = [f"{name} {whole(share.value)} %" for name, share in shares[:_SHOWN]]
    left = len(shares) - len(listed)
    text = ", ".join(listed) + (f" and {left} more" if left else "")
    if any("does not perceive" in sign for sign in of.stop_signs):
        return Card(heading, f"The model does not perceive {attribute}.", f"{text}. {sure}", "bad")
    if of.stop_signs:
        text = f"The model cannot tell {attribute} and the answer apart."
        return Card(heading, text, sure, "bad")
    return Card(heading, f"The model perceives {attribute}: {text}.", sure)


def _leaning(attribute: str, of: PerceivedAttribute) -> Card:
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


def _advice(document: ExaminationDocument, attribute: str) -> Card:
    heading, of = "What to do", document.attributes[attribute]
    if of.stop_signs:
        return Card(heading, f"Do not correct by {attribute}.", " ".join(of.stop_signs), "bad")
    each = count(of.labels_needed.each)
    measure = f"To measure the gap, label {each} pictures of each group."
    if not document.adapters:
        return Card(heading, "No method was tried: name some to see what they change.", measure)
    order = ranked(document, attribute)
    best = next(
        (m for m in order if gap_verdict(m.pseudo_eod[attribute].change)[1] == "good"), None
    )
    if best is None:
        return Card(heading, "No method tried is seen to narrow the perceived gap.", measure)
    change = best.pseudo_eod[attribute].change
    text = (
        f"Try {best.name}: perceived gap {points(change, signed=True)}, "
        f"{_of_hundred(best.changed_share.value)} answers change."
    )
    labels = best.labels_needed.labels
    more = f"Whether they become right, about {count(labels)} labels of changed answers would tell."
    return Card(heading, text, more, "good")


def _of_hundred(share: float | None) -> str:
    return f"{whole(share)} of 100"
