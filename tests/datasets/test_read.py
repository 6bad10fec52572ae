"""Reading a dataset by its task."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import dataset_fixtures as fixtures
import pytest
from internals import PAPER_TASKS, Split

from fair_tta.datasets import BenchmarkTask, read_dataset
from fair_tta.errors import DatasetError


@pytest.fixture(scope="module")
def all_datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    fixtures.celeba_torchvision(root)
    fixtures.utkface(root / "UTKFace")
    fixtures.fairface(root / "fairface")
    fixtures.waterbirds(root / "waterbird_complete95_forest2water2")
    return root


@pytest.mark.parametrize("task", PAPER_TASKS, ids=str)
def test_every_task_is_read_from_one_folder_of_datasets(
    task: BenchmarkTask, all_datasets: Path
) -> None:
    dataset = read_dataset(task, all_datasets)
    assert dataset.task is task
    assert dataset.name == task.dataset
    (values,) = task.sensitive.values()
    expected_groups = {(target, value) for target in task.targets for value in values}
    assert set(dataset.groups()) == expected_groups
    assert all(record.path.is_file() for record in dataset)
    default = {"FairFace": "validation", "UTKFace": "all"}.get(task.dataset, "test")
    assert dataset.parameters["split"] == default
    has_age = "age" in (task.target, *task.sensitive)
    assert ("young_below" in dataset.parameters) == has_age


@pytest.mark.parametrize("task", [PAPER_TASKS[1], PAPER_TASKS[3]], ids=str)
def test_splits_are_passed_on(task: BenchmarkTask, all_datasets: Path) -> None:
    sizes = {}
    for split in get_args(Split):
        sizes[split] = len(read_dataset(task, all_datasets, split=split))
    assert min(sizes.values()) > 0
    assert sizes.pop("all") == sum(sizes.values())


def test_utkface_has_no_splits(all_datasets: Path) -> None:
    task = BenchmarkTask.find("UTKFace", "gender", "race")
    assert len(read_dataset(task, all_datasets, split="all")) == 48


def test_ages_and_padding_are_passed_on(all_datasets: Path) -> None:
    task = BenchmarkTask.find("UTKFace", "age", "race")
    dataset = read_dataset(task, all_datasets, young_below=20, old_from=60)
    assert {"young_below": 20, "old_from": 60}.items() <= dataset.parameters.items()
    with pytest.raises(DatasetError, match="margin125-trainval/val"):
        read_dataset(PAPER_TASKS[0], all_datasets, padding="wide")
