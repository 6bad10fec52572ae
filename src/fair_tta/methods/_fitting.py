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
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, ClassVar, Protocol, TypeVar

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
from fair_tta.methods._reference_labels import (
    ClassLabels,
    ReferenceLabels,
    SensitiveLabels,
)
from fair_tta.prompts._task import Task


class EncodesImages(Protocol):
    """The part of a classifier that fitting uses."""

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
        values: ``{attribute: [images]}``, indices into the attribute's values, in the order of
            `Task.sensitive`; empty without labels.
        classes: ``[images]``, indices of their classes in the order of `Task.targets`, -1 where
            they are not known.
    """

    features: Tensor
    values: Mapping[str, Tensor]
    classes: Tensor


def warn_if_other_model(images: Any, task: Task) -> None:
    """Warn if these are stored features that do not seem to belong to the text side."""
    if isinstance(images, Features):
        prompts = [task.target_features, *task.sensitive_features.values()]
        images._warn_if_other_model(torch.cat(prompts))


def encode_in_batches(
    classifier: EncodesImages, images: Any, progress: bool
) -> Iterator[Any]:
    """Yield features of images, `batch_size` at a time; stored ones in chunks."""
    if is_single_image(images) or not hasattr(images, "__iter__"):
        raise ImageError(
            f"`images` should be several reference images (got one {type(images).__name__}); pass "
            "their features as Features(array).",
            argument="images",
        )
    warn_if_other_model(images, classifier._task)
    if isinstance(images, Features):
        batches: Iterator[Any] = images._chunks()
    else:
        batches = _encoded_batches(classifier, iter(images))
    with image_bar(images, progress) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))


def _encoded_batches(
    classifier: EncodesImages, images: Iterator[Any]
) -> Iterator[Tensor]:
    while batch := list(islice(images, classifier._batch_size)):
        yield classifier.encode(batch, with_views=False)


def gather_batches(
    batches: Iterable[ReferenceBatch],
) -> tuple[Tensor, dict[str, Tensor]]:
    """Return features ``[images, dim]`` and values of all batches at once."""
    gathered = list(batches)
    values = {}
    for name in gathered[0].values:
        values[name] = torch.cat([batch.values[name] for batch in gathered])
    return torch.cat([batch.features for batch in gathered]), values


T = TypeVar("T")


class FittedMethod(Adapter):
    """A method that `FairTPTClassifier.fit` fits on reference images."""

    reference: Reference | None = None

    needs = Needs(reference=True)
    _recommended_images: ClassVar[int] = 300
    """A fit on fewer reference images raises a warning."""
    _fit_settings: ClassVar[tuple[str, ...]] = ()
    """Settings without which `_learn` would return something else."""

    @abstractmethod
    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        """Return tensors that summarise the reference images; the images are not kept.

        Args:
            task: the text side; use its features as ``task.target_features.to(batch.features)``.
            batches: at least one.
        """

    def _prepare(
        self, task: Task, learned: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """Return what `adapt` needs, in float64; it is called once while the cache has room."""
        return learned

    def _prepared(self, task: Task) -> Mapping[str, Tensor]:
        """Return the tensors of `_prepare` with the dtype and device of the task's features.

        Raises:
            FairTTAError: the method is not fitted, or with another model or other prompts.
        """

        def prepare() -> Mapping[str, Tensor]:
            learned = self._checked_reference(task).tensors
            try:
                tensors = self._prepare(task, learned)
            # A saved file may hold tensors of any names and shapes.
            except (RuntimeError, LookupError, TypeError, OverflowError) as error:
                raise FairTTAError(
                    f"what this {type(self).__name__} has learned is not what it needs ({error}): "
                    "fit it again."
                ) from error
            like = task.target_features
            prepared = {}
            for name, tensor in tensors.items():
                target = like if tensor.is_floating_point() else like.device
                prepared[name] = tensor.to(target)
            return prepared

        return task.remember(self, prepare)

    def _check_fitted(self, task: Task | None = None) -> None:
        self._checked_reference(task)

    def _checked_reference(self, task: Task | None = None) -> Reference:
        """Return the reference if there is one that fits the settings and the task."""
        name = type(self).__name__
        if self.reference is None:
            raise FairTTAError(
                f"{name} has not been fitted: call `{fit_call(self.needs)}` with "
                f"{self._recommended_images} or more images like those to come, or pass the path "
                "of a saved one as `adapter`."
            )
        self.reference._check(name, settings_of(self))
        if task is not None:
            self.reference.identity.check(task, f"this {name}")
        return self.reference


def fit_call(needs: Needs) -> str:
    """Return the call that fits a method, as the user types it."""
    arguments = ["images"]
    if needs.reference_labels:
        arguments.append("labels")
    if needs.reference_sensitive:
        arguments.append("sensitive=values")
    return f"clf.fit({', '.join(arguments)})"


def fit_method(
    classifier: EncodesImages,
    method: Adapter,
    images: Iterable[Any],
    labels: ClassLabels | None = None,
    sensitive: SensitiveLabels | None = None,
    *,
    progress: bool = False,
) -> Any:
    """Return a copy of a method that is fitted on images; see `FairTPTClassifier.fit`."""
    # Of a chain only the second method can be one that is fitted: the first tunes prompts.
    learner = method.then if isinstance(method, Chained) else method
    if not isinstance(learner, FittedMethod):
        reason = "learns nothing from images"
        if method.needs.reference:
            reason = "brings its own `reference`"
        raise FairTTAError(
            "`adapter` should be a method that `fit` can fit, such as LogitBalance() (got "
            f"{type(method).__name__}, which {reason}): leave `fit` out, or choose another with "
            "`with_adapter`.",
            argument="adapter",
        )
    needs = method.needs
    _check_label_argument(
        learner,
        "labels",
        labels,
        is_used=needs.reference_labels,
        expected="the class of each image, or None",
        source="classes",
    )
    _check_label_argument(
        learner,
        "sensitive",
        sensitive,
        is_used=needs.reference_sensitive,
        expected="the value of each image",
        source="attribute values",
    )
    encoded = encode_in_batches(classifier, images, progress)
    n_images = len(images) if isinstance(images, Sized) else None
    fitted: Any = _fit(learner, classifier, encoded, n_images, labels, sensitive)
    return replace(method, then=fitted) if isinstance(method, Chained) else fitted


def _check_label_argument(
    method: FittedMethod,
    argument: str,
    labels: Any,
    *,
    is_used: bool,
    expected: str,
    source: str,
) -> None:
    """Raise if labels are missing that the method learns from, or given and not used.

    Args:
        method: the method to fit.
        argument: the argument of `fit` that holds the labels.
        labels: its value.
        is_used: the method learns from it.
        expected: words for what it should be.
        source: words for what the method would learn from.
    """
    name = type(method).__name__
    call = fit_call(method.needs)
    if is_used and labels is None:
        raise FairTTAError(
            f"`{argument}` should be {expected}, because {name} learns from {source} (got none): "
            f"call `{call}`.",
            argument=argument,
        )
    if labels is not None and not is_used:
        raise FairTTAError(
            f"`{argument}` should be left out, because {name} does not learn from {source} (got a "
            f"{type(labels).__name__}): call `{call}`.",
            argument=argument,
        )


def fit_encoded(
    classifier: EncodesImages,
    method: Any,
    features: Any,
    sensitive: SensitiveLabels | None = None,
    labels: ClassLabels | None = None,
) -> Any:
    """Return a method fitted on features of images; one that is fitted stays unchanged.

    Labels that the method does not learn from are ignored.

    Args:
        classifier: its model and prompts are fitted for.
        method: the method, or a chain whose second method is fitted.
        features: ``[images, dim]``, ``[images, views, dim]`` of which view 0 counts, or an iterable
            of such batches.
        sensitive: attribute values of the images.
        labels: classes of the images.
    """
    if method.is_fitted:
        return method
    # Of a chain only the second method can be one that is fitted.
    if isinstance(method, Chained):
        fitted = fit_encoded(classifier, method.then, features, sensitive, labels)
        return replace(method, then=fitted)
    return _fit(method, classifier, feature_batches(features), None, labels, sensitive)


M = TypeVar("M", bound=FittedMethod)


def _fit(
    method: M,
    classifier: EncodesImages,
    encoded: Iterable[Any],
    n_images: int | None,
    labels: ClassLabels | None,
    sensitive: SensitiveLabels | None,
) -> M:
    """Return a copy of the method with what it learns from encoded images.

    Args:
        method: the method to fit.
        classifier: its model and prompts are fitted for.
        encoded: features of the images, in batches.
        n_images: how many there are, None if that shows only at the end.
        labels: classes of the images.
        sensitive: attribute values of the images.
    """
    # An empty batch makes the classifier notice that its weights have changed.
    classifier.encode([], with_views=False)
    task = classifier._task
    check_sensitive(method, task)

    # Labels are checked before the first image is read, as far as that is possible.
    if not method.needs.reference_labels:
        labels = None
    if not method.needs.reference_sensitive:
        sensitive = None
    elif sensitive is None:
        sensitive = {}
    reference_labels = ReferenceLabels.parse(task, labels, sensitive)
    if n_images is not None:
        reference_labels.check_count(n_images)

    # The method pulls the batches, so that it decides how much of them it holds.
    images = _LabelledImages(classifier, encoded, reference_labels)
    learned = {}
    for key, tensor in method._learn(task, images.batches()).items():
        learned[key] = tensor.detach().cpu()

    # Nothing that is not finite may be saved, nor a fit on few images go unnoticed.
    name = type(method).__name__
    if not all(bool(tensor.isfinite().all()) for tensor in learned.values()):
        raise ModelError(
            f"what {name} has learned is not finite; if {task.backend.name} runs in half "
            "precision, try float32."
        )
    if images.count < method._recommended_images:
        warnings.warn(
            f"{name} was fitted on {images.count} images; with fewer than "
            f"{method._recommended_images} its result is uncertain.",
            SmallReferenceWarning,
            stacklevel=4,
        )
    # With these the reference is recognised when it is used again.
    settings = {key: getattr(method, key) for key in method._fit_settings}
    identity = TaskIdentity.from_task(task)
    reference = Reference(name, images.count, identity, learned, settings)
    # mypy does not see that every subclass is a dataclass.
    any_method: Any = method
    fitted: M = replace(any_method, reference=reference)
    return fitted


class _LabelledImages:
    """Encoded reference images beside their labels; counts those that have been read."""

    def __init__(
        self,
        classifier: EncodesImages,
        encoded: Iterable[Any],
        labels: ReferenceLabels,
    ) -> None:
        self._classifier = classifier
        self._task = classifier._task
        self._encoded = encoded
        self._labels = labels
        self.count = 0

    def batches(self) -> Iterator[ReferenceBatch]:
        """Yield checked batches, and check at the end that no label is left over."""
        for features in self._encoded:
            yield self._next_batch(features)
        if self.count == 0:
            raise FairTTAError(
                "`images` should be some hundred reference images (got none).",
                argument="images",
            )
        self._labels.check_count(self.count)

    def _next_batch(self, features: Any) -> ReferenceBatch:
        if self._classifier._task is not self._task:
            raise ModelError(
                f"the weights of {self._task.backend.name} changed during `fit`: fit again."
            )
        # In float64 on the CPU, see `ReferenceBatch`.
        like = self._task.target_features.cpu().double()
        images = as_unit_features(features, like)[:, 0]
        if not bool(images.isfinite().all()):
            raise non_finite_error(self._task)
        start = self.count
        self.count += len(images)
        return ReferenceBatch(images, *self._labels.of_images(start, self.count))


def settings_of(method: Any) -> dict[str, Any]:
    """Return the settings of a method, without its reference."""
    names = [setting.name for setting in fields(method) if setting.name != "reference"]
    return {name: getattr(method, name) for name in names}


def save_adapter(adapter: Adapter, path: str | os.PathLike[str], task: Task) -> None:
    """Write a method to a safetensors file: its settings, its reference, model and prompts.

    `load_adapter` reads it. A method that learns nothing is written too.
    """
    if isinstance(adapter, FittedMethod):
        reference = adapter._checked_reference(task)
    else:
        # Settings alone are worth a file, too: a path can then be an adapter.
        adapter._check_fitted(task)
        reference = Reference(
            type(adapter).__name__, 0, TaskIdentity.from_task(task), {}
        )
    reference._save(path, settings_of(adapter))


def load_saved_method(path: str | os.PathLike[str], classes: Iterable[type[T]]) -> T:
    """Return the method that `save_adapter` has written, if it is of one of these classes."""
    class_of_name: dict[str, Any] = {cls.__name__: cls for cls in classes}
    fit_settings = {}
    for name, cls in class_of_name.items():
        fit_settings[name] = getattr(cls, "_fit_settings", ())
    reference, settings = Reference._read(path, fit_settings)
    method_class = class_of_name[reference.method]
    # The reference is not among the settings, and other methods have none.
    if issubclass(method_class, FittedMethod):
        settings["reference"] = reference
    try:
        method: T = method_class(**settings)
    except (TypeError, ValueError, OverflowError) as error:
        raise FairTTAError(
            f"{os.fspath(path)!r} has settings that {reference.method} does not accept "
            f"({str(error).rstrip('.')}): fit again."
        ) from error
    return method
