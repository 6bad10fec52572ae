"""Audit a classifier: predict, then measure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import islice
from time import perf_counter
from typing import Any

from fair_tta._identity import classifier_provenance
from fair_tta._images.load import image_bar, is_single_image
from fair_tta.auditing._audit import Audit
from fair_tta.auditing._measure import audit
from fair_tta.auditing._run import HarmSets
from fair_tta.errors import FairTTAError
from fair_tta.methods._base import Adapter
from fair_tta.methods._registry import find_adapter
from fair_tta.metrics._bootstrap import DEFAULT, Bootstrap
from fair_tta.metrics._columns import ONE_ATTRIBUTE, Column, Sensitive, read_column, read_sensitive
from fair_tta.metrics._scores import Scores
from fair_tta.prediction import Prediction


def lacks_values(adapter: Any) -> bool:
    """Whether a method needs the true attribute values of each image and does not have them."""
    return adapter.needs.values and adapter.known is None


def predict_knowing(
    classifier: Any,
    adapter: Any,
    images: Iterable[Any],
    columns: Mapping[str, list[Hashable]],
    *,
    progress: bool = False,
) -> Iterator[Prediction]:
    """Predictions in the order of the images, each by the method for its own values.

    `columns` are the sensitive values by attribute, in the classifier's words.
    """
    attributes = classifier.sensitive
    for attribute, names in attributes.items():
        values = dict.fromkeys(columns.get(attribute, ()))
        unknown = [repr(value) for value in values if value not in names]
        if attribute not in columns or unknown:
            raise FairTTAError(
                f"{type(adapter).__name__} has to know the true values: `sensitive` should have "
                f"{attribute!r} with values among {list(names)} (got "
                f"{', '.join(unknown[:5]) or list(columns)})."
            )
    rows = list(zip(*(columns[attribute] for attribute in attributes), strict=True))
    methods = {known: classifier.with_adapter(adapter.knowing(*known)) for known in set(rows)}
    stream, values_of, bar = iter(images), iter(rows), image_bar(images, progress)
    while batch := list(islice(stream, classifier.batch_size)):
        features = classifier.encode(batch, with_views=adapter.needs.views)
        own = list(islice(values_of, len(batch)))
        if len(own) < len(batch):
            raise FairTTAError("`labels` should be as many as images (got fewer).")
        answers: dict[int, Prediction] = {}
        for known in set(own):
            places = [place for place, value in enumerate(own) if value == known]
            found = methods[known].predict_encoded(features[places])
            answers.update(zip(places, found, strict=True))
        bar.update(len(batch))
        yield from (answers[place] for place in range(len(batch)))
    bar.close()


def audit_classifier(
    classifier: Any,
    images: Any,
    labels: Column,
    sensitive: Sensitive,
    *,
    adapter: Adapter | str | None = None,
    name: str | None = None,
    rename: Mapping[Any, str] | None = None,
    harmful: HarmSets | None = None,
    clusters: Column | None = None,
    progress: bool = False,
    interval: Bootstrap = DEFAULT,
) -> Audit:
    """Classify images whose labels are known and measure the answers, group by group.

    Args:
        classifier: a `FairTPTClassifier`.
        images: as many as labels; a list or any iterable.
        labels: their true labels, in the words of ``classifier.targets``.
        sensitive: their sensitive values, or ``{attribute: values}``. These may be any words and
            any attributes, not only those that the classifier names. Where all values of an
            attribute are among the classifier's, those that do not occur are reported too.
        adapter: another method than the classifier's own. One that has to know the true sensitive
            values, such as `TIE`, gets them; they have to be in the classifier's words then.
        name: what to call the run; the adapter's name if None.
        rename: ``{your label: classifier's label}`` for labels in other words.
        harmful: classes that should not be answered, see `audit`.
        clusters: the person or source of each image, see `audit`.
        progress: show a progress bar.
        interval: how intervals are made.

    The cost is the time of the prediction. Features of views that the classifier still holds
    from another adapter on the same images are not computed, nor counted, again.
    """
    if is_single_image(images):
        raise FairTTAError("`images` should be several images, one per label.")
    renamed, targets = rename or {}, classifier.targets
    truth = [renamed.get(label, label) for label in read_column("labels", labels)]
    unknown = sorted({repr(label) for label in truth if label not in targets})
    if unknown:
        raise FairTTAError(
            f"`labels` should be the classifier's targets, {list(targets)} (got "
            f"{', '.join(unknown[:5])}): pass `rename={{your label: target}}`."
        )
    if hasattr(images, "__len__") and len(images) != len(truth):
        raise FairTTAError(
            f"`labels` should be as many as images, {len(images)} (got {len(truth)})."
        )
    columns, known = read_sensitive(sensitive, len(truth)), classifier.sensitive
    if list(columns) == [ONE_ATTRIBUTE] and len(known) == 1:  # both have one, which is meant
        columns = {next(iter(known)): columns[ONE_ATTRIBUTE]}
    start = perf_counter()
    stream: Iterable[Prediction]
    adapter = find_adapter(adapter)
    if adapter is not None and lacks_values(adapter):
        stream = predict_knowing(classifier, adapter, images, columns, progress=progress)
    else:
        if adapter is not None:
            classifier = classifier.with_adapter(adapter)
        adapter = classifier.adapter
        stream = classifier.predict(images, progress=progress)
    predictions = list(stream)
    seconds = perf_counter() - start
    if len(predictions) != len(truth):
        raise FairTTAError(
            f"`labels` should be as many as images, {len(predictions)} (got {len(truth)})."
        )
    return audit(
        truth,
        [p.label for p in predictions],
        columns,
        name=type(adapter).__name__ if name is None else name,
        targets=targets,
        values={a: known[a] for a in columns if a in known and set(columns[a]) <= set(known[a])},
        scores=Scores.from_predictions(predictions),
        seconds=seconds,
        harmful=harmful,
        clusters=clusters,
        interval=interval,
        adapter=adapter,
        provenance=classifier_provenance(classifier),
    )
