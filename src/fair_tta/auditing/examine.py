"""Examine a classifier without labels: predict, then look at what it perceives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from PIL.Image import Image

from fair_tta.adapters import Adapter, ZeroShot
from fair_tta.adapters.contract import needs_pixels
from fair_tta.auditing.changed_pictures import ChangedPictures
from fair_tta.auditing.examination import Examination
from fair_tta.auditing.perceptions import Perceptions
from fair_tta.classifier import FairTPTClassifier, checked_images
from fair_tta.errors import FairTTAError, ImageError, require
from fair_tta.metrics.bootstrap import DEFAULT, Bootstrap
from fair_tta.prediction import Prediction
from fair_tta.runs.provenance import classifier_provenance
from fair_tta.vision.images import is_single_image


def examine_classifier(
    classifier: FairTPTClassifier,
    images: Any,
    adapters: Iterable[Adapter] | Mapping[str, Adapter] | None = None,
    *,
    progress: bool = False,
    interval: Bootstrap = DEFAULT,
) -> Examination:
    """Look at images without labels: what is perceived, stop signs, and what adapters would do.

    Pseudo-EOD takes the model's zero-shot beliefs for labels. It is the model's own perception,
    not a measurement on people, and says nothing about accuracy. Small copies of some images whose
    answer would change are kept for the page, and nowhere else.

    Args:
        classifier: a `FairTPTClassifier` with sensitive names; its adapter does not matter.
        images: a list or any iterable; they pass by in batches.
        adapters: methods to try, or ``{name: method}``; None to look only. Each is compared with
            the zero-shot answers.
        progress: show a progress bar.
        interval: level, resamples and seed of the intervals.

    Raises:
        FairTTAError: the classifier names nothing sensitive, there are no images, or two adapters
            have the same name.
        ImageError: an image cannot be read.
    """
    methods = named_adapters(adapters)
    for method in methods.values():
        classifier.with_adapter(method)  # what cannot be used is told before anything is done
    found = Perceptions(classifier.associations(), methods)
    changed = ChangedPictures(methods)
    if is_single_image(images):
        raise FairTTAError("`images` should be several images (got one): examine([image]).")
    images = checked_images(images)
    if progress:
        images = require("tqdm.auto", "progress").tqdm(images, unit="image")
    loaded = _loaded(classifier, images)
    while batch := list(islice(loaded, classifier.batch_size)):
        rows = _predictions(classifier, batch, [ZeroShot(), *methods.values()])
        for image, predictions in zip(batch, rows, strict=True):
            changed.add(predictions, f"image {len(found)}", image)
            found.add(predictions)
    examination = found.examine(interval, classifier_provenance(classifier))
    return replace(examination, pictures=changed.pictures(classifier.vision.load))


def named_adapters(
    adapters: Iterable[Adapter] | Mapping[str, Adapter] | None,
) -> dict[str, Adapter]:
    """Adapters by name; that of the class if none is given."""
    if adapters is None or isinstance(adapters, Mapping):
        return dict(adapters or {})
    several = list(adapters)
    found = {type(adapter).__name__: adapter for adapter in several}
    if len(found) < len(several):
        raise FairTTAError(
            f"`adapters` should differ in their classes (got {[*map(repr, several)]}), or be "
            "{name: adapter}."
        )
    return found


def _loaded(classifier: FairTPTClassifier, images: Iterable[Any]) -> Iterator[Image]:
    for index, image in enumerate(images):
        try:
            yield classifier.vision.load(image)
        except ImageError as error:
            raise ImageError(f"image {index}: {error}") from error


def _predictions(
    classifier: FairTPTClassifier, batch: list[Image], methods: list[Adapter]
) -> Iterator[tuple[Prediction, ...]]:
    """For each image the predictions of all methods, from features that are made once."""
    views = any(method.needs_views and not needs_pixels(method) for method in methods)
    features = classifier.encode(batch, views=views)

    def predict(method: Adapter) -> list[Prediction]:
        clf = classifier.with_adapter(method)
        if needs_pixels(method):
            return clf.predict(batch)
        return clf.predict_encoded(features if method.needs_views else features[:, :1])

    return zip(*map(predict, methods), strict=True)
