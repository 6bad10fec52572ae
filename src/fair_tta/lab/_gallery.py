"""A few images of each group for the report: answers that changed, and confident wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fair_tta.datasets._records import Record
from fair_tta.errors import ImageError
from fair_tta.images._load import load_image
from fair_tta.lab.report import GalleryImage
from fair_tta.lab.runs._store import StoredRow

IMAGES_PER_KIND = 2
"""Images of each class in each group that changed, and as many that are wrong."""

MAX_GALLERY_IMAGES = 36

_CHANGED = "changed"
_WRONG = "wrong and confident"

# A wrong answer with this probability is confident
_CONFIDENT_PROBABILITY = 0.8


class _Candidate(NamedTuple):
    """An image with its answers; candidates are ordered by weight, then by key.

    Attributes:
        weight: the probability of the answer that it is shown for.
        key: of the image, distinct within a group.
        record: its path and labels.
        method: whose answer is shown after that of the reference.
        before: the answer of the reference and its probability.
        after: the answer of the method and its probability.
    """

    weight: float
    key: str
    record: Record
    method: str
    before: tuple[str, float]
    after: tuple[str, float]


class GroupGallery:
    """Passes over all rows and keeps the paths of a few; images are opened at the end.

    The first of the methods is the reference.
    """

    def __init__(self, methods: Sequence[str]) -> None:
        self._methods = list(methods)
        self._kept: dict[tuple[str, ...], list[_Candidate]] = {}

    def add(self, record: Record, rows: Sequence[StoredRow]) -> None:
        """Offer one more image with the rows of all runs."""
        answers = []
        for row in rows:
            label = row.prediction.label
            answers.append((label, row.prediction.probabilities[label]))
        before = answers[0]
        for method, after in zip(self._methods[1:], answers[1:], strict=True):
            if after[0] != before[0]:
                self._offer(_CHANGED, after[1], record, method, before, after)
        if before[0] != record.target and before[1] >= _CONFIDENT_PROBABILITY:
            method = self._methods[-1]
            self._offer(_WRONG, before[1], record, method, before, answers[-1])

    def images(self) -> list[GalleryImage]:
        """Return images that can be opened, group by group.

        The first of each group and category is chosen before the second of any, and no image twice
        with the same answers.
        """
        ranked = []
        for (category, *group), candidates in self._kept.items():
            for rank, candidate in enumerate(candidates):
                ranked.append((rank, category, " / ".join(group), candidate))
        ranked.sort(key=lambda item: item[0])

        # Groups keep the order in which they first came
        images_by_group: dict[str, list[GalleryImage]] = {}
        chosen: set[tuple[str, str, str]] = set()
        for _, category, group_name, candidate in ranked:
            images = images_by_group.setdefault(group_name, [])
            identity = (group_name, candidate.key, candidate.method)
            if identity in chosen or len(chosen) == MAX_GALLERY_IMAGES:
                continue
            try:
                image = load_image(candidate.record.path)
            except ImageError:
                continue
            chosen.add(identity)
            gallery_image = GalleryImage(
                image,
                self._caption(category, candidate),
                candidate.before[0],
                candidate.after[0],
                candidate.record.target,
                candidate.before[1],
                candidate.after[1],
                group_name,
            )
            images.append(gallery_image)
        return [image for images in images_by_group.values() for image in images]

    def _caption(self, category: str, candidate: _Candidate) -> str:
        method = candidate.method
        reference = self._methods[0]
        if category == _WRONG and method != reference:
            method = f"{reference}; after: {method}"
        return f"{category} ({method}), {candidate.key}"

    def _offer(
        self,
        category: str,
        weight: float,
        record: Record,
        method: str,
        before: tuple[str, float],
        after: tuple[str, float],
    ) -> None:
        """Keep an image if it is among the best of its category and group, and not there yet."""
        candidates = self._kept.setdefault((category, *record.group), [])
        if any(candidate.key == record.key for candidate in candidates):
            return
        candidate = _Candidate(weight, record.key, record, method, before, after)
        candidates.append(candidate)
        candidates.sort(key=lambda kept: (kept.weight, kept.key), reverse=True)
        del candidates[IMAGES_PER_KIND:]
