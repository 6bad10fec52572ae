"""The images of a table: for each task its samples, one per seed."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from fair_tta._io import write_whole
from fair_tta.errors import FairTTAError
from fair_tta.lab.data import (
    AgeCut,
    BenchmarkTask,
    Dataset,
    DatasetError,
    Record,
    Split,
    read_dataset,
    read_folder,
)
from fair_tta.lab.data._sampling import choose
from fair_tta.lab.data._tasks import DEFAULT_AGES
from fair_tta.miniature import TASKS, WorldSplit

Reader = Callable[[BenchmarkTask], Dataset]
"""Reads the dataset of a task."""


@dataclass(frozen=True)
class TaskSamples:
    """A task with its images.

    Attributes:
        task: names and template.
        samples: ``{seed: records}``
        parameters: the choices made when reading: split, thresholds of age, folders.
    """

    task: BenchmarkTask
    samples: Mapping[int, tuple[Record, ...]]
    parameters: Mapping[str, str | int]


def gather(
    tasks: Sequence[BenchmarkTask],
    read: Reader,
    *,
    images: int,
    seeds: Sequence[int],
    limit: int | None = None,
    sample: int | None = None,
) -> tuple[list[TaskSamples], list[str]]:
    """Read what is there and sample it.

    Args:
        tasks: what is asked.
        read: reads the dataset of a task.
        images: how many are sampled for each seed, whatever their groups.
        seeds: of the samples.
        limit: of each sample the first so many only.
        sample: of each sample so many only, of each group its share.

    Returns:
        The tasks whose dataset was found, and remarks: datasets that are not there, and what was
        left out of those that are, each on one line.

    Raises:
        DatasetError: there is none at all.
    """
    parts, remarks, errors = [], [], []
    left_out: dict[tuple[str, str], list[BenchmarkTask]] = {}
    for task in tasks:
        try:
            dataset = read(task)
        except DatasetError as error:
            errors.append(error)
            left_out.setdefault((task.dataset, error.short), []).append(task)
            continue
        drawn = {seed: dataset.sample(images, seed) for seed in seeds}
        samples = {
            seed: tuple(
                choose(of, limit, sample, seed, key=lambda r: r.key, group=lambda r: r.group)
            )
            for seed, of in drawn.items()
        }
        parts.append(TaskSamples(task, samples, dataset.parameters))
        problems = next(iter(drawn.values())).problems
        if problems:
            remarks.append(f"{task}: {len(dataset)} images. {'; '.join(problems.lines())}")
    if not parts:
        raise errors[0]
    for (dataset_name, why), some in left_out.items():
        pairs = ", ".join(str(task).removeprefix(f"{dataset_name} ") for task in some)
        remarks.append(f"{dataset_name} is left out ({pairs}): {why}")
    return parts, list(dict.fromkeys(remarks))


def paper_reader(
    root: str | os.PathLike[str], split: Split | None = None, ages: AgeCut = DEFAULT_AGES
) -> Reader:
    """Reads the paper's datasets below a folder."""
    if not os.path.isdir(root):
        raise FairTTAError(
            f"`data` should be the folder of the datasets, or 'miniature' (got {str(root)!r})."
        )
    return lambda task: read_dataset(task, root, split=split, ages=ages)


def miniature_tasks() -> tuple[BenchmarkTask, ...]:
    """The drawn tasks, to try a table without any dataset."""
    return tuple(
        BenchmarkTask("miniature", task.name, task.targets, task.sensitive, task.template)
        for task in TASKS.values()
    )


def miniature_reader(
    folder: str | os.PathLike[str], pictures: int, split: WorldSplit = WorldSplit.TEST
) -> Reader:
    """Draws so many pictures of each miniature task into a folder, unless they are there."""

    def read(task: BenchmarkTask) -> Dataset:
        home = Path(folder) / f"{task.target}-{pictures}"
        labels = home / "labels.csv"
        if not labels.exists():  # it is written last
            home.mkdir(parents=True, exist_ok=True)
            text = io.StringIO()
            csv.writer(text).writerows(_drawn(task, home, pictures, split))
            write_whole(labels, text.getvalue().encode())
        return read_folder(
            home, labels, target_column="target", sensitive_columns=[*task.sensitive], task=task
        )

    return read


def _drawn(
    task: BenchmarkTask, home: Path, pictures: int, split: WorldSplit
) -> Iterator[list[str]]:
    yield ["path", "target", *task.sensitive]
    for i, picture in enumerate(islice(TASKS[task.target].stream(split=split), pictures)):
        data = io.BytesIO()
        picture.image.save(data, "PNG")
        write_whole(home / f"{i:06}.png", data.getvalue())
        yield [f"{i:06}.png", picture.target, *picture.sensitive.values()]
