"""Run a table: plan, encode, answer, keep; and go on where a run was stopped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fair_tta.backends import Backend
from fair_tta.benchmarks.bank import bytes_needed, identity
from fair_tta.benchmarks.data import Part
from fair_tta.benchmarks.engines.local import Local
from fair_tta.benchmarks.grids import Grid
from fair_tta.benchmarks.work import Job, Line, Unit, cut, load_backend
from fair_tta.errors import FairTTAError
from fair_tta.journal import Journal
from fair_tta.provenance import environment
from fair_tta.views import AugMix

ROWS = "rows.jsonl"
"""The journal of a run in its folder."""

Progress = Callable[[int, int], None]
"""Told how many answers are finished, and of how many."""


class Engine(Protocol):
    """Does units in any order."""

    def run(self, job: Job, units: Sequence[Unit], backend: Backend) -> Iterator[list[Line]]:
        """Do all units; they come as they are finished."""
        ...


@dataclass(frozen=True)
class Run:
    """A table with its images and its model, ready to be run.

    Attributes:
        grid: the settings.
        parts: the tasks with their images.
        out: the folder of the results.
        backend: the model, loaded.
        job: what every worker must know.
        units: all the work, done or not.
        batch: how many images a unit has.
    """

    grid: Grid
    parts: tuple[Part, ...]
    out: Path
    backend: Backend
    job: Job
    units: tuple[Unit, ...]
    batch: int

    @property
    def facts(self) -> dict[str, Any]:
        """What determines an answer besides what its key says."""
        return {"fair_tta": environment()["fair_tta"], **self.job.facts}

    @property
    def answers(self) -> int:
        """How many answers there are in all: images times settings."""
        return sum(len(unit.paths) * len(unit.questions) for unit in self.units)

    def journal(self, restart: bool = False) -> Journal:
        """The finished lines."""
        self.out.mkdir(parents=True, exist_ok=True)
        return Journal(self.out / ROWS, self.facts, restart=restart)

    def disk(self, journal: Journal) -> int:
        """Bytes that may be needed for the work that is left, at most."""
        left = self.left(journal)
        images = len({(unit.seed, path) for unit in left for path in unit.paths})
        answers = sum(len(unit.paths) * len(unit.questions) for unit in left)
        views = self.job.views.n
        return bytes_needed(self.job.facts, views, images) + answers * _BYTES_PER_ANSWER

    def left(self, journal: Journal) -> list[Unit]:
        """What is not in the journal yet."""
        units = []
        for unit in self.units:
            asked = tuple(q for q in unit.questions if q.key not in journal)
            if asked:
                units.append(replace(unit, questions=asked))
        return units

    def go(self, engine: Engine, journal: Journal, progress: Progress = lambda *_: None) -> None:
        """Do what is left. What is finished is on disk, so this can be stopped at any moment.

        Raises:
            FairTTAError: the disk is too small.
        """
        self._check_disk(self.disk(journal))
        left = self.left(journal)
        size = {q.key: len(unit.paths) for unit in left for q in unit.questions}
        total = self.answers
        done = total - sum(size.values())
        progress(done, total)
        if not left:
            return
        for lines in engine.run(self.job, left, self.backend):
            journal.append(lines)
            done += sum(size[line["key"]] for line in lines)
            progress(done, total)

    def _check_disk(self, needed: int) -> None:
        Path(self.job.bank).mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.job.bank).free
        if needed > free:
            raise FairTTAError(
                f"up to {needed / 1e9:.1f} GB may be needed, but {self.job.bank!r} has "
                f"{free / 1e9:.1f} GB free: choose another `bank`."
            )


_BYTES_PER_ANSWER = 400  # in the journal and in the table of rows, about


def prepare(
    grid: Grid,
    parts: Sequence[Part],
    model: Any,
    *,
    out: str | os.PathLike[str],
    bank: str | os.PathLike[str] | None = None,
    views: AugMix = AugMix(),
    batch: int = 16,
    device: str | None = None,
    threads: int | None = None,
) -> Run:
    """Load the model and plan the work.

    Args:
        grid: the table.
        parts: of `fair_tta.benchmarks.data.gather`.
        model: what `FairTPTClassifier` takes.
        out: the folder of the results.
        bank: the folder of features, which several tables may share; ``out/bank`` if None.
        views: how views are made.
        batch: how many images are worked on at once.
        device: where to move the model, None to leave it where it is.
        threads: of torch, None to leave them.
    """
    if not isinstance(batch, int) or batch < 1:
        raise FairTTAError(f"`batch` should be at least 1 (got {batch!r}).")
    backend = load_backend(model, device)
    job = Job(
        model=model,
        device=device,
        facts=identity(backend, views),
        views=views,
        bank=str(Path(bank) if bank is not None else Path(out) / "bank"),
        tasks=tuple(part.task for part in parts),
        adapters=tuple(setting.adapter for setting in grid.settings),
        alone=grid.alone,
        threads=threads,
    )
    units = cut(grid, parts, batch)
    return Run(grid, tuple(parts), Path(out), backend, job, tuple(units), batch)


def run(
    prepared: Run,
    engine: Engine | None = None,
    *,
    restart: bool = False,
    progress: Progress = lambda *_: None,
) -> None:
    """Do all the work of a table that is not done yet."""
    with prepared.journal(restart) as journal:
        prepared.go(engine or Local(), journal, progress)
