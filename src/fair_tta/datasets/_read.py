"""One reader for the paper's four datasets."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import get_args

from fair_tta.datasets._celeba import read_celeba
from fair_tta.datasets._fairface import Padding, read_fairface
from fair_tta.datasets._records import Dataset, Split
from fair_tta.datasets._tasks import AgeCut, BenchmarkTask
from fair_tta.datasets._utkface import read_utkface
from fair_tta.datasets._waterbirds import read_waterbirds
from fair_tta.errors import DatasetError


def read_dataset(
    task: BenchmarkTask,
    root: str | os.PathLike[str],
    *,
    split: Split | None = None,
    young_below: int = 40,
    old_from: int | None = None,
    padding: Padding | None = None,
    check_images: bool = True,
) -> Dataset:
    """Read the dataset that a task belongs to.

    The dataset has ``records``, the images that can be used, each with its ``path``, ``target`` and
    ``sensitive`` values; ``problems``, the rows that were left out or repaired; ``parameters``, the
    choices behind it; and ``sample(k, seed)``, which draws k of its records at random.

    The paper does not state who is young and who is old, and public code has no common rule: some
    takes 20 and over against 10 and under, some makes three groups with cuts at 20 and 40. 40 is an
    edge of FairFace's brackets, so one cut serves both datasets with ages.

    Args:
        task: from `BenchmarkTask.find`, or your own on one of the four datasets.
        root: the folder of the dataset, or one with several datasets by their names.
        split: the part to read; if None the test split of CelebA and Waterbirds, the validation
            split of FairFace (its test split is not public) and all of UTKFace (it has none).
        young_below: where the task is about age, the young are younger than this, in years.
        old_from: the old are at least this old, and anyone in between is left out and counted;
            `young_below` if None.
        padding: the set of FairFace's images; if None the narrow one (the usual choice) before
            the wide one. The choice is recorded.
        check_images: whether images must be there; False reads labels only.
    """
    _check_choice("split", split, get_args(Split))
    ages = AgeCut(young_below, old_from)
    if task.dataset == "FairFace":
        _check_choice("padding", padding, get_args(Padding))
        return read_fairface(
            root,
            task,
            split=split or "validation",
            ages=ages,
            padding=padding,
            check_images=check_images,
        )

    # The others have one set of images and, if no split is chosen, their usual one
    if padding is not None:
        raise DatasetError(
            f"`padding` should be None: only FairFace has two sets of images (got {padding!r}).",
            argument="padding",
        )
    if task.dataset == "CelebA":
        return read_celeba(root, task, split=split or "test", check_images=check_images)
    if task.dataset == "Waterbirds":
        return read_waterbirds(
            root, task, split=split or "test", check_images=check_images
        )
    if task.dataset == "UTKFace":
        if split not in (None, "all"):
            raise DatasetError(
                f"`split` should be 'all' or None: UTKFace has no splits (got {split!r}).",
                argument="split",
            )
        return read_utkface(root, task, ages=ages, check_images=check_images)
    raise DatasetError(
        "`task` should belong to CelebA, FairFace, UTKFace or Waterbirds; for images of your own "
        f"use `read_folder` (got {task.dataset!r}).",
        argument="task",
    )


def _check_choice(name: str, choice: str | None, choices: Collection[str]) -> None:
    if choice is not None and choice not in choices:
        raise DatasetError(
            f"`{name}` should be one of {', '.join(choices)} (got {choice!r}).",
            argument=name,
        )
