"""Predictions of a method that is told the true sensitive values of each image."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from fair_tta.errors import FairTTAError, require
from fair_tta.prediction import Prediction


def is_untold(adapter: Any) -> bool:
    """Whether a method has to know true values and has not been told."""
    return bool(getattr(adapter, "needs_values", False)) and adapter.known is None


def predict_knowing(
    classifier: Any,
    adapter: Any,
    images: Iterable[Any],
    columns: Mapping[str, list[Hashable]],
    *,
    progress: bool = False,
) -> Iterator[Prediction]:
    """Predictions in the order of the images, each by the method for its own values.

    Args:
        classifier: its own adapter does not matter.
        adapter: has `knowing`.
        images: as many as the columns are long.
        columns: the sensitive values by attribute, in the classifier's words.
        progress: show a progress bar.
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
    methods = {
        known: classifier.with_adapter(adapter.knowing(*known)) for known in dict.fromkeys(rows)
    }
    if progress:
        images = require("tqdm.auto", "progress").tqdm(images, unit="image")
    stream, told = iter(images), iter(rows)
    while batch := list(islice(stream, classifier.batch_size)):
        features = classifier.encode(batch, views=adapter.needs_views)
        own = list(islice(told, len(batch)))
        if len(own) < len(batch):
            raise FairTTAError("`labels` should be as many as images (got fewer).")
        answers: dict[int, Prediction] = {}
        for known in dict.fromkeys(own):
            places = [place for place, value in enumerate(own) if value == known]
            found = methods[known].predict_encoded(features[places])
            answers.update(zip(places, found, strict=True))
        yield from (answers[place] for place in sorted(answers))
