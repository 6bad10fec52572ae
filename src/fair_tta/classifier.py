"""The classifier: images in, predictions out."""

from __future__ import annotations

import copy
import logging
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
import torch
from PIL.Image import Image
from torch import Tensor

from fair_tta._cache import Cache
from fair_tta._notebook import facts_table
from fair_tta.errors import (
    FairTTAError,
    ImageError,
    ModelError,
    check_count,
    check_number,
)
from fair_tta.images._batches import are_files, load_batches, load_batches_ahead
from fair_tta.images._load import ImageInput, image_bar, is_single_image
from fair_tta.images._stored import (
    ROWS_PER_CHUNK,
    Features,
    StoredFeature,
    as_unit_features,
    dtype_of,
    has_stored_features,
    stack_features,
)
from fair_tta.images._views import AugMix
from fair_tta.images._vision import Vision, image_digest
from fair_tta.methods import AssociationCorrection, FairTPT, ZeroShot
from fair_tta.methods._base import (
    Adapter,
    PixelAdapter,
    check_adapter,
    non_finite_error,
)
from fair_tta.methods._cross_fit import CrossFitted
from fair_tta.methods._fitting import fit_method, save_adapter, warn_if_other_model
from fair_tta.methods._predictions import fetch_to_cpu, is_builtin, to_predictions
from fair_tta.methods._reference_labels import ClassLabels, SensitiveLabels
from fair_tta.methods._registry import Adapters, AnyAdapter, resolve_adapter
from fair_tta.metrics.intervals._bootstrap import DEFAULT, Interval
from fair_tta.models import Backend
from fair_tta.models._loading import load, with_compiled_vision
from fair_tta.models._stored_text import TextTable, sees_images
from fair_tta.prediction import Prediction, Predictions, shortened
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
    from fair_tta.metrics._answer_table import Column, Sensitive

_MANY = 20  # images of a call; with more its cost is logged
_LARGEST = (
    sys.float_info.max
)  # less than some whole numbers, which are less than infinity


class FairTPTClassifier:
    """A zero-shot classifier that adapts its prompt to each image on its own.

    Args:
        model: a transformers model, a transformers zero-shot pipeline, open_clip's
            ``(model, preprocess, tokenizer)``, an open_clip model, the directory or hub id of a
            transformers model, ``"open_clip:NAME/TAG"``, or your own `Backend`. It comes back as
            it was: weights, flags, mode, hooks, dtype and device. Weights that you change later are
            noticed at the next call if PyTorch counts the change; see `forget`.
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
        names, attributes = parse_names("targets", targets), parse_sensitive(sensitive)
        templates = parse_template(template, bool(attributes))
        check_count("batch_size", batch_size)
        if isinstance(scale, Tensor) and scale.numel() == 1:
            scale = scale.item()  # as of model.logit_scale.exp()
        if scale is not None:
            check_number(
                "scale", scale, "be a positive number", lambda x: 0 < x <= _LARGEST
            )
        if not isinstance(cache, Cache | None):
            raise FairTTAError(
                f"`cache` should be a Cache such as Cache(2**28) (got {cache!r}).",
                argument="cache",
            )
        self._cache = Cache() if cache is None else cache
        self._backend: Backend = load(model, processor, device=device, dtype=dtype)
        self._loaded_as = device, dtype
        if compile_vision:
            self._backend = with_compiled_vision(self._backend)
        self._current = CurrentTask(
            Task(self._backend, names, attributes, templates, scale, cache=self._cache)
        )
        self._vision = Vision(self._backend, views, seed, self._cache)
        self._batch_size = min(batch_size, sys.maxsize)
        tuned = FairTPT() if sees_images(self._backend) else AssociationCorrection()
        default = tuned if attributes else ZeroShot()
        method = default if adapter is None else resolve_adapter(adapter)
        self.adapter: Adapter = check_adapter(method, self._task)
        if not sees_images(self._backend):
            _ = self._task.scale  # a text tower may not know it
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
        """A classifier of stored features with stored text features, without any model.

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
            TextTable(text_features, scale), targets, sensitive, template,
            adapter=adapter, scale=scale, batch_size=batch_size, cache=cache,
        )  # fmt: skip

    def with_adapter(self, adapter: AnyAdapter) -> Self:
        """The same classifier with another method; features of prompts and views are shared.

        The method may be given as an object, by its name on the command line, or as the path of a
        saved one.
        """
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

        `adapter` is replaced by a fitted copy; the object that was passed in stays as it is. Other
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
        with self._current.borrow() as task:  # no other thread is answering meanwhile
            self.adapter = check_adapter(fitted, task)
        return self

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the method and what it has learnt, not the model, to a safetensors file.

        The path is an adapter: ``FairTPTClassifier(..., adapter="fitted.safetensors")``. Loading it
        runs no code, and another model or other prompts are refused.

        Raises:
            FairTTAError: the method has not been fitted, or has a setting that is neither a number
                nor a text.
        """
        with self._current.borrow() as task:
            save_adapter(self.adapter, path, task)

    def forget(self) -> None:
        """Drop all features, also those of other classifiers that share the cache.

        Call it after a change of the model that PyTorch does not count: numbers written through
        ``.data``, NumPy or another process, weights that were made in `torch.inference_mode`,
        settings or code of a module or of the image processor, and hooks on all modules at once.
        All other changes of weights, modules and forward hooks are noticed at the next call.
        """
        self._current.renew()

    @property
    def _task(self) -> Task:
        """The text side for the weights at the last call; another one after they have changed."""
        return self._current.task

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
                return next(self._stream([images], progress, skip=True))
            self.adapter._check_ready()
            return self._predict_batch([self._load(images)])[0]
        adapter = self.adapter
        stream = self._stream(checked_images(images), progress, errors == "skip")
        if isinstance(images, Iterator):
            return stream
        return Predictions(list(stream), self.targets, adapter)

    def _stream(
        self,
        images: Iterable[Any],
        progress: bool,
        skip: bool = False,
        digests: list[str] | None = None,
    ) -> Iterator[Any]:
        """Predictions, and with `skip` None for images that cannot be read.

        The digest of each image that could be read is added to `digests`.
        """
        adapter = (
            self.adapter
        )  # the same for all, though another thread may fit it meanwhile
        adapter._check_ready()
        return self._streamed(adapter, images, progress, skip, digests)

    def _streamed(
        self,
        adapter: Adapter,
        images: Iterable[Any],
        progress: bool,
        skip: bool,
        digests: list[str] | None,
    ) -> Iterator[Any]:
        batches = load_batches_ahead if are_files(images) else load_batches
        size = self._batch_size
        if isinstance(images, Features) and images._views is None:
            size = max(size, ROWS_PER_CHUNK)
        warn_if_other_model(images, self._task)
        place, start = 0, perf_counter()
        with image_bar(images, progress) as bar:
            for batch in batches(
                images, self._load_or_error if skip else self._load, size
            ):
                failed = [
                    im if isinstance(im, ImageError) else None for im in batch.images
                ]
                readable = [im for im in batch.images if not isinstance(im, ImageError)]
                if digests is not None:
                    digests.extend(map(image_digest, readable))
                answers = self._predict_batch(readable, adapter)
                del readable
                batch.images.clear()  # room for others
                batch.wait_for_decoding()
                bar.update(len(failed))
                if answers:
                    self._log_cost(images, (perf_counter() - start) / len(answers))
                found = iter(answers)
                for error in failed:
                    if error is not None:
                        warnings.warn(f"image {place}: {error}", stacklevel=3)
                    yield None if error is not None else next(found)
                    place += 1
                if batch.error is not None:
                    raise batch.error

    def _load_or_error(self, image: Any) -> Any:
        try:
            return self._load(image)
        except ImageError as error:
            return error

    def _load(self, image: Any) -> Any:
        """`Vision.load`, but refuse what may be features, of which an image would be made."""
        is_array = isinstance(image, np.ndarray | Tensor)
        if is_array and image.ndim == 2 and sees_images(self._backend):
            with self._current.borrow() as task:
                dim = task.target_features.shape[-1]
            if image.shape[1] == dim:
                raise FairTTAError(
                    f"`images` should not be a two-dimensional array with rows of {dim} numbers, "
                    f"as long as the features of {self._backend.name} (got {list(image.shape)}): "
                    "pass Features(array) if its rows are features, or array[:, :, None] if it is "
                    "a grey image.",
                    argument="images",
                )
        return self._vision.load(image)

    def _log_cost(self, images: Iterable[Any], seconds: float) -> None:
        """Once, if there are many images, each with many views; `seconds` an image took."""
        views = self._vision.count or "several"
        if self._has_logged_cost or views == 1 or not self.adapter.needs.views:
            return
        if isinstance(images, Sized) and len(images) > _MANY:
            self._has_logged_cost = True
            logging.getLogger(__name__).info(
                f"{type(self.adapter).__name__} encodes {views} views of each image: "
                f"{seconds:.2g} s per image, {len(images) * seconds / 60:.2g} minutes for "
                f"{len(images)}. A method with one view encodes one: "
                "with_adapter('association-correction')."
            )

    def _predict_batch(
        self, images: Sequence[Any], adapter: Adapter | None = None
    ) -> list[Prediction]:
        """Encode the images once, let the adapter work, and set its answer beside zero-shot's."""
        adapter = self.adapter if adapter is None else adapter
        needs = adapter.needs
        if not images:
            return []
        with self._current.borrow(
            exclusive=needs.prompt_gradient or needs.pixels
        ) as task:
            if needs.pixels and has_stored_features(images):
                raise _only_features()
            features = self._encode(task, images, needs.views and not needs.pixels)
            if has_stored_features(images):
                task = task._for_image_dtype(dtype_of(images))
            return self._from_features(adapter, task, features, images)

    def _encode(self, task: Task, images: Sequence[Any], with_views: bool) -> Tensor:
        if not has_stored_features(images):
            features = self._vision.features(images, with_views)
            check_dimensions(self._backend.name, features, task.target_features)
            return features
        if with_views and not _have_views(images):
            raise _only_features()
        features = stack_features(images, task.target_features)
        return features if with_views else features[:, :1]

    def _predict_encoded(
        self, features: Tensor, images: Sequence[Any] = ()
    ) -> list[Prediction]:
        """Predictions from what `encode` returns, as one batch.

        Only a cross-fitted method looks at the `images` that they are of.
        """
        adapter = self.adapter
        adapter._check_ready()
        with self._current.borrow() as task:
            unit = as_unit_features(features, task.target_features)
            return self._from_features(adapter, task, unit, images) if len(unit) else []

    def _from_features(
        self,
        adapter: Adapter,
        task: Task,
        features: Tensor,
        images: Sequence[Image] = (),
    ) -> list[Prediction]:
        if isinstance(adapter, CrossFitted) and images:
            answers: dict[int, Prediction] = {}
            for fit, places in adapter.folds(images):
                some = [images[place] for place in places]
                found = self._from_features(fit, task, features[places], some)
                answers.update(zip(places, found, strict=True))
            return [answers[place] for place in range(len(images))]
        adapted = zero_shot = ZeroShot().adapt(task, features)
        try:
            if isinstance(adapter, PixelAdapter) and images:
                adapted = adapter.adapt_pixels(task, self._vision, images)
            elif adapter != ZeroShot():
                adapted = adapter.adapt(task, features)
        except Exception:
            if not zero_shot.probabilities.isfinite().all():  # which explains it
                raise non_finite_error(task) from None
            raise
        return to_predictions(task, zero_shot, adapted, adapter)

    def predict_proba(
        self, images: Any, *, progress: bool = False
    ) -> npt.NDArray[np.float64]:
        """Probabilities in the order of `targets`: ``[targets]``, or ``[images, targets]``.

        Of `Features`, of which there may be millions, nothing else is computed.
        """
        if is_single_image(images):
            return np.array(list(self.predict(images).probabilities.values()))
        self.adapter._check_ready()
        if isinstance(images, Features):
            warn_if_other_model(images, self._task)
            # filled in: many small arrays that stay would keep large ones from being freed
            found, done = np.empty((len(images), len(self.targets))), 0
            with image_bar(images, progress) as bar:
                for chunk in images._chunks():
                    found[done : done + len(chunk)] = self._probabilities(chunk)
                    done += len(chunk)
                    bar.update(len(chunk))
            return found
        stream = self._stream(checked_images(images), progress)
        rows = [list(p.probabilities.values()) for p in stream]
        return np.array(rows, dtype=np.float64).reshape(-1, len(self.targets))

    def _probabilities(self, features: Features) -> npt.NDArray[np.float64]:
        """What `_predict_batch` finds, ``[images, targets]``, by the shortest way there is."""
        adapter = self.adapter
        with self._current.borrow(exclusive=adapter.needs.prompt_gradient) as task:
            is_plain = not isinstance(adapter, CrossFitted) and not adapter.needs.pixels
            if is_builtin(adapter) and is_plain:
                encoded = self._encode(task, features, adapter.needs.views)
                seen = task._for_image_dtype(dtype_of(features))
                found = adapter.adapt(seen, encoded).probabilities
                if bool(found.isfinite().all()):
                    return fetch_to_cpu({0: found})[0].numpy()
            answers = self._predict_batch(features, adapter)
            return np.array([list(answer.probabilities.values()) for answer in answers])

    def encode(
        self, images: Sequence[ImageInput], *, with_views: bool = True
    ) -> Tensor:
        """Unit features of images and their views: ``[images, views, dim]``; view 0 is the image.

        They do not depend on the adapter: keep them to try further settings without another pass
        through the vision tower, ``predict(Features(encoded))``.

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
        parts = []
        for batch in load_batches(checked_images(images), self._load, sys.maxsize):
            if batch.error is not None:
                raise batch.error.__cause__ or batch.error
            with self._current.borrow() as task:
                parts.append(self._encode(task, batch.images, with_views))
        if parts:
            return torch.cat(parts)
        with self._current.borrow() as task:
            count = self._vision.count if with_views else 1
            return task.target_features.new_empty(
                0, count or 1, task.target_features.shape[1]
            )

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the method as an ONNX file: features of images in, probabilities out.

        The prompts, and what the method has learnt, are inside. ``features`` are ``[images, dim]``
        in float32, of any length; ``probabilities`` are ``[images, targets]``, those of
        `predict_proba` of `Features` to 1e-5, which is checked. Labels are in its metadata as
        ``targets``.
        Needs the extra ``onnx``.

        Args:
            path: the file.

        Raises:
            FairTTAError: the method has not been fitted, or needs more than one feature of an image
                or an operator that ONNX does not have; the file at `path` stays as it was.
        """
        from fair_tta._onnx import export_head

        self.adapter._check_fitted()
        with self._current.borrow() as task:
            export_head(self.adapter, task, path)

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
        from fair_tta.auditing._classify import (
            audit_classifier,
        )  # an outer room: when asked

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
        """Look at images without labels: what is perceived, stop signs, what adapters would do.

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
            f"{a!r}: ({shortened(map(repr, v))})" for a, v in self.sensitive.items()
        ]
        targets = shortened(map(repr, self.targets))
        return (
            f"FairTPTClassifier({self._backend.name!r}, targets=[{targets}], "
            f"sensitive={{{', '.join(values)}}}, adapter={self.adapter!r})"
        )

    def _repr_html_(self) -> str:
        """Return the model, its prompts and the method, for notebooks."""
        sentences = self._task.templates.sentences
        facts = {
            "model": self._backend.name,
            "targets": shortened(self.targets),
            **{
                f"sensitive: {a}": shortened(names)
                for a, names in self.sensitive.items()
            },
            **{
                f"prompt: {name}": str(text) for name, text in sentences.items() if text
            },
            "adapter": repr(self.adapter),
            "views": repr(self._vision.views),
        }
        return facts_table(facts)


def check_dimensions(name: str, images: Tensor, texts: Tensor) -> None:
    """Raise `ModelError` if features of images and of prompts cannot be compared."""
    if images.shape[-1] != texts.shape[-1]:
        raise ModelError(
            f"{name} has image features of {images.shape[-1]} numbers and text features of "
            f"{texts.shape[-1]}: both sides should be of the same model, with its projections."
        )


def checked_images(images: Any) -> Iterable[Any]:
    """Several images, or an error."""
    if isinstance(images, Mapping) or not hasattr(images, "__iter__"):
        raise ImageError(
            "`images` should be an image (PIL image, path, bytes, array or tensor) or an "
            f"iterable of images (got {type(images).__name__}).",
            argument="images",
        )
    several: Iterable[Any] = images
    is_nested = isinstance(images, Tensor) and images.is_nested  # it has no length
    return images.unbind() if is_nested else several


def _have_views(images: Sequence[Any]) -> bool:
    """Return whether these stored features are of images and their views."""
    first = images[0]
    return first.values.ndim == 2 if isinstance(first, StoredFeature) else False


def _only_features() -> FairTTAError:
    return FairTTAError(
        "stored features have neither pixels nor further views (`with_views`): choose a "
        "method that works on features, such as with_adapter('association-correction'), or pass "
        "the images.",
        argument="with_views",
    )
