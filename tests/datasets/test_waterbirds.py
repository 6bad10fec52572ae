"""Waterbirds: the file's codes against the paper's order."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import dataset_fixtures as fixtures
import pytest
from internals import ProblemKind, Split, read_waterbirds

from fair_tta.datasets import BenchmarkTask

BIRDS = BenchmarkTask.find("Waterbirds", "bird type", "background")
FOLDER = "waterbird_complete95_forest2water2"
CODES = {"train": "0", "validation": "1", "test": "2"}


@pytest.mark.parametrize(
    "subfolder", ["", FOLDER, f"waterbirds/{FOLDER}", "waterbirds_v1.0"]
)
@pytest.mark.parametrize("split", get_args(Split))
def test_labels(subfolder: str, split: Split, tmp_path: Path) -> None:
    base = fixtures.waterbirds(tmp_path / subfolder)
    expected = []
    with (base / "metadata.csv").open() as file:
        for row in csv.DictReader(file):
            if row["split"] == CODES.get(split, row["split"]):
                bird = "water bird" if row["y"] == "1" else "land bird"
                background = "water" if row["place"] == "1" else "land"
                name = row["img_filename"]
                expected.append((base / name, name, bird, {"background": background}))
    dataset = read_waterbirds(tmp_path, BIRDS, split=split)
    assert [(r.path, r.key, r.target, r.sensitive) for r in dataset] == expected
    assert dataset.problems.lost == 0
    assert dataset.parameters == {"split": split}


def test_a_dataset_is_summarised(tmp_path: Path) -> None:
    dataset = read_waterbirds(fixtures.waterbirds(tmp_path), BIRDS)
    assert str(dataset) == (
        "Waterbirds bird type x background: 7 records (split test)\n"
        "1 x file does not have the official number of rows (records kept): "
        "metadata.csv: 15 instead of 11788"
    )


def damage(root: Path, cells: Mapping[tuple[int, int], str]) -> None:
    """Write numbers as floats, and some cells by their row and column."""
    labels = root / "metadata.csv"
    rows: list[list[str]] = []
    for line in labels.read_text().splitlines():
        row = line.split(",")
        if rows:  # below the header
            row[2:5] = [f"{value.removesuffix('.0')}.0" for value in row[2:5]]
        rows.append(row)
    for (row_index, column), text in cells.items():
        rows[row_index][column] = text
    fixtures.write_csv(labels, rows)


def test_floats_and_odd_values(tmp_path: Path) -> None:
    expected = read_waterbirds(fixtures.waterbirds(tmp_path), BIRDS).records
    damage(tmp_path, {})
    assert read_waterbirds(tmp_path, BIRDS).records == expected
    damage(tmp_path, {(9, 2): "2", (10, 4): "", (11, 1): ""})
    dataset = read_waterbirds(tmp_path, BIRDS)
    assert dataset.records == expected[3:]
    assert dataset.problems.counts[ProblemKind.UNKNOWN_VALUE] == 1
    assert dataset.problems.counts[ProblemKind.MISSING_VALUE] == 2


def test_unknown_splits_are_problems(tmp_path: Path) -> None:
    expected = read_waterbirds(fixtures.waterbirds(tmp_path), BIRDS).records
    damage(tmp_path, {(9, 3): "test", (10, 3): ""})
    dataset = read_waterbirds(tmp_path, BIRDS)
    assert dataset.records == expected[2:]
    examples = dataset.problems.examples
    first, second = expected[0].key, expected[1].key
    assert examples[ProblemKind.UNKNOWN_VALUE] == (f"{first} (split 'test')",)
    assert examples[ProblemKind.MISSING_VALUE] == (f"{second} (split '')",)
    assert len(read_waterbirds(tmp_path, BIRDS, split="all")) == 15


def test_missing_images(tmp_path: Path) -> None:
    fixtures.waterbirds(tmp_path)
    name = "015.Some_Bird/Some_Bird_0015.jpg"
    (tmp_path / name).unlink()
    dataset = read_waterbirds(tmp_path, BIRDS)
    assert len(dataset) == 6
    assert dataset.problems.examples[ProblemKind.MISSING_IMAGE] == (name,)
    assert len(read_waterbirds(tmp_path, BIRDS, check_images=False)) == 7
