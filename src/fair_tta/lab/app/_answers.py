"""One image: the answers of several methods as HTML, and drawn examples."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from PIL import Image

from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.images._views import Views, content_generator
from fair_tta.lab.app._questions import FIELD_NAMES, FormFields, alert_html
from fair_tta.lab.report._templates import embedded_image
from fair_tta.methods._base import Adapter
from fair_tta.methods.tuning._entropy import most_confident
from fair_tta.miniature import BADGES
from fair_tta.miniature._world import TASKS, MiniatureTask
from fair_tta.prediction import Prediction

# Views shown of each method
_MAX_VIEWS = 12

_EXAMPLES_PER_TASK = 4

# 40 images of each group: enough for a verdict
_FOLDER_SIZE = 360


class KeptView(NamedTuple):
    """A view that a method looked at, as the model sees it; number 0 is the image itself."""

    number: int
    image: Image.Image
    label: str
    probability: float


def kept_views(
    classifier: FairTPTClassifier,
    adapter: Adapter,
    image: Image.Image,
    prediction: Prediction,
) -> list[KeptView]:
    """Return the views that a method keeps, the most confident first; none if it keeps all."""
    rho: Any = getattr(adapter, "rho", None)
    if rho is None or prediction.views_kept is None:
        return []
    # The same choice as the method made: the views with the lowest entropy
    task = classifier._task
    log_p = task.log_probabilities(classifier.encode([image]), task.target_features)
    probabilities = log_p[0].exp()

    # The views are drawn again, as large as the model's input
    vision = classifier._vision
    assert isinstance(vision.views, Views)
    model_input = cast(Any, vision.backend).preprocess([image])
    height, width = model_input.shape[-2:]
    generator = content_generator(image, vision.seed)
    images = [image]
    for pixels in vision.views(image, (height, width), generator):
        images.append(Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8)))

    views = []
    for index in most_confident(log_p, rho)[0].tolist():
        label = classifier.targets[int(probabilities[index].argmax())]
        probability = float(probabilities[index].max())
        views.append(KeptView(index, images[index], label, probability))
    return views


def answers_html(
    classifier: FairTPTClassifier, methods: Mapping[str, Adapter], path: str | Path
) -> str:
    """Return what each method predicts: bars before and after, perception, views, certificate."""
    if not methods:
        raise FairTTAError("choose at least one method.")
    image = classifier._vision.load(path)
    sections = []
    for name, method in methods.items():
        sections.append(_method_html(classifier, name, method, image))
    return f'<div class="fair-tta-answers">{"".join(sections)}</div>'


def certificate(prediction: Prediction) -> str:
    """Return how far the probabilities moved, and whether the answer could have changed.

    The distance is half the l1 distance: 0.1 means that a tenth of the probability mass moved.
    """
    if prediction.flipped:
        before = max(prediction.zero_shot, key=prediction.zero_shot.__getitem__)
        text = f"The answer changed from {before} to {prediction.label}"
    elif prediction.certified_unchanged:
        text = "Certified: the answer could not change"
    else:
        text = "The answer stayed, but this is not certified"
    return (
        f"{text}. The probabilities moved by {prediction.distance:.3f}, and a change takes at "
        f"least {prediction.flip_margin:.3f}."
    )


def _method_html(
    classifier: FairTPTClassifier, name: str, method: Adapter, image: Image.Image
) -> str:
    title = f"<h3>{escape(name)}</h3>"
    try:
        prediction = classifier.with_adapter(method).predict(image)
    except FairTTAError as error:
        return f"<section>{title}{alert_html(error._named(FIELD_NAMES))}</section>"
    views = kept_views(classifier, method, image, prediction)
    return (
        f'<section data-method="{escape(name)}">{title}{prediction._repr_html_()}'
        f'<p class="fair-tta-certificate">{escape(certificate(prediction))}</p>'
        f"{_views_html(views, classifier._vision.count)}</section>"
    )


def _views_html(views: list[KeptView], n_views: int | None) -> str:
    """Return the kept views, folded."""
    if not views:
        return ""
    summary = f"{len(views)} of {n_views} views were kept"
    if len(views) > _MAX_VIEWS:
        summary += f", the {_MAX_VIEWS} most confident are shown"
    figures = []
    for view in views[:_MAX_VIEWS]:
        source = embedded_image(view.image).source
        name = "the image itself" if view.number == 0 else f"view {view.number}"
        answer = escape(f"{view.label} {view.probability:.3f}")
        figures.append(
            f'<figure><img src="{source}" alt="{name}">'
            f"<figcaption>{name}<br>{answer}</figcaption></figure>"
        )
    return (
        f"<details><summary>{summary}</summary>"
        f'<div class="fair-tta-views">{"".join(figures)}</div></details>'
    )


def form_fields_of(task: MiniatureTask) -> FormFields:
    """Return what to write to ask about a drawn world."""
    sensitive = [
        _lines(phrases, f"{attribute}: ")
        for attribute, phrases in task.sensitive.items()
    ]
    return FormFields(_lines(task.targets), "\n".join(sensitive), task.template)


def draw_examples(folder: Path) -> dict[str, FormFields]:
    """Write a few images of each world; return what to ask about each file.

    AssociationCorrection changes the answer of the first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    examples = {}

    def save(image: Image.Image, name: str, task: MiniatureTask) -> None:
        path = folder / f"{name}.png"
        image.save(path)
        examples[str(path)] = form_fields_of(task)

    # The seed was chosen such that the answer changes
    (first,) = BADGES.draw(1, seed=32, mix={("circle", "green"): 1})
    save(first.image, "green-circle", BADGES)
    for task in TASKS.values():
        # Groups at equal distances, so that examples differ
        one_per_group = task.draw(len(task.groups))
        step = (len(one_per_group) - 1) / (_EXAMPLES_PER_TASK - 1)
        for number in range(_EXAMPLES_PER_TASK):
            drawn = one_per_group[round(number * step)]
            save(drawn.image, f"{task.name}-{number}", task)
    return examples


def draw_folder(
    folder: Path, task: MiniatureTask = BADGES, n_images: int = _FOLDER_SIZE
) -> tuple[list[str], str]:
    """Write images of a task and a CSV file of their labels; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    labels = folder / "labels.csv"
    paths = []
    with labels.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["file", "class", *task.sensitive])
        for number, drawn in enumerate(task.draw(n_images)):
            path = folder / f"{task.name}-{number:03}.png"
            drawn.image.save(path)
            paths.append(str(path))
            writer.writerow([path.name, drawn.target, *drawn.sensitive.values()])
    return paths, str(labels)


def _lines(phrases: Mapping[str, str], prefix: str = "") -> str:
    """Return a line for each name, with its phrase where that is another."""
    lines = []
    for name, phrase in phrases.items():
        line = name if name == phrase else f"{name} = {phrase}"
        lines.append(f"{prefix}{line}")
    return "\n".join(lines)
