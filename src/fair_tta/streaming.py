"""Long streams of images: several methods at once, and a picture that fails does not stop the rest.

Only one batch of images is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import TypeVar

import torch
from PIL.Image import Image

from fair_tta.backends.guard import untouched
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError, ImageError
from fair_tta.images import ImageInput, load_image
from fair_tta.prediction import Prediction

T = TypeVar("T")

_NOT_THE_PICTURE: tuple[type[Exception], ...] = (FairTTAError, MemoryError, torch.OutOfMemoryError)
if hasattr(torch, "AcceleratorError"):  # since torch 2.8
    _NOT_THE_PICTURE += (torch.AcceleratorError,)


@dataclass(frozen=True)
class Answer:
    """What each classifier says of one image.

    Attributes:
        predictions: by the names of the classifiers.
        seconds: what each took for this image, its share of the batch; views that several share
            are counted for each, so that the numbers can be compared.
    """

    predictions: dict[str, Prediction]
    seconds: dict[str, float]


def answer_batch(
    classifiers: Mapping[str, FairTPTClassifier], images: Sequence[ImageInput]
) -> list[Answer | ImageError]:
    """Ask classifiers about a batch of images; an image that fails gives an error in its place.

    Args:
        classifiers: by names; those made by `with_adapter` share features of prompts and views.
        images: as `FairTPTClassifier.predict` takes them, not more than fit in memory. Features
            of earlier images are let go.

    What fails with each of several images, or for want of memory, is no fault of an image and is
    raised.
    """
    for classifier in classifiers.values():
        classifier.vision.forget()  # the batch before: in a stream nobody asks for it
    loaded: list[Image | ImageError] = []
    for image in images:
        try:
            loaded.append(load_image(image))
        except ImageError as error:
            loaded.append(error)
    readable = [picture for picture in loaded if not isinstance(picture, ImageError)]
    answers = iter(_answers(classifiers, readable))
    return [p if isinstance(p, ImageError) else next(answers) for p in loaded]


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Lists of `size` items, the last one shorter."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def _answers(
    classifiers: Mapping[str, FairTPTClassifier], images: list[Image]
) -> list[Answer | ImageError]:
    if not images:
        return []
    try:
        return list(_ask(classifiers, images))
    except _NOT_THE_PICTURE:
        raise
    except Exception as error:  # a picture of odd shape makes a model's own code fail
        if len(images) > 1:
            alone = [answer for image in images for answer in _answers(classifiers, [image])]
            if all(isinstance(answer, ImageError) for answer in alone):
                raise  # not the pictures but the program
            return alone
        size = f"{images[0].width} x {images[0].height}"
        reason = f"{type(error).__name__}: {error}"
        return [ImageError(f"the model cannot use this picture of {size} pixels ({reason})")]


def _ask(classifiers: Mapping[str, FairTPTClassifier], images: list[Image]) -> Iterator[Answer]:
    predictions: dict[str, list[Prediction]] = {}
    seconds: dict[str, float] = {}
    shared: dict[int, float] = {}
    for name, classifier in classifiers.items():
        vision, views = classifier.vision, classifier.adapter.needs_views
        if views and id(vision) not in shared:
            start = perf_counter()
            with untouched(getattr(classifier.backend, "model", None)), torch.no_grad():
                vision.features(images, True)  # and keeps them
            shared[id(vision)] = perf_counter() - start
        start = perf_counter()
        predictions[name] = classifier.predict(images)
        own = perf_counter() - start
        seconds[name] = (own + (shared[id(vision)] if views else 0.0)) / len(images)
    for i in range(len(images)):
        yield Answer({name: of[i] for name, of in predictions.items()}, seconds)
