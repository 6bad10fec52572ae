"""A small folder of images with labels, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from checks import picture
from dataset_fixtures import write_csv
from internals import Dataset

from fair_tta.datasets import BenchmarkTask, read_folder

TASK = BenchmarkTask(
    "pets",
    "animal",
    {"cat": "cat", "dog": "dog"},
    {"place": {"indoors": "in a house", "outdoors": "on land"}},
    "a photo of a {target} {sensitive}.",
)
OTHER = BenchmarkTask(
    "pets", "place", TASK.sensitive["place"], {"animal": TASK.targets}, TASK.template
)


def save_pets(folder: Path, n: int = 24) -> Path:
    """Write noise with labels: the folder `images` and the file `labels.csv`."""
    rows = [
        [f"{i}.png", ("cat", "dog")[i % 2], ("indoors", "outdoors")[i // 2 % 2]]
        for i in range(n)
    ]
    (folder / "images").mkdir(parents=True)
    for i, (name, *_) in enumerate(rows):
        picture(i).save(folder / "images" / name)
    write_csv(folder / "labels.csv", [["path", "animal", "place"], *rows])
    return folder


def reader(folder: Path) -> Callable[[BenchmarkTask], Dataset]:
    """Return what reads the labels that `save_pets` wrote."""

    def read_dataset(task: BenchmarkTask) -> Dataset:
        return read_folder(
            folder / "images",
            folder / "labels.csv",
            target_column=task.target,
            sensitive_columns=[*task.sensitive],
            task=task,
        )

    return read_dataset
