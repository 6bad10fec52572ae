"""A few images of each group for the report: answers that changed, and confident wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fair_tta.datasets._records import Record
from fair_tta.errors import ImageError
from fair_tta.images._load import load_image
from fair_tta.lab.report import GalleryImage
from fair_tta.lab.runs._store import StoredRow

IMAGES_PER_KIND = 2  # images of each class in each group

MAX_GALLERY_IMAGES = 36

_CHANGED, _WRONG = "changed", "wrong and confident"
_CONFIDENT_PROBABILITY = 0.8  # probability of a wrong answer


class _Candidate(NamedTuple):
    """An image with its answers; those of one group differ in their keys and have an order."""

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
        """One more image with the rows of all runs."""
        before, *others = (
            (p.label, p.probabilities[p.label]) for p in (r.prediction for r in rows)
        )
        for method, after in zip(self._methods[1:], others, strict=True):
            if after[0] != before[0]:
                one = _Candidate(after[1], record.key, record, method, before, after)
                self._offer(_CHANGED, one)
        if before[0] != record.target and before[1] >= _CONFIDENT_PROBABILITY:
            last, method = [before, *others][-1], self._methods[-1]
            one = _Candidate(before[1], record.key, record, method, before, last)
            self._offer(_WRONG, one)

    def images(self) -> list[GalleryImage]:
        """Those that can be opened, group by group, the first of each before the second of any;
        none twice with the same answers.
        """
        ranked = [
            (rank, kind, " / ".join(group), one)
            for (kind, *group), kept in self._kept.items()
            for rank, one in enumerate(kept)
        ]
        found: dict[str, dict[tuple[str, str], GalleryImage]] = {}
        for _, kind, group, one in sorted(ranked, key=lambda candidate: candidate[0]):
            of_group, place = found.setdefault(group, {}), (one.key, one.method)
            if place in of_group or sum(map(len, found.values())) == MAX_GALLERY_IMAGES:
                continue
            try:
                image = load_image(one.record.path)
            except ImageError:
                continue
            of, first = one.method, self._methods[0]
            if kind == _WRONG and of != first:
                of = f"{first}; after: {of}"
            caption = f"{kind} ({of}), {one.key}"
            (was, p), (now, q) = one.before, one.after
            truth = one.record.target
            of_group[place] = GalleryImage(image, caption, was, now, truth, p, q, group)
        return [image for images in found.values() for image in images.values()]

    def _offer(self, kind: str, one: _Candidate) -> None:
        kept = self._kept.setdefault((kind, *one.record.group), [])
        if all(other.key != one.key for other in kept):
            kept[:] = sorted([*kept, one], reverse=True)[:IMAGES_PER_KIND]
