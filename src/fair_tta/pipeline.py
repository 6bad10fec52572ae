"""In the place of a transformers pipeline: the same call, the same lists of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from http.client import HTTPException
from time import monotonic
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
from torch import Tensor

from fair_tta._cache import Cache
from fair_tta._images.load import is_single_image
from fair_tta._images.views import AugMix
from fair_tta._models import resolve
from fair_tta._models.load import find_device, move
from fair_tta._prompts.templates import Names, parse_names
from fair_tta.classifier import FairTPTClassifier, checked_images
from fair_tta.errors import ImageError, PromptError, check_number
from fair_tta.methods._base import Adapter
from fair_tta.methods._registry import find_adapter

__all__ = ["FairPipeline"]

_ADDRESSES = ("http://", "https://")
_MOST_BYTES = 64 * 2**20  # of a picture from an address
_AT_ONCE = 2**16  # of these bytes
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
        timeout: seconds that an address may take.

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
        sensitive: Names | Mapping[str, Names],
        *,
        adapter: Adapter | str | None = None,
        slot: str = "{target} {sensitive}",
        device: Any = None,
        views: Any = AugMix(),
        seed: int = 0,
        batch_size: int = 16,
        urls: bool = False,
        timeout: float = 10.0,
    ) -> None:
        if not isinstance(slot, str) or "{target}" not in slot or "{sensitive}" not in slot:
            raise PromptError(
                f"`slot` should have both {{target}} and {{sensitive}} (got {slot!r})."
            )
        check_number("timeout", timeout, "be a positive number of seconds", lambda x: 0 < x < 1e9)
        self.backend = resolve(model, None)
        if device is not None:
            move(self.backend, find_device(device))
        self.sensitive, self.slot = sensitive, slot
        self.adapter: Adapter = find_adapter(adapter or "association-correction")
        self.urls, self.timeout = urls, timeout
        self._options = {"views": views, "seed": seed, "batch_size": batch_size, "cache": Cache()}
        self._classifier = lru_cache(_KEPT)(self._make)

    def __call__(
        self,
        images: Any,
        candidate_labels: Sequence[str],
        hypothesis_template: str = "This is a photo of {}.",
    ) -> Any:
        """Scores of the labels, best first.

        Args:
            images: one image (also a path, or an address if `urls`), a list, a column of a dataset,
                or any iterable.
            candidate_labels: the classes.
            hypothesis_template: a sentence with ``{}`` for a label.

        Returns:
            ``[{"score": .., "label": ..}]`` for one image, a list of such lists for a list, and a
            lazy iterator for any other iterable.
        """
        if isinstance(candidate_labels, Set):  # scores are sorted, so any order will do
            candidate_labels = sorted(candidate_labels, key=str)
        labels = tuple(parse_names("candidate_labels", candidate_labels))
        if not isinstance(hypothesis_template, str) or "{" not in hypothesis_template:
            raise PromptError(
                "`hypothesis_template` should have {} in place of a label "
                f"(got {hypothesis_template!r})."
            )
        classifier = self._classifier(labels, hypothesis_template)
        if is_single_image(images):
            return classifier.predict(self._fetched(images)).to_dict()
        fetched = (self._fetched(image) for image in checked_images(images))
        stream = (prediction.to_dict() for prediction in classifier.predict(fetched))
        return list(stream) if isinstance(images, Sequence | np.ndarray | Tensor) else stream

    def _make(self, labels: tuple[str, ...], sentence: str) -> FairTPTClassifier:
        template = sentence.replace("{}", self.slot)
        return FairTPTClassifier(
            self.backend, labels, self.sensitive, template, adapter=self.adapter, **self._options
        )

    def _fetched(self, image: Any) -> Any:
        """The bytes behind an address, if that was asked for."""
        if not (self.urls and isinstance(image, str) and image.lower().startswith(_ADDRESSES)):
            return image
        try:
            with urlopen(image, timeout=self.timeout) as answer:
                return _read(answer, monotonic() + self.timeout)
        except (OSError, ValueError, HTTPException) as error:
            if isinstance(error, HTTPError):
                error.close()  # it holds the answer
            raise ImageError(f"cannot fetch {image!r}: {error}") from error


def _read(answer: Any, end: float) -> bytes:
    """All bytes, if they are not too many and come in time: a server may send one now and then."""
    data = bytearray()
    while part := answer.read1(_AT_ONCE):
        data += part
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES >> 20} MB")
        if monotonic() > end:
            raise TimeoutError("it takes longer than `timeout`")
    return bytes(data)
