"""Classify labelled images and measure the answers: the body of `FairTPTClassifier.audit`."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from time import perf_counter
from typing import Any

from fair_tta._identity import classifier_provenance
from fair_tta.auditing._audit import Audit
from fair_tta.auditing._measure import audit
from fair_tta.auditing._run import HarmSets
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.images._inputs import check_images
from fair_tta.images._load import image_bar, is_single_image
from fair_tta.images._stored import Features
from fair_tta.images._vision import image_digest
from fair_tta.methods._registry import AnyAdapter
from fair_tta.metrics._columns import DEFAULT_ATTRIBUTE, read_column, read_sensitive
from fair_tta.metrics._scores import Scores
from fair_tta.metrics._types import Column, Sensitive
from fair_tta.metrics.intervals._bootstrap import DEFAULT, Interval
from fair_tta.prediction import Prediction

_MAX_LISTED = 5  # unknown labels or values in a message


def audit_classifier(
    classifier: FairTPTClassifier,
    images: Any,
    labels: Column,
    sensitive: Sensitive,
    *,
    adapter: AnyAdapter | None = None,
    name: str | None = None,
    rename: Mapping[Any, str] | None = None,
    harmful: HarmSets | None = None,
    clusters: Column | None = None,
    progress: bool = False,
    interval: Interval = DEFAULT,
) -> Audit:
    """See `FairTPTClassifier.audit`."""
    if is_single_image(images):
        raise FairTTAError(
            "`images` should be several images, one per label.", argument="images"
        )
    truth = _read_labels(classifier, labels, rename or {})
    if hasattr(images, "__len__"):
        check_label_count(len(truth), len(images))
    known_values = classifier.sensitive
    columns = read_sensitive(sensitive, len(truth))
    if list(columns) == [DEFAULT_ATTRIBUTE] and len(known_values) == 1:
        # Values without an attribute's name belong to the classifier's only attribute
        (attribute,) = known_values
        columns = {attribute: columns[DEFAULT_ATTRIBUTE]}

    # Only predicting is timed: the cost of a run is that of its method
    start = perf_counter()
    digests: list[str] = []
    source_of_digests = _source_of_digests(classifier, images)
    if adapter is not None:
        classifier = classifier.with_adapter(adapter)
    method = classifier.adapter
    if lacks_values(method):
        method._check_fitted()
        predictions = _predict_with_known_values(
            classifier, method, images, columns, digests, progress=progress
        )
    else:
        predictions = list(
            classifier._stream(check_images(images), progress, digests=digests)
        )
    seconds = perf_counter() - start
    check_label_count(len(truth), len(predictions))

    # An attribute of the classifier is reported with all of its values, even if no image has some
    all_values = {}
    for attribute, values in columns.items():
        known = known_values.get(attribute, ())
        if set(values) <= set(known):
            all_values[attribute] = known
    measured = audit(
        truth,
        [prediction.label for prediction in predictions],
        columns,
        name=type(method).__name__ if name is None else name,
        targets=classifier.targets,
        values=all_values,
        scores=Scores.from_predictions(predictions),
        seconds=seconds,
        harmful=harmful,
        clusters=clusters,
        digests=digests,
        interval=interval,
        adapter=method,
        provenance=classifier_provenance(classifier),
    )

    # `audit` cannot know of what the digests are: two audits are compared only by the same source
    table = measured._need_columns("compare")
    (in_order,) = table.image_hashes.values()
    table = replace(table, image_hashes={source_of_digests: in_order})
    return Audit(measured.document, table)


def _read_labels(
    classifier: FairTPTClassifier, labels: Column, rename: Mapping[Any, str]
) -> list[Hashable]:
    """Return the labels in the classifier's words."""
    targets = classifier.targets
    # Renames are keyed by the caller's labels, which may be numbers
    truth = [rename.get(label, label) for label in read_column("labels", labels)]
    unknown = sorted({repr(label) for label in truth if label not in targets})
    if unknown:
        raise FairTTAError(
            f"`labels` should be the classifier's targets, {list(targets)} (got "
            f"{', '.join(unknown[:_MAX_LISTED])}): pass `rename={{your label: target}}`.",
            argument="labels",
        )
    return truth


def check_label_count(labels: int, images: int) -> None:
    """Raise unless there are as many labels as images."""
    if labels != images:
        raise FairTTAError(
            f"`labels` should have one entry per image (got {labels} for {images} images).",
            argument="labels",
        )


def lacks_values(adapter: Any) -> bool:
    """Return whether a method needs the true attribute values of each image and lacks them."""
    return adapter.needs.values and adapter.known is None


def _predict_with_known_values(
    classifier: FairTPTClassifier,
    adapter: Any,
    images: Iterable[Any],
    columns: Mapping[str, list[Hashable]],
    digests: list[str],
    *,
    progress: bool = False,
) -> list[Prediction]:
    """Predict each image by the method that knows its attribute values, in order.

    `columns` are the sensitive values by attribute, in the classifier's words. The digest of each
    image is added to `digests`.
    """
    # One classifier for each combination of values that occurs
    values_of_images = _known_values(classifier, adapter, columns)
    classifiers = {
        values: classifier.with_adapter(adapter.knowing(*values))
        for values in set(values_of_images)
    }
    predictions: list[Prediction] = []
    stream = iter(images)
    with image_bar(images, progress) as bar:
        while batch := list(islice(stream, classifier._batch_size)):
            # `images` may be an iterator: only here it shows that there are more than labels
            end = len(predictions) + len(batch)
            values_of_batch = values_of_images[len(predictions) : end]
            if len(values_of_batch) < len(batch):
                raise FairTTAError(
                    "`labels` should have one entry per image (got "
                    f"{len(values_of_images)}, but there are more images).",
                    argument="labels",
                )
            loaded: Any = _with_digests(map(classifier._load, batch), digests)
            features = classifier.encode(loaded, with_views=adapter.needs.views)

            # Images with the same values are predicted together
            answers: dict[int, Prediction] = {}
            for values in set(values_of_batch):
                indices = [i for i, v in enumerate(values_of_batch) if v == values]
                predicted = classifiers[values]._predict_encoded(features[indices])
                answers.update(zip(indices, predicted, strict=True))
            predictions += [answers[index] for index in range(len(batch))]
            bar.update(len(batch))
    return predictions


def _known_values(
    classifier: FairTPTClassifier,
    adapter: Any,
    columns: Mapping[str, list[Hashable]],
) -> list[tuple[Hashable, ...]]:
    """Return the values of each image, in the order of the classifier's attributes."""
    attributes = classifier.sensitive
    for attribute, names in attributes.items():
        values = dict.fromkeys(columns.get(attribute, ()))
        unknown = [repr(value) for value in values if value not in names]
        if attribute not in columns or unknown:
            raise FairTTAError(
                f"{type(adapter).__name__} needs the true values: `sensitive` should have "
                f"{attribute!r} with values among {list(names)} (got "
                f"{', '.join(unknown[:_MAX_LISTED]) or list(columns)}).",
                argument="sensitive",
            )
    return list(zip(*(columns[attribute] for attribute in attributes), strict=True))


def _with_digests(images: Iterable[Any], digests: list[str]) -> Iterator[Any]:
    """Yield loaded images one by one, and add the digest of each to `digests`."""
    for image in images:
        digests.append(image_digest(image))
        yield image


def _source_of_digests(classifier: FairTPTClassifier, images: Any) -> str:
    """Return the name of the things whose digests these are: images, or a model's features.

    Features of one image differ from model to model, with the views and with the precision, and so
    do their digests: those of other features say nothing about the images.
    """
    if not isinstance(images, Features):
        return "images"
    model = classifier_provenance(classifier)["model"]
    description = json.dumps(model, sort_keys=True, default=str)
    digest = sha256(description.encode()).hexdigest()
    return f"{images!r} of model {digest[:8]}"
