"""Fitting on reference images: a method declares what it learns, the rest is here.

A method that is fitted is a frozen dataclass with a field ``reference: Reference | None = None``
that has one of two classes as base: `FitsImages`, or `FitsLabelledImages` if it needs to know the
sensitive values of the reference images. It adds `learn`, `adapt`, and where it helps `prepare`.
"""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, runtime_checkable

import torch
from torch import Tensor
from typing_extensions import Self

from fair_tta._images.load import image_bar, is_single_image
from fair_tta._linalg import of_length_one
from fair_tta._prompts.task import Task
from fair_tta.errors import FairTTAError, ImageError, ModelError, SmallReferenceWarning
from fair_tta.methods._base import Adapter, Chained, Needs, check_sensitive, not_finite
from fair_tta.methods._reference import Reference, TaskIdentity

SensitiveLabels: TypeAlias = Iterable[str] | Mapping[str, Iterable[str]]
"""The name of a value for each image, or these by attribute."""


def read_labels(
    labels: SensitiveLabels | None, sensitive: Mapping[str, Mapping[str, str]]
) -> dict[str, Tensor]:
    """``{attribute: [images]}``, the places of the values among those of the attribute."""
    if not isinstance(labels, Mapping) and len(sensitive) == 1:
        labels = dict.fromkeys(sensitive, labels)
    if not isinstance(labels, Mapping) or set(labels) != set(sensitive):
        got = list(labels) if isinstance(labels, Mapping) else f"a {type(labels).__name__}"
        raise FairTTAError(
            f"`sensitive_labels` should be {{attribute: labels}} for {list(sensitive)} (got {got})."
        )
    values = {name: _places(name, labels[name], list(sensitive[name])) for name in sensitive}
    counts = {name: len(places) for name, places in values.items()}
    if len(set(counts.values())) > 1:
        raise FairTTAError(
            f"`sensitive_labels` should be as many of each attribute (got {counts})."
        )
    return values


def _places(attribute: str, labels: Any, names: list[str]) -> Tensor:
    of = f"`sensitive_labels` of {attribute!r} should"
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise FairTTAError(f"{of} be a name for each image (got {labels!r}).")
    given = list(labels)
    unknown = list(dict.fromkeys(repr(name) for name in given if name not in names))
    if unknown:
        raise FairTTAError(f"{of} be among {names} (got {', '.join(unknown[:3])}).")
    absent = [name for name in names if name not in given]
    if absent:
        raise FairTTAError(f"{of} include every value (none is {', '.join(map(repr, absent))}).")
    return torch.tensor([names.index(name) for name in given], device="cpu")


def _check_count(values: Mapping[str, Tensor], images: int) -> None:
    for name, places in values.items():
        if len(places) != images:
            raise FairTTAError(
                f"`sensitive_labels` should have one of {name!r} for each of {images} images (got "
                f"{len(places)})."
            )


@runtime_checkable
class EncodesImages(Protocol):
    """What fitting needs of a classifier."""

    batch_size: int

    @property
    def task(self) -> Task:
        """The text side."""
        ...

    def encode(self, images: Any, *, with_views: bool = ...) -> Tensor:
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


def encoded(classifier: EncodesImages, images: Any, progress: bool) -> Iterator[Tensor]:
    """Features of images, `batch_size` at a time."""
    if is_single_image(images) or not hasattr(images, "__iter__"):
        raise ImageError(
            f"`images` should be many reference images (got one {type(images).__name__}; "
            "features: `fit_encoded`)."
        )
    stream = iter(images)
    with image_bar(images, progress) as bar:
        while part := list(islice(stream, classifier.batch_size)):
            yield classifier.encode(part, with_views=False)
            bar.update(len(part))


def _as_batches(features: Any) -> Iterable[Tensor]:
    many = isinstance(features, Iterable) and not isinstance(features, Tensor)
    return features if many else [features]


def check_features(features: Any, dim: int) -> None:
    """Raise unless these are ``[images, views, dim]``, with at least one view."""
    shape = list(features.shape) if isinstance(features, Tensor) else None
    if shape is None or shape[2:] != [dim] or shape[1] == 0:
        raise FairTTAError(
            f"`features` should be what `encode` returns, [images, views, {dim}] (got "
            f"{shape or type(features).__name__})."
        )


def gather_batches(batches: Iterable[ReferenceBatch]) -> tuple[Tensor, dict[str, Tensor]]:
    """All at once, for a method that has to hold them: features ``[images, dim]``, and values."""
    parts = list(batches)
    names = parts[0].values
    values = {name: torch.cat([part.values[name] for part in parts]) for name in names}
    return torch.cat([part.features for part in parts]), values


T = TypeVar("T")


class FittedMethod(Adapter):
    """What both ways to be fitted share."""

    reference: Reference | None = None

    needs = Needs(reference=True)
    enough: ClassVar[int] = 300
    """Fewer reference images warn."""
    learnt_with: ClassVar[tuple[str, ...]] = ()
    """Settings without which `learn` would give something else."""

    @abstractmethod
    def learn(self, task: Task, batches: Iterator[ReferenceBatch]) -> Mapping[str, Tensor]:
        """What is to be known of the reference images, by names; none of the images is kept.

        Args:
            task: the text side; use its features as ``task.target_features.to(batch.features)``.
            batches: at least one.
        """

    def prepare(self, task: Task, learnt: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What `adapt` needs of it: made once, in float64, as far as the cache has room."""
        return learnt

    def prepared(self, task: Task) -> Mapping[str, Tensor]:
        """What `prepare` gives, as the task's features are: for `adapt`.

        Raises:
            FairTTAError: this is not fitted, or with another model or other prompts.
        """

        def make() -> Mapping[str, Tensor]:
            tensors = self.checked_reference(task).tensors
            try:
                made = self.prepare(task, tensors)
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

    def check_fitted(self, task: Task | None = None) -> None:
        self.checked_reference(task)

    def checked_reference(self, task: Task | None = None) -> Reference:
        """What was learnt, if it is there, and fits the settings and the task."""
        reference, name = self.reference, type(self).__name__
        if reference is None:
            images = "images, sensitive_labels" if self.needs.labels else "images"
            raise FairTTAError(
                f"{name} has seen no reference images yet: use what `{name}().fit(classifier, "
                f"{images})` returns, for {self.enough} or more images, or `{name}.load(path)`."
            )
        reference.check(name, settings_of(self))
        if task is not None:
            reference.identity.check(task, f"this {name}")
        return reference

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write settings, what was learnt, and with which model and prompts: a safetensors file."""
        self.checked_reference().save(path, settings_of(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """What `save` has written. No code is run, and another model is refused when it is used."""
        return load_one_of(path, [cls])

    def _fit(
        self,
        classifier: EncodesImages,
        encoded: Iterable[Tensor],
        labels: SensitiveLabels | None = None,
        expected: int | None = None,
    ) -> Self:
        name = type(self).__name__
        if not isinstance(classifier, EncodesImages):
            raise FairTTAError(
                f"`classifier` should be a FairTPTClassifier (got a {type(classifier).__name__})."
            )
        classifier.encode([], with_views=False)  # makes it notice that its weights have changed
        task, images = classifier.task, 0
        check_sensitive(self, task)
        values = read_labels(labels, task.sensitive) if self.needs.labels else {}
        if expected is not None:
            _check_count(values, expected)

        def batches() -> Iterator[ReferenceBatch]:
            nonlocal images
            for features in encoded:
                if classifier.task is not task:
                    raise ModelError(
                        f"the weights of {task.backend.name} changed during `fit`: fit again."
                    )
                check_features(features, task.target_features.shape[1])
                v = of_length_one(features[:, 0].detach().cpu().double())
                if not bool(v.isfinite().all()):
                    raise not_finite(task)
                here = {key: places[images : images + len(v)] for key, places in values.items()}
                images += len(v)
                if any(len(places) < len(v) for places in here.values()):
                    _check_count(values, images)
                yield ReferenceBatch(v, here)
            _check_count(values, images)
            if not images:
                raise FairTTAError(
                    f"`images` should be reference images, {self.enough} or more (got none)."
                )

        learnt = {key: value.detach().cpu() for key, value in self.learn(task, batches()).items()}
        if not all(bool(value.isfinite().all()) for value in learnt.values()):
            raise ModelError(
                f"what {name} has learnt is not finite; if {task.backend.name} runs in half "
                "precision, try float32."
            )
        if images < self.enough:
            warnings.warn(
                f"{name} was fitted on {images} images; with fewer than {self.enough} what it has "
                "learnt is uncertain.",
                SmallReferenceWarning,
                stacklevel=3,
            )
        settings = {key: getattr(self, key) for key in self.learnt_with}
        reference = Reference(name, images, TaskIdentity.of(task), learnt, settings)
        every: Any = self
        fitted: Self = replace(every, reference=reference)
        return fitted


class FitsImages(FittedMethod):
    """Makes a method one that is fitted on reference images without labels."""

    def fit(
        self, classifier: EncodesImages, images: Iterable[Any], *, progress: bool = False
    ) -> Self:
        """The same method with what it has learnt from reference images; this one stays as it is.

        Args:
            classifier: whose model and prompts it is for; its adapter and views do not matter.
            images: `enough` or more, without labels, of the groups that will be met, in about the
                shares in which they will be met. Read `batch_size` at a time, and not kept.
            progress: show a progress bar.
        """
        return self._fit(classifier, encoded(classifier, images, progress))

    def fit_encoded(self, classifier: EncodesImages, features: Tensor | Iterable[Tensor]) -> Self:
        """`fit` from the features of `FairTPTClassifier.encode`.

        Args:
            classifier: whose model and prompts it is for.
            features: ``[images, views, dim]``, of any length, of which the first view counts, or
                such batches.
        """
        return self._fit(classifier, _as_batches(features))


class FitsLabelledImages(FittedMethod):
    """Makes a method one that is fitted on reference images whose sensitive values are known."""

    needs = Needs(reference=True, labels=True)

    def fit(
        self,
        classifier: EncodesImages,
        images: Iterable[Any],
        sensitive_labels: SensitiveLabels,
        *,
        progress: bool = False,
    ) -> Self:
        """The same method with what it has learnt from reference images; this one stays as it is.

        Args:
            classifier: whose model and prompts it is for; its adapter and views do not matter.
            images: `enough` or more. Read `batch_size` at a time, and not kept.
            sensitive_labels: for each image the name of its sensitive value, or ``{attribute:
                names}``; each value has to have an image.
            progress: show a progress bar.
        """
        expected = len(images) if isinstance(images, Sized) else None
        features = encoded(classifier, images, progress)
        return self._fit(classifier, features, sensitive_labels, expected)

    def fit_encoded(
        self,
        classifier: EncodesImages,
        features: Tensor | Iterable[Tensor],
        sensitive_labels: SensitiveLabels,
    ) -> Self:
        """`fit` from the features of `FairTPTClassifier.encode`.

        Args:
            classifier: whose model and prompts it is for.
            features: ``[images, views, dim]``, of any length, of which the first view counts, or
                such batches.
            sensitive_labels: as for `fit`.
        """
        return self._fit(classifier, _as_batches(features), sensitive_labels)


def fit_parts(
    classifier: EncodesImages,
    method: Any,
    features: Tensor | Iterable[Tensor],
    labels: SensitiveLabels | None = None,
) -> Any:
    """A method, or the parts of a chain that need it, fitted on features of reference images."""
    if method.is_fitted:
        return method
    if isinstance(method, Chained):
        parts = (fit_parts(classifier, part, features, labels) for part in method.parts)
        return Chained(*parts)
    return method.fit_encoded(classifier, features, *([labels] * method.needs.labels))


def settings_of(method: Any) -> dict[str, Any]:
    """The settings of a method, without what it has learnt."""
    return {f.name: getattr(method, f.name) for f in fields(method) if f.name != "reference"}


def save_adapter(adapter: Adapter, path: str | os.PathLike[str], task: Task) -> None:
    """Write a method for `load_adapter`: as `FittedMethod.save` does, also one without a fit."""
    if isinstance(adapter, FittedMethod):
        adapter.save(path)
    else:
        nothing = Reference(type(adapter).__name__, 0, TaskIdentity.of(task), {})
        nothing.save(path, settings_of(adapter))


def load_one_of(path: str | os.PathLike[str], kinds: Iterable[type[T]]) -> T:
    """The method that `save` has written, if it is of one of these classes."""
    by_name: dict[str, Any] = {kind.__name__: kind for kind in kinds}
    learnt_with = {name: getattr(kind, "learnt_with", ()) for name, kind in by_name.items()}
    reference, settings = Reference.read(path, learnt_with)
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
