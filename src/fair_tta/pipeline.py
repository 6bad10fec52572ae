"""In the place of a transformers pipeline: the same call, the same lists of scores."""

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

_KEPT = 16  # classifiers, one for each set of labels and sentence


class FairPipeline:
    """Takes the place of ``pipeline("zero-shot-image-classification", ...)``.

    What should not matter is said once, here; calls stay as they are. Labels and sentence may
    differ from call to call, the model is loaded once.

    Args:
        model: the pipeline that it replaces, or whatever `FairTPTClassifier` takes.
        sensitive: names of what should not matter, as for `FairTPTClassifier`.
        adapter: the method, or its name on the command line; `AssociationCorrection()` if None.
        slot: what ``{}`` of a `hypothesis_template` becomes, with ``{target}`` and ``{sensitive}``.
        device: where to move the model, None to leave it where it is.
        views: how further views of an image are made.
        seed: of the views.
        batch_size: how many images are worked on at once.
        urls: whether addresses that begin with http:// or https:// are fetched; otherwise they are
            refused.
        timeout: seconds that an address may take, all in all.
        private_urls: whether they may lead to hosts that are not public: a local network, this
            machine, a proxy there.

    Example:
        >>> from fair_tta import FairPipeline, ZeroShot, miniature
        >>> classify = FairPipeline("miniature", ["on water", "on land"], adapter=ZeroShot())
        >>> found = classify(
        ...     miniature.BIRDS.draw(1)[0].image,
        ...     candidate_labels=["of a water bird", "of a land bird"],
        ...     hypothesis_template="This is a picture {}.",
        ... )
        >>> found[0]["label"]
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
        if (
            not isinstance(slot, str)
            or "{target}" not in slot
            or "{sensitive}" not in slot
        ):
            raise PromptError(
                f"`slot` should have both {{target}} and {{sensitive}} (got {slot!r}).",
                argument="slot",
            )
        _check_timeout(timeout)
        self.backend = resolve(model, None)
        if device is not None:
            move(self.backend, find_device(device))
        self.sensitive, self.slot = sensitive, slot
        self.adapter: Adapter = resolve_adapter(adapter or "association-correction")
        self.urls, self.timeout, self.private_urls = urls, timeout, private_urls
        self._options = {
            "views": views,
            "seed": seed,
            "batch_size": batch_size,
            "cache": Cache(),
        }
        self._classifier = lru_cache(_KEPT)(self._make)

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
        """Scores of the labels, best first.

        Args:
            image: one image (also a path, or an address if `urls`), a list, a dataset or a column
                of one, or any iterable.
            candidate_labels: the classes. A single one has the score 1.
            hypothesis_template: a sentence with ``{}`` for a label.
            images: the same as `image`.
            batch_size: another one for this call.
            timeout: another one for this call.
            top_k: how many labels to return, all if None.
            num_workers: taken for the sake of calls that pass it; threads decode images.

        Returns:
            ``[{"score": .., "label": ..}]`` for one image, a list of such lists for a list, and a
            lazy iterator for any other iterable.
        """
        if (image is None) == (images is None):
            raise ImageError("pass either `image` or `images`.", argument="image")
        given = images if image is None else image
        timeout = self.timeout if timeout is None else _check_timeout(timeout)
        if isinstance(candidate_labels, Set):  # scores are sorted, so any order will do
            candidate_labels = sorted(candidate_labels, key=str)
        if not isinstance(hypothesis_template, str) or "{" not in hypothesis_template:
            raise PromptError(
                "`hypothesis_template` should have {} in place of a label "
                f"(got {hypothesis_template!r}).",
                argument="hypothesis_template",
            )
        answer = self._answerer(candidate_labels, hypothesis_template, batch_size)
        if is_single_image(given):
            return next(answer(iter([self._fetched(given, timeout)])))[:top_k]
        if not hasattr(given, "__iter__") and hasattr(
            given, "__getitem__"
        ):  # a torch dataset
            given = map(given.__getitem__, range(len(given)))
        several = (self._fetched(one, timeout) for one in check_images(given))
        stream = (scores[:top_k] for scores in answer(several))
        return (
            list(stream)
            if isinstance(given, Sequence | np.ndarray | Tensor)
            else stream
        )

    def _answerer(
        self, candidate_labels: Any, sentence: str, batch_size: int | None
    ) -> Callable[[Iterator[Any]], Iterator[list[Score]]]:
        """What makes scores of a stream of images."""
        match candidate_labels:
            case [str(label)]:
                return lambda images: (
                    [Score(score=1.0, label=label)] for _ in map(load_image, images)
                )
        labels = tuple(parse_names("candidate_labels", candidate_labels))
        classifier = self._classifier(labels, sentence)
        if batch_size is not None:
            check_count("batch_size", batch_size)
            classifier = copy.copy(classifier)
            classifier._batch_size = batch_size
        return lambda images: (found.to_dict() for found in classifier.predict(images))

    def _make(self, labels: tuple[str, ...], sentence: str) -> FairTPTClassifier:
        template = sentence.replace("{}", self.slot)
        return FairTPTClassifier(
            self.backend,
            labels,
            self.sensitive,
            template,
            adapter=self.adapter,
            **self._options,
        )

    def _fetched(self, image: Any, timeout: float) -> Any:
        """The bytes behind an address, if that was asked for."""
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

        Transformers keeps this for the whole process, so nothing happens unless you call it.
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
                for name in ("feature_extractor", "framework", "dtype", "torch_dtype"):
                    options.pop(name, None)
                return cls((model, (image_processor, tokenizer)), **options)

        PIPELINE_REGISTRY.register_pipeline(
            task, Registered, transformers.AutoModelForZeroShotImageClassification
        )

    @property
    def model(self) -> Any:
        """The model itself, as a pipeline has it; None if a user-defined backend has none."""
        return getattr(self.backend, "model", None)

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return getattr(self.backend, "tokenizer", None)

    @property
    def image_processor(self) -> Any:
        """The model's image processor, for open_clip its transform."""
        return getattr(self.backend, "image_processor", None)

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return self.backend.device


def _check_timeout(timeout: Any) -> float:
    check_number(
        "timeout", timeout, "be a positive number of seconds", lambda x: 0 < x < 1e9
    )
    return float(timeout)
