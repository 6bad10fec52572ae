"""The classifier: images in, predictions out.

Read it from top to bottom: the methods stand in the order in which an image passes through them.
`predict` loads images in batches, `_predict_batch` holds the model and encodes the views, the
adapter answers from features and prompts, and its outcome becomes predictions.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fair_tta._cache import Cache
from fair_tta._display import abbreviate, classifier_table
from fair_tta._stream import stream_predictions
from fair_tta.errors import FairTTAError, ImageError, check_count, check_number
from fair_tta.images._batches import load_batches
from fair_tta.images._inputs import (
    check_dimensions,
    check_images,
    features_alone_error,
    have_stored_views,
    is_array,
    reject_feature_rows,
)
from fair_tta.images._load import ImageInput, image_bar, is_single_image
from fair_tta.images._stored import (
    Features,
    as_unit_features,
    dtype_of,
    has_stored_features,
    stack_features,
)
from fair_tta.images._views import AugMix
from fair_tta.images._vision import Vision
from fair_tta.methods import AssociationCorrection, FairTPT, ZeroShot
from fair_tta.methods._answer import predict_from_features
from fair_tta.methods._base import (
    Adapter,
    check_adapter,
)
from fair_tta.methods._cross_fit import CrossFitted
from fair_tta.methods._fitting import fit_method, save_adapter, warn_if_other_model
from fair_tta.methods._predictions import fetch_to_cpu, is_builtin
from fair_tta.methods._reference_labels import ClassLabels, SensitiveLabels
from fair_tta.methods._registry import Adapters, AnyAdapter, resolve_adapter
from fair_tta.metrics.intervals._bootstrap import DEFAULT, Interval
from fair_tta.models import Backend
from fair_tta.models._loading import load, with_compiled_vision
from fair_tta.models._stored_text import TextTable, sees_images
from fair_tta.prediction import Prediction, Predictions
from fair_tta.prompts._task import CurrentTask, Task
from fair_tta.prompts._templates import (
    ClassNames,
    TemplateArgument,
    parse_names,
    parse_sensitive,
    parse_template,
)

if TYPE_CHECKING:
    from fair_tta.auditing import Audit, Examination, Mitigation
    from fair_tta.auditing._run import HarmSets
    from fair_tta.metrics._types import Column, Sensitive

# A call with more images than this takes long enough for its cost to be worth a log line.
_LOG_COST_ABOVE_IMAGES = 20


class FairTPTClassifier:
    """A zero-shot classifier that adapts its prompt to each image on its own.

    Args:
        model: a transformers model, a transformers zero-shot pipeline, open_clip's
            ``(model, preprocess, tokenizer)``, an open_clip model, the directory or hub id of a
            transformers model, ``"open_clip:NAME/TAG"``, or your own `Backend`. After each call it
            is unchanged: weights, flags, mode, hooks, dtype and device. Weights that you change
            later are noticed at the next call if PyTorch counts the change; see `forget`.
        targets: names of the classes, or ``{label: phrase}``.
        sensitive: names of the values of the attribute that should not matter, ``{label: phrase}``,
            or ``{attribute: names}`` for several attributes.
        template: a sentence with the slots ``{target}`` and ``{sensitive}``, or ``{"target":
            sentence, "sensitive": sentence, "joint": sentence}`` (`Templates`); a list of these is
            an ensemble: features are the unit mean of those of all sentences. If None ``"a photo
            of a {target}."``, with ``{sensitive}`` before the target if there are sensitive names.
        adapter: the method, its name on the command line such as ``"fair-tpt:lam=10"``, or the path
            of a saved one; `FairTPT()` if sensitive names are given (`AssociationCorrection()`
            without an image encoder) and `ZeroShot()` otherwise. One that is not fitted yet is
            held until `fit`, and refused by what needs its answers.
        processor: for a transformers model that does not know its own, its processor or
            ``(image_processor, tokenizer)``.
        scale: inverse temperature of the softmax; the model's own if None.
        views: how many views of an image are made, or how: a number, a strategy such as
            ``AugMix(64)``, a function of an image and a random generator, or a tensor or list of
            images.
        seed: with the content of an image it seeds the image's views, so an answer depends neither
            on the order of images nor on what ran before.
        batch_size: how many images are worked on at once. It does not change the answers, except
            those of methods whose `needs` have ``other_images``, such as ``TTR(queue=28)``.
        device: for a model that is loaded from a string, where to, such as ``"cuda"``; ``"auto"``
            for an accelerator if there is one. A model object stays where it is.
        dtype: likewise its precision, such as ``"bfloat16"``; ``"auto"`` for what the device is
            fast in. The temperature keeps its own.
        compile_vision: let `torch.compile` make the vision tower faster. The first calls take long,
            so this is for many images, and mostly for accelerators.
        cache: where features of images and prompts, gradients and graphs are kept; if None a
            `Cache()` of its own. Several classifiers may share one; ``Cache(0)`` keeps nothing.

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
        targets: ClassNames,
        sensitive: ClassNames | Mapping[str, ClassNames] | None = None,
        template: TemplateArgument | None = None,
        *,
        adapter: AnyAdapter | None = None,
        processor: Any = None,
        scale: float | None = None,
        views: Any = AugMix(),
        seed: int = 0,
        batch_size: int = 16,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        compile_vision: bool = False,
        cache: Cache | None = None,
    ) -> None:
        # Arguments are checked before the model is loaded, which may take minutes.
        class_names = parse_names("targets", targets)
        attributes = parse_sensitive(sensitive)
        templates = parse_template(template, bool(attributes))
        check_count("batch_size", batch_size)
        scale = _check_scale(scale)
        self._cache = _check_cache(cache)

        backend = load(model, processor, device=device, dtype=dtype)
        self._loaded_as = device, dtype
        self._backend: Backend = (
            with_compiled_vision(backend) if compile_vision else backend
        )
        self._vision = Vision(self._backend, views, seed, self._cache)
        task = Task(
            self._backend, class_names, attributes, templates, scale, cache=self._cache
        )
        self._current = CurrentTask(task)
        self._batch_size = min(batch_size, sys.maxsize)
        if adapter is None:
            method = _default_adapter(self._backend, bool(attributes))
        else:
            method = resolve_adapter(adapter)
        self.adapter: Adapter = check_adapter(method, self._task)
        if not sees_images(self._backend):
            # A text tower alone may not know its temperature: fail here, not at the first call.
            _ = self._task.scale
        self._has_logged_cost = False

    @classmethod
    def from_features(
        cls,
        text_features: Mapping[str, Any],
        targets: ClassNames,
        sensitive: ClassNames | Mapping[str, ClassNames] | None = None,
        template: TemplateArgument | None = None,
        *,
        scale: float = 100.0,
        adapter: AnyAdapter | None = None,
        batch_size: int = 16,
        cache: Cache | None = None,
    ) -> Self:
        """Return a classifier of stored features with stored text features, without any model.

        Pass `Features` wherever images are taken.

        Args:
            text_features: ``{prompt: [dim]}`` of the sentences that the template makes, in the
                words of the prompt; others may be there too.
            targets: as for the classifier, and so all below.
            sensitive: names of the values of the attribute that should not matter.
            template: a sentence with the slots ``{target}`` and ``{sensitive}``.
            scale: inverse temperature of the softmax, ``exp(logit_scale)`` of the model.
            adapter: the method; `AssociationCorrection()` if sensitive names are given.
            batch_size: how many images are worked on at once, where they come one by one.
            cache: where features of prompts are kept.

        Raises:
            PromptError: `text_features` lack a prompt.
            ModelError: the method needs views, pixels or a text tower.

        Example:
            >>> texts = {"a photo of a cat.": [1.0, 0.0], "a photo of a dog.": [0.0, 1.0]}
            >>> clf = FairTPTClassifier.from_features(texts, ["cat", "dog"])
            >>> clf.predict(Features(np.array([[0.9, 0.1]])))[0].label
            'cat'
        """
        return cls(
            TextTable(text_features, scale),
            targets,
            sensitive,
            template,
            adapter=adapter,
            scale=scale,
            batch_size=batch_size,
            cache=cache,
        )

    @property
    def targets(self) -> tuple[str, ...]:
        """Labels of the classes, in the order of `predict_proba`."""
        return tuple(self._task.targets)

    @property
    def sensitive(self) -> dict[str, tuple[str, ...]]:
        """Labels of the sensitive values, by attribute."""
        return {
            attribute: tuple(names) for attribute, names in self._task.sensitive.items()
        }

    @property
    def _task(self) -> Task:
        """The text side for the weights at the last call; another one after they have changed."""
        return self._current.task

    # A path is a sequence of strings too, and a sequence an iterable: the first that fits counts.
    @overload
    def predict(  # type: ignore[overload-overlap]
        self,
        images: ImageInput,
        *,
        progress: bool = ...,
        errors: Literal["raise"] = ...,
    ) -> Prediction: ...
    @overload
    def predict(  # type: ignore[overload-overlap]
        self,
        images: Iterator[ImageInput],
        *,
        progress: bool = ...,
        errors: Literal["raise"] = ...,
    ) -> Iterator[Prediction]: ...
    @overload
    def predict(
        self,
        images: Iterable[ImageInput],
        *,
        progress: bool = ...,
        errors: Literal["raise"] = ...,
    ) -> Predictions: ...
    @overload
    def predict(
        self, images: Any, *, progress: bool = ..., errors: Literal["skip"]
    ) -> Any: ...
    def predict(
        self, images: Any, *, progress: bool = False, errors: str = "raise"
    ) -> Any:
        """Classify one image, several images, or a stream of images.

        Args:
            images: one image (PIL image, path, bytes, array or tensor), several (a list, tuple,
                Series, column of a dataset, 4-D array or 4-D tensor), their `Features`, or an
                iterator or generator of images.
            progress: show a progress bar.
            errors: ``"skip"`` to get None, with a warning, for an image that cannot be read.

        Returns:
            One `Prediction` for one image, `Predictions` for several, and for an iterator or
            generator a lazy iterator, at most `batch_size` images ahead.

        Raises:
            ImageError: an image cannot be read. A stream first yields what came before it.
            FairTTAError: the method has not been fitted.
        """
        if errors not in ("raise", "skip"):
            raise FairTTAError(
                f"`errors` should be 'raise' or 'skip' (got {errors!r}).",
                argument="errors",
            )
        if is_single_image(images):
            if errors == "skip":
                return next(self._stream([images], progress, skip_unreadable=True))
            self.adapter._check_ready()
            return self._predict_batch([self._load(images)])[0]
        adapter = self.adapter
        stream = self._stream(check_images(images), progress, errors == "skip")
        # Only an iterator may be endless, so only there the answers are lazy.
        if isinstance(images, Iterator):
            return stream
        return Predictions(list(stream), self.targets, adapter)

    def _stream(
        self,
        images: Iterable[Any],
        progress: bool,
        skip_unreadable: bool = False,
        digests: list[str] | None = None,
    ) -> Iterator[Any]:
        """Return predictions, and None for images that cannot be read if they are skipped.

        The digest of each image that could be read is added to `digests`.
        """
        # One method for the whole stream, though another thread may fit the classifier meanwhile.
        adapter = self.adapter
        adapter._check_ready()
        warn_if_other_model(images, self._task)
        return stream_predictions(
            images,
            self._load,
            lambda batch: self._predict_batch(batch, adapter),
            batch_size=self._batch_size,
            progress=progress,
            skip_unreadable=skip_unreadable,
            digests=digests,
            log_cost=self._log_cost,
        )

    def _load(self, image: Any) -> Any:
        """Return an image ready to be encoded, in memory and with its orientation applied."""
        if is_array(image) and sees_images(self._backend):
            with self._current.borrow() as task:
                dim = task.target_features.shape[-1]
            reject_feature_rows(image, dim, self._backend.name)
        return self._vision.load(image)

    def _predict_batch(
        self, images: Sequence[Any], adapter: Adapter | None = None
    ) -> list[Prediction]:
        """Encode loaded images and their views once, and answer from their features."""
        if not images:
            return []
        adapter = self.adapter if adapter is None else adapter
        needs = adapter.needs
        is_stored = has_stored_features(images)
        if needs.pixels and is_stored:
            raise features_alone_error()
        # Methods that tune replace parts of the model for a while: no other thread may use it then.
        exclusive = needs.prompt_gradient or needs.pixels
        with self._current.borrow(exclusive=exclusive) as task:
            # A method that needs pixels makes views of its own, with gradients.
            features = self._encode(task, images, needs.views and not needs.pixels)
            # Features stored with few digits have a larger rounding floor.
            if is_stored:
                task = task._for_image_dtype(dtype_of(images))
            return predict_from_features(adapter, task, self._vision, features, images)

    def _encode(self, task: Task, images: Sequence[Any], with_views: bool) -> Tensor:
        """Return unit features ``[images, views, dim]`` without gradients; view 0 is the image."""
        if has_stored_features(images):
            if with_views and not have_stored_views(images):
                raise features_alone_error()
            # Methods of one view answer from stored features with views too.
            features = stack_features(images, task.target_features)
            return features if with_views else features[:, :1]
        features = self._vision.features(images, with_views)
        check_dimensions(self._backend.name, features, task.target_features)
        return features

    def _predict_encoded(
        self, features: Tensor, images: Sequence[Any] = ()
    ) -> list[Prediction]:
        """Return predictions from what `encode` returns, as one batch.

        Only a cross-fitted method looks at the `images` that the features are of.
        """
        adapter = self.adapter
        adapter._check_ready()
        # Exclusive: a method that tunes prompts replaces embeddings in the model meanwhile.
        with self._current.borrow() as task:
            unit_features = as_unit_features(features, task.target_features)
            if not len(unit_features):
                return []
            return predict_from_features(
                adapter, task, self._vision, unit_features, images
            )

    def _log_cost(self, images: Iterable[Any], seconds_per_image: float) -> None:
        """Log once what many views of many images cost."""
        views = self._vision.count or "several"
        if self._has_logged_cost or views == 1 or not self.adapter.needs.views:
            return
        if not isinstance(images, Sized) or len(images) <= _LOG_COST_ABOVE_IMAGES:
            return
        self._has_logged_cost = True
        minutes = len(images) * seconds_per_image / 60
        logging.getLogger(__name__).info(
            f"{type(self.adapter).__name__} encodes {views} views of each image: "
            f"{seconds_per_image:.2g} s per image, {minutes:.2g} minutes for "
            f"{len(images)}. A method with one view encodes one: "
            "with_adapter('association-correction')."
        )

    def predict_proba(
        self, images: Any, *, progress: bool = False
    ) -> npt.NDArray[np.float64]:
        """Return probabilities in the order of `targets`: ``[targets]`` or ``[images, targets]``.

        For `Features`, of which there may be millions, only the probabilities are computed.
        """
        if is_single_image(images):
            return np.array(list(self.predict(images).probabilities.values()))
        if isinstance(images, Features):
            self.adapter._check_ready()
            warn_if_other_model(images, self._task)
            return self._fill_probabilities(images, progress)
        # The order of `targets` is that of the dictionary.
        rows = [
            list(prediction.probabilities.values())
            for prediction in self._stream(check_images(images), progress)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, len(self.targets))

    def _fill_probabilities(
        self, features: Features, progress: bool
    ) -> npt.NDArray[np.float64]:
        """Return probabilities of stored features, ``[images, targets]``."""
        # One large array is filled: many small ones that stay alive between the large temporaries
        # would keep the allocator from returning memory.
        probabilities = np.empty((len(features), len(self.targets)))
        start = 0
        with image_bar(features, progress) as bar:
            for chunk in features._chunks():
                stop = start + len(chunk)
                probabilities[start:stop] = self._chunk_probabilities(chunk)
                bar.update(len(chunk))
                start = stop
        return probabilities

    def _chunk_probabilities(self, features: Features) -> npt.NDArray[np.float64]:
        """Return the probabilities of `_predict_batch`, without making predictions if possible."""
        adapter = self.adapter
        needs = adapter.needs
        is_plain = is_builtin(adapter) and not isinstance(adapter, CrossFitted)
        with self._current.borrow(exclusive=needs.prompt_gradient) as task:
            if is_plain and not needs.pixels:
                encoded = self._encode(task, features, needs.views)
                seen = task._for_image_dtype(dtype_of(features))
                probabilities = adapter.adapt(seen, encoded).probabilities
                if bool(probabilities.isfinite().all()):
                    return fetch_to_cpu({0: probabilities})[0].numpy()
            predictions = self._predict_batch(features, adapter)
        return np.array([list(one.probabilities.values()) for one in predictions])

    def encode(
        self, images: Sequence[ImageInput], *, with_views: bool = True
    ) -> Tensor:
        """Return unit features of images and their views, ``[images, views, dim]``.

        View 0 is the image. They do not depend on the adapter: keep them to try further settings
        without another pass through the vision tower, ``predict(Features(encoded))``.

        Args:
            images: a list of images. Of none there are features ``[0, views, dim]``, with 1 for
                `views` if only your function knows how many it makes.
            with_views: False for the images alone.
        """
        if is_single_image(images):
            raise ImageError(
                "`images` should be a list of images (got one): encode([image]).",
                argument="images",
            )
        # Batches are bounded by their pixels alone; features are joined at the end.
        encoded = []
        for batch in load_batches(check_images(images), self._load, sys.maxsize):
            if batch.error is not None:
                raise batch.error.__cause__ or batch.error
            with self._current.borrow() as task:
                encoded.append(self._encode(task, batch.images, with_views))
        if encoded:
            return torch.cat(encoded)
        with self._current.borrow() as task:
            views = self._vision.count if with_views else 1
            dim = task.target_features.shape[1]
            return task.target_features.new_empty(0, views or 1, dim)

    def with_adapter(self, adapter: AnyAdapter) -> Self:
        """Return the same classifier with another method; features are shared.

        The method may be given as an object, by its name on the command line, or as the path of a
        saved one.
        """
        # A shallow copy: model, cache, task and views are shared on purpose.
        other = copy.copy(self)
        with self._current.borrow() as task:
            other.adapter = check_adapter(resolve_adapter(adapter), task)
        return other

    def with_views(self, views: Any = None, seed: int | None = None) -> Self:
        """Return the same classifier with other views or another seed of them; None keeps them."""
        other = copy.copy(self)
        views = self._vision.views if views is None else views
        seed = self._vision.seed if seed is None else seed
        other._vision = Vision(self._backend, views, seed, self._cache)
        return other

    def fit(
        self,
        images: Any,
        labels: ClassLabels | None = None,
        sensitive: SensitiveLabels | None = None,
        *,
        progress: bool = False,
    ) -> Self:
        """Fit the classifier's method on reference images, and return the classifier.

        `adapter` is replaced by a fitted copy; the object that was passed in is unchanged. Other
        classifiers keep their methods: ``clf.with_adapter("logit-balance").fit(images)`` leaves
        `clf` alone. A method that is fitted already is fitted again, from these images alone.

        Args:
            images: some hundred, of the groups that will be met, in about the shares in which they
                will be met; or their `Features`, of which the first view counts. They are read
                `batch_size` at a time, and not kept.
            labels: for a method that learns from classes, the class of each image, None where it
                is not known, or ``{place of an image: class}``.
            sensitive: for a method that learns from attribute values, the value of each image, or
                ``{attribute: values}``; each value has to have an image.
            progress: show a progress bar.

        Raises:
            FairTTAError: the method does not learn from images, lacks labels or attribute values,
                or has no use for them.

        Example:
            >>> from fair_tta import miniature
            >>> task = miniature.BIRDS
            >>> clf = FairTPTClassifier("miniature", task.targets, task.sensitive, task.template)
            >>> images = (drawn.image for drawn in task.draw(300, seed=1))
            >>> balanced = clf.with_adapter("logit-balance").fit(images)
            >>> balanced.predict(task.draw(1)[0].image).label
            'water bird'
        """
        fitted = fit_method(
            self, self.adapter, images, labels, sensitive, progress=progress
        )
        # Under the lock, so that the method does not change while another thread answers.
        with self._current.borrow() as task:
            self.adapter = check_adapter(fitted, task)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the method and what it has learned, not the model, to a safetensors file.

        The path is an adapter: ``FairTPTClassifier(..., adapter="fitted.safetensors")``. Loading it
        runs no code, and another model or other prompts are refused.

        Raises:
            FairTTAError: the method has not been fitted, or has a setting that is neither a number
                nor a text.
        """
        with self._current.borrow() as task:
            save_adapter(self.adapter, path, task)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the method as an ONNX file: features of images in, probabilities out.

        The prompts, and what the method has learned, are inside. ``features`` are ``[images, dim]``
        in float32, of any length; ``probabilities`` are ``[images, targets]``, those of
        `predict_proba` of `Features` to 1e-5, which is checked. Labels are in its metadata as
        ``targets``.
        Needs the extra ``onnx``.

        Args:
            path: the file.

        Raises:
            FairTTAError: the method has not been fitted, or needs more than one feature of an image
                or an operator that ONNX does not have; the file at `path` is left unchanged.
        """
        from fair_tta._onnx import export_head

        self.adapter._check_fitted()
        with self._current.borrow() as task:
            export_head(self.adapter, task, path)

    def forget(self) -> None:
        """Drop all features, also those of other classifiers that share the cache.

        Call it after a change of the model that PyTorch does not count: numbers written through
        ``.data``, NumPy or another process, weights that were made in `torch.inference_mode`,
        settings or code of a module or of the image processor, and hooks on all modules at once.
        All other changes of weights, modules and forward hooks are noticed at the next call.
        """
        self._current.renew()

    def audit(
        self,
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
        """Classify images whose labels are known and measure the answers, group by group.

        The cost is the time of the prediction. Features of views that the classifier still holds
        from another adapter on the same images are not computed, nor counted, again.

        Args:
            images: as many as labels; a list or any iterable.
            labels: their true labels, in the words of `targets`.
            sensitive: their sensitive values, or ``{attribute: values}``. These may be any words
                and any attributes, not only those that the classifier names. Where all values of
                an attribute are among the classifier's, those that do not occur are reported too.
            adapter: another method than the classifier's own. One that has to know the true
                sensitive values, such as `TIE`, gets them; they have to be in the classifier's
                words then.
            name: what to call the run; the adapter's name if None.
            rename: ``{your label: classifier's label}`` for labels in other words.
            harmful: classes that should not be answered, see `fair_tta.audit`.
            clusters: the person or source of each image, see `fair_tta.audit`.
            progress: show a progress bar.
            interval: how intervals are made.
        """
        # Auditing lies above the classifier, so it is imported when it is needed.
        from fair_tta.auditing._classify import audit_classifier

        return audit_classifier(
            self,
            images,
            labels,
            sensitive,
            adapter=adapter,
            name=name,
            rename=rename,
            harmful=harmful,
            clusters=clusters,
            progress=progress,
            interval=interval,
        )

    def examine(
        self,
        images: Any,
        adapters: Adapters | None = ("association-correction",),
        *,
        progress: bool = False,
        interval: Interval = DEFAULT,
    ) -> Examination:
        """Look at images without labels: what is perceived, and what methods would change.

        Pseudo-EOD takes the model's zero-shot beliefs for labels. It is the model's own perception,
        not a measurement on people, and says nothing about accuracy. Small copies of some images
        whose answer would change are kept for the page, and nowhere else. The classifier's adapter
        does not matter.

        Args:
            images: a list or any iterable; they pass by in batches.
            adapters: methods to try, or ``{name: method}``; None to look only. Each is compared
                with the zero-shot answers.
            progress: show a progress bar.
            interval: level, resamples and seed of the intervals.

        Raises:
            FairTTAError: the classifier names nothing sensitive, there are no images, two adapters
                have the same name, or one has not been fitted.
            ImageError: an image cannot be read.
        """
        from fair_tta.auditing._examine import examine_classifier

        return examine_classifier(
            self, images, adapters, progress=progress, interval=interval
        )

    def mitigate(
        self,
        images: Any,
        labels: Column | None = None,
        sensitive: Sensitive | None = None,
        *,
        clusters: Column | None = None,
        progress: bool = False,
    ) -> Mitigation:
        """Choose a method by labels, and return a classifier with it, if one is shown to help.

        Zero-shot, association correction and logit balance are cross-fitted without labels, and the
        one with the lowest typical gap is taken among those that significantly narrow it and do not
        significantly cost accuracy or the worst group; it is then fitted on all images. What the
        audit reports are the cross-fitted answers. The classifier's adapter does not matter.

        Args:
            images: a list or any iterable; 300 or more, of the groups that will be met.
            labels: their true labels, in the words of `targets`.
            sensitive: their attribute values, or ``{attribute: values}``.
            clusters: the person or source of each image, see `fair_tta.audit`.
            progress: show progress bars.

        Raises:
            FairTTAError: there are no labels or no attribute values, or they cannot be used.
        """
        from fair_tta.auditing._mitigate import mitigate_classifier

        return mitigate_classifier(
            self, images, labels, sensitive, clusters=clusters, progress=progress
        )

    def __repr__(self) -> str:
        values = [
            f"{a!r}: ({abbreviate(map(repr, v))})" for a, v in self.sensitive.items()
        ]
        targets = abbreviate(map(repr, self.targets))
        return (
            f"FairTPTClassifier({self._backend.name!r}, targets=[{targets}], "
            f"sensitive={{{', '.join(values)}}}, adapter={self.adapter!r})"
        )

    def _repr_html_(self) -> str:
        """Return the model, its prompts and the method, for notebooks."""
        return classifier_table(
            model=self._backend.name,
            targets=self.targets,
            sensitive=self.sensitive,
            sentences=self._task.templates.sentences,
            adapter=repr(self.adapter),
            views=repr(self._vision.views),
        )


def _check_scale(scale: Any) -> float | None:
    """Return the inverse temperature as a number; None is the model's own."""
    if isinstance(scale, Tensor) and scale.numel() == 1:
        scale = scale.item()  # as of model.logit_scale.exp()
    if scale is not None:
        # Python's integers may be larger than any float, and yet below infinity.
        largest = sys.float_info.max
        check_number("scale", scale, "be a positive number", lambda x: 0 < x <= largest)
    return scale  # type: ignore[no-any-return]


def _check_cache(cache: Any) -> Cache:
    if cache is None:
        return Cache()
    if not isinstance(cache, Cache):
        raise FairTTAError(
            f"`cache` should be a Cache such as Cache(2**28) (got {cache!r}).",
            argument="cache",
        )
    return cache


def _default_adapter(backend: Backend, has_attributes: bool) -> Adapter:
    """Return the paper's method, or what a classifier without images or attributes can do."""
    if not has_attributes:
        return ZeroShot()
    return FairTPT() if sees_images(backend) else AssociationCorrection()
