"""The classifier: images in, predictions out."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from PIL.Image import Image
from torch import Tensor
from typing_extensions import Self

from fair_tta import adapters
from fair_tta._extras import require
from fair_tta.adapters import Adapter, FairTPT, Outcome, ZeroShot
from fair_tta.auditing import Audit, audit_classifier
from fair_tta.backends import Backend, resolve
from fair_tta.backends.guard import untouched
from fair_tta.entropy import normalised_entropy
from fair_tta.errors import FairTTAError, ImageError, ModelError, PromptError, TowerError
from fair_tta.images import ImageInput, is_single_image, load_image
from fair_tta.prediction import Prediction
from fair_tta.prompts import Names, Templates, parse_names, parse_sensitive
from fair_tta.simplex import distance, flip_margin
from fair_tta.task import Task
from fair_tta.views import AugMix
from fair_tta.vision import Vision

NOT_FINITE = "adaptation gave values that are not finite; this is the zero-shot answer"
_GRADIENT_FREE = [
    f"{name}()"
    for name in adapters.__all__
    if getattr(getattr(adapters, name), "needs_prompt_gradient", None) is False
]


class FairTPTClassifier:
    """A zero-shot classifier that adapts its prompt to each image on its own.

    Args:
        model: a transformers model, a transformers zero-shot pipeline, open_clip's
            ``(model, preprocess, tokenizer)``, an open_clip model, the directory or hub id of a
            transformers model, ``"open_clip:NAME/TAG"``, or your own `Backend`. It comes back as
            it was: weights, flags, mode, hooks, dtype, device and random states.
        targets: names of the classes, or ``{label: phrase}``.
        sensitive: names of the values of the attribute that should not matter, ``{label: phrase}``,
            or ``{attribute: names}`` for several attributes.
        template: a sentence with the slots ``{target}`` and ``{sensitive}``, or `Templates`.
        adapter: the method; `FairTPT()` if sensitive names are given and `ZeroShot()` otherwise.
        processor: for a transformers model that does not know its own, its processor or
            ``(image_processor, tokenizer)``.
        scale: inverse temperature of the softmax; the model's own if None.
        views: how further views of an image are made: a strategy such as ``AugMix(64)``, a
            function of an image and a random generator, or a tensor or list of pictures.
        seed: with the content of an image it seeds the image's views, so an answer depends neither
            on the order of images nor on what ran before.
        batch_size: how many images are worked on at once. It does not change the answers.

    Example:
        >>> clf = FairTPTClassifier(  # doctest: +SKIP
        ...     "openai/clip-vit-base-patch32",
        ...     targets={"water bird": "of a water bird", "land bird": "of a land bird"},
        ...     sensitive=["on water", "on land"],
        ...     template="This is a picture {target} {sensitive}.",
        ... )
        >>> clf.predict("bird.jpg").label  # doctest: +SKIP
        'land bird'
    """

    def __init__(
        self,
        model: Any,
        targets: Names,
        sensitive: Names | Mapping[str, Names] | None = None,
        template: str | Templates = "a photo of a {target}.",
        *,
        adapter: Adapter | None = None,
        processor: Any = None,
        scale: float | None = None,
        views: Any = AugMix(),
        seed: int = 0,
        batch_size: int = 16,
    ) -> None:
        names, attributes = parse_names("targets", targets), parse_sensitive(sensitive)
        if isinstance(template, str):
            template = Templates.from_sentence(template)
        if not isinstance(template, Templates):
            raise PromptError(f"`template` should be a sentence or Templates (got {template!r}).")
        if not isinstance(batch_size, int) or batch_size < 1:
            raise FairTTAError(f"`batch_size` should be at least 1 (got {batch_size!r}).")
        if scale is not None and not 0 < scale < float("inf"):
            raise FairTTAError(f"`scale` should be a positive number (got {scale!r}).")
        self.backend: Backend = resolve(model, processor)
        self.task = Task(self.backend, names, attributes, template, scale)
        self.vision = Vision(self.backend, views, seed)
        self.batch_size = batch_size
        default = FairTPT() if attributes else ZeroShot()
        self.adapter: Adapter = self._checked(default if adapter is None else adapter)

    def with_adapter(self, adapter: Adapter) -> Self:
        """The same classifier with another method; features of prompts and views are shared."""
        other = copy.copy(self)
        other.adapter = self._checked(adapter)
        return other

    def with_views(self, views: Any, seed: int | None = None) -> Self:
        """The same classifier with other views; features of prompts are shared."""
        other = copy.copy(self)
        other.vision = Vision(self.backend, views, self.vision.seed if seed is None else seed)
        return other

    @property
    def targets(self) -> tuple[str, ...]:
        """Labels of the classes, in the order of `predict_proba`."""
        return tuple(self.task.targets)

    @property
    def sensitive(self) -> dict[str, tuple[str, ...]]:
        """Labels of the sensitive values, by attribute."""
        return {attribute: tuple(names) for attribute, names in self.task.sensitive.items()}

    # A path is a sequence of strings too, and a sequence an iterable: the first that fits counts.
    @overload
    def predict(  # type: ignore[overload-overlap]
        self, images: ImageInput, *, progress: bool = ...
    ) -> Prediction: ...
    @overload
    def predict(  # type: ignore[overload-overlap]
        self, images: Sequence[ImageInput], *, progress: bool = ...
    ) -> list[Prediction]: ...
    @overload
    def predict(
        self, images: Iterable[ImageInput], *, progress: bool = ...
    ) -> Iterator[Prediction]: ...
    def predict(self, images: Any, *, progress: bool = False) -> Any:
        """Classify one image, a list of images, or a stream of images.

        Args:
            images: one image (PIL image, path, bytes, array or tensor), a list, tuple, 4-D array
                or 4-D tensor of images, or any iterable.
            progress: show a progress bar.

        Returns:
            One `Prediction` for one image, a list for a list, and a lazy iterator, at most
            `batch_size` images ahead, for any other iterable.

        Raises:
            ImageError: an image cannot be read. A stream first yields what came before it.
        """
        if is_single_image(images):
            return self._predict_batch([load_image(images)])[0]
        stream = self._stream(_checked_images(images), progress)
        is_batch = isinstance(images, Sequence | np.ndarray | Tensor)
        return list(stream) if is_batch else stream

    def predict_proba(self, images: Any, *, progress: bool = False) -> npt.NDArray[np.float64]:
        """Probabilities in the order of `targets`: ``[targets]``, or ``[images, targets]``."""
        if is_single_image(images):
            return np.array(list(self.predict(images).probabilities.values()))
        stream = self._stream(_checked_images(images), progress)
        rows = [list(p.probabilities.values()) for p in stream]
        return np.array(rows, dtype=np.float64).reshape(-1, len(self.targets))

    def audit(self, images: Any, labels: Any, sensitive: Any, *, progress: bool = False) -> Audit:
        """Classify images with known labels and measure the answers, group by group.

        See `fair_tta.auditing.audit_classifier`, which has more options.
        """
        return audit_classifier(self, images, labels, sensitive, progress=progress)

    def _stream(self, images: Iterable[Any], progress: bool) -> Iterator[Prediction]:
        if progress:
            images = require("tqdm.auto", "progress").tqdm(images, unit="image")
        batch: list[Image] = []
        for index, image in enumerate(images):
            try:
                batch.append(load_image(image))
            except ImageError as error:
                yield from self._predict_batch(batch)  # lose nothing
                raise ImageError(f"image {index}: {error}") from error
            if len(batch) == self.batch_size:
                yield from self._predict_batch(batch)
                batch = []
        yield from self._predict_batch(batch)

    def encode(self, images: Sequence[ImageInput], *, views: bool = True) -> Tensor:
        """Unit features of images and their views: ``[images, views, dim]``; view 0 is the image.

        They do not depend on the adapter: keep them to try further settings with
        `predict_encoded` without another pass through the vision tower.

        Args:
            images: a list of images.
            views: False for the images alone.
        """
        loaded = [load_image(image) for image in images]
        with untouched(getattr(self.backend, "model", None)), torch.no_grad():
            return self.vision.features(loaded, views)

    def predict_encoded(self, features: Tensor) -> list[Prediction]:
        """Predictions from the features of `encode`, as `predict` makes them.

        Args:
            features: ``[images, views, dim]``
        """
        if len(features) == 0:
            return []
        with untouched(getattr(self.backend, "model", None)), torch.no_grad():
            return self._from_features(features)

    def _predict_batch(self, images: list[Image]) -> list[Prediction]:
        """Encode the images once, let the adapter work, and set its answer beside zero-shot's."""
        if not images:
            return []
        with untouched(getattr(self.backend, "model", None)), torch.no_grad():
            return self._from_features(self.vision.features(images, self.adapter.needs_views))

    def _from_features(self, features: Tensor) -> list[Prediction]:
        zero_shot = ZeroShot().adapt(self.task, features)
        if not zero_shot.probabilities.isfinite().all():
            raise ModelError(
                f"{self.backend.name} gives features that are not finite; if it runs in half "
                "precision, try float32."
            )
        adapted = self.adapter.adapt(self.task, features)
        return [self._prediction(zero_shot, adapted, i) for i in range(len(features))]

    def _prediction(self, before: Outcome, after: Outcome, index: int) -> Prediction:
        warnings = after.warnings[index] if after.warnings else ()
        if not after.probabilities[index].isfinite().all():
            warnings += (NOT_FINITE,)
            after = before
        p, q = before.probabilities[index], after.probabilities[index]
        moved, margin = float(distance(p, q)), float(flip_margin(p))
        attributes = self.task.sensitive.items()
        return Prediction(
            label=self.targets[int(q.argmax() if after.labels is None else after.labels[index])],
            probabilities=_named(self.targets, q),
            zero_shot=_named(self.targets, p),
            sensitive={a: _named(names, after.sensitive[a][index]) for a, names in attributes},
            sensitive_zero_shot={
                a: _named(names, before.sensitive[a][index]) for a, names in attributes
            },
            entropy=_entropy(q),
            entropy_zero_shot=_entropy(p),
            sensitive_entropy={a: _entropy(after.sensitive[a][index]) for a, _ in attributes},
            sensitive_entropy_zero_shot={
                a: _entropy(before.sensitive[a][index]) for a, _ in attributes
            },
            distance=moved,
            flip_margin=margin,
            certified_unchanged=moved < margin,
            learning_rate=_number(after.learning_rate, index),
            relative_step=_number(after.relative_step, index),
            views_kept=after.views_kept,
            warnings=warnings,
        )

    def _checked(self, adapter: Adapter) -> Adapter:
        """Refuse an adapter that cannot work here, before any work is done."""
        if isinstance(adapter, type) or not isinstance(adapter, Adapter):
            raise FairTTAError(
                f"`adapter` should be an instance such as ZeroShot() (got {adapter!r})."
            )
        if adapter.needs_sensitive and not self.task.sensitive:
            raise PromptError(
                f"{type(adapter).__name__} needs to know what should not matter: pass `sensitive`."
            )
        if adapter.needs_prompt_gradient:
            try:
                _ = self.task.context
            except TowerError as error:
                raise TowerError(
                    f"{type(adapter).__name__} tunes the prompt, but {error}. "
                    f"These adapters need no prompt gradient: {', '.join(_GRADIENT_FREE)}."
                ) from error
        return adapter


def _checked_images(images: Any) -> Iterable[Any]:
    if isinstance(images, Mapping) or not hasattr(images, "__iter__"):
        raise ImageError(
            "`images` should be an image (PIL image, path, bytes, array or tensor) or an "
            f"iterable of images (got {type(images).__name__})."
        )
    several: Iterable[Any] = images
    return several


def _named(names: Iterable[str], values: Tensor) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))


def _number(values: Tensor | None, index: int) -> float | None:
    return None if values is None else float(values[index])


def _entropy(probabilities: Tensor) -> float:
    return float(normalised_entropy(probabilities.log()))
