"""Where the images of a table come from: the paper's datasets on your disk, or drawn images."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from fair_tta.datasets import BenchmarkTask, read_dataset, read_folder
from fair_tta.errors import DatasetError
from fair_tta.miniature import BADGES, BIRDS, SCENES
from paper.tables import Table

if TYPE_CHECKING:  # what readers return, which nobody has to import to use it
    from fair_tta.datasets._records import Dataset, Record

Split: TypeAlias = Literal["train", "validation", "test", "all"]
Reader: TypeAlias = "Callable[[BenchmarkTask], Dataset]"
"""Reads the dataset of a task."""

DRAWN_TASKS = {task.name: task for task in (BIRDS, BADGES, SCENES)}
"""The tasks of the drawn world by name."""

MINIATURE = "miniature"
"""What to give as the folder of the datasets for drawn images."""


@dataclass(frozen=True)
class TaskImages:
    """The images of a task.

    Attributes:
        samples: by seed; an image may be in several.
        reference: images in none of the samples, for methods that are fitted.
        remark: what was left out of the dataset, empty if nothing.
    """

    task: BenchmarkTask
    samples: dict[int, tuple[Record, ...]]
    reference: tuple[Record, ...]
    remark: str = ""


def read_tasks(
    table: Table,
    read: Reader,
    read_others: Reader | None,
    *,
    images: int,
    seeds: Sequence[int],
    reference_images: int,
) -> tuple[list[TaskImages], list[str]]:
    """Sample the datasets that are there.

    Args:
        table: whose tasks to read.
        read: reads what is sampled.
        read_others: reads another split for references; None if there is none.
        images: how many for each seed.
        seeds: which.
        reference_images: how many for methods that are fitted.

    Returns:
        The images of each task whose dataset was found, and why the others were not.

    Raises:
        DatasetError: no dataset was found at all.
    """
    parts: list[TaskImages] = []
    problems: dict[str, DatasetError] = {}
    for task in table.tasks:
        try:
            dataset = read(task)
        except DatasetError as error:
            problems.setdefault(f"{task.dataset} is left out: {error.short}", error)
            continue
        samples = {seed: dataset.sample(images, seed) for seed in seeds}
        records = {seed: sample.records for seed, sample in samples.items()}
        reference = _reference(task, records, [read_others, read], reference_images)
        remark = "; ".join(samples[seeds[0]].problems.lines())
        parts.append(TaskImages(task, records, reference, remark))
    if not parts:
        raise next(iter(problems.values()))
    return parts, [*problems]


def _reference(
    task: BenchmarkTask,
    samples: dict[int, tuple[Record, ...]],
    readers: Sequence[Reader | None],
    count: int,
) -> tuple[Record, ...]:
    """Return images of the training split if there is one, else of what was not sampled."""
    sampled = {record.path for records in samples.values() for record in records}
    for reader in readers:
        if reader is None:
            continue
        try:
            dataset = reader(task)
        except DatasetError:
            continue  # a dataset without this split
        other_splits = tuple(
            record for record in dataset.records if record.path not in sampled
        )
        if other_splits:
            return replace(dataset, records=other_splits).sample(count).records
    return ()


def paper_readers(
    folder: str, split: Split | None, young_below: int, old_from: int | None
) -> tuple[Reader, Reader | None]:
    """Return readers of the paper's datasets below a folder, for samples and for references."""
    if not Path(folder).is_dir():
        raise SystemExit(
            f"`--data` should be the folder of the datasets, or {MINIATURE!r} (got {folder!r})."
        )

    def read(task: BenchmarkTask) -> Dataset:
        return read_dataset(
            task, folder, split=split, young_below=young_below, old_from=old_from
        )

    def read_training(task: BenchmarkTask) -> Dataset:
        return read_dataset(
            task, folder, split="train", young_below=young_below, old_from=old_from
        )

    return read, None if split in ("train", "all") else read_training


def miniature_table(table: Table) -> Table:
    """Return the same settings on the drawn tasks, to try a table without any dataset."""
    tasks = []
    for drawn in DRAWN_TASKS.values():
        task = BenchmarkTask(
            MINIATURE, drawn.name, drawn.targets, drawn.sensitive, drawn.template
        )
        if table.tasks[0].harmful:
            # No class of the drawn world harms anybody: the last one stands in.
            task = replace(task, harmful={"made-up": (list(drawn.targets)[-1],)})
        tasks.append(task)
    return replace(table, tasks=tuple(tasks))


def miniature_readers(
    folder: Path, images: int, reference_images: int
) -> tuple[Reader, Reader]:
    """Return readers that draw so many images of a task into a folder, unless they are there."""

    def read(task: BenchmarkTask) -> Dataset:
        return _drawn(folder / f"{task.target}-{images}", task, images, "test")

    def read_others(task: BenchmarkTask) -> Dataset:
        home = folder / f"{task.target}-reference-{reference_images}"
        return _drawn(home, task, reference_images, "validation")

    return read, read_others


def _drawn(
    home: Path, task: BenchmarkTask, count: int, split: Literal["validation", "test"]
) -> Dataset:
    labels = home / "labels.csv"
    if not labels.exists():  # written last, so images are whole if it is there
        home.mkdir(parents=True, exist_ok=True)
        rows = [["path", "target", *task.sensitive]]
        drawn_images = DRAWN_TASKS[task.target].stream(split=split)
        for number, drawn in enumerate(islice(drawn_images, count)):
            name = f"{number:06}.png"
            drawn.image.save(home / name)
            rows.append([name, drawn.target, *drawn.sensitive.values()])
        unfinished = home / "labels.csv.part"
        with unfinished.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
        unfinished.replace(labels)
    return read_folder(
        home,
        labels,
        target_column="target",
        sensitive_columns=[*task.sensitive],
        task=task,
    )
