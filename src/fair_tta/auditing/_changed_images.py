"""A few images of each method whose answer would change, for the page of an examination."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL.Image import Image

from fair_tta.errors import ImageError
from fair_tta.images._stored import StoredFeature
from fair_tta.prediction import Prediction

# A page shows as many images as the gallery of a report, shared among the methods, but enough of
# each method for an impression.
_MAX_IMAGES = 36
_MIN_IMAGES_PER_METHOD = 3
_MAX_SIDE = 128  # pixels


@dataclass(frozen=True, eq=False)
class ChangedImage:
    """An image whose answer would change.

    Attributes:
        adapter: the name of the method.
        name: the name of the image.
        image: a small copy without metadata, or the path of the image.
        before: the zero-shot answer.
        after: the method's answer.
        before_probability: of the answer before, by zero-shot.
        after_probability: of the answer after, by the method.
    """

    adapter: str
    name: str
    image: Any
    before: str
    after: str
    before_probability: float
    after_probability: float


class ChangedImages:
    """A random sample of the images whose answer changed, for each method."""

    def __init__(self, adapters: Iterable[str], *, seed: int = 0) -> None:
        self._samples: dict[str, list[ChangedImage]] = {name: [] for name in adapters}
        self._changed = dict.fromkeys(self._samples, 0)
        methods = max(1, len(self._samples))
        self._sample_size = max(_MIN_IMAGES_PER_METHOD, _MAX_IMAGES // methods)
        self._random = random.Random(seed)

    def add(
        self, predictions: Sequence[Prediction], name: str, image: Image | str
    ) -> None:
        """Add an image, or its path, with the predictions of `ZeroShot` and of each method."""
        if isinstance(image, StoredFeature):
            return  # there are no pixels to show
        before, *others = predictions
        # There are no samples at all if no images are to be kept
        for adapter, after in zip(self._samples, others, strict=False):
            if after.label == before.label:
                continue
            # Reservoir sampling: every changed image is kept with the same probability
            self._changed[adapter] += 1
            sample = self._samples[adapter]
            index = len(sample)
            if index == self._sample_size:
                index = self._random.randrange(self._changed[adapter])
            if index < self._sample_size:
                sample[index : index + 1] = [
                    ChangedImage(
                        adapter,
                        name,
                        image if isinstance(image, str) else small_copy(image),
                        before.label,
                        after.label,
                        before.probabilities[before.label],
                        after.probabilities[after.label],
                    )
                ]

    def images(self, load: Callable[[str], Image]) -> tuple[ChangedImage, ...]:
        """Return the samples; images whose files cannot be read any more are left out."""
        readable = []
        for sample in self._samples.values():
            for changed in sample:
                image = changed.image
                if isinstance(image, str):
                    try:
                        image = small_copy(load(image))
                    except (ImageError, OSError):
                        continue
                readable.append(replace(changed, image=image))
        return tuple(readable)


def small_copy(image: Image) -> Image:
    """Return a small RGB copy without metadata."""
    copy = image.convert("RGB") if image.mode != "RGB" else image.copy()
    copy.thumbnail((_MAX_SIDE, _MAX_SIDE))
    copy.info = {}
    return copy
