"""The page of an examination: one file, no scripts, nothing loaded from anywhere."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from msgspec import convert

from fair_tta.auditing._examination import ChangedPicture, Examination, ExaminationDocument
from fair_tta.errors import FairTTAError
from fair_tta.lab.report import _examination_words as sentences
from fair_tta.lab.report._drawings import ACROSS, Dot, difference_dots, dot_plot, heat_map
from fair_tta.lab.report._numbers import percent
from fair_tta.lab.report._page import embedded, jinja_environment
from fair_tta.lab.report._sentences import clean


def examination_html(
    examination: Examination, *, title: str | None = None, pictures: bool = True
) -> str:
    """What was seen without labels as one HTML page.

    Args:
        examination: what `FairTPTClassifier.examine` gave, or `Examination.load`.
        title: what to call it.
        pictures: show those whose answer would change, if the examination has any. False leaves
            nothing of them in the page, neither picture nor name.
    """
    if not isinstance(examination, Examination):
        raise FairTTAError(
            f"`examination` should be an Examination (got {type(examination).__name__})."
        )
    document = convert(clean(examination.to_dict()), ExaminationDocument)
    return (
        jinja_environment()
        .get_template("examination.html.jinja")
        .render(
            title=clean(title) if title else sentences.title(document),
            d=document,
            p=document.origin,
            banners=sentences.banners(document),
            attributes=[
                _attribute(document, name, f"attribute-{i}")
                for i, name in enumerate(document.attributes, start=1)
            ],
            gallery=_gallery(examination.pictures) if pictures else [],
            counts={adapter.name: adapter.changed for adapter in document.adapters},
            cannot=sentences.CANNOT,
        )
    )


def _attribute(document: ExaminationDocument, name: str, place: str) -> dict[str, Any]:
    of, methods = document.attributes[name], sentences.ranked(document, name)
    verdicts = [sentences.gap_verdict(m.pseudo_eod[name].change) for m in methods]
    dots = [Dot("zero-shot, as it is", of.pseudo_eod)]
    dots += [
        Dot(method.name, method.pseudo_eod[name].after, tone)
        for method, (_, tone) in zip(methods, verdicts, strict=True)
    ]
    changes = [method.pseudo_eod[name].change for method in methods]
    most = max((abs(x) for c in changes for x in (c.low, c.high) if x is not None), default=1.0)
    return {
        "id": place,
        "name": name,
        "of": of,
        "cards": sentences.cards(document, name),
        "plan": sentences.label_plan(document, name),
        "associations": heat_map(of.associations, f"Prompt associations of {name}, in logits"),
        "is_wide": min(len(of.shares), len(document.targets)) > ACROSS,
        "odds": dot_plot(dots, f"Perceived gap by {name} in points, with intervals"),
        "shares": dot_plot(
            [Dot(value, share) for value, share in of.shares.items()],
            f"Shares perceived of {name} in percent, with intervals",
            most=1.0,
        ),
        "methods": [
            {
                "adapter": method,
                "says": says,
                "tone": tone,
                "odds": method.pseudo_eod[name],
                "dot": difference_dots(
                    [(change, tone)], most, f"{method.name}: {percent(change.value, True)} points"
                ),
            }
            for method, change, (says, tone) in zip(methods, changes, verdicts, strict=True)
        ],
    }


def _gallery(pictures: tuple[ChangedPicture, ...]) -> list[dict[str, Any]]:
    """Pictures by method, as the template needs them."""
    found = []
    for adapter, some in groupby(pictures, key=lambda picture: picture.adapter):
        shown = []
        for one in some:
            name, before, after = (clean(text) for text in (one.name, one.before, one.after))
            before += f" ({percent(one.before_probability)} %)"
            after += f" ({percent(one.after_probability)} %)"
            shown.append(
                {
                    "picture": embedded(one.image),
                    "name": name,
                    "before": before,
                    "after": after,
                    "alt": f"{name}. Before: {before}. After: {after}.",
                }
            )
        found.append({"adapter": clean(adapter), "pictures": shown})
    return found
