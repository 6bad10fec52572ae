"""Records of the paper's four datasets and of any folder with a file of labels; no answers.

Nothing is downloaded and no image is opened: label files and folders are read, what is wrong
with them is counted, and what remains are records.

Example:
    >>> from fair_tta.datasets import find_task, read_dataset
    >>> task = find_task("CelebA", "hair color", "gender")
    >>> faces = read_dataset(task, "data").sample(1000, seed=0)  # doctest: +SKIP
    >>> print(faces.problems)  # doctest: +SKIP
    no problems
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fair_tta.datasets._celeba import read_celeba
from fair_tta.datasets._fairface import Padding, read_fairface
from fair_tta.datasets._labels import read_folder
from fair_tta.datasets._records import Dataset, Problem, ProblemKind, Problems, Record, Split
from fair_tta.datasets._tasks import (
    DEFAULT_AGES,
    MAIN_TASKS,
    MORE_TASKS,
    PAPER_TASKS,
    AgeCut,
    BenchmarkTask,
    find_task,
)
from fair_tta.datasets._utkface import read_utkface
from fair_tta.datasets._waterbirds import read_waterbirds
from fair_tta.errors import DatasetError

if TYPE_CHECKING:
    from fair_tta.datasets._features import FeatureFile, read_features, read_text_features

__all__ = [
    "MAIN_TASKS",
    "MORE_TASKS",
    "PAPER_TASKS",
    "AgeCut",
    "BenchmarkTask",
    "Dataset",
    "FeatureFile",
    "Padding",
    "Problem",
    "ProblemKind",
    "Problems",
    "Record",
    "Split",
    "find_task",
    "read_celeba",
    "read_dataset",
    "read_fairface",
    "read_features",
    "read_folder",
    "read_text_features",
    "read_utkface",
    "read_waterbirds",
]


def read_dataset(
    task: BenchmarkTask,
    root: str | os.PathLike[str],
    *,
    split: Split | None = None,
    ages: AgeCut = DEFAULT_AGES,
    check_images: bool = True,
) -> Dataset:
    """Read the dataset that a task belongs to.

    Args:
        task: one of `TASKS`, or your own on one of the four datasets.
        root: the folder of the dataset, or one with several datasets by their names.
        split: the part to read; if None the test split of CelebA and Waterbirds, the validation
            split of FairFace (its test split is not public) and all of UTKFace (it has none).
        ages: who is young and who is old, where the task asks for age.
        check_images: whether images must be there; False reads labels only.
    """
    if task.dataset == "CelebA":
        return read_celeba(root, task, split=split or Split.TEST, check_images=check_images)
    if task.dataset == "Waterbirds":
        return read_waterbirds(root, task, split=split or Split.TEST, check_images=check_images)
    if task.dataset == "FairFace":
        part = split or Split.VALIDATION
        return read_fairface(root, task, split=part, ages=ages, check_images=check_images)
    if task.dataset == "UTKFace":
        if split not in (None, Split.ALL):
            raise DatasetError(
                f"`split` should be ALL or None: UTKFace has no splits (got {split})."
            )
        return read_utkface(root, task, ages=ages, check_images=check_images)
    raise DatasetError(
        "`task` should belong to CelebA, FairFace, UTKFace or Waterbirds; for images of your own "
        f"use `read_folder` (got {task.dataset!r})."
    )


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Features need PyTorch: whoever reads labels does not wait for it."""
        if name not in ("FeatureFile", "read_features", "read_text_features"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from fair_tta.datasets import _features

        return getattr(_features, name)
