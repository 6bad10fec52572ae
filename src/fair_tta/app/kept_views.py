"""Which views of a picture a method kept, as pictures."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from fair_tta.adapters import Adapter
from fair_tta.classifier import FairTPTClassifier
from fair_tta.prediction import Prediction
from fair_tta.tuning.entropy import most_confident
from fair_tta.vision.views import Views, content_generator


class KeptView(NamedTuple):
    """A view that a method looked at.

    Attributes:
        place: 0 is the picture itself.
        image: as the model sees it.
        label: what zero-shot says of it.
        probability: of that.
    """

    place: int
    image: Image.Image
    label: str
    probability: float


def kept_views(
    classifier: FairTPTClassifier, adapter: Adapter, image: Image.Image, prediction: Prediction
) -> list[KeptView]:
    """The views with the most certain answers, the surest first; none if all or none count.

    Args:
        classifier: its adapter does not matter.
        adapter: the method; it keeps a share `rho` of the views.
        image: what `classifier.vision.load` gave.
        prediction: the method's.
    """
    rho: Any = getattr(adapter, "rho", None)
    if rho is None or prediction.views_kept is None:
        return []
    task = classifier.task
    log_p = task.log_probabilities(classifier.encode([image]), task.target_features)
    places = most_confident(log_p, rho)[0].tolist()
    p = log_p[0].exp()
    pictures = _pictures(classifier, image)
    return [
        KeptView(i, pictures[i], classifier.targets[int(p[i].argmax())], float(p[i].max()))
        for i in places
    ]


def _pictures(classifier: FairTPTClassifier, image: Image.Image) -> list[Image.Image]:
    vision = classifier.vision
    assert isinstance(vision.views, Views)
    height, width = vision.pixels(image).shape[-2:]
    arrays = vision.views(image, (height, width), content_generator(image, vision.seed))
    views = arrays.round().clip(0, 255).astype(np.uint8)
    return [image, *map(Image.fromarray, views)]
