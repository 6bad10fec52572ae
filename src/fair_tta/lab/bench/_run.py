"""A table as work for the runner: its units, the disk they take, the rows that result."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fair_tta._images.views import AugMix
from fair_tta._io import whole_file
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import DatasetError, FairTTAError, require
from fair_tta.lab._runs.bank import Bank, ImageSource, bytes_needed, file_signature
from fair_tta.lab._runs.columns import RunColumns
from fair_tta.lab._runs.job import Asked, Job, Question, WorkUnit
from fair_tta.lab._runs.local import Local
from fair_tta.lab._runs.reference import fit_on_images
from fair_tta.lab._runs.runner import Engine, Progress, Runner, batched
from fair_tta.lab._runs.store import ROWS, Store, StoredRow
from fair_tta.lab.bench._grids import Grid
from fair_tta.lab.bench._sources import Reader, TaskSamples
from fair_tta.lab.data import Record
from fair_tta.methods._base import Adapter, check_adapter
from fair_tta.prediction import Prediction

_BYTES_PER_ANSWER = 1000  # in the store and in the table of rows, about


@dataclass(frozen=True)
class Chunk:
    """Some images of a sample of a task, with all settings: a part of the table's rows."""

    task: int
    seed: int
    records: tuple[Record, ...]
    unit: WorkUnit


@dataclass
class Remaining:
    """What a run still has to do: images, and bytes on disk at most."""

    images: int = 0
    feature_bytes: int = 0
    row_bytes: int = 0


@dataclass(frozen=True)
class TableRun:
    """A table with its images and its model, ready to be run.

    Attributes:
        places: for each task the places of the table's settings among those of the job; a method
            that was fitted on a reference has another place in each task.
        references: ``{task: which images and how many}``
        unreadable: ``{path: reason}`` of images that the last `go` could not use.
    """

    grid: Grid
    parts: tuple[TaskSamples, ...]
    out: Path
    job: Job
    engine: Engine
    batch_size: int
    places: tuple[tuple[int, ...], ...]
    references: Mapping[str, str] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)

    def open(self, restart: bool = False) -> Store:
        """The finished answers."""
        self.out.mkdir(parents=True, exist_ok=True)
        return Store(self.out / ROWS, restart=restart)

    def run(self, *, restart: bool = False, progress: Progress = lambda *_: None) -> None:
        """Do all the work that is not done yet."""
        with self.open(restart) as store:
            self.check_disk(self.left(store))
            self.go(store, progress)

    def chunks(self, task: int | None = None) -> Iterator[Chunk]:
        """The samples of one task or of all, cut up: the order of rows in results."""
        for i in range(len(self.parts)) if task is None else (task,):
            part, asked = self.parts[i], tuple((i, place) for place in self.places[i])
            for seed, records in part.samples.items():
                for some in batched(records, self.batch_size):
                    images = tuple(
                        ImageSource(f"{part.task.dataset}/{r.key}", str(r.path.absolute()))
                        for r in some
                    )
                    yield Chunk(i, seed, some, WorkUnit(images, seed, asked))

    def units(self) -> list[WorkUnit]:
        """All the work, done or not. Tasks that ask about the same images share units."""
        found: dict[tuple[int, tuple[ImageSource, ...]], list[Asked]] = {}
        for chunk in self.chunks():
            asked = found.setdefault((chunk.seed, chunk.unit.images), [])
            asked += chunk.unit.asked
        return [WorkUnit(images, seed, tuple(asked)) for (seed, images), asked in found.items()]

    def adapters(self, task: int) -> list[Adapter]:
        """The methods of a task, fitted where they are fitted."""
        return [self.job.adapters[place] for place in self.places[task]]

    def left(self, store: Store) -> Remaining:
        """What is not in the store yet, as far as it is known without reading images."""
        runner = self._runner(store)
        remaining, missing = Remaining(), 0
        banks: dict[int, Bank] = {}
        for unit in self.units():
            left = runner.left(unit, runner.stored(unit, read=False))
            if left is None:
                continue
            if unit.seed not in banks:
                banks[unit.seed] = Bank(str(self.job.bank), self.job.facts, unit.seed)
            contents = (store.content(file_signature(image)) for image in unit.images)
            missing += sum(content not in banks[unit.seed] for content in contents)
            remaining.images += len(left.images)
            remaining.row_bytes += len(left.images) * len(left.asked) * _BYTES_PER_ANSWER
        remaining.feature_bytes = bytes_needed(self.job.facts, self.job.views.n, missing)
        return remaining

    def go(self, store: Store, progress: Progress = lambda *_: None) -> None:
        """Do what is left. What is finished is on disk, so this can be stopped at any moment."""
        units = self.units()
        total = sum(len(unit.images) * len(unit.asked) for unit in units)
        done = 0
        progress(done, total)
        self.unreadable.clear()
        for unit, answered in self._runner(store).run(units, read_ahead=True):
            for image, found in zip(unit.images, answered, strict=True):
                if isinstance(found, str):
                    self.unreadable[str(image.source)] = found
            done += len(unit.images) * len(unit.asked)
            progress(done, total)

    def rows(self, store: Store, task: int | None = None) -> Iterator[tuple[Chunk, RowsBySetting]]:
        """Finished chunks of one task or of all, and the answers of each setting."""
        runner = self._runner(store)
        for chunk in self.chunks(task):
            by_setting: RowsBySetting = [[] for _ in self.grid.settings]
            found = runner.stored(chunk.unit)
            for record, image, stored in zip(chunk.records, chunk.unit.images, found, strict=True):
                if image.source in self.unreadable:
                    continue
                if len(stored) < len(chunk.unit.asked):
                    raise FairTTAError(
                        f"{str(store.path)!r} is not finished: run the same command again first."
                    )
                for rows, one in zip(by_setting, chunk.unit.asked, strict=True):
                    rows.append((record, stored[one]))
            yield chunk, by_setting

    def _runner(self, store: Store) -> Runner:
        return Runner(self.job, self.engine, store)

    def check_disk(self, remaining: Remaining) -> None:
        """Raise if the disk is too small for what is left."""
        bank = Path(str(self.job.bank))
        features, rows = remaining.feature_bytes, remaining.row_bytes
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


RowsBySetting = list[list[tuple[Record, StoredRow]]]
"""For each setting the images with its rows."""


@dataclass(frozen=True)
class TableReference:
    """Reference images of a table: so many of the training split, or of what was not sampled.

    `say` receives for each task which were taken and how many, and `said` keeps it.
    """

    read: Reader
    train: Reader | None = None
    images: int = 1000
    seed: int = 0
    say: Callable[[str], None] = lambda _: None
    said: dict[str, str] = field(default_factory=dict)

    def fit(
        self, adapters: Sequence[Adapter], part: TaskSamples, classifier: FairTPTClassifier
    ) -> Sequence[Adapter]:
        """The methods, those fitted that were not."""
        waiting = [type(adapter).__name__ for adapter in adapters if not adapter.is_fitted]
        if not waiting:
            return adapters
        chosen, origin = self._choose(part)
        images = [ImageSource(record.key, str(record.path)) for record in chosen]
        values = [record.sensitive for record in chosen]
        classes = [record.target for record in chosen]
        fitted, contents, _ = fit_on_images(
            classifier, dict(enumerate(adapters)), images, values, classes
        )
        if not contents:
            raise FairTTAError(
                f"{part.task}: there are no images left for a reference, which "
                f"{', '.join(waiting)} need: ask for fewer `images`, or leave these methods out."
            )
        self.said[str(part.task)] = f"{len(contents)} images of {origin}"
        self.say(f"{part.task}: reference, {self.said[str(part.task)]}")
        return list(fitted.values())

    def _choose(self, part: TaskSamples) -> tuple[Sequence[Record], str]:
        used = {record.path for records in part.samples.values() for record in records}
        for reader in filter(None, (self.train, self.read)):
            with suppress(DatasetError):  # no such split here
                found = reader(part.task)
                rest = tuple(record for record in found.records if record.path not in used)
                if rest:
                    some = replace(found, records=rest).sample(self.images, self.seed)
                    if reader is self.read:
                        return some.records, "what was not sampled"
                    split = found.parameters.get("split")
                    return some.records, f"the split {split!r}" if split else "another split"
        return (), ""


def prepare(
    grid: Grid,
    parts: Sequence[TaskSamples],
    model: Any,
    *,
    out: str | os.PathLike[str],
    bank: str | os.PathLike[str] | None = None,
    views: AugMix = AugMix(),
    batch_size: int = 16,
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    engine: Engine | None = None,
    reference: TableReference | None = None,
) -> TableRun:
    """Load the model and plan the work; arguments are those of `run_table`, `gather` and `Job`."""
    who = engine or Local()
    costs = {}
    if grid.alone:
        costs = {**who.facts, "alone": True, "device": device, "batch": batch_size}
        costs |= {} if dtype is None else {"dtype": dtype}
        costs["threads"] = threads or costs["threads"]
    job = Job(
        model=model,
        questions=tuple(Question(p.task.targets, p.task.sensitive, p.task.template) for p in parts),
        adapters=tuple(setting.adapter for setting in grid.settings),
        views=views,
        device=device,
        dtype=dtype,
        bank=str(Path(out) / "bank" if bank is None or grid.alone else Path(bank)),
        alone=grid.alone,
        threads=threads,
        costs=costs,
    )
    adapters, places = list(job.adapters), []
    for task, part in enumerate(parts):
        clf, unfitted = job.classifier(task), job.adapters
        fitted = unfitted if reference is None else reference.fit(unfitted, part, clf)
        place = list(range(len(unfitted)))
        for i, adapter in enumerate(fitted):
            if adapter is not unfitted[i]:
                place[i] = len(adapters)
                adapters.append(adapter)
            if adapter.needs.reference:
                check_adapter(adapter, clf._task)
        places.append(tuple(place))
    said = {} if reference is None else reference.said
    job = job.with_adapters(adapters)
    return TableRun(grid, tuple(parts), Path(out), job, who, batch_size, tuple(places), said)


def read_columns(
    table: TableRun, store: Store, task: int, write: Callable[[Chunk, RowsBySetting], None]
) -> tuple[list[dict[int, RunColumns]], list[RunColumns]]:
    """The answers of every setting on one task: by seed, and of all seeds together.

    All seeds together have every image once, with its first seed: several answers on one image are
    not independent. Each chunk is passed to `write` on the way.
    """
    targets = list(table.parts[task].task.targets)
    by_seed: list[dict[int, RunColumns]] = [{} for _ in table.grid.settings]
    pooled = [RunColumns(targets) for _ in table.grid.settings]
    seen: set[str] = set()
    for chunk, by_setting in table.rows(store, task):
        write(chunk, by_setting)
        for rows, seeds, every in zip(by_setting, by_seed, pooled, strict=True):
            columns = seeds.setdefault(chunk.seed, RunColumns(targets))
            for record, answer in rows:
                columns.add(record, answer)
                if record.key not in seen:
                    every.add(record, answer)
        seen.update(record.key for record in chunk.records)
    for seed, found in by_seed[0].items():
        if not found.labels:
            path, why = next(iter(table.unreadable.items()))
            raise FairTTAError(
                f"{table.parts[task].task}: no image of seed {seed} can be read ({path}: {why})."
            )
    return by_seed, pooled


@contextmanager
def parquet_file(
    table: TableRun, path: str | os.PathLike[str]
) -> Iterator[Callable[[Chunk, RowsBySetting], None]]:
    """Writes a row for each image, setting, seed and task; a row group for each chunk.

    Rows are in the order of the plan and hold nothing that a second run changes.
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

        def write(chunk: Chunk, by_setting: RowsBySetting) -> None:
            task = table.parts[chunk.task].task
            rows = []
            for setting, found in zip(table.grid.settings, by_setting, strict=True):
                shared = {
                    "dataset": task.dataset,
                    "target": task.target,
                    "sensitive": " x ".join(task.sensitive),
                    "seed": chunk.seed,
                    "setting": setting.name,
                    "adapter": repr(setting.adapter),
                }
                rows += [{**shared, **_row(record, row.prediction)} for record, row in found]
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))

        yield write


def _row(record: Record, answer: Prediction) -> dict[str, Any]:
    entropies = list(answer.sensitive_entropy.values())
    return {
        "image": record.key,
        "truth": record.target,
        "group": " x ".join(record.sensitive.values()),
        "answer": answer.label,
        "probabilities": list(answer.probabilities.values()),
        "sensitive_probabilities": [
            p for values in answer.sensitive.values() for p in values.values()
        ],
        "entropy": answer.entropy,
        "sensitive_entropy": sum(entropies) / len(entropies) if entropies else None,
        "learning_rate": answer.learning_rate,
        "relative_step": answer.relative_step,
        "warnings": "; ".join(answer.warnings),
    }
