"""The page of an examination without labels."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from fair_tta.auditing import _examination as doc
from fair_tta.lab.report import _examination_text as text
from fair_tta.lab.report._drawings import Dot, dot_plot
from fair_tta.lab.report._numbers import (
    image_count,
    recorded_model,
    subtitle,
    task_name,
)
from fair_tta.lab.report._templates import embedded_image, render


def examination_html(
    examination: doc.Examination, *, title: str | None = None, images: bool = False
) -> str:
    """Return what was seen without labels as one HTML page.

    Args:
        examination: what `FairTPTClassifier.examine` gave, or `Examination.load`.
        title: what to call it.
        images: embed some whose answer would change, if the examination has any; else there is
            neither image nor name of them in the page.
    """
    document = examination.document
    n_images = image_count(document.n)
    if not title:
        task = task_name(document.targets, document.attributes)
        model = recorded_model(document.origin) or "a model"
        title = f"{task}: {model} on {n_images} without labels"
    attributes = []
    for number, name in enumerate(document.attributes, start=1):
        attributes.append(_attribute_section(document, name, f"attribute-{number}"))
    # Without the option neither images nor their names are in the page
    gallery = []
    if images:
        for adapter, changed in groupby(
            examination.images, key=lambda image: image.adapter
        ):
            embedded = [(image, embedded_image(image.image)) for image in changed]
            gallery.append((adapter, embedded))
    return render(
        "examination.html.jinja",
        title=title,
        d=document,
        p=document.origin,
        subtitle=subtitle(document.origin, n_images),
        attributes=attributes,
        gallery=gallery,
        n_changed={adapter.name: adapter.changed for adapter in document.adapters},
    )


def _attribute_section(
    document: doc.ExaminationDocument, name: str, section_id: str
) -> dict[str, Any]:
    """Return what the template of one attribute needs."""
    perceived = document.attributes[name]
    # Zero-shot stands above the methods, which follow in the order of the ranking
    methods = []
    gaps = [Dot(text.ZERO_SHOT, perceived.pseudo_eod)]
    for adapter in text.ranked_adapters(document, name):
        odds = adapter.pseudo_eod[name]
        verdict, tone = text.gap_verdict(odds.change)
        gaps.append(Dot(adapter.name, odds.after, tone))
        methods.append(
            {"adapter": adapter, "verdict": verdict, "tone": tone, "odds": odds}
        )
    shares = [Dot(value, share) for value, share in perceived.shares.items()]

    # The strongest colour is 1 logit or more
    strongest = 1.0
    for logits in perceived.associations.values():
        strongest = max(strongest, *(abs(logit) for logit in logits.values()))
    return {
        "id": section_id,
        "name": name,
        "perceived": perceived,
        "associations": _shorter_side_across(perceived.associations),
        "strongest": strongest,
        "odds": dot_plot(gaps, f"Perceived gap by {name} in points, with intervals"),
        "shares": dot_plot(
            shares,
            f"Shares perceived of {name} in percent, with intervals",
            reach=(0.0, 1.0),
        ),
        "methods": methods,
    }


def _shorter_side_across(
    table: Mapping[str, Mapping[str, float]],
) -> Mapping[str, Mapping[str, float]]:
    """Return a table, transposed if it has more columns than rows."""
    columns = list(next(iter(table.values())))
    if len(columns) <= len(table):
        return table
    transposed = {}
    for column in columns:
        transposed[column] = {row: table[row][column] for row in table}
    return transposed
