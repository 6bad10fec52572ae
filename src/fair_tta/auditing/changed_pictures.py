"""Some of the pictures whose answer would change, small, to be looked at."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from PIL.Image import Image

from fair_tta.errors import ImageError
from fair_tta.prediction import Prediction

MOST_PICTURES = 36
"""Of all methods together, unless there are many methods."""

LEAST_PICTURES = 3
"""Of each method, if so many answers change."""

SIDE = 128
"""Pixels; what is larger is made smaller."""


@dataclass(frozen=True, eq=False)
class ChangedPicture:
    """A picture whose answer would change.

    Attributes:
        adapter: by which method.
        name: what the picture is called.
        image: a small copy without metadata, or where to find the picture.
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


class ChangedPictures:
    """Passes over all pictures and keeps a few of each method, each changed one equally likely.

    Args:
        adapters: names of the methods.
        most: pictures of all methods together.
        seed: chooses them.
    """

    def __init__(
        self, adapters: Iterable[str], most: int = MOST_PICTURES, *, seed: int = 0
    ) -> None:
        names = list(adapters)
        self._quota = max(LEAST_PICTURES, most // max(1, len(names)))
        self._kept: dict[str, list[ChangedPicture]] = {name: [] for name in names}
        self._seen = dict.fromkeys(names, 0)
        self._chance = random.Random(seed)

    def add(self, predictions: Sequence[Prediction], name: str, picture: Image | str) -> None:
        """One more picture, or the path of one: the prediction of `ZeroShot` and of each method."""
        before = predictions[0]
        for (adapter, kept), after in zip(self._kept.items(), predictions[1:], strict=False):
            if after.label == before.label:
                continue
            self._seen[adapter] += 1
            place = len(kept)
            if place == self._quota:
                place = self._chance.randrange(self._seen[adapter])
            if place >= self._quota:
                continue
            found = ChangedPicture(
                adapter,
                name,
                picture if isinstance(picture, str) else small_copy(picture),
                before.label,
                after.label,
                before.probabilities[before.label],
                after.probabilities[after.label],
            )
            kept[place : place + 1] = [found]

    def pictures(self, load: Callable[[str], Image]) -> tuple[ChangedPicture, ...]:
        """All that were kept; those that cannot be read any more are left out.

        Args:
            load: reads a picture from its path.
        """
        found = []
        for one in (one for kept in self._kept.values() for one in kept):
            try:
                image = small_copy(load(one.image)) if isinstance(one.image, str) else one.image
            except (ImageError, OSError):
                continue
            found.append(replace(one, image=image))
        return tuple(found)


def small_copy(image: Image) -> Image:
    """Of at most `SIDE` pixels each way, in RGB, without what files say besides."""
    copy = image.convert("RGB") if image.mode != "RGB" else image.copy()
    copy.thumbnail((SIDE, SIDE))
    copy.info = {}
    return copy
