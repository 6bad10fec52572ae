"""Waterbirds: the file's coding against the paper's order."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import get_args

import dataset_fixtures as made
import pytest
from internals import ProblemKind, Split, read_waterbirds

from fair_tta.datasets import BenchmarkTask
from fair_tta.errors import DatasetError

BIRDS = BenchmarkTask.find("Waterbirds", "bird type", "background")
FOLDER = "waterbird_complete95_forest2water2"
CODES = {"train": "0", "validation": "1", "test": "2"}


@pytest.mark.parametrize(
    "below", ["", FOLDER, f"waterbirds/{FOLDER}", "waterbirds_v1.0"]
)
@pytest.mark.parametrize("split", get_args(Split))
def test_labels(below: str, split: Split, tmp_path: Path) -> None:
    base = made.waterbirds(tmp_path / below)
    dataset = read_waterbirds(tmp_path, BIRDS, split=split)
    with (base / "metadata.csv").open() as file:
        rows = [
            r
            for r in csv.DictReader(file)
            if r["split"] == CODES.get(split, r["split"])
        ]
    assert [(r.key, r.target, dict(r.sensitive)) for r in dataset] == [
        (
            r["img_filename"],
            "water bird" if r["y"] == "1" else "land bird",
            {"background": "water" if r["place"] == "1" else "land"},
        )
        for r in rows
    ]
    assert all(r.path == base / r.key for r in dataset)
    counts = Counter((r["y"], r["place"]) for r in rows)
    assert dataset.groups()["water bird", "water"] == counts["1", "1"]
    assert dataset.groups()["land bird", "water"] == counts["0", "1"]
    assert dataset.problems.lost == 0


def test_the_default_is_the_test_split_and_water_comes_first(tmp_path: Path) -> None:
    dataset = read_waterbirds(made.waterbirds(tmp_path), BIRDS)
    assert dataset.parameters == {"split": "test"}
    assert dataset.task is not None
    assert list(dataset.task.targets) == ["water bird", "land bird"]
    assert list(dataset.task.sensitive["background"]) == ["water", "land"]
    assert str(dataset).splitlines()[0] == (
        "Waterbirds bird type x background: 7 records (split test)"
    )
    assert "metadata.csv: 15 instead of 11788" in str(dataset)


def test_floats_and_odd_values(tmp_path: Path) -> None:
    made.waterbirds(tmp_path)
    expected = read_waterbirds(tmp_path, BIRDS).records
    labels = tmp_path / "metadata.csv"
    rows = [line.split(",") for line in labels.read_text().splitlines()]
    for row in rows[1:]:
        row[2:5] = [f"{value}.0" for value in row[2:5]]
    made.write_csv(labels, rows)
    assert read_waterbirds(tmp_path, BIRDS).records == expected
    rows[9][2], rows[10][4], rows[11][1] = "2", "", ""
    made.write_csv(labels, rows)
    dataset = read_waterbirds(tmp_path, BIRDS)
    assert dataset.records == expected[3:]
    assert dataset.problems.counts[ProblemKind.UNKNOWN_VALUE] == 1
    assert dataset.problems.counts[ProblemKind.MISSING_VALUE] == 2


def test_splits_that_are_none_are_counted(tmp_path: Path) -> None:
    made.waterbirds(tmp_path)
    expected = read_waterbirds(tmp_path, BIRDS).records
    labels = tmp_path / "metadata.csv"
    rows = [line.split(",") for line in labels.read_text().splitlines()]
    rows[9][3], rows[10][3] = "test", ""
    made.write_csv(labels, rows)
    dataset = read_waterbirds(tmp_path, BIRDS)
    assert dataset.records == expected[2:]
    kinds = ProblemKind.UNKNOWN_VALUE, ProblemKind.MISSING_VALUE
    names = expected[0].key, expected[1].key
    assert [dataset.problems.examples[kind] for kind in kinds] == [
        (f"{names[0]} (split 'test')",),
        (f"{names[1]} (split '')",),
    ]
    assert len(read_waterbirds(tmp_path, BIRDS, split="all")) == len(rows) - 1


def test_missing_images_and_columns(tmp_path: Path) -> None:
    made.waterbirds(tmp_path)
    (tmp_path / "015.Some_Bird" / "Some_Bird_0015.jpg").unlink()
    dataset = read_waterbirds(tmp_path, BIRDS)
    assert len(dataset) == 6
    assert dataset.problems.examples[ProblemKind.MISSING_IMAGE] == (
        "015.Some_Bird/Some_Bird_0015.jpg",
    )
    assert len(read_waterbirds(tmp_path, BIRDS, check_images=False)) == 7
    labels = tmp_path / "metadata.csv"
    labels.write_text(labels.read_text().replace("place,", "background,", 1))
    with pytest.raises(
        DatasetError, match=r"(?s)lacks \['place'\] \(it has .*group_DRO.*DIR/"
    ):
        read_waterbirds(tmp_path, BIRDS)
    labels.unlink()
    with pytest.raises(
        DatasetError, match=r"has no metadata.csv \(it has 001.Some_Bird, 002.*\.\)"
    ):
        read_waterbirds(tmp_path, BIRDS)
