"""Where the images of a table come from: the paper's datasets, drawn images, folders in a file.

A user-defined table is a TOML file:

    pairs = ["CelebA hair color x gender"]     # of the paper's datasets, and ...

    [[folder]]                                 # ... or folders of your own
    name = "pets"
    images = "images"                          # relative to this file
    labels = "labels.csv"
    target_column = "animal"
    template = "a photo of a {target} {sensitive}."
    targets = { cat = "cat", dog = "dog" }     # or ["cat", "dog"]
    sensitive.place = { indoors = "in a house", outdoors = "outdoors" }

    [[setting]]
    name = "strong"                            # its adapter, if left out
    adapter = "fair-tpt:lam=5000"              # as for `fair-tta audit`

    [[setting]]
    adapter = "my_file.py:SoftVote"            # relative to this file; it is run

    [[setting]]
    adapter = "logit-balance:reference=b.safetensors"  # of `fair-tta fit`, for these names

Zero-shot is added in front: the others are compared with it.
"""

from __future__ import annotations

import csv
import io
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import msgspec

from fair_tta._io import open_file, write_whole
from fair_tta._prompts.templates import parse_names
from fair_tta.errors import DatasetError, FairTTAError
from fair_tta.lab.bench._grids import Grid, Setting, find_grid
from fair_tta.lab.data import (
    PAPER_TASKS,
    AgeCut,
    BenchmarkTask,
    Dataset,
    Record,
    Split,
    read_dataset,
    read_folder,
)
from fair_tta.lab.data._records import choose
from fair_tta.lab.data._tasks import DEFAULT_AGES
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.methods._registry import parse_adapter, short_name
from fair_tta.miniature import TASKS, WorldSplit

Reader = Callable[[BenchmarkTask], Dataset]
"""Reads the dataset of a task."""

MINIATURE = "miniature"


@dataclass(frozen=True)
class Table:
    """A grid and how to read its datasets.

    Attributes:
        grid: settings and tasks.
        read: reads the dataset of a task.
        train: reads images that methods may be fitted on and that are never sampled; None if
            there are none. What was not sampled is used then.
    """

    grid: Grid
    read: Reader
    train: Reader | None = None


@dataclass(frozen=True)
class TaskSamples:
    """A task with its images by seed, and the choices made when reading them, such as the split."""

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
    """Read what is there and sample it; arguments are those of `run_table`.

    Returns:
        The tasks whose dataset was found, and remarks: datasets that are not there, and what was
        left out of those that are, each on one line. If there is no dataset at all, an error.
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
        BenchmarkTask(MINIATURE, task.name, task.targets, task.sensitive, task.template)
        for task in TASKS.values()
    )


def miniature_reader(
    folder: str | os.PathLike[str], images: int, split: WorldSplit = WorldSplit.TEST
) -> Reader:
    """Draws images of each miniature task into a folder, unless they are there."""

    def read(task: BenchmarkTask) -> Dataset:
        home = Path(folder) / f"{task.target}-{images}"
        labels = home / "labels.csv"
        if not labels.exists():  # it is written last
            home.mkdir(parents=True, exist_ok=True)
            drawn, text = TASKS[task.target].stream(split=split), io.StringIO()
            rows = csv.writer(text)
            rows.writerow(["path", "target", *task.sensitive])
            for i, one in enumerate(islice(drawn, images)):
                one.image.save(home / f"{i:06}.png")
                rows.writerow([f"{i:06}.png", one.target, *one.sensitive.values()])
            write_whole(labels, text.getvalue().encode())
        return read_folder(
            home, labels, target_column="target", sensitive_columns=[*task.sensitive], task=task
        )

    return read


def open_table(
    table: str | os.PathLike[str],
    data: str | os.PathLike[str] = "",
    *,
    out: str | os.PathLike[str],
    images: int,
    reference_images: int = 1000,
    adapters: Mapping[str, Adapter] | None = None,
    harmful: Mapping[str, Mapping[str, str]] | None = None,
    split: Split | None = None,
    ages: AgeCut = DEFAULT_AGES,
) -> Table:
    """A table by its name, or in a TOML file; arguments are those of `run_table` and `find_grid`.

    So many `images` are drawn where they are drawn; `split` None is what each is tested on.
    """
    home, folders = Path(out), dict[str, Reader]()
    if os.fspath(table).endswith(".toml"):
        grid, folders = read_toml(table)
    else:
        grid = find_grid(os.fspath(table), adapters, harmful)
    others: Reader | None = None
    train: Reader | None = None
    if os.fspath(data) == MINIATURE:
        others = miniature_reader(home / "images", images)
        train = miniature_reader(home / "reference", reference_images, WorldSplit.VALIDATION)
        grid = _on_drawn_images(grid, folders, harmful)
    elif data:
        others = paper_reader(data, split, ages)
        if split not in (Split.TRAIN, Split.ALL):
            train = paper_reader(data, Split.TRAIN, ages)
    elif not folders:
        raise FairTTAError("`data` should be the folder of the datasets, or 'miniature'.")

    def read(task: BenchmarkTask) -> Dataset:
        if str(task) in folders:
            return folders[str(task)](task)
        if others is None:
            raise FairTTAError(f"`data` should be given: {task} is one of the paper's.")
        return others(task)

    return Table(grid, read, train)


def _on_drawn_images(
    grid: Grid,
    folders: Mapping[str, Reader],
    harmful: Mapping[str, Mapping[str, str]] | None,
) -> Grid:
    """The same settings on the drawn tasks; folders stay.

    The made-up harmful set is the last class of each task; user-defined sets are added.
    """

    def drawn(task: BenchmarkTask) -> BenchmarkTask:
        if not any(one.harmful for one in grid.tasks):
            return task
        if harmful is None:
            return replace(task, harmful={"made-up": (list(task.targets)[-1],)})
        extra = {name: phrase for classes in harmful.values() for name, phrase in classes.items()}
        names = {name: tuple(classes) for name, classes in harmful.items()}
        return replace(task, targets={**extra, **task.targets}, harmful=names)

    kept = [task for task in grid.tasks if str(task) in folders]
    if len(kept) == len(grid.tasks):
        return grid
    return replace(grid, tasks=(*map(drawn, miniature_tasks()), *kept))


class _SettingEntry(msgspec.Struct, forbid_unknown_fields=True):
    adapter: str
    name: str | None = None

    def setting(self, folder: Path) -> Setting:
        adapter = parse_adapter(self.adapter, folder)
        if not adapter.is_fitted:
            raise FairTTAError(
                f"the adapter {self.adapter!r} has to be fitted: write "
                f"'{self.adapter.partition(':')[0]}:reference=FILE' with a file of `fair-tta fit`."
            )
        return Setting(short_name(self.adapter) if self.name is None else self.name, adapter)


class _FolderEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    images: str
    labels: str
    target_column: str
    template: str
    targets: list[str] | dict[str, str]
    sensitive: dict[str, list[str] | dict[str, str]]
    path_column: str | None = None

    def task(self) -> BenchmarkTask:
        names = {a: parse_names(f"sensitive.{a}", of) for a, of in self.sensitive.items()}
        targets = parse_names("targets", self.targets)
        return BenchmarkTask(self.name, self.target_column, targets, names, self.template)

    def reader(self, home: Path) -> Reader:
        return lambda task: read_folder(
            home / self.images, home / self.labels, target_column=self.target_column,
            sensitive_columns=[*task.sensitive], path_column=self.path_column, task=task,
        )  # fmt: skip


class _TableFile(msgspec.Struct, forbid_unknown_fields=True):
    setting: list[_SettingEntry]
    pairs: list[str] = []
    folder: list[_FolderEntry] = []


def read_toml(path: str | os.PathLike[str]) -> tuple[Grid, dict[str, Reader]]:
    """The table in a file, and readers of the tasks that are folders."""
    file = Path(path)
    try:
        with open_file(file) as source:
            text = source.read().decode("utf-8-sig")
        content = msgspec.convert(tomllib.loads(text), _TableFile)
    except (OSError, ValueError, RecursionError, msgspec.ValidationError) as error:
        raise FairTTAError(f"cannot read the table {str(file)!r}: {error}.") from error
    paper = {str(task): task for task in PAPER_TASKS}
    unknown = [name for name in content.pairs if name not in paper]
    if unknown:
        known = "; ".join(paper)
        raise FairTTAError(f"`pairs` should be of the paper's pairs: {known} (got {unknown[0]!r}).")
    tasks = [paper[name] for name in content.pairs]
    folders: dict[str, Reader] = {}
    for entry in content.folder:
        task = entry.task()
        tasks.append(task)
        folders[str(task)] = entry.reader(file.parent)
    settings = [entry.setting(file.parent) for entry in content.setting]
    for shown in (*map(str, tasks), *(setting.name for setting in settings)):
        if not shown.isprintable():  # in a terminal it may be a command
            raise FairTTAError(f"names in a table should be printable text (got {shown!r}).")
    first = Setting("ZeroShot", ZeroShot())
    others = [s for s in settings if s.adapter != first.adapter]
    return Grid(file.stem, "", (first, *others), tuple(tasks)), folders
