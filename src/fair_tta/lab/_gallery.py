"""A few images of each group for the report: answers that changed, and that are surely wrong."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from fair_tta._images.load import load_image
from fair_tta.errors import ImageError
from fair_tta.lab._runs.store import StoredRow
from fair_tta.lab.data._records import Record
from fair_tta.lab.report import GalleryImage

OF_EACH_KIND = 2
"""Images of each class in each group."""

MOST_IN_GALLERY = 36

_CHANGED, _SURELY_WRONG = "changed", "surely wrong"
_SURE = 0.8  # probability of a wrong answer


@dataclass(frozen=True, order=True)
class _Candidate:
    """How much it shows, and what."""

    weight: float
    key: str
    record: Record = field(compare=False)
    kind: str = field(compare=False)
    method: str = field(compare=False)
    before: tuple[str, float] = field(compare=False)
    after: tuple[str, float] = field(compare=False)


class GroupGallery:
    """Passes over all rows and keeps the paths of a few; images are opened at the end.

    Args:
        methods: names of the runs, the reference first.
    """

    def __init__(self, methods: Sequence[str]) -> None:
        self._methods = list(methods)
        self._kept: dict[tuple[str, ...], list[_Candidate]] = {}

    def add(self, record: Record, rows: Sequence[StoredRow]) -> None:
        """One more image with the rows of all runs."""
        group = record.target, *record.sensitive.values()
        before, *others = (
            (p.label, p.probabilities[p.label]) for p in (r.prediction for r in rows)
        )
        for method, after in zip(self._methods[1:], others, strict=True):
            if after[0] != before[0]:
                self._offer((_CHANGED, *group), after[1], record, _CHANGED, method, before, after)
        if before[0] != record.target and before[1] >= _SURE:
            last, method = [before, *others][-1], self._methods[-1]
            self._offer(
                (_SURELY_WRONG, *group), before[1], record, _SURELY_WRONG, method, before, last
            )

    def images(self) -> list[GalleryImage]:
        """Those that can be opened, group by group; none twice with the same answers."""
        found: list[GalleryImage] = []
        shown: set[tuple[str, str]] = set()
        for kept in self._kept.values():
            for one in sorted(kept, reverse=True):
                if len(found) == MOST_IN_GALLERY:
                    return found
                if (one.key, one.method) in shown:
                    continue
                try:
                    image = load_image(one.record.path)
                except ImageError:
                    continue
                shown.add((one.key, one.method))
                group = " / ".join((one.record.target, *one.record.sensitive.values()))
                caption = f"{group}: {one.kind} ({self._of(one)}), {one.key}"
                found.append(
                    GalleryImage(
                        image,
                        caption,
                        one.before[0],
                        one.after[0],
                        one.record.target,
                        one.before[1],
                        one.after[1],
                    )
                )
        return found

    def _of(self, one: _Candidate) -> str:
        """Of which method `one.kind` is said: of the first that its answer is surely wrong."""
        first = self._methods[0]
        if one.kind == _CHANGED or one.method == first:
            return one.method
        return f"{first}; after: {one.method}"

    def _offer(
        self,
        place: tuple[str, ...],
        weight: float,
        record: Record,
        kind: str,
        method: str,
        before: tuple[str, float],
        after: tuple[str, float],
    ) -> None:
        one = _Candidate(weight, record.key, record, kind, method, before, after)
        kept = self._kept.setdefault(place, [])
        if all(other.key != one.key for other in kept):
            heapq.heappush(kept, one)
            if len(kept) > OF_EACH_KIND:
                heapq.heappop(kept)
