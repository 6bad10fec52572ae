"""One picture: the answers of several methods as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

from PIL import Image

from fair_tta.adapters import Adapter
from fair_tta.app.kept_views import KeptView, kept_views
from fair_tta.app.messages import in_fields, note
from fair_tta.app.sweeping import mark_used
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.prediction import Prediction
from fair_tta.report.pictures import embedded

MOST_VIEWS = 12
"""Shown of each method."""


def answers_html(
    classifier: FairTPTClassifier, methods: Mapping[str, Adapter], picture: str | Path
) -> str:
    """What each method answers: bars before and after, what is perceived, views, certificate.

    Args:
        classifier: its adapter does not matter.
        methods: by name.
        picture: its file.
    """
    if not methods:
        raise FairTTAError("choose at least one method.")
    image = classifier.vision.load(picture)
    mark_used([str(picture)])
    parts = [_answer(classifier, name, method, image) for name, method in methods.items()]
    return f'<div class="fair-tta-answers">{"".join(parts)}</div>'


def certificate(prediction: Prediction) -> str:
    """How far the probabilities moved and whether the answer could have changed, in words.

    The distance is half the l1 distance: 0.1 is as much as a tenth of all belief.
    """
    moved, margin = f"{prediction.distance:.3f}", f"{prediction.flip_margin:.3f}"
    if prediction.flipped:
        before = max(prediction.zero_shot, key=prediction.zero_shot.__getitem__)
        return (
            f"The answer changed from {before} to {prediction.label}: the probabilities moved by "
            f"{moved}, and a change takes at least {margin}."
        )
    if prediction.certified_unchanged:
        return (
            f"Certified: the answer could not change. The probabilities moved by {moved}, and a "
            f"change takes at least {margin}."
        )
    return (
        f"The answer stayed, but this is not certified: the probabilities moved by {moved}, and "
        f"{margin} can be enough for a change."
    )


def _answer(classifier: FairTPTClassifier, name: str, method: Adapter, image: Image.Image) -> str:
    title = f"<h3>{escape(name)}</h3>"
    try:
        prediction = classifier.with_adapter(method).predict(image)
    except FairTTAError as error:
        return f"<section>{title}{note(in_fields(str(error)))}</section>"
    views = kept_views(classifier, method, image, prediction)
    return (
        f'<section data-method="{escape(name)}">{title}{prediction._repr_html_()}'
        f'<p class="fair-tta-certificate">{escape(certificate(prediction))}</p>'
        f"{_views(views, classifier.vision.count)}</section>"
    )


def _views(views: list[KeptView], count: int | None) -> str:
    if not views:
        return ""
    first = f", the {MOST_VIEWS} surest are shown" if len(views) > MOST_VIEWS else ""
    figures = []
    for view in views[:MOST_VIEWS]:
        shown = embedded(view.image)
        what = "the picture itself" if view.place == 0 else f"view {view.place}"
        says = f"{view.label} {view.probability:.3f}"
        figures.append(
            f'<figure><img src="{shown.source}" alt="{escape(what)}">'
            f"<figcaption>{escape(what)}<br>{escape(says)}</figcaption></figure>"
        )
    return (
        f"<details><summary>{len(views)} of {count} views were kept{first}</summary>"
        f'<div class="fair-tta-views">{"".join(figures)}</div></details>'
    )
