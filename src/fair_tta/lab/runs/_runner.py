"""The one runner: images and questions in, rows out, in order. Finished rows are stored."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, Protocol, TypeVar

from fair_tta.errors import ImageError
from fair_tta.images._stored import ImageSource
from fair_tta.lab.runs._image_files import file_signature, read_image_bytes
from fair_tta.lab.runs._job import Job, Query, WorkUnit
from fair_tta.lab.runs._store import RowKey, Store, StoredRow
from fair_tta.lab.runs._worker import ImageRows

T = TypeVar("T")

CHANGED = "its file was changed while it was looked at: run the same command again"
"""The reason why such an image has no rows."""

Progress = Callable[[int, int], None]
"""Receives how many are finished, and how many there are."""

WaitForRows = Callable[[], list[ImageRows]]
"""Waits until a unit is finished, and returns the rows of its images."""

QueryRows = Mapping[Query, StoredRow]
"""The stored rows of one image."""


@dataclass
class Pool:
    """Workers that are ready.

    Attributes:
        submit: begins a unit.
        ahead: how many units may be begun before the first is waited for.
    """

    submit: Callable[[WorkUnit], WaitForRows]
    ahead: int = 0


class Engine(Protocol):
    """The machine or machines that do the work."""

    @property
    def description(self) -> str:
        """Name, workers and threads; stored with each row, as its seconds depend on them."""
        ...

    def open(self, job: Job) -> AbstractContextManager[Pool]:
        """Start workers for a job, and end them with the `with` statement."""
        ...


class _BegunUnit(NamedTuple):
    """A unit whose rows are not returned yet; `wait` is None if all of them are stored."""

    unit: WorkUnit
    rows_by_image: Sequence[QueryRows]
    wait: WaitForRows | None


@dataclass(frozen=True)
class Runner:
    """Computes rows; finished ones are kept in the store, if there is one."""

    job: Job
    engine: Engine
    store: Store | None = None

    def run(
        self, units: Iterable[WorkUnit], *, read_ahead: bool = False
    ) -> Iterator[tuple[WorkUnit, list[ImageRows]]]:
        """Yield every unit with the rows of its images, in the order of the units.

        Stored rows of unchanged files are reused. The others are computed, and stored before they
        are returned. If any readable image lacks a row, the whole unit is recomputed, so that rows
        have the same bits as those of a run that was not interrupted.

        Args:
            units: requested one by one.
            read_ahead: request the next unit before rows are returned, so that its images are
                decoded meanwhile. Leave it off if these rows are needed to make the next unit.
        """
        begun_units: deque[_BegunUnit] = deque()
        with self.engine.open(self.job) as pool:
            max_waiting = max(pool.ahead, int(read_ahead))
            for unit in units:
                begun_units.append(self._begin(unit, pool))
                while len(begun_units) > max_waiting:
                    yield self._finish(begun_units.popleft())
            while begun_units:
                yield self._finish(begun_units.popleft())

    def stream(
        self,
        items: Iterable[T],
        image: Callable[[T], ImageSource | None],
        *,
        size: int,
        seed: int,
        read_ahead: bool = False,
    ) -> Iterator[tuple[T, ImageRows]]:
        """Yield every item with the rows of all methods on the first question.

        An item without an image has no rows.

        Args:
            size: number of items in a unit.
        """
        # `run` requests units one by one; their items wait here until it returns the rows.
        begun_items: deque[list[tuple[T, ImageSource | None]]] = deque()

        def units() -> Iterator[WorkUnit]:
            for batch in batched(items, size):
                with_images = [(item, image(item)) for item in batch]
                begun_items.append(with_images)
                images = [source for _, source in with_images if source is not None]
                yield WorkUnit(tuple(images), seed, self.job.queries())

        for _, unit_rows in self.run(units(), read_ahead=read_ahead):
            next_rows = iter(unit_rows)
            for item, source in begun_items.popleft():
                yield item, [] if source is None else next(next_rows)

    def _begin(self, unit: WorkUnit, pool: Pool) -> _BegunUnit:
        """Find the stored rows of a unit, and begin to compute the others."""
        if self.store is not None:
            # An empty store has no row to find, so its files are not read just to digest them.
            read_files = self.store.was_begun or self.job.depends_on_batch(unit)
            unit = self._with_contents(unit, self.store, read_files)
        rows_by_image = self._stored_rows(unit)
        remaining = _remaining(unit, rows_by_image)
        wait = None if remaining is None else pool.submit(remaining)
        return _BegunUnit(unit, rows_by_image, wait)

    def _with_contents(
        self, unit: WorkUnit, store: Store, read_files: bool
    ) -> WorkUnit:
        """Return the unit with the digests of its images.

        Files that the store does not know by their signature (path, inode, size and times) are read
        if `read_files`, and not decoded.
        """
        # An empty content stands for one that is not known yet.
        contents = []
        for image in unit.images:
            content = store.content(file_signature(image))
            if not content and read_files:
                with suppress(OSError, ValueError, ImageError):  # the worker reports it
                    content = read_image_bytes(image).content
            contents.append(content)
        return replace(unit, contents=tuple(contents))

    def _stored_rows(self, unit: WorkUnit) -> list[QueryRows]:
        """Return the rows of each image that are in the store."""
        if self.store is None:
            return [{} for _ in unit.images]
        stored: list[QueryRows] = []
        for position, content in enumerate(unit.contents):
            query_rows = {}
            if content:
                keys = self._keys(unit, position, content)
                rows = self.store.find(keys.values())
                for query, key in keys.items():
                    if key in rows:
                        query_rows[query] = rows[key]
            stored.append(query_rows)
        return stored

    def _finish(self, begun_unit: _BegunUnit) -> tuple[WorkUnit, list[ImageRows]]:
        """Wait for the rows that were missing, and store them."""
        unit = begun_unit.unit
        computed: list[ImageRows] = [[] for _ in unit.images]
        if begun_unit.wait is not None:
            computed = begun_unit.wait()
        if self.store is None:
            return unit, computed
        # Stored and computed rows together, in the order of the queries.
        unit_rows: list[ImageRows] = []
        new_rows: list[StoredRow] = []
        for position, image_rows in enumerate(computed):
            if isinstance(image_rows, str):  # the image cannot be used
                unit_rows.append(image_rows)
                continue
            # Rows whose content is not that of the image that was read are of an older file.
            query_rows = dict(begun_unit.rows_by_image[position])
            if image_rows:
                content = image_rows[0].key.content
                query_rows = {
                    query: row
                    for query, row in query_rows.items()
                    if row.key.content == content
                }
                computed_rows = {row.key: row for row in image_rows}
                for query, key in self._keys(unit, position, content).items():
                    if query not in query_rows and key in computed_rows:
                        row = replace(computed_rows[key], by=self.engine.description)
                        query_rows[query] = row
                        new_rows.append(row)
            if len(query_rows) == len(unit.queries):
                unit_rows.append([query_rows[query] for query in unit.queries])
            else:
                unit_rows.append(CHANGED)
        self.store.append(new_rows)
        return unit, unit_rows

    def _keys(self, unit: WorkUnit, position: int, content: str) -> dict[Query, RowKey]:
        return {
            query: self.job.key(unit, query, position, content)
            for query in unit.queries
        }


def _remaining(unit: WorkUnit, rows_by_image: Sequence[QueryRows]) -> WorkUnit | None:
    """Return the unit with the queries that some of its images lack; None if none lacks any.

    `rows_by_image` has the stored rows of each image of the unit, in their order.
    """
    all_queries = frozenset(unit.queries)
    missing = tuple(all_queries.difference(rows) for rows in rows_by_image)
    missing_anywhere = frozenset().union(*missing)
    # A set has no order: that of the unit is kept.
    queries = tuple(query for query in unit.queries if query in missing_anywhere)
    return replace(unit, queries=queries, missing=missing) if queries else None


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Yield tuples of `size` items, the last one shorter."""
    iterator = iter(items)
    while batch := tuple(islice(iterator, size)):
        yield batch
