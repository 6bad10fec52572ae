"""Run a table: plan, encode, answer, keep; and go on where a run was stopped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from fair_tta.backends import Backend
from fair_tta.benchmarks.bank import Bank, bytes_needed, identity
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

    @property
    def facts(self) -> dict[str, Any]:
        """How the work is done, as JSON: ``engine``, ``workers`` and ``threads`` of each."""
        ...

    def run(
        self, job: Job, units: Sequence[Unit], backend: Backend
    ) -> Generator[list[Line], None, None]:
        """Do all units; they come as they are finished. It is closed if the work stops before."""
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

    def disk(self, journal: Journal) -> tuple[int, int]:
        """Bytes that the work that is left may need at most, in the bank and in `out`."""
        left = self.left(journal)
        missing = 0
        for seed in {unit.seed for unit in left}:
            bank = Bank(self.job.bank, self.job.facts, seed)
            asked = {digest for unit in left if unit.seed == seed for digest in unit.contents}
            missing += sum(digest not in bank for digest in asked)
        answers = sum(len(unit.paths) * len(unit.questions) for unit in left)
        features = bytes_needed(self.job.facts, self.job.views.n, missing)
        return features, answers * _BYTES_PER_ANSWER

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
        self._check_disk(*self.disk(journal))
        left = self.left(journal)
        size = {q.key: len(unit.paths) for unit in left for q in unit.questions}
        total = self.answers
        done = total - sum(size.values())
        progress(done, total)
        if not left:
            return
        by = {**engine.facts, **({"threads": self.job.threads} if self.job.threads else {})}
        with closing(engine.run(self.job, left, self.backend)) as answers:
            for lines in answers:
                journal.append([{**line, "by": by} for line in lines])
                done += sum(size[line["key"]] for line in lines)
                progress(done, total)

    def _check_disk(self, features: int, rows: int) -> None:
        bank = Path(self.job.bank)
        bank.mkdir(parents=True, exist_ok=True)
        if bank.stat().st_dev == self.out.stat().st_dev:
            features += rows  # they share a disk
        for name, folder, needed in (("bank", bank, features), ("out", self.out, rows)):
            free = shutil.disk_usage(folder).free
            if needed > free:
                raise FairTTAError(
                    f"up to {needed / 1e9:.1f} GB may be needed, but {str(folder)!r} has "
                    f"{free / 1e9:.1f} GB free: choose another `{name}`."
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
    engine: Engine | None = None,
) -> Run:
    """Load the model and plan the work.

    Args:
        grid: the table.
        parts: of `fair_tta.benchmarks.data.gather`.
        model: what `FairTPTClassifier` takes.
        out: the folder of the results.
        bank: the folder of features, which several tables may share; ``out/bank`` if None. Tables
            that measure costs (`Grid.alone`) always keep their own there: what others have encoded
            was timed under other circumstances.
        views: how views are made.
        batch: how many images are worked on at once.
        device: where to move the model, None to leave it where it is.
        threads: of torch while the work is done, None to leave them.
        engine: who will do the work, which is a fact of tables that measure costs; `Local()` if
            None.
    """
    if not isinstance(batch, int) or batch < 1:
        raise FairTTAError(f"`batch` should be at least 1 (got {batch!r}).")
    backend = load_backend(model, device)
    facts = identity(backend, views)
    if grid.alone:
        facts |= {
            **(engine or Local()).facts,
            "alone": True,
            "device": str(getattr(backend, "device", None)),
            "batch": batch,
        }
        facts["threads"] = threads or facts["threads"]
    job = Job(
        model=model,
        device=device,
        facts=facts,
        views=views,
        bank=str(Path(out) / "bank" if bank is None or grid.alone else Path(bank)),
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
