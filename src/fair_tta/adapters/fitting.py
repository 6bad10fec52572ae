"""Fitting on reference images, for every method that needs them: a method says what it learns.

A method that is fitted is a frozen dataclass with a field ``reference: Reference | None = None``
that has one of two classes as base: `FitsImages`, or `FitsLabelledImages` if it needs to know the
sensitive values of the reference images. It adds `learn`, `adapt`, and where it helps `prepare`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import fields, replace
from typing import Any, ClassVar, TypeVar

from torch import Tensor
from typing_extensions import Self

from fair_tta.adapters.reference import Reference, unknown_settings
from fair_tta.adapters.reference_batches import (
    EncodesImages,
    ReferenceBatch,
    as_batches,
    checked_batches,
    encode_all,
)
from fair_tta.adapters.reference_labels import SensitiveLabels, check_as_many, read_labels
from fair_tta.adapters.task_identity import TaskIdentity
from fair_tta.errors import FairTTAError, ModelError, PromptError
from fair_tta.text.task import Task

T = TypeVar("T")


class SmallReferenceWarning(UserWarning):
    """A method was fitted on few images."""


class FittedMethod:
    """What both ways to be fitted share."""

    needs_reference: ClassVar[bool] = True
    needs_labels: ClassVar[bool] = False
    enough: ClassVar[int] = 300
    """Fewer reference images warn."""
    learnt_with: ClassVar[tuple[str, ...]] = ()
    """Settings without which `learn` would give something else."""

    def learn(self, task: Task, batches: Iterator[ReferenceBatch]) -> Mapping[str, Tensor]:
        """What is to be known of the reference images, by names; none of the images is kept.

        Args:
            task: the text side; use its features as ``task.target_features.to(batch.features)``.
            batches: at least one.
        """
        raise NotImplementedError

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
                name: (value.to(own.dtype) if value.is_floating_point() else value).to(own.device)
                for name, value in made.items()
            }

        return task.remember(self, make)

    def checked_reference(self, task: Task | None = None) -> Reference:
        """What was learnt, if it is there, and fits the settings and the task."""
        reference, name = self._reference, type(self).__name__
        if reference is None:
            images = "images, sensitive_labels" if self.needs_labels else "images"
            raise FairTTAError(
                f"{name} has seen no reference images yet: use what `{name}().fit(classifier, "
                f"{images})` returns, for {self.enough} or more images, or `{name}.load(path)`."
            )
        reference.check(name, self._settings())
        if task is not None:
            reference.identity.check(task, f"this {name}")
        return reference

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write settings, what was learnt, and with which model and prompts: a safetensors file."""
        self.checked_reference().save(path, self._settings())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """What `save` has written. No code is run, and another model is refused when it is used."""
        return load_one_of(path, [cls])

    @property
    def _reference(self) -> Reference | None:
        found: Reference | None = getattr(self, "reference", None)
        return found

    def _settings(self) -> dict[str, Any]:
        every: Any = self
        return {f.name: getattr(self, f.name) for f in fields(every) if f.name != "reference"}

    def _fit(
        self,
        classifier: EncodesImages,
        batches: Iterator[Tensor],
        labels: SensitiveLabels | None = None,
        expected: int | None = None,
    ) -> Self:
        name = type(self).__name__
        sensitive = classifier.task.sensitive
        if not sensitive and (getattr(self, "needs_sensitive", False) or self.needs_labels):
            raise PromptError(
                f"{name} needs to know what should not matter: pass `sensitive` to the classifier."
            )
        values = read_labels(labels, sensitive) if self.needs_labels else {}
        check_as_many(values, expected)
        task, images = classifier.task, 0

        def counted() -> Iterator[ReferenceBatch]:
            nonlocal images
            for batch in checked_batches(classifier, task, batches, values):
                images += len(batch.features)
                yield batch
            if not images:
                raise FairTTAError(
                    f"`images` should be reference images, {self.enough} or more (got none)."
                )

        learnt = {key: value.detach().cpu() for key, value in self.learn(task, counted()).items()}
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
        settings = {key: self._settings()[key] for key in self.learnt_with}
        reference = Reference(name, images, TaskIdentity.of(task), learnt, settings)
        every: Any = self
        fitted: Self = replace(every, reference=reference)
        return fitted


class FitsImages(FittedMethod):
    """Makes a method one that is fitted on reference images without labels."""

    def fit(
        self, classifier: EncodesImages, images: Iterable[Any], *, progress: bool = False
    ) -> Self:
        """The same method with what it has learnt of reference images; this one stays as it is.

        Args:
            classifier: whose model and prompts it is for; its adapter and views do not matter.
            images: `enough` or more, without labels, of the groups that will be met, in about the
                shares in which they will be met. Read as `batch_size` says, and not kept.
            progress: show a progress bar.
        """
        return self._fit(classifier, encode_all(classifier, images, progress))

    def fit_encoded(self, classifier: EncodesImages, features: Tensor | Iterable[Tensor]) -> Self:
        """`fit` from the features of `FairTPTClassifier.encode`.

        Args:
            classifier: whose model and prompts it is for.
            features: ``[images, views, dim]``, of any length, of which the first view counts, or
                such batches.
        """
        return self._fit(classifier, as_batches(classifier, features))


class FitsLabelledImages(FittedMethod):
    """Makes a method one that is fitted on reference images whose sensitive values are known."""

    needs_labels: ClassVar[bool] = True

    def fit(
        self,
        classifier: EncodesImages,
        images: Iterable[Any],
        sensitive_labels: SensitiveLabels,
        *,
        progress: bool = False,
    ) -> Self:
        """The same method with what it has learnt of reference images; this one stays as it is.

        Args:
            classifier: whose model and prompts it is for; its adapter and views do not matter.
            images: `enough` or more. Read as `batch_size` says, and not kept.
            sensitive_labels: for each image the name of its sensitive value, or ``{attribute:
                names}``; each value has to have an image.
            progress: show a progress bar.
        """
        expected = len(images) if isinstance(images, Sized) else None
        batches = encode_all(classifier, images, progress)
        return self._fit(classifier, batches, sensitive_labels, expected)

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
        return self._fit(classifier, as_batches(classifier, features), sensitive_labels)


def load_one_of(path: str | os.PathLike[str], kinds: Iterable[type[T]]) -> T:
    """The method that `save` has written, if it is of one of these classes."""
    by_name: dict[str, Any] = {kind.__name__: kind for kind in kinds}
    learnt_with = {name: kind.learnt_with for name, kind in by_name.items()}
    reference, settings = Reference.read(path, learnt_with)
    try:
        loaded: T = by_name[reference.method](**settings, reference=reference)
    except (TypeError, ValueError, OverflowError) as error:
        raise unknown_settings(path, reference.method, error) from error
    return loaded
