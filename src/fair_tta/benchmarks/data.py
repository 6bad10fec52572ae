"""The images of a table: for each task its samples, one per seed."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from fair_tta.benchmarks.bank import file_digest, read_picture, write_whole
from fair_tta.benchmarks.datasets import (
    AgeCut,
    BenchmarkTask,
    Dataset,
    DatasetError,
    Record,
    Split,
    read_dataset,
    read_folder,
)
from fair_tta.benchmarks.datasets.ages import DEFAULT_AGES
from fair_tta.errors import FairTTAError
from fair_tta.miniature import TASKS
from fair_tta.provenance import plain

Reader = Callable[[BenchmarkTask], Dataset]
"""Reads the dataset of a task."""


@dataclass(frozen=True)
class Part:
    """A task with its images.

    Attributes:
        task: names and template.
        samples: ``{seed: records}``
        parameters: the choices made when reading: split, thresholds of age, folders.
        digest: of names, template and the choices made when reading, to tell rows apart.
        contents: ``{path: digest of the file}``, empty for a file that is not there.
    """

    task: BenchmarkTask
    samples: Mapping[int, tuple[Record, ...]]
    parameters: Mapping[str, str | int]
    digest: str
    contents: Mapping[Path, str]


def gather(
    tasks: Sequence[BenchmarkTask], read: Reader, *, images: int, seeds: Sequence[int]
) -> tuple[list[Part], list[str]]:
    """Read what is there and sample it.

    Every picture is read once, for its digest: answers belong to the content of a picture, not to
    its name.

    Returns:
        The tasks whose dataset was found, and remarks: datasets that are not there, and what was
        left out of those that are.

    Raises:
        DatasetError: there is none at all.
        FairTTAError: a picture is there, but the disk does not give it.
    """
    parts, remarks, errors = [], [], []
    contents: dict[Path, str] = {}
    for task in tasks:
        try:
            dataset = read(task)
        except DatasetError as error:
            errors.append(error)
            remarks.append(f"{task} is left out. {error}")
            continue
        drawn = {seed: dataset.sample(images, seed) for seed in seeds}
        samples = {seed: sample.records for seed, sample in drawn.items()}
        facts = json.dumps(plain([task, dict(dataset.parameters)]), sort_keys=True)
        digest = blake2b(facts.encode(), digest_size=6).hexdigest()
        for path in (record.path for records in samples.values() for record in records):
            if path not in contents:
                contents[path] = _content(path)
        parts.append(Part(task, samples, dataset.parameters, digest, contents))
        problems = next(iter(drawn.values())).problems
        if problems:
            remarks.append(f"{task}: {len(dataset)} images. {problems}")
    if not parts:
        raise errors[0]
    return parts, list(dict.fromkeys(remarks))


def _content(path: Path) -> str:
    data = read_picture(path)
    return "" if data is None else file_digest(data)


def paper_reader(
    root: str | os.PathLike[str], split: Split | None = None, ages: AgeCut = DEFAULT_AGES
) -> Reader:
    """Reads the paper's datasets below a folder."""
    if not Path(root).is_dir():
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


def miniature_reader(folder: str | os.PathLike[str], pictures: int) -> Reader:
    """Draws so many pictures of each miniature task into a folder, unless they are there."""

    def read(task: BenchmarkTask) -> Dataset:
        home = Path(folder) / f"{task.target}-{pictures}"
        labels = home / "labels.csv"
        if not labels.exists():  # it is written last
            home.mkdir(parents=True, exist_ok=True)
            text = io.StringIO()
            csv.writer(text).writerows(_drawn(task, home, pictures))
            write_whole(labels, text.getvalue().encode())
        return read_folder(
            home, labels, target_column="target", sensitive_columns=[*task.sensitive], task=task
        )

    return read


def _drawn(task: BenchmarkTask, home: Path, pictures: int) -> Iterator[list[str]]:
    yield ["path", "target", *task.sensitive]
    for i, picture in enumerate(islice(TASKS[task.target].stream(), pictures)):
        data = io.BytesIO()
        picture.image.save(data, "PNG")
        write_whole(home / f"{i:06}.png", data.getvalue())
        yield [f"{i:06}.png", picture.target, *picture.sensitive.values()]
