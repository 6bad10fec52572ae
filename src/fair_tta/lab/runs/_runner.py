"""The one runner: images and questions in, rows out, in order; what is finished is stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Protocol, TypeVar

from fair_tta.errors import ImageError
from fair_tta.images._stored import ImageSource
from fair_tta.lab.runs._image_files import file_signature, read_image
from fair_tta.lab.runs._job import Asked, Job, WorkUnit
from fair_tta.lab.runs._store import RowKey, Store, StoredRow
from fair_tta.lab.runs._worker import ImageRows

T = TypeVar("T")

CHANGED = "its file was changed while it was looked at: run the same command again"
"""The reason given for such an image."""

Progress = Callable[[int, int], None]
"""Receives how many are finished, and how many there are."""


@dataclass
class Pool:
    """Workers that are ready.

    Attributes:
        submit: begins a unit; what it returns waits for the rows.
        ahead: how many units may be begun before the first is waited for.
    """

    submit: Callable[[WorkUnit], Callable[[], list[ImageRows]]]
    ahead: int = 0


class Engine(Protocol):
    """Who does the work."""

    @property
    def facts(self) -> dict[str, Any]:
        """How the work is done, as JSON: ``engine``, ``workers`` and ``threads`` of each."""
        ...

    def open(self, job: Job) -> AbstractContextManager[Pool]:
        """Workers for a job, while the work goes on."""
        ...


@dataclass(frozen=True)
class Runner:
    """Computes rows; finished ones are in the store, if there is one."""

    job: Job
    engine: Engine
    store: Store | None = None

    def run(
        self, units: Iterable[WorkUnit], *, read_ahead: bool = False
    ) -> Iterator[tuple[WorkUnit, list[ImageRows]]]:
        """Every unit with the rows of its images, in the order of the units.

        What is in the store is taken from there, unless the file has changed; what is not is
        computed, and stored before it is returned. A unit of which a part is missing is processed
        as a whole, so that rows have the same bits as those of a run that was not interrupted.

        Args:
            units: requested one by one.
            read_ahead: request the next before rows are returned, so that its images are decoded
                meanwhile; not if somebody waits for these rows to make the next.
        """
        waiting: deque[tuple[WorkUnit, list[dict[Asked, StoredRow]], Any]] = deque()
        with self.engine.open(self.job) as pool:
            for requested in units:
                # without earlier rows there is nothing to find, so the files need not be read first
                may_find = self.store is None or self.store.was_begun
                read = may_find or self.job.depends_on_batch(requested)
                unit = self._with_contents(requested, read)
                stored = self.stored(unit)
                left = self.left(unit, stored)
                waiting.append(
                    (unit, stored, None if left is None else pool.submit(left))
                )
                while len(waiting) > max(pool.ahead, int(read_ahead)):
                    yield self._finish(*waiting.popleft())
            while waiting:
                yield self._finish(*waiting.popleft())

    def stream(
        self,
        items: Iterable[T],
        image: Callable[[T], ImageSource | None],
        *,
        size: int,
        seed: int,
        read_ahead: bool = False,
    ) -> Iterator[tuple[T, ImageRows]]:
        """Every item with the rows of all methods on the first question.

        An item without an image has no rows either. So many (`size`) are processed at once.
        """
        begun: deque[list[tuple[T, ImageSource | None]]] = deque()

        def units() -> Iterator[WorkUnit]:
            for some in batched(items, size):
                begun.append([(item, image(item)) for item in some])
                images = tuple(source for _, source in begun[-1] if source is not None)
                yield WorkUnit(images, seed, self.job.asked())

        for _, results in self.run(units(), read_ahead=read_ahead):
            found = iter(results)
            for item, source in begun.popleft():
                yield item, [] if source is None else next(found)

    def stored(
        self, unit: WorkUnit, *, read: bool = True
    ) -> list[dict[Asked, StoredRow]]:
        """The rows of each image that are in the store. Files that it does not know by their
        signature are read, if wanted, to see whether it knows their content."""
        if self.store is None:
            return [{} for _ in unit.images]
        known = unit if unit.contents else self._with_contents(unit, read)
        every = []
        for position, content in enumerate(known.contents):
            keys = self._keys(known, position, content)
            found = self.store.find(keys.values()) if content else {}
            every.append({one: found[key] for one, key in keys.items() if key in found})
        return every

    def _with_contents(self, unit: WorkUnit, read: bool) -> WorkUnit:
        """The unit with the digests of its images."""
        if self.store is None:
            return unit
        contents = []
        for image in unit.images:
            content = self.store.content(file_signature(image))
            if not content and read:
                with suppress(OSError, ValueError, ImageError):  # the worker reports it
                    content = read_image(image).content
            contents.append(content)
        return replace(unit, contents=tuple(contents))

    def left(
        self, unit: WorkUnit, stored: Sequence[dict[Asked, StoredRow]]
    ) -> WorkUnit | None:
        """The unit with what is still to be computed, None if there is nothing."""
        missing = tuple(frozenset(unit.asked) - rows.keys() for rows in stored)
        asked = tuple(one for one in unit.asked if any(one in some for some in missing))
        return replace(unit, asked=asked, missing=missing) if asked else None

    def _finish(
        self,
        unit: WorkUnit,
        stored: list[dict[Asked, StoredRow]],
        wait: Callable[[], list[ImageRows]] | None,
    ) -> tuple[WorkUnit, list[ImageRows]]:
        """Wait for what was missing, store it, and put it beside what was there."""
        made: list[ImageRows] = [[] for _ in unit.images] if wait is None else wait()
        if self.store is None:
            return unit, made
        results: list[ImageRows] = []
        new: list[StoredRow] = []
        for position, (old, rows) in enumerate(zip(stored, made, strict=True)):
            if isinstance(rows, str):
                results.append(rows)
                continue
            found = {row.key: replace(row, by=self._by) for row in rows}
            if rows:
                content = rows[0].key.content
                old = {
                    one: row for one, row in old.items() if row.key.content == content
                }
                keys = self._keys(unit, position, content)
                fresh = {one: found[key] for one, key in keys.items() if key in found}
                new += [row for one, row in fresh.items() if one not in old]
                old = {**fresh, **old}
            is_whole = len(old) == len(unit.asked)
            results.append([old[one] for one in unit.asked] if is_whole else CHANGED)
        self.store.append(new)
        return unit, results

    def _keys(self, unit: WorkUnit, position: int, content: str) -> dict[Asked, RowKey]:
        return {
            asked: self.job.key(unit, asked, position, content) for asked in unit.asked
        }

    @cached_property
    def _by(self) -> str:
        """How the work is done; seconds depend on it."""
        facts = self.engine.facts
        threads = facts["threads"]
        return (
            f"{facts['engine']}, workers {facts['workers']}, threads of each {threads}"
        )


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Tuples of `size` items, the last one shorter."""
    iterator = iter(items)
    while batch := tuple(islice(iterator, size)):
        yield batch
