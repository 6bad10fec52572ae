"""UTKFace: labels in file names."""

from __future__ import annotations

import sys
from pathlib import Path

import dataset_fixtures as fixtures
import pytest
from internals import PAPER_TASKS, AgeCut, Dataset, ProblemKind, read_utkface

from fair_tta.datasets import BenchmarkTask

AGE_RACE = BenchmarkTask.find("UTKFace", "age", "race")
GENDER_RACE = BenchmarkTask.find("UTKFace", "gender", "race")
UTKFACE_TASKS = [task for task in PAPER_TASKS if task.dataset == "UTKFace"]
RACES = ["White", "Black", "Asian", "Indian"]

Labels = dict[str, tuple[str, dict[str, str]]]


def expected_labels(task: BenchmarkTask, young_below: int = 40) -> Labels:
    """Return ``{key: (target, sensitive values)}`` of the fixture."""
    labels = {}
    for age, gender, race, name in fixtures.utkface_names():
        if race < len(RACES):
            values = {
                "age": "young" if age < young_below else "old",
                "gender": "female" if gender else "male",
                "race": RACES[race],
            }
            sensitive = {attribute: values[attribute] for attribute in task.sensitive}
            labels[f"{name}.jpg"] = (values[task.target], sensitive)
    return labels


def labels_of(dataset: Dataset) -> Labels:
    return {record.key: (record.target, dict(record.sensitive)) for record in dataset}


@pytest.mark.parametrize("in_parts", [False, True])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("task", UTKFACE_TASKS, ids=str)
def test_names_hold_the_labels(
    task: BenchmarkTask, aligned: bool, in_parts: bool, tmp_path: Path
) -> None:
    fixtures.utkface(tmp_path, parts=in_parts, aligned=aligned)
    (tmp_path / "Thumbs.db").write_text("not an image")
    (tmp_path / "._1_0_0_20170109150557335.jpg").write_text("left by a Mac")
    dataset = read_utkface(tmp_path, task)
    assert labels_of(dataset) == expected_labels(task)
    assert all(record.path.is_file() for record in dataset)
    problems = dataset.problems
    assert dict(problems.counts) == {
        ProblemKind.OTHER_RACE: 12,
        ProblemKind.MALFORMED_NAME: 3,
    }
    assert problems.examples[ProblemKind.MALFORMED_NAME] == fixtures.UTKFACE_MALFORMED


def test_the_cut_is_a_recorded_parameter(tmp_path: Path) -> None:
    fixtures.utkface(tmp_path)
    assert "young_below" not in read_utkface(tmp_path, GENDER_RACE).parameters
    for cut in (1, 25, 26, 40, 117):
        dataset = read_utkface(tmp_path, AGE_RACE, ages=AgeCut(cut))
        assert labels_of(dataset) == expected_labels(AGE_RACE, cut)
        assert dataset.parameters["young_below"] == cut
        assert dataset.parameters["old_from"] == cut

    dataset = read_utkface(tmp_path, AGE_RACE, ages=AgeCut(11, 40))
    assert {int(r.key.split("_")[0]) for r in dataset} == {1, 40, 41, 116}
    assert dataset.problems.counts[ProblemKind.BETWEEN_AGES] == 16
    assert dataset.parameters["old_from"] == 40
    # Ages in between do not matter where the task is not about age
    assert len(read_utkface(tmp_path, GENDER_RACE, ages=AgeCut(11, 40))) == 48


@pytest.mark.parametrize(
    "name",
    [
        "53__0_20170116184028385.jpg",
        "1_2_0_20170116184028385.jpg",
        "1_0_5_20170116184028385.jpg",
        "-1_0_0_20170116184028385.jpg",
        "1_0_0.jpg",
        "1_0_0_0_20170116184028385.jpg",
        "999_0_0_20170116184028385.jpg",
        "²_0_0_20170116184028385.jpg",
        "cat.jpg",
    ],
)
def test_other_names_are_malformed(name: str, tmp_path: Path) -> None:
    usable = [
        "24_0_1_20170116220224657 .jpg.chip.jpg",
        "55_0_0_20170116232725357jpg.chip.jpg",
    ]
    for file in [name, *usable]:
        (tmp_path / file).touch()
    dataset = read_utkface(tmp_path, GENDER_RACE, check_images=False)
    assert [record.path for record in dataset] == [tmp_path / file for file in usable]
    assert dataset.problems.examples == {ProblemKind.MALFORMED_NAME: (name,)}


def test_an_image_in_several_folders_counts_once(tmp_path: Path) -> None:
    fixtures.utkface(tmp_path / "a_wild", aligned=False, parts=True)
    fixtures.utkface(tmp_path / "crop_part1")
    dataset = read_utkface(tmp_path, AGE_RACE)
    assert len(dataset) == 48
    assert all(record.path.name.endswith(".chip.jpg") for record in dataset)
    assert dataset.problems.counts[ProblemKind.DUPLICATE] == 48


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege")
def test_folders_may_be_links(tmp_path: Path) -> None:
    fixtures.utkface(tmp_path / "disk")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "part1").symlink_to(tmp_path / "disk")
    assert len(read_utkface(tmp_path / "root", AGE_RACE)) == 48


def test_several_sensitive_attributes(tmp_path: Path) -> None:
    sensitive = {
        "gender": {"male": "male", "female": "female"},
        "race": {"White": "w", "Black": "b"},
    }
    task = BenchmarkTask(
        "UTKFace", "age", AGE_RACE.targets, sensitive, AGE_RACE.template
    )
    dataset = read_utkface(fixtures.utkface(tmp_path), task)
    expected = {}
    for age in ("young", "old"):
        for gender in ("male", "female"):
            for race in ("White", "Black"):
                expected[age, gender, race] = 3
    assert dataset.groups() == expected
    # Values that the task does not name are counted
    assert dataset.problems.counts[ProblemKind.UNKNOWN_VALUE] == 24
