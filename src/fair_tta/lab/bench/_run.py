"""A table as work for the runner: its units, the disk they take, the rows that result."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fair_tta._images.views import AugMix
from fair_tta._io import whole_file
from fair_tta.errors import FairTTAError, require
from fair_tta.lab._runs.bank import AskedPicture, Bank, bytes_needed, stamp_of
from fair_tta.lab._runs.columns import Columns
from fair_tta.lab._runs.job import Job, Wording, WorkUnit
from fair_tta.lab._runs.local import Local
from fair_tta.lab._runs.runner import Engine, Progress, Runner, batched
from fair_tta.lab._runs.store import Answer, Store
from fair_tta.lab.bench._grids import Grid, Setting
from fair_tta.lab.bench._references import ReferencePictures
from fair_tta.lab.bench._samples import TaskSamples
from fair_tta.lab.data import Record
from fair_tta.methods import Adapter
from fair_tta.methods._checks import check_adapter

TABLE_ROWS = "rows.jsonl"
"""The file of finished answers in the folder of a table."""

_BYTES_PER_ANSWER = 1000  # in the store and in the table of rows, about


@dataclass(frozen=True)
class Chunk:
    """Some pictures of a sample of a task, with all settings: a part of the table's rows."""

    task: int
    seed: int
    records: tuple[Record, ...]
    unit: WorkUnit


@dataclass(frozen=True)
class TableRun:
    """A table with its images and its model, ready to be run.

    Attributes:
        grid: the settings.
        parts: the tasks with their images.
        out: the folder of the results.
        job: what every worker must know.
        engine: who does the work.
        batch: how many images a unit has.
        places: for each task the places of the table's settings among those of the job; a method
            that was fitted on a reference has a place of its own in each task.
        references: ``{task: which pictures and how many}``
        unreadable: ``{path: reason}`` of pictures that the last `go` could not use.
    """

    grid: Grid
    parts: tuple[TaskSamples, ...]
    out: Path
    job: Job
    engine: Engine
    batch: int
    places: tuple[tuple[int, ...], ...]
    references: Mapping[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)

    def open(self, restart: bool = False) -> Store:
        """The finished answers."""
        self.out.mkdir(parents=True, exist_ok=True)
        return Store(self.out / TABLE_ROWS, restart=restart)

    def chunks(self) -> Iterator[Chunk]:
        """All samples of all tasks, cut up: the order of rows in results."""
        for task, part in enumerate(self.parts):
            for seed, records in part.samples.items():
                for some in batched(records, self.batch):
                    pictures = tuple(_picture(part, record) for record in some)
                    asked = tuple((task, place) for place in self.places[task])
                    unit = WorkUnit(pictures, seed, asked)
                    yield Chunk(task, seed, some, unit)

    def units(self) -> list[WorkUnit]:
        """All the work, done or not. Tasks that ask about the same images share units."""
        found: dict[tuple[int, tuple[AskedPicture, ...]], list[tuple[int, int]]] = {}
        for chunk in self.chunks():
            asked = found.setdefault((chunk.seed, chunk.unit.pictures), [])
            asked += chunk.unit.questions
        return [WorkUnit(pictures, seed, tuple(q)) for (seed, pictures), q in found.items()]

    def adapters(self, task: int) -> list[Adapter]:
        """The methods of a task, fitted where they are fitted."""
        return [self.job.settings[place] for place in self.places[task]]

    def left(self, store: Store) -> list[WorkUnit]:
        """What is not in the store yet, as far as can be told without reading pictures."""
        runner = self._runner(store)
        known = (
            runner.left(unit, [store.content(stamp_of(picture)) for picture in unit.pictures])
            for unit in self.units()
        )
        return [left for left in known if left is not None]

    def disk(self, store: Store) -> tuple[int, int]:
        """Bytes that the work that is left may need at most, in the bank and in `out`."""
        missing = answers = 0
        banks: dict[int, Bank] = {}
        for unit in self.left(store):
            answers += len(unit.pictures) * len(unit.questions)
            if unit.seed not in banks:
                banks[unit.seed] = Bank(self._bank, self.job.facts, unit.seed)
            known = banks[unit.seed]
            contents = (store.content(stamp_of(picture)) for picture in unit.pictures)
            missing += sum(content not in known for content in contents)
        features = bytes_needed(self.job.facts, self.job.views.n, missing)
        return features, answers * _BYTES_PER_ANSWER

    def go(self, store: Store, progress: Progress = lambda *_: None) -> None:
        """Do what is left. What is finished is on disk, so this can be stopped at any moment.

        Raises:
            FairTTAError: the disk is too small.
        """
        self._check_disk(*self.disk(store))
        units = self.units()
        total = sum(len(unit.pictures) * len(unit.questions) for unit in units)
        done = 0
        progress(done, total)
        self.unreadable.clear()
        for unit, answered in self._runner(store).run(units, read_ahead=True):
            for picture, found in zip(unit.pictures, answered, strict=True):
                if isinstance(found, str):
                    self.unreadable[str(picture.source)] = found
            done += len(unit.pictures) * len(unit.questions)
            progress(done, total)

    def rows(self, store: Store, task: int | None = None) -> Iterator[tuple[Chunk, RowsBySetting]]:
        """Finished chunks, of one task or of all, and what each setting says of their pictures."""
        runner = self._runner(store)
        for chunk in self.chunks():
            if task not in (None, chunk.task):
                continue
            by_setting: RowsBySetting = [[] for _ in self.grid.settings]
            found = runner.stored(chunk.unit, runner.contents(chunk.unit))
            pictures = zip(chunk.records, chunk.unit.pictures, found, strict=True)
            for record, picture, answers in pictures:
                if picture.source in self.unreadable:
                    continue
                if not answers:
                    raise FairTTAError(
                        f"{str(store.path)!r} is not finished: run the same command again first."
                    )
                for rows, answer in zip(by_setting, answers, strict=True):
                    rows.append((record, answer))
            yield chunk, by_setting

    def _runner(self, store: Store) -> Runner:
        return Runner(self.job, self.engine, store)

    @property
    def _bank(self) -> str:
        assert self.job.bank is not None
        return self.job.bank

    def _check_disk(self, features: int, rows: int) -> None:
        bank = Path(self._bank)
        bank.mkdir(parents=True, exist_ok=True)
        if bank.stat().st_dev == self.out.stat().st_dev:
            features += rows  # they share a disk
        for name, folder, needed in (("bank", bank, features), ("out", self.out, rows)):
            free = shutil.disk_usage(folder).free
            if needed > free:
                raise FairTTAError(
                    f"up to {needed / 1e6:,.1f} MB may be needed, but {str(folder)!r} has "
                    f"{free / 1e6:,.1f} MB free: choose another `{name}`."
                )


RowsBySetting = list[list[tuple[Record, Answer]]]
"""For each setting the pictures with its answers."""


def prepare(
    grid: Grid,
    parts: Sequence[TaskSamples],
    model: Any,
    *,
    out: str | os.PathLike[str],
    bank: str | os.PathLike[str] | None = None,
    views: AugMix = AugMix(),
    batch: int = 16,
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    engine: Engine | None = None,
    reference: ReferencePictures | None = None,
) -> TableRun:
    """Load the model and plan the work.

    Args:
        grid: the table.
        parts: of `fair_tta.lab.bench._samples.gather`.
        model: what `FairTPTClassifier` takes.
        out: the folder of the results.
        bank: the folder of features, which several tables may share; ``out/bank`` if None. Tables
            that measure costs (`Grid.alone`) always keep their own there: what others have encoded
            was timed under other circumstances.
        views: how views are made.
        batch: how many images are worked on at once.
        device: where to move the model, None to leave it where it is.
        dtype: in which precision, None for its own.
        threads: of torch while the work is done, None to leave them.
        engine: who does the work; `Local()` if None.
        reference: fits methods that need a reference and are not fitted.
    """
    if not isinstance(batch, int) or batch < 1:
        raise FairTTAError(f"`batch` should be at least 1 (got {batch!r}).")
    who = engine or Local()
    costs = {}
    if grid.alone:
        costs = {**who.facts, "alone": True, "device": device, "batch": batch}
        costs |= {} if dtype is None else {"dtype": dtype}
        costs["threads"] = threads or costs["threads"]
    job = Job(
        model=model,
        tasks=tuple(Wording(p.task.targets, p.task.sensitive, p.task.template) for p in parts),
        settings=tuple(setting.adapter for setting in grid.settings),
        views=views,
        device=device,
        dtype=dtype,
        bank=str(Path(out) / "bank" if bank is None or grid.alone else Path(bank)),
        alone=grid.alone,
        threads=threads,
        costs=costs,
    )
    _ = job.backend  # an error of the model comes before any work
    job, places = _fitted(job, grid, parts, reference)
    for task, place in enumerate(places):
        for adapter in (job.settings[i] for i in place):
            if getattr(adapter, "needs_reference", False):
                check_adapter(adapter, job.classifier(task).task)
    said = {} if reference is None else reference.said
    return TableRun(grid, tuple(parts), Path(out), job, who, batch, places, said)


def _fitted(
    job: Job, grid: Grid, parts: Sequence[TaskSamples], reference: ReferencePictures | None
) -> tuple[Job, tuple[tuple[int, ...], ...]]:
    """The job with a method of its own for each task that it was fitted for, and their places."""
    if reference is None:
        return job, (tuple(range(len(grid.settings))),) * len(parts)
    settings, places = list(job.settings), []
    for task, part in enumerate(parts):
        place = list(range(len(grid.settings)))
        for i, adapter in reference.fit(grid, part, job.classifier(task)).items():
            place[i] = len(settings)
            settings.append(adapter)
        places.append(tuple(place))
    return job.with_settings(settings), tuple(places)


def run_table(
    table: TableRun, *, restart: bool = False, progress: Progress = lambda *_: None
) -> None:
    """Do all the work of a table that is not done yet."""
    with table.open(restart) as store:
        table.go(store, progress)


def read_columns(
    table: TableRun, store: Store, task: int
) -> tuple[list[dict[int, Columns]], list[Columns]]:
    """What every setting says on one task: by seed, and of all seeds together.

    All seeds together have every image once, with its first seed: several answers on one image are
    not independent.

    Raises:
        FairTTAError: no picture of a seed can be read.
    """
    targets = list(table.parts[task].task.targets)
    by_seed: list[dict[int, Columns]] = [{} for _ in table.grid.settings]
    pooled = [Columns(targets) for _ in table.grid.settings]
    seen: set[str] = set()
    for chunk, by_setting in table.rows(store, task):
        for rows, seeds, every in zip(by_setting, by_seed, pooled, strict=True):
            columns = seeds.setdefault(chunk.seed, Columns(targets))
            for record, answer in rows:
                columns.add(record, answer)
                if record.key not in seen:
                    every.add(record, answer)
        seen.update(record.key for record in chunk.records)
    for seed, found in by_seed[0].items():
        if not len(found):
            path, why = next(iter(table.unreadable.items()))
            raise FairTTAError(
                f"{table.parts[task].task}: no picture of seed {seed} can be read ({path}: {why})."
            )
    return by_seed, pooled


def _picture(part: TaskSamples, record: Record) -> AskedPicture:
    return AskedPicture(f"{part.task.dataset}/{record.key}", str(record.path.absolute()))


def write_parquet(table: TableRun, store: Store, path: str | os.PathLike[str]) -> None:
    """A row for each image, setting, seed and task; a row group for each chunk of images.

    The order of rows is that of the plan and there is nothing in it that a second run changes, so
    the same run always gives the same rows.
    """
    pyarrow = require("pyarrow", "bench")
    parquet = require("pyarrow.parquet", "bench")
    text, number, numbers = pyarrow.string(), pyarrow.float64(), pyarrow.list_(pyarrow.float64())
    kinds = {
        "dataset": text, "target": text, "sensitive": text, "seed": pyarrow.int64(),
        "setting": text, "adapter": text, "image": text, "truth": text, "group": text,
        "answer": text, "probabilities": numbers, "sensitive_probabilities": numbers,
        "entropy": number, "sensitive_entropy": number, "learning_rate": number,
        "relative_step": number, "warnings": text,
    }  # fmt: skip
    schema = pyarrow.schema(list(kinds.items()))
    with (
        whole_file(path) as part,
        parquet.ParquetWriter(part, schema, compression="zstd") as writer,
    ):
        for chunk, by_setting in table.rows(store):
            rows = [
                row
                for setting, found in zip(table.grid.settings, by_setting, strict=True)
                for row in _rows(table, chunk, setting, found)
            ]
            columns = {name: [row[name] for row in rows] for name in kinds}
            writer.write_table(pyarrow.table(columns, schema=schema))


def _rows(
    table: TableRun, chunk: Chunk, setting: Setting, found: list[tuple[Record, Answer]]
) -> Iterator[dict[str, Any]]:
    task, adapter = table.parts[chunk.task].task, repr(setting.adapter)
    for record, answer in found:
        entropies = list(answer.sensitive_entropy.values())
        yield {
            "dataset": task.dataset,
            "target": task.target,
            "sensitive": " x ".join(task.sensitive),
            "seed": chunk.seed,
            "setting": setting.name,
            "adapter": adapter,
            "image": record.key,
            "truth": record.target,
            "group": " x ".join(record.sensitive.values()),
            "answer": answer.label,
            "probabilities": answer.probabilities,
            "sensitive_probabilities": [p for values in answer.sensitive.values() for p in values],
            "entropy": answer.entropy,
            "sensitive_entropy": sum(entropies) / len(entropies) if entropies else None,
            "learning_rate": answer.learning_rate,
            "relative_step": answer.relative_step,
            "warnings": "; ".join(answer.warnings),
        }
