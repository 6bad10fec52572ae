"""UTKFace: labels in file names."""

from __future__ import annotations

import sys
from pathlib import Path

import dataset_fixtures as made
import pytest
from internals import PAPER_TASKS, AgeCut, ProblemKind, read_utkface

from fair_tta import FairTTAError
from fair_tta.datasets import BenchmarkTask
from fair_tta.errors import DatasetError

AGE_RACE = BenchmarkTask.find("UTKFace", "age", "race")
GENDER_RACE = BenchmarkTask.find("UTKFace", "gender", "race")
RACES = ["White", "Black", "Asian", "Indian"]


def expected(
    task: BenchmarkTask, cut: int = 40
) -> dict[str, tuple[str, dict[str, str]]]:
    found = {}
    for age, gender, race, name in made.utkface_names():
        if race < 4:
            values = {
                "age": "young" if age < cut else "old",
                "gender": "female" if gender else "male",
                "race": RACES[race],
            }
            found[f"{name}.jpg"] = (
                values[task.target],
                {s: values[s] for s in task.sensitive},
            )
    return found


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize(
    "task", [t for t in PAPER_TASKS if t.dataset == "UTKFace"], ids=str
)
def test_names_tell_the_labels(
    task: BenchmarkTask, aligned: bool, parts: bool, tmp_path: Path
) -> None:
    made.utkface(tmp_path, parts=parts, aligned=aligned)
    (tmp_path / "Thumbs.db").write_text("not a picture")
    (tmp_path / "._1_0_0_20170109150557335.jpg").write_text("left by a Mac")
    dataset = read_utkface(tmp_path, task)
    assert {r.key: (r.target, dict(r.sensitive)) for r in dataset} == expected(task)
    assert all(r.path.is_file() for r in dataset)
    assert dict(dataset.problems.counts) == {
        ProblemKind.OTHER_RACE: 12,
        ProblemKind.MALFORMED_NAME: 3,
    }
    assert (
        dataset.problems.examples[ProblemKind.MALFORMED_NAME] == made.UTKFACE_MALFORMED
    )


def test_the_summary_is_short(tmp_path: Path) -> None:
    lines = str(read_utkface(made.utkface(tmp_path), GENDER_RACE).problems).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(
        "12 x race is 'Others', which is not one of the paper's four: 116_"
    )
    assert lines[0].endswith("; ...")
    assert lines[1] == (
        "3 x file name does not hold age, gender and race: "
        + "; ".join(made.UTKFACE_MALFORMED)
    )


def test_the_cut_is_a_recorded_parameter(tmp_path: Path) -> None:
    made.utkface(tmp_path)
    young = {"young_below": 40, "old_from": 40}
    assert young.items() <= read_utkface(tmp_path, AGE_RACE).parameters.items()
    assert "young_below" not in read_utkface(tmp_path, GENDER_RACE).parameters
    for cut in (1, 25, 26, 117):
        dataset = read_utkface(tmp_path, AGE_RACE, ages=AgeCut(cut))
        labels = {r.key: (r.target, dict(r.sensitive)) for r in dataset}
        assert labels == expected(AGE_RACE, cut)
        assert dataset.parameters["young_below"] == cut

    dataset = read_utkface(tmp_path, AGE_RACE, ages=AgeCut(11, 40))
    assert {int(r.key.split("_")[0]) for r in dataset} == {1, 40, 41, 116}
    assert dataset.problems.counts[ProblemKind.BETWEEN_AGES] == 16
    assert dataset.parameters["old_from"] == 40
    # who is in between does not matter where age is not asked for
    assert len(read_utkface(tmp_path, GENDER_RACE, ages=AgeCut(11, 40))) == 48


def test_cuts_are_checked() -> None:
    with pytest.raises(
        FairTTAError, match=r"`young_below` should be at least 1 \(got 0\)\."
    ):
        AgeCut(0)
    with pytest.raises(
        FairTTAError, match=r"`old_from` should be at least `young_below`, 40 \(g"
    ):
        AgeCut(40, 39)


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
        "IMG_0001.jpg",
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
    assert [r.path for r in dataset] == [tmp_path / file for file in usable]
    assert dataset.problems.to_dict() == {
        ProblemKind.MALFORMED_NAME.value: {"count": 1, "examples": [name]}
    }


def test_an_image_in_several_folders_counts_once(tmp_path: Path) -> None:
    made.utkface(tmp_path / "a_wild", aligned=False, parts=True)
    made.utkface(tmp_path / "crop_part1")
    dataset = read_utkface(tmp_path, AGE_RACE)
    assert len(dataset) == 48
    assert all(r.path.name.endswith(".chip.jpg") for r in dataset)
    assert dataset.problems.counts[ProblemKind.DUPLICATE] == 48


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege")
def test_folders_may_be_links(tmp_path: Path) -> None:
    made.utkface(tmp_path / "disk")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "part1").symlink_to(tmp_path / "disk")
    assert len(read_utkface(tmp_path / "root", AGE_RACE)) == 48


def test_empty_files_and_nothing_usable(tmp_path: Path) -> None:
    made.utkface(tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with pytest.raises(
        DatasetError, match=r"UTKFace: no usable record in(?s:.*)48 x image file i"
    ):
        read_utkface(tmp_path, AGE_RACE)


def test_several_sensitive_attributes(tmp_path: Path) -> None:
    task = BenchmarkTask(
        "UTKFace",
        "age",
        AGE_RACE.targets,
        {
            "gender": {"male": "male", "female": "female"},
            "race": {"White": "w", "Black": "b"},
        },
        AGE_RACE.template,
    )
    dataset = read_utkface(made.utkface(tmp_path), task)
    groups = dataset.groups()
    assert groups == {
        (age, gender, race): 3
        for age in ("young", "old")
        for gender in ("male", "female")
        for race in ("White", "Black")
    }
    # values that the task does not name are counted
    assert dataset.problems.counts[ProblemKind.UNKNOWN_VALUE] == 24
