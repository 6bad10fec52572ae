"""FairFace: paddings, prefixes and spreadsheets."""

from __future__ import annotations

import datetime
from pathlib import Path

import dataset_fixtures as made
import pytest
from internals import (
    PAPER_TASKS,
    AgeCut,
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
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()


def expected(task: BenchmarkTask) -> dict[str, tuple[str, dict[str, str]]]:
    found = {}
    for file, age, gender, race, _ in made.fairface_rows("val"):
        values = {
            "age": "young"
            if age in ("0-2", "3-9", "10-19", "20-29", "30-39")
            else "old",
            "gender": {"Male": "male", "Female": "female"}[gender],
            "race": "Latino Hispanic" if race == "Latino_Hispanic" else race,
        }
        found[file] = (values[task.target], {s: values[s] for s in task.sensitive})
    return found


@pytest.mark.parametrize("images", ["", "fairface", NARROW, WIDE])
@pytest.mark.parametrize("prefix", ["", "fairface/"])
def test_layouts(images: str, prefix: str, tmp_path: Path) -> None:
    made.fairface(tmp_path, images=images, prefix=prefix)
    for task in PAPER_TASKS:
        if task.dataset == "FairFace":
            dataset = read_fairface(tmp_path, task)
            assert {r.key: (r.target, dict(r.sensitive)) for r in dataset} == expected(
                task
            )
            assert all(r.path == tmp_path / images / r.key for r in dataset)
            assert dataset.parameters["images"] == (images or ".")
            assert dataset.problems.to_dict() == {
                ProblemKind.PARTIAL.value: {
                    "count": 1,
                    "examples": ["fairface_label_val.csv: 126 instead of 10954"],
                }
            }
    labels = read_fairface(tmp_path, AGE_RACE, check_images=False)
    assert len(labels) == 126


def test_splits(tmp_path: Path) -> None:
    made.fairface(tmp_path / "fairface")
    train = read_fairface(tmp_path, GENDER_RACE, split="train")
    both = read_fairface(tmp_path, GENDER_RACE, split="all")
    assert [r.key for r in train] == [f"train/{i}.jpg" for i in range(1, 8)]
    assert len(both) == 7 + 126
    assert both.problems.counts[ProblemKind.PARTIAL] == 2
    with pytest.raises(
        DatasetError,
        match=r"`split` should not be 'test': the test split of FairFace is not",
    ):
        read_fairface(tmp_path, GENDER_RACE, split="test")
    (tmp_path / "fairface" / "fairface_label_train.csv").rename(
        tmp_path / "fairface" / "train_labels.csv"
    )
    renamed = read_fairface(tmp_path, GENDER_RACE, split="train")
    assert renamed.records == train.records
    (tmp_path / "fairface" / "train_labels.csv").unlink()
    with pytest.raises(
        DatasetError, match=r"has no fairface_label_train.csv or train_labels.csv"
    ):
        read_fairface(tmp_path, GENDER_RACE, split="all")


def test_paddings_are_chosen_and_recorded(tmp_path: Path) -> None:
    made.fairface(tmp_path, images=NARROW)
    made.fairface(tmp_path, images=WIDE)
    assert read_fairface(tmp_path, AGE_RACE).parameters["images"] == NARROW
    wide = read_fairface(tmp_path, AGE_RACE, padding="wide")
    assert wide.parameters["images"] == WIDE
    assert all(WIDE in r.path.parts for r in wide)
    made.fairface(tmp_path / "one", images=WIDE)
    with pytest.raises(
        DatasetError, match=r"has no folder fairface-img-margin025-trainval/val\."
    ):
        read_fairface(tmp_path / "one", AGE_RACE, padding="narrow")
    (tmp_path / "one" / WIDE).rename(tmp_path / "pictures")
    with pytest.raises(
        DatasetError, match=r"has no folder val\.\nNothing is downloaded(?s:.*)DIR"
    ):
        read_fairface(tmp_path / "one", AGE_RACE)


def dates(bracket: str) -> list[str]:
    """What spreadsheets make of a bracket: the day and month, or month and year, it looks like."""
    numbers = [int(number) for number in bracket.split("-")]
    found: list[str] = []
    for month, other in (numbers, reversed(numbers)):
        if not 1 <= month <= 12 or other == 0:
            continue
        name = MONTHS[month - 1]
        try:
            datetime.date(2023, month, other)
        except ValueError:
            continue
        found += [
            f"{other}-{name}",
            f"{other:02}-{name}",
            f"{name}-{other:02}",
            f"{other}. {name}",
        ]
        found += [f"2023-{month:02}-{other:02}", f"2023-{month:02}-{other:02} 00:00:00"]
    if numbers[1] == 19:
        found += [f"{MONTHS[numbers[0] - 1]}-19", f"2019-{numbers[0]:02}-01"]
    return found


def test_dates_go_back_to_the_bracket_they_were() -> None:
    damaged = {text: age for age in made.FAIRFACE_AGES[:8] for text in dates(age)}
    assert {"03-Sep", "3-Sep", "9-Mar", "Oct-19", "19-Oct"} <= set(damaged)
    assert set(damaged.values()) == {"3-9", "10-19"}
    for text, age in damaged.items():
        assert bracket_of(text) == bracket_of(text.upper()) == age, text
    for age in made.FAIRFACE_AGES:
        assert bracket_of(age) == bracket_of(f" {age.upper()} ") == age
    assert bracket_of("20\N{EN DASH}29") == "20-29"


def test_no_other_date_becomes_a_bracket() -> None:
    fine = {text for age in made.FAIRFACE_AGES[:8] for text in dates(age)}
    for month, name in enumerate(MONTHS, 1):
        for day in range(1, 100):
            for text in (
                f"{day}-{name}",
                f"{name}-{day:02}",
                f"2022-{month:02}-{day:02}",
            ):
                same = text.replace("2022", "2023")
                assert (bracket_of(text) is not None) == (same in fine), text
    for text in (
        "",
        "35",
        "3-90",
        "29-20",
        "1-0-2",
        "2-Foo",
        "70",
        "nan",
        "43716",
        "3-9-2023",
    ):
        assert bracket_of(text) is None


def damage(root: Path, ages: dict[str, str]) -> None:
    labels = root / "fairface_label_val.csv"
    rows = [line.split(",") for line in labels.read_text().splitlines()]
    rows = [[r[0], ages.get(r[1], r[1]), r[2], r[3], r[4].upper()] for r in rows]
    made.write_csv(labels, rows)


def test_damaged_ages_are_repaired_and_counted(tmp_path: Path) -> None:
    made.fairface(tmp_path)
    damage(tmp_path, {"3-9": "03-Sep", "10-19": "Oct-19"})
    dataset = read_fairface(tmp_path, AGE_RACE)
    assert {r.key: (r.target, dict(r.sensitive)) for r in dataset} == expected(AGE_RACE)
    assert dataset.problems.counts[ProblemKind.REPAIRED_AGE] == 28
    assert dataset.problems.lost == 0
    assert "val/15.jpg (03-Sep is 3-9)" in str(dataset.problems)
    # where age is not asked for there is nothing to repair
    other = read_fairface(tmp_path, GENDER_RACE)
    assert ProblemKind.REPAIRED_AGE not in other.problems.counts
    assert len(other) == 126


def test_ages_that_mean_nothing_leave_their_record_out(tmp_path: Path) -> None:
    made.fairface(tmp_path)
    damage(tmp_path, {"3-9": "43716", "10-19": "", "20-29": "young"})
    dataset = read_fairface(tmp_path, AGE_RACE)
    assert len(dataset) == 126 - 3 * 14
    assert dataset.problems.counts[ProblemKind.UNKNOWN_VALUE] == 28
    assert dataset.problems.counts[ProblemKind.MISSING_VALUE] == 14
    assert "(age '43716')" in str(dataset.problems)
    assert len(read_fairface(tmp_path, GENDER_RACE)) == 126


def test_the_cut_goes_between_brackets(tmp_path: Path) -> None:
    made.fairface(tmp_path)
    dataset = read_fairface(tmp_path, AGE_RACE, ages=AgeCut(20, 60))
    assert {y for y, _ in dataset.groups()} == {"young", "old"}
    assert len(dataset) == 14 * 5
    assert dataset.problems.counts[ProblemKind.BETWEEN_AGES] == 14 * 4
    assert {"young_below": 20, "old_from": 60}.items() <= dataset.parameters.items()
    for bad in (AgeCut(35), AgeCut(1), AgeCut(71), AgeCut(40, 45)):
        with pytest.raises(
            DatasetError, match=r"`ages` should cut between the brackets of FairFa"
        ):
            read_fairface(tmp_path, AGE_RACE, ages=bad)
        assert len(read_fairface(tmp_path, GENDER_RACE, ages=bad)) == 126
    for good in (AgeCut(3), AgeCut(10), AgeCut(70)):
        assert len(read_fairface(tmp_path, AGE_RACE, ages=good)) == 126


def test_odd_rows_and_columns(tmp_path: Path) -> None:
    made.fairface(tmp_path)
    labels = tmp_path / "fairface_label_val.csv"
    rows = [line.split(",") for line in labels.read_text().splitlines()]
    rows[1][0], rows[2][3], rows[3][2] = "", "Martian", ""
    rows[4][0] = "val\\4.jpg"
    rows[5][0] = "5.jpg"
    rows[6] = rows[6][:3]
    (tmp_path / "val" / "7.jpg").unlink()
    with_extra = [[*row[:2], "x", *row[2:]] if len(row) == 5 else row for row in rows]
    made.write_csv(labels, with_extra)
    dataset = read_fairface(tmp_path, GENDER_RACE)
    assert [r.key for r in dataset] == ["val/4.jpg", "val/5.jpg"] + [
        f"val/{i}.jpg" for i in range(8, 127)
    ]
    assert dict(dataset.problems.counts) == {
        ProblemKind.MISSING_VALUE: 2,
        ProblemKind.UNKNOWN_VALUE: 1,
        ProblemKind.MALFORMED_ROW: 1,
        ProblemKind.MISSING_IMAGE: 1,
        ProblemKind.PARTIAL: 1,
    }
    labels.write_text("file,age,sex\nval/1.jpg,3-9,Male\n")
    with pytest.raises(
        DatasetError, match=r"but lacks \['gender', 'race'\] \(it has \['file', "
    ):
        read_fairface(tmp_path, GENDER_RACE)
