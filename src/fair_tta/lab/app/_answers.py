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
from fair_tta.lab.app._questions import FIELDS, Fields, note
from fair_tta.lab.report._templates import embedded_image
from fair_tta.methods._base import Adapter
from fair_tta.methods.tuning._entropy import most_confident
from fair_tta.miniature import BADGES
from fair_tta.miniature._world import TASKS, MiniatureTask
from fair_tta.prediction import Prediction


class KeptView(NamedTuple):
    """A view that a method looked at, as the model sees it; place 0 is the image itself."""

    place: int
    image: Image.Image
    label: str
    probability: float


def kept_views(
    classifier: FairTPTClassifier,
    adapter: Adapter,
    image: Image.Image,
    prediction: Prediction,
) -> list[KeptView]:
    """The views that a method keeps, the most confident first; none if all or none count."""
    rho: Any = getattr(adapter, "rho", None)
    if rho is None or prediction.views_kept is None:
        return []
    task = classifier._task
    log_p = task.log_probabilities(classifier.encode([image]), task.target_features)
    places = most_confident(log_p, rho)[0].tolist()
    p = log_p[0].exp()
    vision, backend = classifier._vision, cast(Any, classifier._vision.backend)
    assert isinstance(vision.views, Views)
    height, width = backend.preprocess([image]).shape[
        -2:
    ]  # as large as the model's input
    arrays = vision.views(image, (height, width), content_generator(image, vision.seed))
    views = [image, *map(Image.fromarray, arrays.round().clip(0, 255).astype(np.uint8))]
    return [
        KeptView(i, views[i], classifier.targets[int(p[i].argmax())], float(p[i].max()))
        for i in places
    ]


MOST_VIEWS = 12  # shown of each method


def answers_html(
    classifier: FairTPTClassifier, methods: Mapping[str, Adapter], path: str | Path
) -> str:
    """What each method predicts: bars before and after, what is perceived, views, certificate."""
    if not methods:
        raise FairTTAError("choose at least one method.")
    image = classifier._vision.load(path)
    parts = [
        _answer(classifier, name, method, image) for name, method in methods.items()
    ]
    return f'<div class="fair-tta-answers">{"".join(parts)}</div>'


def certificate(prediction: Prediction) -> str:
    """How far the probabilities moved, and whether the answer could have changed.

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


def _answer(
    classifier: FairTPTClassifier, name: str, method: Adapter, image: Image.Image
) -> str:
    title = f"<h3>{escape(name)}</h3>"
    try:
        prediction = classifier.with_adapter(method).predict(image)
    except FairTTAError as error:
        return f"<section>{title}{note(error._named(FIELDS))}</section>"
    views = kept_views(classifier, method, image, prediction)
    return (
        f'<section data-method="{escape(name)}">{title}{prediction._repr_html_()}'
        f'<p class="fair-tta-certificate">{escape(certificate(prediction))}</p>'
        f"{_views(views, classifier._vision.count)}</section>"
    )


def _views(views: list[KeptView], count: int | None) -> str:
    if not views:
        return ""
    first = (
        f", the {MOST_VIEWS} most confident are shown"
        if len(views) > MOST_VIEWS
        else ""
    )
    figures = []
    for view in views[:MOST_VIEWS]:
        source = embedded_image(view.image).source
        what = "the image itself" if view.place == 0 else f"view {view.place}"
        label = f"{view.label} {view.probability:.3f}"
        figures.append(
            f'<figure><img src="{source}" alt="{escape(what)}">'
            f"<figcaption>{escape(what)}<br>{escape(label)}</figcaption></figure>"
        )
    return (
        f"<details><summary>{len(views)} of {count} views were kept{first}</summary>"
        f'<div class="fair-tta-views">{"".join(figures)}</div></details>'
    )


OF_EACH_TASK = 4
IN_A_FOLDER = 360  # 40 of each group: enough for a verdict


def fields_of(task: MiniatureTask) -> Fields:
    """What to write to ask about a drawn world."""
    return Fields(
        _lines(task.targets),
        "\n".join(_lines(names, f"{a}: ") for a, names in task.sensitive.items()),
        task.template,
    )


def draw_examples(folder: Path) -> dict[str, Fields]:
    """A few images of each world, as files, and what to ask about them; AssociationCorrection
    changes the first answer.
    """
    folder.mkdir(parents=True, exist_ok=True)
    first = BADGES.draw(1, seed=32, mix={("circle", "green"): 1})
    drawn = [("green-circle", BADGES, first[0])]
    for task in TASKS.values():
        one_of_each = task.draw(len(task.groups))
        step = (len(one_of_each) - 1) / (OF_EACH_TASK - 1)
        for place in range(OF_EACH_TASK):
            drawn.append(
                (f"{task.name}-{place}", task, one_of_each[round(place * step)])
            )
    for name, _, one in drawn:
        one.image.save(folder / f"{name}.png")
    return {str(folder / f"{name}.png"): fields_of(task) for name, task, _ in drawn}


def draw_folder(
    folder: Path, task: MiniatureTask = BADGES, count: int = IN_A_FOLDER
) -> tuple[list[str], str]:
    """Images of a task: their paths, and a CSV file of their labels."""
    folder.mkdir(parents=True, exist_ok=True)
    labels, paths = folder / "labels.csv", []
    with labels.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["file", "class", *task.sensitive])
        for place, drawn in enumerate(task.draw(count)):
            path = folder / f"{task.name}-{place:03}.png"
            drawn.image.save(path)
            paths.append(str(path))
            rows.writerow([path.name, drawn.target, *drawn.sensitive.values()])
    return paths, str(labels)


def _lines(names: Mapping[str, str], before: str = "") -> str:
    return "\n".join(
        f"{before}{name}" if name == phrase else f"{before}{name} = {phrase}"
        for name, phrase in names.items()
    )
