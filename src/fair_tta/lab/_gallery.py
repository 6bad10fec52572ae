"""A few images of each group for the report: answers that changed, and that are surely wrong."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from fair_tta._images.load import load_image
from fair_tta.errors import ImageError
from fair_tta.lab._runs.store import StoredRow
from fair_tta.lab.data._records import Record
from fair_tta.lab.report import GalleryImage

OF_EACH_KIND = 2  # images of each class in each group

MOST_IN_GALLERY = 36

_CHANGED, _SURELY_WRONG = "changed", "surely wrong"
_SURE = 0.8  # probability of a wrong answer


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
        if before[0] != record.target and before[1] >= _SURE:
            last, method = [before, *others][-1], self._methods[-1]
            one = _Candidate(before[1], record.key, record, method, before, last)
            self._offer(_SURELY_WRONG, one)

    def images(self) -> list[GalleryImage]:
        """Those that can be opened, group by group; none twice with the same answers."""
        found: list[GalleryImage] = []
        shown: set[tuple[str, str]] = set()
        for (kind, *group), kept in self._kept.items():
            for _, key, record, method, before, after in sorted(kept, reverse=True):
                if len(found) == MOST_IN_GALLERY:
                    return found
                if (key, method) in shown:
                    continue
                try:
                    image = load_image(record.path)
                except ImageError:
                    continue
                shown.add((key, method))
                of, first = method, self._methods[0]
                if kind == _SURELY_WRONG and method != first:
                    of = f"{first}; after: {method}"
                caption = f"{' / '.join(group)}: {kind} ({of}), {key}"
                (was, p), (now, q) = before, after
                found.append(GalleryImage(image, caption, was, now, record.target, p, q))
        return found

    def _offer(self, kind: str, one: _Candidate) -> None:
        kept = self._kept.setdefault((kind, *one.record.group), [])
        if all(other.key != one.key for other in kept):
            heapq.heappush(kept, one)
            if len(kept) > OF_EACH_KIND:
                heapq.heappop(kept)
