"""The one runner: pictures and questions in, answers out, in order; what is finished is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, Protocol, TypeVar

import msgspec

from fair_tta.errors import ImageError
from fair_tta.lab._runs.bank import AskedPicture, read_picture, stamp_of
from fair_tta.lab._runs.job import Job, WorkUnit
from fair_tta.lab._runs.store import Answer, Key, Store
from fair_tta.lab._runs.worker import Answered

T = TypeVar("T")

CHANGED = "its file was changed while it was looked at: run the same command again"
"""What is said of such a picture."""

Progress = Callable[[int, int], None]
"""Is told how many are finished, and how many there are."""


class Pending(Protocol):
    """A unit that is being worked on, or will be when it is waited for."""

    def result(self) -> list[Answered]:
        """Wait for it."""
        ...


class Pool(Protocol):
    """Workers that are ready."""

    @property
    def ahead(self) -> int:
        """How many units may be begun before the first is waited for."""
        ...

    def submit(self, unit: WorkUnit) -> Pending:
        """Begin a unit."""
        ...


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
    """Answers units.

    Args:
        job: what is common to all of them.
        engine: who does the work.
        store: where finished answers are, None to keep none.
    """

    job: Job
    engine: Engine
    store: Store | None = None

    def run(
        self, units: Iterable[WorkUnit], *, read_ahead: bool = False
    ) -> Iterator[tuple[WorkUnit, list[Answered]]]:
        """Every unit with the answers on its pictures, in the order of the units.

        What is in the store is taken from there, unless the file has changed; what is not is
        answered and stored before it is given out. A unit of which a part is missing is worked on
        as a whole, so that the answers have the same bits as those of a run that was not stopped.

        Args:
            units: asked for one by one.
            read_ahead: ask for the next before answers are given out, so that its pictures are
                decoded meanwhile; not if somebody waits for these answers to make the next.
        """
        waiting: deque[tuple[WorkUnit, list[str], Pending | None]] = deque()
        with self.engine.open(self.job) as pool:
            for unit in units:
                contents = self.contents(unit)
                left = self.left(unit, contents)
                waiting.append((unit, contents, None if left is None else pool.submit(left)))
                while len(waiting) > max(pool.ahead, int(read_ahead)):
                    yield self._finish(*waiting.popleft())
            while waiting:
                yield self._finish(*waiting.popleft())

    def stream(
        self,
        items: Iterable[T],
        picture: Callable[[T], AskedPicture | None],
        *,
        size: int,
        seed: int,
        read_ahead: bool = False,
    ) -> Iterator[tuple[T, Answered]]:
        """Everything that passes by, with the answers of all settings on the first task.

        Args:
            items: records, paths, or what takes their place.
            picture: of an item; None if it has none, and then it has no answers either.
            size: how many items are worked on at once.
            seed: of the views.
            read_ahead: see `run`.
        """
        begun: deque[list[tuple[T, AskedPicture | None]]] = deque()

        def units() -> Iterator[WorkUnit]:
            for some in batched(items, size):
                begun.append([(item, picture(item)) for item in some])
                pictures = tuple(p for _, p in begun[-1] if p is not None)
                yield WorkUnit(pictures, seed, self.job.questions())

        for _, answered in self.run(units(), read_ahead=read_ahead):
            found = iter(answered)
            for item, asked in begun.popleft():
                yield item, [] if asked is None else next(found)

    def contents(self, unit: WorkUnit) -> list[str]:
        """The digests of pictures that may have answers, empty for the others.

        A file that is as it was when it was answered is not read again.
        """
        return [self._content(picture) for picture in unit.pictures]

    def left(self, unit: WorkUnit, contents: Sequence[str]) -> WorkUnit | None:
        """The unit with the questions that are still open, None if there are none.

        Args:
            unit: all of it.
            contents: of `contents`.
        """
        if not unit.pictures:
            return None
        if self.store is None:
            return unit
        missing = tuple(self._missing(unit, content) for content in contents)
        asked = tuple(q for q in unit.questions if any(q in some for some in missing))
        return replace(unit, questions=asked, open=missing) if asked else None

    def stored(self, unit: WorkUnit, contents: Sequence[str]) -> list[list[Answer]]:
        """What the store has of a unit: of each picture all answers or, if one lacks, none."""
        if self.store is None:
            return [[] for _ in unit.pictures]
        return [
            [] if self._missing(unit, content) else list(self.store.read(self._keys(unit, content)))
            for content in contents
        ]

    def _finish(
        self, unit: WorkUnit, contents: list[str], pending: Pending | None
    ) -> tuple[WorkUnit, list[Answered]]:
        made = [[] for _ in unit.pictures] if pending is None else pending.result()
        if self.store is None:
            return unit, made
        self._keep(answer for answers in made if not isinstance(answers, str) for answer in answers)
        read = [m[0].content if m and not isinstance(m, str) else "" for m in made]
        stored = self.stored(unit, [new or old for new, old in zip(read, contents, strict=True)])
        return unit, [
            m if isinstance(m, str) else s or CHANGED for m, s in zip(made, stored, strict=True)
        ]

    def _keep(self, answers: Iterable[Answer]) -> None:
        assert self.store is not None
        new = [a for a in answers if a.key not in self.store or not self.store.content(a.file)]
        self.store.append([msgspec.structs.replace(answer, by=self._by) for answer in new])

    @cached_property
    def _by(self) -> str:
        """How the work is done, in words; seconds depend on it."""
        facts = self.engine.facts
        workers = facts["workers"]
        many = "as many workers as there was room for" if workers is None else f"workers {workers}"
        threads = self.job.threads or facts["threads"]
        return f"{facts['engine']}, {many}, threads of each {threads}"

    def _content(self, picture: AskedPicture) -> str:
        if self.store is None:
            return ""
        known = self.store.content(stamp_of(picture))
        if known or not self.store.was_begun:
            return known
        try:
            return read_picture(picture).content
        except (OSError, ValueError, ImageError):
            return ""

    def _missing(self, unit: WorkUnit, content: str) -> frozenset[tuple[int, int]]:
        assert self.store is not None
        keys = zip(unit.questions, self._keys(unit, content), strict=True)
        return frozenset(q for q, key in keys if not content or key not in self.store)

    def _keys(self, unit: WorkUnit, content: str) -> list[Key]:
        model, tasks, settings = self.job.digests
        return [Key(content, model, tasks[t], settings[s], unit.seed) for t, s in unit.questions]


def batched(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Tuples of `size` items, the last one shorter."""
    iterator = iter(items)
    while batch := tuple(islice(iterator, size)):
        yield batch
