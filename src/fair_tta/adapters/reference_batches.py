"""Reference images as batches of features, none of which is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from fair_tta.adapters.reference_labels import check_as_many
from fair_tta.errors import FairTTAError, ImageError, ModelError, require
from fair_tta.text.encoder import of_length_one
from fair_tta.text.task import Task
from fair_tta.vision.images import is_single_image


@runtime_checkable
class EncodesImages(Protocol):
    """What fitting needs of a classifier."""

    batch_size: int

    @property
    def task(self) -> Task:
        """The text side."""
        ...

    def encode(self, images: Any, *, views: bool = ...) -> Tensor:
        """Unit features ``[images, views, dim]``."""
        ...


@dataclass(frozen=True, eq=False)
class ReferenceBatch:
    """Some reference images, in float64 and on the CPU, so that sums depend on no device.

    Attributes:
        features: ``[images, dim]`` unit features.
        values: ``{attribute: [images]}``, which of its values an image has, as whole numbers in
            the order of `Task.sensitive`; empty without labels.
    """

    features: Tensor
    values: Mapping[str, Tensor] = field(default_factory=dict)


def encode_all(classifier: EncodesImages, images: Any, progress: bool) -> Iterator[Tensor]:
    """Features of images, `batch_size` at a time."""
    _check_classifier(classifier)
    if is_single_image(images) or not hasattr(images, "__iter__"):
        raise ImageError(
            f"`images` should be many reference images (got one {type(images).__name__}; "
            "features: `fit_encoded`)."
        )
    if progress:
        images = require("tqdm.auto", "progress").tqdm(images, unit="image")
    classifier.encode([], views=False)  # makes it notice that its weights have changed
    stream = iter(images)
    parts = iter(lambda: list(islice(stream, classifier.batch_size)), [])
    return (classifier.encode(part, views=False) for part in parts)


def as_batches(classifier: EncodesImages, features: Tensor | Iterable[Tensor]) -> Iterator[Tensor]:
    """Features of images, all at once or already in batches."""
    _check_classifier(classifier)
    if isinstance(features, Tensor) or not isinstance(features, Iterable):  # which is refused
        return iter([features])
    return iter(features)


def checked_batches(
    classifier: EncodesImages, task: Task, batches: Iterable[Tensor], values: Mapping[str, Tensor]
) -> Iterator[ReferenceBatch]:
    """What a method learns from, or an error that says what is wrong.

    Args:
        classifier: whose weights should not change meanwhile.
        task: that of the classifier.
        batches: ``[images, views, dim]`` each.
        values: ``{attribute: [images]}``, or nothing.
    """
    images = 0
    dim = task.target_features.shape[1]
    for batch in batches:
        if classifier.task is not task:
            raise ModelError(f"the weights of {task.backend.name} changed during `fit`: fit again.")
        check_features(batch, dim)
        v = first_views(task, batch)
        begin, images = images, images + len(v)
        here = {name: places[begin:images] for name, places in values.items()}
        if any(len(places) < len(v) for places in here.values()):
            check_as_many(values, images)
        yield ReferenceBatch(v, here)
    check_as_many(values, images)


def check_features(features: Any, dim: int) -> None:
    """Raise unless these are numbers ``[images, views, dim]``, with at least one view."""
    is_dense = (
        isinstance(features, Tensor)
        and not (features.is_nested or features.is_quantized or features.is_meta)
        and features.layout is torch.strided
    )
    shape = list(features.shape) if is_dense else None
    if shape is None or shape[2:] != [dim] or shape[1] == 0:
        got = shape or type(features).__name__
        kind = "" if shape or not isinstance(features, Tensor) else " that is not dense"
        raise FairTTAError(
            f"`features` should be what `encode` gives, [images, views, {dim}] (got {got}{kind})."
        )


def first_views(task: Task, features: Tensor) -> Tensor:
    """What is learnt from: ``[images, views, dim] -> [images, dim]``, float64, on the CPU."""
    v = of_length_one(features[:, 0].detach().cpu().double())
    if not bool(v.isfinite().all()):
        raise ModelError(
            f"{task.backend.name} gives features that are not finite; if it runs in half "
            "precision, try float32."
        )
    return v


def _check_classifier(classifier: Any) -> None:
    if not isinstance(classifier, EncodesImages):
        raise FairTTAError(
            f"`classifier` should be a FairTPTClassifier (got a {type(classifier).__name__})."
        )


def gather_batches(batches: Iterable[ReferenceBatch]) -> tuple[Tensor, dict[str, Tensor]]:
    """All at once, for a method that has to hold them: features ``[images, dim]``, and values."""
    parts = list(batches)
    names = parts[0].values
    values = {name: torch.cat([part.values[name] for part in parts]) for name in names}
    return torch.cat([part.features for part in parts]), values
