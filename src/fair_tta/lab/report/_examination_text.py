"""Sentences of an examination without labels, for page and terminal alike."""

from __future__ import annotations

from fair_tta.auditing import _examination as doc
from fair_tta.lab.report._banners import MANY_CHANGED
from fair_tta.lab.report._numbers import (
    count,
    figure_text,
    of_hundred,
    percent,
    percent_with_sign,
    points_text,
)
from fair_tta.lab.report._verdict import Card
from fair_tta.metrics._estimates import Estimate, direction

ZERO_SHOT = "zero-shot, as it is"

# Logits: smaller associations of prompts are called hardly any
_MIN_ASSOCIATION = 0.1

_MAX_LISTED_VALUES = 3


def examination_cards(document: doc.ExaminationDocument, attribute: str) -> list[Card]:
    """Return what is perceived, how far answers lean, and what to do."""
    perceived = document.attributes[attribute]
    return [
        _perceived_card(attribute, perceived),
        _leaning_card(attribute, perceived),
        _next_step_card(document, attribute),
    ]


def examination_banners(document: doc.ExaminationDocument) -> list[str]:
    """Return sentences that must not be overlooked."""
    sentences = []
    for adapter in document.adapters:
        if (adapter.changed_share.value or 0) > MANY_CHANGED:
            changed = of_hundred(adapter.changed_share.value)
            sentences.append(
                f"{adapter.name} changes {changed} answers, more than one in five. Without labels "
                "it is unknown whether they become right."
            )
    return [*sentences, *document.warnings]


def gap_verdict(change: Estimate) -> tuple[str, str]:
    """Return what a change of the perceived gap is called, and its tone."""
    sign = direction(change.low, change.high)
    if sign == 0:
        return "not shown", ""
    return ("widens it", "bad") if sign > 0 else ("narrows it", "good")


def ranked_adapters(
    document: doc.ExaminationDocument, attribute: str
) -> list[doc.ExaminedAdapter]:
    """Return the methods in the order of the ranking."""
    adapters = {adapter.name: adapter for adapter in document.adapters}
    return [adapters[name] for name in document.ranking[attribute]]


def certainty_sentence(attribute: str, perceived: doc.PerceivedAttribute) -> str:
    """Return how sure the model is of an attribute, and how much of its answers goes with it."""
    sentence = (
        f"The most probable value has {figure_text(perceived.confidence)} on average; entropy "
        f"(100: undecided) {figure_text(perceived.entropy)}."
    )
    if perceived.r_squared is not None:
        explained = percent(perceived.r_squared)
        sentence += f" {attribute} explains {explained} % of the answers' logits."
    return sentence


def label_plan(document: doc.ExaminationDocument, attribute: str) -> list[str]:
    """Return how many labels would settle the matter, and under which assumptions."""
    plan = document.attributes[attribute].labels_needed
    rarest = f"{plan.rarest_target} / {plan.rarest_value}"
    groups = (
        f"To know the accuracy of each of the {plan.groups} groups of class and {attribute} up to "
        f"{percent(plan.half_width)} points, label {count(plan.each)} images of each, whatever "
        f"that accuracy is. The rarest is {rarest}, perceived in "
        f"{percent(plan.rarest_share)} % of the images: "
    )
    if plan.at_random is None:
        groups += "it is not there to be drawn."
    else:
        n_drawn = count(plan.at_random)
        groups += (
            f"that is {n_drawn} images drawn at random, fewer if you look for them."
        )
    sentences = [groups]
    if document.adapters:
        sentences += [
            "Whether a method corrects answers shows only on images whose answer changes. The "
            "table assumes that two of three of these change in the same direction; the other "
            "images need no label.",
            "Whether it changes the gap as much as perceived: the table assumes that the change "
            "falls on one group, whose answers change as often as all.",
        ]
    sentences.append(
        f"Level {100 * document.settings.level:g} %, power 80 %, by the formulas that audits use "
        "(Wald's for a rate, Connor's for McNemar's test). These numbers are plans: they hold if "
        "the assumptions do."
    )
    return sentences


def _perceived_card(attribute: str, perceived: doc.PerceivedAttribute) -> Card:
    def share(item: tuple[str, Estimate]) -> float:
        return item[1].value or 0.0

    shares = sorted(perceived.shares.items(), key=share, reverse=True)
    parts = []
    for value, estimate in shares[:_MAX_LISTED_VALUES]:
        parts.append(f"{value} {percent_with_sign(estimate.value)}")
    text = f"The model perceives {attribute}: {', '.join(parts)}"
    n_left = len(shares) - len(parts)
    if n_left:
        text += f" and {n_left} more"
    return Card(
        "What is perceived",
        f"{text}.",
        f"Its most probable value has {percent_with_sign(perceived.confidence.value)} on average.",
    )


def _leaning_card(attribute: str, perceived: doc.PerceivedAttribute) -> Card:
    heading = "How far answers lean"
    gap = perceived.pseudo_eod
    if gap.value is None:
        return Card(heading, f"This cannot be seen: {gap.reason}.")
    # The class that the words of the prompts bind most to a value
    strongest = ("", "", -float("inf"))
    for value, logits in perceived.associations.items():
        for target, logit in logits.items():
            if logit > strongest[2]:
                strongest = (value, target, logit)
    value, target, logit = strongest
    words = "The words of the prompts hardly associate them."
    if logit >= _MIN_ASSOCIATION:
        words = f"By words alone, {target} leans most to {value} ({logit:+.2f} logits)."
    return Card(
        heading,
        f"By the model's own beliefs, right and wrong answers differ by {points_text(gap)} "
        f"between values of {attribute}.",
        f"The true gap is usually larger. {words}",
    )


def _next_step_card(document: doc.ExaminationDocument, attribute: str) -> Card:
    heading = "What to do"
    n_labels = count(document.attributes[attribute].labels_needed.each)
    measure = f"To measure the gap, label {n_labels} images of each group."
    if not document.adapters:
        text = "No method was tried: name some to see what they change."
        return Card(heading, text, measure)
    # The first of the ranking that is shown to narrow the gap
    for adapter in ranked_adapters(document, attribute):
        change = adapter.pseudo_eod[attribute].change
        _, tone = gap_verdict(change)
        if tone == "good":
            return Card(
                heading,
                f"Try {adapter.name}: perceived gap {points_text(change, signed=True)}, "
                f"{of_hundred(adapter.changed_share.value)} answers change.",
                f"About {count(adapter.labels_needed.labels)} labels of changed answers would "
                "show whether they become right.",
                tone,
            )
    return Card(
        heading, "No method tried is seen to narrow the perceived gap.", measure
    )
