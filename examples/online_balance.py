"""LogitBalance on a stream: fit again from the last images, kept in a ring buffer.

Each answer then depends on the images before it, so the order of images matters: this is a recipe
and not an adapter. Use it where images arrive one by one and no reference can be gathered first.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from fair_tta import (
    FairTPTClassifier,
    Features,
    LogitBalance,
    Prediction,
    ZeroShot,
    miniature,
)

WINDOW, LEAST, EVERY = (
    2000,
    300,
    50,
)  # images: kept, before the first fit, between two fits


def predict_stream(
    classifier: FairTPTClassifier,
    images: Iterable[Any],
    window: int = WINDOW,
    least: int = LEAST,
) -> Iterator[Prediction]:
    """Predictions in the order of the images: zero-shot until `least` images were seen."""
    classifier = classifier.with_adapter(ZeroShot())
    recent: deque[torch.Tensor] = deque(maxlen=window)  # features of the last images
    for index, image in enumerate(images):
        if index >= least and (index - least) % EVERY == 0:
            balance = classifier.with_adapter(LogitBalance())
            classifier = balance.fit(Features(torch.cat(list(recent))))
        features = classifier.encode([image], with_views=False)
        yield classifier.predict(Features(features))[0]
        recent.append(features)


if __name__ == "__main__":
    task = miniature.BIRDS
    clf = FairTPTClassifier("miniature", task.targets, task.sensitive, task.template)
    drawn = task.draw(400)
    predictions = list(
        predict_stream(clf, (drawn_image.image for drawn_image in drawn))
    )
    changed = [p.flipped for p in predictions]
    print(
        f"{sum(changed[LEAST:])} of {len(changed) - LEAST} answers differ from zero-shot"
    )
