"""Fitting on reference images: a method declares what it learns, the rest is here.

A method that is fitted is a frozen dataclass with the base `FittedMethod` and a field ``reference:
Reference | None = None``. Its `needs` say whether it has to know the sensitive values
(``reference_sensitive``) or the classes (``reference_labels``) of the reference images. It adds
`_learn`, `adapt`, and where it helps `_prepare`.
"""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import torch
from torch import Tensor

from fair_tta.errors import FairTTAError, ImageError, ModelError, SmallReferenceWarning
from fair_tta.images._load import image_bar, is_single_image
from fair_tta.images._stored import Features, as_unit_features, feature_batches
from fair_tta.methods._base import (
    Adapter,
    Chained,
    Needs,
    check_sensitive,
    non_finite_error,
)
from fair_tta.methods._reference import Reference, TaskIdentity
from fair_tta.prompts._task import Task

SensitiveLabels: TypeAlias = Iterable[str] | Mapping[str, Iterable[str]]
"""The name of a value for each image, or these by attribute."""

ClassLabels: TypeAlias = Iterable[str | None] | Mapping[int, str]
"""The class of each image, None where it is not known, or ``{place of an image: class}``."""


def index_attribute_values(
    labels: SensitiveLabels | None, sensitive: Mapping[str, Mapping[str, str]]
) -> dict[str, Tensor]:
    """``{attribute: [images]}``, the places of the values among those of the attribute."""
    if not isinstance(labels, Mapping) and len(sensitive) == 1:
        labels = dict.fromkeys(sensitive, labels)
    if not isinstance(labels, Mapping) or set(labels) != set(sensitive):
        got = (
            list(labels)
            if isinstance(labels, Mapping)
            else f"a {type(labels).__name__}"
        )
        raise FairTTAError(
            f"`sensitive` should be {{attribute: labels}} for {list(sensitive)} (got {got}).",
            argument="sensitive",
        )
    values = {
        name: _places(name, labels[name], list(sensitive[name])) for name in sensitive
    }
    counts = {name: len(places) for name, places in values.items()}
    if len(set(counts.values())) > 1:
        raise FairTTAError(
            f"`sensitive` should be as many of each attribute (got {counts}).",
            argument="sensitive",
        )
    return values


def _places(attribute: str, labels: Any, names: list[str]) -> Tensor:
    of = f"`sensitive` of {attribute!r} should"
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise FairTTAError(f"{of} be a name for each image (got {labels!r}).")
    given = list(labels)
    unknown = list(dict.fromkeys(repr(name) for name in given if name not in names))
    if unknown:
        raise FairTTAError(f"{of} be among {names} (got {', '.join(unknown[:3])}).")
    absent = [name for name in names if name not in given]
    if absent:
        raise FairTTAError(
            f"{of} include every value (none is {', '.join(map(repr, absent))})."
        )
    return torch.tensor([names.index(name) for name in given], device="cpu")


def index_classes(
    labels: ClassLabels | None, names: Iterable[str]
) -> tuple[dict[int, int], int]:
    """``{place of an image: place of its class}``, and the least number of images."""
    if labels is None:
        return {}, 0
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise FairTTAError(
            f"`labels` should be a class or None for each image (got {labels!r}).",
            argument="labels",
        )
    rows = dict(labels) if isinstance(labels, Mapping) else dict(enumerate(labels))
    known = {place: name for place, name in rows.items() if name is not None}
    places = {name: place for place, name in enumerate(names)}
    wrong = [repr(name) for name in dict.fromkeys(known.values()) if name not in places]
    wrong += [f"the place {i!r}" for i in rows if not isinstance(i, int) or i < 0]
    if wrong:
        should = f"be among the classes, {list(places)}, at places >= 0"
        raise FairTTAError(
            f"`labels` should {should} (got {', '.join(wrong[:3])}).", argument="labels"
        )
    return {i: places[name] for i, name in known.items()}, max(rows, default=-1) + 1


class EncodesImages(Protocol):
    """What fitting needs of a classifier."""

    _batch_size: int

    @property
    def _task(self) -> Task:
        """The text side."""

    def encode(self, images: Any, *, with_views: bool = ...) -> Tensor:
        """Unit features ``[images, views, dim]``."""


@dataclass(frozen=True, eq=False)
class ReferenceBatch:
    """Some reference images, in float64 and on the CPU, so that sums depend on no device.

    Attributes:
        features: ``[images, dim]`` unit features.
        values: ``{attribute: [images]}``, which of its values an image has, as whole numbers in
            the order of `Task.sensitive`; empty without labels.
        classes: ``[images]``, places of their classes in the order of `Task.targets`, -1 where
            they are not known.
    """

    features: Tensor
    values: Mapping[str, Tensor] = field(default_factory=dict)
    classes: Tensor = field(default_factory=lambda: torch.empty(0))


def warn_if_other_model(images: Any, task: Task) -> None:
    """Warn if these are stored features that do not seem to belong to the text side."""
    if isinstance(images, Features):
        images._warn_if_other_model(
            torch.cat([task.target_features, *task.sensitive_features.values()])
        )


def encode_in_batches(
    classifier: EncodesImages, images: Any, progress: bool
) -> Iterator[Any]:
    """Features of images, `batch_size` at a time; stored ones in chunks."""
    if is_single_image(images) or not hasattr(images, "__iter__"):
        raise ImageError(
            f"`images` should be many reference images (got one {type(images).__name__}; "
            "features: Features(array)).",
            argument="images",
        )
    warn_if_other_model(images, classifier._task)
    stream, is_stored = iter(images), isinstance(images, Features)
    parts = iter(lambda: list(islice(stream, classifier._batch_size)), [])
    with image_bar(images, progress) as bar:
        for part in images._chunks() if is_stored else parts:
            yield part if is_stored else classifier.encode(part, with_views=False)
            bar.update(len(part))


def gather_batches(
    batches: Iterable[ReferenceBatch],
) -> tuple[Tensor, dict[str, Tensor]]:
    """All at once, for a method that has to hold them: features ``[images, dim]``, and values."""
    parts = list(batches)
    names = parts[0].values
    values = {name: torch.cat([part.values[name] for part in parts]) for name in names}
    return torch.cat([part.features for part in parts]), values


T = TypeVar("T")


class FittedMethod(Adapter):
    """A method that `FairTPTClassifier.fit` fits on reference images."""

    reference: Reference | None = None

    needs = Needs(reference=True)
    _recommended_images: ClassVar[int] = 300
    """Fewer reference images warn."""
    _fit_settings: ClassVar[tuple[str, ...]] = ()
    """Settings without which `_learn` would give something else."""

    @abstractmethod
    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        """Return what is to be known of the reference images, by names; none of them is kept.

        Args:
            task: the text side; use its features as ``task.target_features.to(batch.features)``.
            batches: at least one.
        """

    def _prepare(
        self, task: Task, learnt: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """Return what `adapt` needs: made once, in float64, as far as the cache has room."""
        return learnt

    def _prepared(self, task: Task) -> Mapping[str, Tensor]:
        """Return what `_prepare` gives, as the task's features are: for `adapt`.

        Raises:
            FairTTAError: this is not fitted, or with another model or other prompts.
        """

        def make() -> Mapping[str, Tensor]:
            tensors = self._checked_reference(task).tensors
            try:
                made = self._prepare(task, tensors)
            except (RuntimeError, LookupError, TypeError, OverflowError) as error:
                raise FairTTAError(
                    f"what this {type(self).__name__} has learnt is not what it needs ({error}): "
                    "fit it again."
                ) from error
            own = task.target_features
            return {
                name: value.to(own if value.is_floating_point() else own.device)
                for name, value in made.items()
            }

        return task.remember(self, make)

    def _check_fitted(self, task: Task | None = None) -> None:
        self._checked_reference(task)

    def _checked_reference(self, task: Task | None = None) -> Reference:
        """Return what was learnt, if it is there, and fits the settings and the task."""
        reference, name = self.reference, type(self).__name__
        if reference is None:
            raise FairTTAError(
                f"{name} has not been fitted: call `{fit_call(self.needs)}` with "
                f"{self._recommended_images} or more images like those to come, or pass the path "
                "of a saved one as `adapter`."
            )
        reference._check(name, settings_of(self))
        if task is not None:
            reference.identity.check(task, f"this {name}")
        return reference


def fit_call(needs: Needs) -> str:
    """Return how a method is fitted, as it is typed."""
    labels = ", labels" * needs.reference_labels
    return f"clf.fit(images{labels}{', sensitive=values' * needs.reference_sensitive})"


def fit_method(
    classifier: EncodesImages,
    method: Adapter,
    images: Iterable[Any],
    labels: ClassLabels | None = None,
    sensitive: SensitiveLabels | None = None,
    *,
    progress: bool = False,
) -> Any:
    """Return the method as it is after it has learnt from images; see `FairTPTClassifier.fit`."""
    _check_given(method, labels, sensitive)
    features: Iterable[Any] = encode_in_batches(classifier, images, progress)
    learners = [part for part in method.parts if isinstance(part, FittedMethod)]
    if len(learners) > 1:  # images may be an iterator, and are encoded once
        features = list(features)

    def fitted(part: Adapter) -> Any:
        if not isinstance(part, FittedMethod):
            return part
        return _learnt(part, classifier, features, images, labels, sensitive)

    if isinstance(method, Chained):
        return Chained(*map(fitted, method.parts))
    return fitted(method)


def _check_given(
    method: Adapter, labels: ClassLabels | None, sensitive: SensitiveLabels | None
) -> None:
    """Raise unless a method learns, and from what is given with the images."""
    name, needs = type(method).__name__, method.needs
    if not any(isinstance(part, FittedMethod) for part in method.parts):
        reason = (
            "brings its own `reference`"
            if needs.reference
            else "learns nothing from images"
        )
        raise FairTTAError(
            f"`adapter` should be a method that `fit` can fit, such as LogitBalance() (got {name}, "
            f"which {reason}): leave `fit` out, or choose another with `with_adapter`.",
            argument="adapter",
        )
    asked = (
        (
            "labels",
            labels,
            needs.reference_labels,
            "the class of each image, or None",
            "classes",
        ),
        (
            "sensitive",
            sensitive,
            needs.reference_sensitive,
            "the value of each image",
            "attribute values",
        ),
    )
    for argument, value, is_used, what, learnt_from in asked:
        if is_used and value is None:
            raise FairTTAError(
                f"`{argument}` should be {what}, because {name} learns from {learnt_from} (got "
                f"none): call `{fit_call(needs)}`.",
                argument=argument,
            )
        if value is not None and not is_used:
            raise FairTTAError(
                f"`{argument}` should be left out, because {name} does not learn from "
                f"{learnt_from} (got a {type(value).__name__}): call `{fit_call(needs)}`.",
                argument=argument,
            )


def fit_encoded(
    classifier: EncodesImages,
    method: Any,
    features: Any,
    sensitive: SensitiveLabels | None = None,
    labels: ClassLabels | None = None,
) -> Any:
    """Return a method, or the parts of a chain that need it, fitted on features of images.

    Features are ``[images, dim]`` or ``[images, views, dim]``, or such batches; of views the first
    counts. What a part cannot use is not passed on to it.
    """
    if method.is_fitted:
        return method
    if isinstance(method, Chained):
        parts = (
            fit_encoded(classifier, part, features, sensitive, labels)
            for part in method.parts
        )
        return Chained(*parts)
    return _learnt(
        method,
        classifier,
        feature_batches(features),
        None,
        labels if method.needs.reference_labels else None,
        sensitive if method.needs.reference_sensitive else None,
    )


F = TypeVar("F", bound=FittedMethod)


def _learnt(
    method: F,
    classifier: EncodesImages,
    encoded: Iterable[Any],
    images: Iterable[Any] | None,
    labels: ClassLabels | None,
    sensitive: SensitiveLabels | None,
) -> F:
    """Return a method with what it learns from encoded images.

    `images` are those that are encoded meanwhile: what is known of them is counted before the first
    is.
    """
    name = type(method).__name__
    classifier.encode(
        [], with_views=False
    )  # makes it notice that its weights have changed
    task, count = classifier._task, 0
    like = task.target_features.cpu().double()
    check_sensitive(method, task)
    values = (
        index_attribute_values(sensitive, task.sensitive)
        if method.needs.reference_sensitive
        else {}
    )
    classes, labelled = index_classes(labels, task.targets)
    is_list = labels is not None and not isinstance(labels, Mapping)

    def check_counts(images: int) -> None:
        for attribute, places in values.items():
            if len(places) != images:
                raise FairTTAError(
                    f"`sensitive` should have one of {attribute!r} for each of {images} images "
                    f"(got {len(places)}).",
                    argument="sensitive",
                )
        if labelled > images or (is_list and labelled < images):
            raise FairTTAError(
                f"`labels` should be as many as images, {images} (got {labelled}), with None "
                "where a class is not known, or {place of an image: class}.",
                argument="labels",
            )

    if isinstance(images, Sized):
        check_counts(len(images))

    def batches() -> Iterator[ReferenceBatch]:
        nonlocal count
        for features in encoded:
            if classifier._task is not task:
                raise ModelError(
                    f"the weights of {task.backend.name} changed during `fit`: fit again."
                )
            v = as_unit_features(features, like)[:, 0]
            if not bool(v.isfinite().all()):
                raise non_finite_error(task)
            here = {
                key: places[count : count + len(v)] for key, places in values.items()
            }
            own = [classes.get(i, -1) for i in range(count, count + len(v))]
            count += len(v)
            if any(len(places) < len(v) for places in here.values()):
                check_counts(count)
            yield ReferenceBatch(v, here, torch.tensor(own, device="cpu"))
        check_counts(count)
        if not count:
            raise FairTTAError(
                f"`images` should be reference images, {method._recommended_images} or more "
                "(got none).",
                argument="images",
            )

    learnt = {
        key: value.detach().cpu()
        for key, value in method._learn(task, batches()).items()
    }
    if not all(bool(value.isfinite().all()) for value in learnt.values()):
        raise ModelError(
            f"what {name} has learnt is not finite; if {task.backend.name} runs in half "
            "precision, try float32."
        )
    if count < method._recommended_images:
        warnings.warn(
            f"{name} was fitted on {count} images; with fewer than "
            f"{method._recommended_images} what it has learnt is uncertain.",
            SmallReferenceWarning,
            stacklevel=5,
        )
    settings = {key: getattr(method, key) for key in method._fit_settings}
    reference = Reference(name, count, TaskIdentity.of(task), learnt, settings)
    every: Any = method
    fitted: F = replace(every, reference=reference)
    return fitted


def settings_of(method: Any) -> dict[str, Any]:
    """The settings of a method, without what it has learnt."""
    return {
        f.name: getattr(method, f.name) for f in fields(method) if f.name != "reference"
    }


def save_adapter(adapter: Adapter, path: str | os.PathLike[str], task: Task) -> None:
    """Write settings, what was learnt, and with which model and prompts: a safetensors file.

    `load_adapter` reads it. A method that learns nothing is written too.
    """
    if isinstance(adapter, FittedMethod):
        reference = adapter._checked_reference(task)
    else:
        adapter._check_fitted(task)
        reference = Reference(type(adapter).__name__, 0, TaskIdentity.of(task), {})
    reference._save(path, settings_of(adapter))


def load_saved_method(path: str | os.PathLike[str], kinds: Iterable[type[T]]) -> T:
    """Return the method that `save_adapter` has written, if it is of one of these classes."""
    by_name: dict[str, Any] = {kind.__name__: kind for kind in kinds}
    learnt_with = {
        name: getattr(kind, "_fit_settings", ()) for name, kind in by_name.items()
    }
    reference, settings = Reference._read(path, learnt_with)
    kind = by_name[reference.method]
    if issubclass(kind, FittedMethod):
        settings["reference"] = reference
    try:
        loaded: T = kind(**settings)
    except (TypeError, ValueError, OverflowError) as error:
        raise FairTTAError(
            f"{os.fspath(path)!r} has settings that {reference.method} does not know: fit again "
            f"({error})."
        ) from error
    return loaded
