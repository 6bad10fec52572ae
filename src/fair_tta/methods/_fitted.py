"""Fitting on reference images: a method declares what it learns, the rest is here.

A method that is fitted is a frozen dataclass with a field ``reference: Reference | None = None``
that has one of three classes as base: `FitsImages`, `FitsLabelledImages` if it needs to know the
sensitive values of the reference images, or `FitsClassLabels` if it needs their classes. It adds
`learn`, `adapt`, and where it helps `prepare`.
"""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from typing import Any, ClassVar, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import torch
from torch import Tensor

from fair_tta._images.load import image_bar, is_single_image
from fair_tta._images.stored import Features, feature_batches, read_features
from fair_tta._prompts.task import Task
from fair_tta.errors import FairTTAError, ImageError, ModelError, SmallReferenceWarning
from fair_tta.methods._base import Adapter, Chained, Needs, check_sensitive, not_finite
from fair_tta.methods._reference import Reference, TaskIdentity

SensitiveLabels: TypeAlias = Iterable[str] | Mapping[str, Iterable[str]]
"""The name of a value for each image, or these by attribute."""

ClassLabels: TypeAlias = Iterable[str | None] | Mapping[int, str]
"""The class of each image, None where it is not known, or ``{place of an image: class}``."""


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


def read_classes(labels: ClassLabels | None, names: Iterable[str]) -> tuple[dict[int, int], int]:
    """``{place of an image: place of its class}``, and the least number of images."""
    if labels is None:
        return {}, 0
    if isinstance(labels, str) or not hasattr(labels, "__iter__"):
        raise FairTTAError(f"`labels` should be a class or None for each image (got {labels!r}).")
    rows = dict(labels) if isinstance(labels, Mapping) else dict(enumerate(labels))
    known = {place: name for place, name in rows.items() if name is not None}
    places = {name: place for place, name in enumerate(names)}
    wrong = [repr(name) for name in dict.fromkeys(known.values()) if name not in places]
    wrong += [f"the place {i!r}" for i in rows if not isinstance(i, int) or i < 0]
    if wrong:
        should = f"be among the classes, {list(places)}, at places from 0 on"
        raise FairTTAError(f"`labels` should {should} (got {', '.join(wrong[:3])}).")
    return {i: places[name] for i, name in known.items()}, max(rows, default=-1) + 1


@runtime_checkable
class EncodesImages(Protocol):
    """What fitting needs of a classifier."""

    batch_size: int

    @property
    def task(self) -> Task:
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


def compare(images: Any, task: Task) -> None:
    """Warn if these are stored features that do not seem to belong to the text side."""
    if isinstance(images, Features):
        images.compare(torch.cat([task.target_features, *task.sensitive_features.values()]))


def encoded(classifier: EncodesImages, images: Any, progress: bool) -> Iterator[Any]:
    """Features of images, `batch_size` at a time; stored ones in chunks."""
    if is_single_image(images) or not hasattr(images, "__iter__"):
        raise ImageError(
            f"`images` should be many reference images (got one {type(images).__name__}; "
            "features: Features(array))."
        )
    compare(images, classifier.task)
    stream, is_stored = iter(images), isinstance(images, Features)
    parts = iter(lambda: list(islice(stream, classifier.batch_size)), [])
    with image_bar(images, progress) as bar:
        for part in images.chunks() if is_stored else parts:
            yield part if is_stored else classifier.encode(part, with_views=False)
            bar.update(len(part))


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
            given = {"sensitive_labels": self.needs.labels, "labels": self.needs.class_labels}
            images = ", ".join(["images", *(what for what, needed in given.items() if needed)])
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
        encoded: Iterable[Any],
        images: Iterable[Any] | None,
        labels: SensitiveLabels | None = None,
        class_labels: ClassLabels | None = None,
    ) -> Self:
        """`images` are those that are encoded meanwhile: labels are counted before the first is."""
        name = type(self).__name__
        if not isinstance(classifier, EncodesImages):
            raise FairTTAError(
                f"`classifier` should be a FairTPTClassifier (got a {type(classifier).__name__})."
            )
        classifier.encode([], with_views=False)  # makes it notice that its weights have changed
        task, count = classifier.task, 0
        like = task.target_features.cpu().double()
        check_sensitive(self, task)
        values = read_labels(labels, task.sensitive) if self.needs.labels else {}
        classes, labelled = read_classes(class_labels, task.targets)
        is_list = class_labels is not None and not isinstance(class_labels, Mapping)

        def check_counts(images: int) -> None:
            for attribute, places in values.items():
                if len(places) != images:
                    raise FairTTAError(
                        f"`sensitive_labels` should have one of {attribute!r} for each of {images} "
                        f"images (got {len(places)})."
                    )
            if labelled > images or (is_list and labelled < images):
                raise FairTTAError(
                    f"`labels` should be as many as images, {images} (got {labelled}), with None "
                    "where a class is not known, or {place of an image: class}."
                )

        if isinstance(images, Sized):
            check_counts(len(images))

        def batches() -> Iterator[ReferenceBatch]:
            nonlocal count
            for features in encoded:
                if classifier.task is not task:
                    raise ModelError(
                        f"the weights of {task.backend.name} changed during `fit`: fit again."
                    )
                v = read_features(features, like)[:, 0]
                if not bool(v.isfinite().all()):
                    raise not_finite(task)
                here = {key: places[count : count + len(v)] for key, places in values.items()}
                own = [classes.get(i, -1) for i in range(count, count + len(v))]
                count += len(v)
                if any(len(places) < len(v) for places in here.values()):
                    check_counts(count)
                yield ReferenceBatch(v, here, torch.tensor(own, device="cpu"))
            check_counts(count)
            if not count:
                raise FairTTAError(
                    f"`images` should be reference images, {self.enough} or more (got none)."
                )

        learnt = {key: value.detach().cpu() for key, value in self.learn(task, batches()).items()}
        if not all(bool(value.isfinite().all()) for value in learnt.values()):
            raise ModelError(
                f"what {name} has learnt is not finite; if {task.backend.name} runs in half "
                "precision, try float32."
            )
        if count < self.enough:
            warnings.warn(
                f"{name} was fitted on {count} images; with fewer than {self.enough} what it has "
                "learnt is uncertain.",
                SmallReferenceWarning,
                stacklevel=3,
            )
        settings = {key: getattr(self, key) for key in self.learnt_with}
        reference = Reference(name, count, TaskIdentity.of(task), learnt, settings)
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
        return self._fit(classifier, encoded(classifier, images, progress), images)

    def fit_encoded(self, classifier: EncodesImages, features: Any) -> Self:
        """`fit` from features, ``[images, dim]`` or ``[images, views, dim]``, or such batches.

        They are stored ones, or those of `FairTPTClassifier.encode`; of views the first counts.
        """
        return self._fit(classifier, feature_batches(features), None)


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
        features = encoded(classifier, images, progress)
        return self._fit(classifier, features, images, sensitive_labels)

    def fit_encoded(
        self, classifier: EncodesImages, features: Any, sensitive_labels: SensitiveLabels
    ) -> Self:
        """`fit` from features, ``[images, dim]`` or ``[images, views, dim]``, or such batches.

        They are stored ones, or those of `FairTPTClassifier.encode`; of views the first counts.
        """
        return self._fit(classifier, feature_batches(features), None, sensitive_labels)


class FitsClassLabels(FittedMethod):
    """Makes a method one that is fitted on reference images with the classes of some of them."""

    needs = Needs(reference=True, class_labels=True)

    def fit(
        self,
        classifier: EncodesImages,
        images: Iterable[Any],
        labels: ClassLabels | None = None,
        *,
        progress: bool = False,
    ) -> Self:
        """The same method with what it has learnt from reference images; this one stays as it is.

        Args:
            classifier: whose model and prompts it is for; its adapter and views do not matter.
            images: `enough` or more, of the groups that will be met, in about the shares in which
                they will be met. Read `batch_size` at a time, and not kept.
            labels: for each image its class, None where it is not known, or ``{place of an image:
                class}``.
            progress: show a progress bar.
        """
        features = encoded(classifier, images, progress)
        return self._fit(classifier, features, images, class_labels=labels)

    def fit_encoded(
        self, classifier: EncodesImages, features: Any, labels: ClassLabels | None = None
    ) -> Self:
        """`fit` from features, ``[images, dim]`` or ``[images, views, dim]``, or such batches.

        They are stored ones, or those of `FairTPTClassifier.encode`; of views the first counts.
        """
        return self._fit(classifier, feature_batches(features), None, class_labels=labels)


def fit_parts(
    classifier: EncodesImages,
    method: Any,
    features: Any,
    labels: SensitiveLabels | None = None,
    class_labels: ClassLabels | None = None,
) -> Any:
    """A method, or the parts of a chain that need it, fitted on features of reference images."""
    if method.is_fitted:
        return method
    if isinstance(method, Chained):
        given = features, labels, class_labels
        return Chained(*(fit_parts(classifier, part, *given) for part in method.parts))
    if isinstance(method, FitsClassLabels):
        return method.fit_encoded(classifier, features, class_labels)
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
