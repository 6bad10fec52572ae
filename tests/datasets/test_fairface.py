"""FairFace: paddings, prefixes and spreadsheets."""

from __future__ import annotations

from pathlib import Path

import dataset_fixtures as fixtures
import pytest
from internals import (
    PAPER_TASKS,
    AgeCut,
    Dataset,
    Padding,
    ProblemKind,
    bracket_of,
    read_fairface,
)

from fair_tta.datasets import BenchmarkTask
from fair_tta.errors import DatasetError

AGE_RACE = BenchmarkTask.find("FairFace", "age", "race")
GENDER_RACE = BenchmarkTask.find("FairFace", "gender", "race")
NARROW = "fairface-img-margin025-trainval"
WIDE = "fairface-img-margin125-trainval"
MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
YOUNG = ("0-2", "3-9", "10-19", "20-29", "30-39")

Labels = dict[str, tuple[str, dict[str, str]]]


def expected_labels(task: BenchmarkTask) -> Labels:
    """Return ``{key: (target, sensitive values)}`` of the fixture's validation split."""
    labels = {}
    for file, age, gender, race, _ in fixtures.fairface_rows("val"):
        values = {
            "age": "young" if age in YOUNG else "old",
            "gender": gender.lower(),
            "race": race.replace("_", " "),
        }
        sensitive = {attribute: values[attribute] for attribute in task.sensitive}
        labels[file] = (values[task.target], sensitive)
    return labels


def labels_of(dataset: Dataset) -> Labels:
    return {record.key: (record.target, dict(record.sensitive)) for record in dataset}


@pytest.mark.parametrize("images", ["", "fairface", NARROW, WIDE])
@pytest.mark.parametrize("prefix", ["", "fairface/"])
def test_layouts(images: str, prefix: str, tmp_path: Path) -> None:
    fixtures.fairface(tmp_path, images=images, prefix=prefix)
    for task in PAPER_TASKS:
        if task.dataset != "FairFace":
            continue
        dataset = read_fairface(tmp_path, task)
        assert labels_of(dataset) == expected_labels(task)
        assert all(r.path == tmp_path / images / r.key for r in dataset)
        assert dataset.parameters["images"] == (images or ".")
        detail = "fairface_label_val.csv: 126 instead of 10954"
        assert dataset.problems.examples == {ProblemKind.PARTIAL: (detail,)}
    assert len(read_fairface(tmp_path, AGE_RACE, check_images=False)) == 126


def test_splits(tmp_path: Path) -> None:
    folder = tmp_path / "fairface"
    fixtures.fairface(folder)
    train = read_fairface(tmp_path, GENDER_RACE, split="train")
    both = read_fairface(tmp_path, GENDER_RACE, split="all")
    assert [record.key for record in train] == [f"train/{i}.jpg" for i in range(1, 8)]
    assert len(both) == 7 + 126
    assert both.problems.counts[ProblemKind.PARTIAL] == 2
    (folder / "fairface_label_train.csv").rename(folder / "train_labels.csv")
    renamed = read_fairface(tmp_path, GENDER_RACE, split="train")
    assert renamed.records == train.records


def test_paddings_are_chosen_and_recorded(tmp_path: Path) -> None:
    fixtures.fairface(tmp_path, images=NARROW)
    fixtures.fairface(tmp_path, images=WIDE)
    choices: list[tuple[Padding | None, str]] = [
        (None, NARROW),
        ("narrow", NARROW),
        ("wide", WIDE),
    ]
    for padding, folder in choices:
        dataset = read_fairface(tmp_path, AGE_RACE, padding=padding)
        assert dataset.parameters["images"] == folder
        assert all(folder in record.path.parts for record in dataset)


DATES = {
    "3-9": "3-sep 03-sep sep-03 3.sep 2023-09-03 9-mar 09-mar mar-09 9.march 2023-03-09",
    "10-19": "19-oct oct-19 19.oct 2023-10-19 2019-10-01",
}


def test_dates_go_back_to_the_bracket_they_were() -> None:
    for bracket, dates in DATES.items():
        for date in dates.split():
            assert bracket_of(date) == bracket, date
            assert bracket_of(date.upper()) == bracket
            assert bracket_of(date.replace(".", ". ")) == bracket
            if date[:2] == "20":
                assert bracket_of(f"{date} 00:00:00") == bracket
    for bracket in fixtures.FAIRFACE_AGES:
        assert bracket_of(bracket) == bracket
        assert bracket_of(f" {bracket.upper()} ") == bracket
    assert bracket_of("20\N{EN DASH}29") == "20-29"


def test_other_dates_are_no_brackets() -> None:
    known = " ".join(DATES.values()).split()
    for month, name in enumerate(MONTHS, start=1):
        for day in range(1, 100):
            dates = [f"{day}-{name}", f"{name}-{day:02}", f"2023-{month:02}-{day:02}"]
            for date in dates:
                assert (bracket_of(date) is not None) == (date in known), date
    other = ",35,3-90,29-20,1-0-2,2-Foo,70,nan,43716,3-9-2023,2018-10-01"
    for text in other.split(","):
        assert bracket_of(text) is None


def damage(root: Path, ages: dict[str, str]) -> None:
    labels = root / "fairface_label_val.csv"
    rows = [line.split(",") for line in labels.read_text().splitlines()]
    for row in rows:
        row[1] = ages.get(row[1], row[1])
    fixtures.write_csv(labels, rows)


def test_damaged_ages_are_repaired_and_counted(tmp_path: Path) -> None:
    fixtures.fairface(tmp_path)
    damage(tmp_path, {"3-9": "03-Sep", "10-19": "Oct-19"})
    dataset = read_fairface(tmp_path, AGE_RACE)
    assert labels_of(dataset) == expected_labels(AGE_RACE)
    assert dataset.problems.counts[ProblemKind.REPAIRED_AGE] == 28
    assert dataset.problems.lost == 0
    assert "val/15.jpg (03-Sep is 3-9)" in str(dataset.problems)
    # Nothing is repaired where the task is not about age
    without_age = read_fairface(tmp_path, GENDER_RACE)
    assert ProblemKind.REPAIRED_AGE not in without_age.problems.counts
    assert len(without_age) == 126


def test_unreadable_ages_leave_their_record_out(tmp_path: Path) -> None:
    fixtures.fairface(tmp_path)
    damage(tmp_path, {"3-9": "43716", "10-19": "", "20-29": "young"})
    dataset = read_fairface(tmp_path, AGE_RACE)
    assert len(dataset) == 126 - 3 * 14
    assert dataset.problems.counts[ProblemKind.UNKNOWN_VALUE] == 28
    assert dataset.problems.counts[ProblemKind.MISSING_VALUE] == 14
    assert len(read_fairface(tmp_path, GENDER_RACE)) == 126


def test_the_cut_goes_between_brackets(tmp_path: Path) -> None:
    fixtures.fairface(tmp_path)
    dataset = read_fairface(tmp_path, AGE_RACE, ages=AgeCut(20, 60))
    assert {target for target, _ in dataset.groups()} == {"young", "old"}
    assert len(dataset) == 14 * 5
    assert dataset.problems.counts[ProblemKind.BETWEEN_AGES] == 14 * 4
    assert {"young_below": 20, "old_from": 60}.items() <= dataset.parameters.items()
    for limit in (3, 10, 70):
        assert len(read_fairface(tmp_path, AGE_RACE, ages=AgeCut(limit))) == 126
    for limits in ((35,), (1,), (71,), (40, 45)):
        ages = AgeCut(*limits)
        with pytest.raises(DatasetError):
            read_fairface(tmp_path, AGE_RACE, ages=ages)
        assert len(read_fairface(tmp_path, GENDER_RACE, ages=ages)) == 126


def test_odd_rows_and_columns(tmp_path: Path) -> None:
    fixtures.fairface(tmp_path)
    labels = tmp_path / "fairface_label_val.csv"
    rows = [line.split(",") for line in labels.read_text().splitlines()]
    for row in rows:
        row.insert(2, "another column")
    rows[1][0] = ""
    rows[2][4] = "Martian"
    rows[3][3] = ""
    rows[4][0] = "val\\4.jpg"
    rows[5][0] = "5.jpg"
    rows[6] = rows[6][:3]
    (tmp_path / "val" / "7.jpg").unlink()
    fixtures.write_csv(labels, rows)
    dataset = read_fairface(tmp_path, GENDER_RACE)
    usable = [4, 5, *range(8, 127)]
    assert [record.key for record in dataset] == [f"val/{i}.jpg" for i in usable]
    assert dict(dataset.problems.counts) == {
        ProblemKind.MISSING_VALUE: 2,
        ProblemKind.UNKNOWN_VALUE: 1,
        ProblemKind.MALFORMED_ROW: 1,
        ProblemKind.MISSING_IMAGE: 1,
        ProblemKind.PARTIAL: 1,
    }
