"""A drop-in for transformers' zero-shot image pipeline: same call, same lists of scores."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fair_tta._cache import Cache
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import ImageError, PromptError, check_count, check_number
from fair_tta.images._fetch import URL_PREFIXES, fetch_image
from fair_tta.images._inputs import check_images
from fair_tta.images._load import is_single_image, load_image
from fair_tta.images._views import AugMix
from fair_tta.methods._base import Adapter
from fair_tta.methods._registry import resolve_adapter
from fair_tta.models import resolve
from fair_tta.models._loading import find_device, move
from fair_tta.prediction import Score
from fair_tta.prompts._templates import ClassNames, parse_names

# One for each set of labels and sentence. Their prompts' features are small; a service that makes
# up labels for each call should not collect classifiers forever.
_MAX_CLASSIFIERS = 16


class FairPipeline:
    """Drop-in for ``pipeline("zero-shot-image-classification", ...)``.

    Sensitive attributes are configured once; calls need no change. Labels and sentence may differ
    from call to call, the model is loaded once.

    Args:
        model: the pipeline that it replaces, or any model that `FairTPTClassifier` takes.
        sensitive: names of the attribute values that should not matter, as for
            `FairTPTClassifier`.
        adapter: the method, or its name on the command line; `AssociationCorrection()` if None.
        slot: what replaces ``{}`` in a `hypothesis_template`; it has ``{target}`` and
            ``{sensitive}``.
        device: where to move the model; None leaves it where it is.
        views: how further views of an image are made.
        seed: seeds the views.
        batch_size: how many images are worked on at once.
        urls: whether addresses that begin with http:// or https:// are fetched; otherwise they are
            refused.
        timeout: seconds that fetching one address may take in all.
        private_urls: whether addresses may lead to hosts that are not public: a local network,
            this machine, a proxy there.

    Example:
        >>> from fair_tta import FairPipeline, ZeroShot, miniature
        >>> classify = FairPipeline("miniature", ["on water", "on land"], adapter=ZeroShot())
        >>> scores = classify(
        ...     miniature.BIRDS.draw(1)[0].image,
        ...     candidate_labels=["of a water bird", "of a land bird"],
        ...     hypothesis_template="This is a picture {}.",
        ... )
        >>> scores[0]["label"]
        'of a water bird'
    """

    def __init__(
        self,
        model: Any,
        sensitive: ClassNames | Mapping[str, ClassNames],
        *,
        adapter: Adapter | str | None = None,
        slot: str = "{target} {sensitive}",
        device: Any = None,
        views: Any = AugMix(),
        seed: int = 0,
        batch_size: int = 16,
        urls: bool = False,
        timeout: float = 10.0,
        private_urls: bool = False,
    ) -> None:
        slots = ("{target}", "{sensitive}")
        if not isinstance(slot, str) or not all(name in slot for name in slots):
            raise PromptError(
                f"`slot` should have both {{target}} and {{sensitive}} (got {slot!r}).",
                argument="slot",
            )
        _check_timeout(timeout)
        self.backend = resolve(model, None)
        if device is not None:
            move(self.backend, find_device(device))
        self.sensitive = sensitive
        self.slot = slot
        self.adapter: Adapter = resolve_adapter(adapter or "association-correction")
        self.urls = urls
        self.timeout = timeout
        self.private_urls = private_urls
        # Passed on to each classifier. They share one cache, so that its limit of bytes holds for
        # all of them together.
        self._options = {
            "views": views,
            "seed": seed,
            "batch_size": batch_size,
            "cache": Cache(),
        }
        self._classifier = lru_cache(_MAX_CLASSIFIERS)(self._make_classifier)

    def __call__(
        self,
        image: Any = None,
        candidate_labels: Sequence[str] | None = None,
        hypothesis_template: str = "This is a photo of {}.",
        *,
        images: Any = None,
        batch_size: int | None = None,
        timeout: float | None = None,
        top_k: int | None = None,
        num_workers: int | None = None,
    ) -> Any:
        """Return the scores of the labels, best first.

        Args:
            image: one image (also a path, or an address if `urls`), a list, a dataset or a column
                of one, or any iterable.
            candidate_labels: the classes. A single one has the score 1.
            hypothesis_template: a sentence with ``{}`` for a label.
            images: the same as `image`.
            batch_size: replaces the pipeline's own for this call.
            timeout: replaces the pipeline's own for this call.
            top_k: how many labels to return, all if None.
            num_workers: accepted because calls may pass it, and ignored; threads decode images.

        Returns:
            ``[{"score": .., "label": ..}]`` for one image, a list of such lists for a list, and a
            lazy iterator for any other iterable.
        """
        if (image is None) == (images is None):
            raise ImageError("pass either `image` or `images`.", argument="image")
        inputs = images if image is None else image
        timeout = self.timeout if timeout is None else _check_timeout(timeout)
        if isinstance(candidate_labels, Set):
            # Scores are sorted, so any order will do as long as it is always the same.
            candidate_labels = sorted(candidate_labels, key=str)
        if not isinstance(hypothesis_template, str) or "{" not in hypothesis_template:
            raise PromptError(
                "`hypothesis_template` should have {} in place of a label "
                f"(got {hypothesis_template!r}).",
                argument="hypothesis_template",
            )
        score = self._scorer(candidate_labels, hypothesis_template, batch_size)
        if is_single_image(inputs):
            fetched = self._fetch_if_url(inputs, timeout)
            return next(score(iter([fetched])))[:top_k]
        if not hasattr(inputs, "__iter__") and hasattr(inputs, "__getitem__"):
            # A torch dataset has a length and items, and may have no iterator.
            inputs = map(inputs.__getitem__, range(len(inputs)))
        fetched_images = (
            self._fetch_if_url(one, timeout) for one in check_images(inputs)
        )
        stream = (scores[:top_k] for scores in score(fetched_images))
        is_list = isinstance(inputs, Sequence | np.ndarray | Tensor)
        return list(stream) if is_list else stream

    def _scorer(
        self, candidate_labels: Any, sentence: str, batch_size: int | None
    ) -> Callable[[Iterator[Any]], Iterator[list[Score]]]:
        """Return the function that turns a stream of images into their scores."""
        match candidate_labels:
            case [str(label)]:
                # Without an alternative there is nothing to compute, but images must be readable.
                return lambda images: (
                    [Score(score=1.0, label=label)] for _ in map(load_image, images)
                )
        labels = tuple(parse_names("candidate_labels", candidate_labels))
        classifier = self._classifier(labels, sentence)
        if batch_size is not None:
            check_count("batch_size", batch_size)
            # A copy: the kept classifier serves other calls, perhaps in another thread.
            classifier = copy.copy(classifier)
            classifier._batch_size = batch_size
        return lambda images: (
            prediction.to_dict() for prediction in classifier.predict(images)
        )

    def _make_classifier(
        self, labels: tuple[str, ...], sentence: str
    ) -> FairTPTClassifier:
        # The pipeline's sentence has one slot; ours needs a place for the attribute too.
        template = sentence.replace("{}", self.slot)
        return FairTPTClassifier(
            self.backend,
            labels,
            self.sensitive,
            template,
            adapter=self.adapter,
            **self._options,
        )

    def _fetch_if_url(self, image: Any, timeout: float) -> Any:
        """Return the bytes behind a URL; other images are returned unchanged."""
        if not (isinstance(image, str) and image.lower().startswith(URL_PREFIXES)):
            return image
        if not self.urls:
            raise ImageError(
                f"{image!r} is a URL: FairPipeline(..., urls=True) fetches it, or pass its file."
            )
        return fetch_image(image, timeout, private=self.private_urls)

    @classmethod
    def register(cls, task: str = "fair-zero-shot-image-classification") -> None:
        """Let ``transformers.pipeline(task, model=..., sensitive=...)`` make a `FairPipeline`.

        Transformers keeps the registration for the whole process, so it is never done on import.
        """
        import transformers
        from transformers.pipelines import PIPELINE_REGISTRY

        class Registered(transformers.ZeroShotImageClassificationPipeline):
            def __new__(  # type: ignore[misc, unused-ignore]
                _,
                model: Any,
                tokenizer: Any,
                image_processor: Any,
                task: str = "",
                **options: Any,
            ) -> FairPipeline:
                # `transformers.pipeline` passes these on after it has used them.
                for name in ("feature_extractor", "framework", "dtype", "torch_dtype"):
                    options.pop(name, None)
                return cls((model, (image_processor, tokenizer)), **options)

        PIPELINE_REGISTRY.register_pipeline(
            task, Registered, transformers.AutoModelForZeroShotImageClassification
        )

    @property
    def model(self) -> Any:
        """The model, as a pipeline has it; None if a user-defined backend has none."""
        return getattr(self.backend, "model", None)

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return getattr(self.backend, "tokenizer", None)

    @property
    def image_processor(self) -> Any:
        """The model's image processor; for open_clip its transform."""
        return getattr(self.backend, "image_processor", None)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.backend.device


def _check_timeout(timeout: Any) -> float:
    # Sockets refuse timeouts of some centuries.
    limit = 1e9
    should = "be a positive number of seconds"
    check_number("timeout", timeout, should, lambda x: 0 < x < limit)
    return float(timeout)
