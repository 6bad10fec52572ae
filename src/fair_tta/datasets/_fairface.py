"""FairFace: faces balanced over seven races (Karkkainen and Joo, 2021)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path, PurePosixPath

from fair_tta.datasets._label_files import LabelTable
from fair_tta.datasets._records import Dataset, Problem, ProblemKind, Record, Split
from fair_tta.datasets._source import Source, record_of_task, value_problem
from fair_tta.datasets._tasks import DEFAULT_AGES, RACES_7, AgeCut, BenchmarkTask
from fair_tta.errors import DatasetError

FAIRFACE = Source(
    "FairFace",
    "https://github.com/joojs/fairface",
    """\
DIR/fairface/                                   or DIR itself
    fairface_label_val.csv                      file, age, gender, race
    fairface_label_train.csv                    only if that split is read
    fairface-img-margin025-trainval/val/*.jpg   or margin125, or val/ itself""",
)


class Padding(Enum):
    """The margin around faces in FairFace's images: values are names of folders."""

    NARROW = "fairface-img-margin025-trainval"
    WIDE = "fairface-img-margin125-trainval"


BRACKETS: dict[str, tuple[int, float]] = {
    "0-2": (0, 2),
    "3-9": (3, 9),
    "10-19": (10, 19),
    "20-29": (20, 29),
    "30-39": (30, 39),
    "40-49": (40, 49),
    "50-59": (50, 59),
    "60-69": (60, 69),
    "more than 70": (70, float("inf")),
}
"""The ages that FairFace distinguishes: the youngest and oldest of each bracket."""

PEOPLE = ("race and gender", "race, gender or child")
"""Attributes whose values are race and gender together, such as ``White man``."""

_FOLDERS = ("", "fairface", "FairFace")
_COLUMNS = ("file", "age", "gender", "race")
_LABEL_FILES = {
    Split.TRAIN: ("train", ["fairface_label_train.csv", "train_labels.csv"]),
    Split.VALIDATION: ("val", ["fairface_label_val.csv", "val_labels.csv"]),
}
_OFFICIAL_ROWS = {"train": 86744, "val": 10954}
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
# Spreadsheets take two brackets for dates. The month and the other number tell which: that is a
# day, or for 10-19 the year 2019.
_BRACKET_OF_DATE = {(9, 3): "3-9", (3, 9): "3-9", (10, 19): "10-19"}
_ISO_DATE = re.compile(r"\d\d(\d\d)-(\d\d)-(\d\d)( 00:00:00)?")
_NUMBER_AND_MONTH = re.compile(r"(\d+)[-. ]+([a-z]{3})[a-z]*\.?")
_MONTH_AND_NUMBER = re.compile(r"([a-z]{3})[a-z]*[-. ]+(\d+)")


def read_fairface(
    root: str | os.PathLike[str],
    task: BenchmarkTask,
    *,
    split: Split = Split.VALIDATION,
    ages: AgeCut = DEFAULT_AGES,
    padding: Padding | None = None,
    check_images: bool = True,
) -> Dataset:
    """Read the FairFace of a local folder.

    Age is the bracket if the task names the brackets, otherwise young or old.

    Ages that a spreadsheet has turned into dates (``03-Sep``, ``9-Mar`` for 3-9, ``Oct-19`` for
    10-19) are repaired and counted: no other bracket can become these dates. If the task is about
    age, a record whose age is no bracket is left out.

    Args:
        root: the folder with the label files, or the one above it.
        task: what to read.
        split: the part to read; FairFace has no public test split.
        ages: the ages of the young and the old; must not cut a bracket in two.
        padding: the set of images; if None the narrow one (the usual choice), else `val/` and
            `train/` themselves, else the wide one. The choice is recorded.
        check_images: whether images must be there; False reads labels only.
    """
    FAIRFACE.check_task(task, ("age", "gender", "race", *PEOPLE))
    if split is Split.TEST:
        raise DatasetError(
            "`split` should not be TEST: the test split of FairFace is not public.",
            argument="split",
        )
    base = FAIRFACE.check_root(root)
    parameters: dict[str, str | int] = {"split": split.value}
    if "age" in (task.target, *task.sensitive) and not _has_brackets(task):
        _check_ages(ages)
        parameters.update(ages.limits)

    parts = [_LABEL_FILES[part] for part in _LABEL_FILES if split in (part, Split.ALL)]
    tables = [FAIRFACE.table(base, _FOLDERS, names, _COLUMNS) for _, names in parts]
    part_folder = parts[0][0]  # the images of both parts lie beside each other
    images = _find_images(base, part_folder, padding)
    if images is not None:
        parameters["images"] = images.relative_to(base).as_posix()
    elif check_images:
        folder = part_folder if padding is None else f"{padding.value}/{part_folder}"
        raise FAIRFACE.error(f"{str(base)!r} has no folder {folder}.")

    def rows() -> Iterator[Record | Problem]:
        for (folder, _), table in zip(parts, tables, strict=True):
            yield from _rows(table, task, ages, images or base, folder)

    return FAIRFACE.dataset(task, base, rows(), parameters, check_images)


def _check_ages(ages: AgeCut) -> None:
    """Raise if a limit of age falls inside a bracket."""
    for name, (youngest, oldest) in BRACKETS.items():
        if ages.splits(youngest, oldest):
            raise DatasetError(
                f"`ages` should cut between the brackets of FairFace, but {ages.limits} "
                f"cuts {name!r} in two.",
                argument="ages",
            )


def _find_images(base: Path, part_folder: str, padding: Padding | None) -> Path | None:
    """Return the folder with the parts' folders of images, None if there is none."""
    if padding is None:
        paddings = [Padding.NARROW.value, "", Padding.WIDE.value]
    else:
        paddings = [padding.value]
    names = []
    for choice in paddings:
        names += [os.path.join(folder, choice, part_folder) for folder in _FOLDERS]
    images = FAIRFACE.find(base, [""], names)
    return None if images is None else images.parent


def bracket_of(age: str) -> str | None:
    """Return the bracket of a cell, repaired if a spreadsheet made it a date; None if none."""
    text = " ".join(age.lower().replace("\N{EN DASH}", "-").split())
    if text in BRACKETS:
        return text
    if match := _ISO_DATE.fullmatch(text):
        year = int(match[1])
        month = int(match[2])
        day = int(match[3])
        # Oct-19 becomes the first day of October 2019
        number = year if (month, day) == (10, 1) else day
        return _BRACKET_OF_DATE.get((month, number))
    if match := _NUMBER_AND_MONTH.fullmatch(text):
        return _bracket_of_date(match[2], match[1])
    if match := _MONTH_AND_NUMBER.fullmatch(text):
        return _bracket_of_date(match[1], match[2])
    return None


def _bracket_of_date(month: str, number: str) -> str | None:
    if month not in _MONTHS:
        return None
    return _BRACKET_OF_DATE.get((_MONTHS.index(month) + 1, int(number)))


def _has_brackets(task: BenchmarkTask) -> bool:
    """Return whether the names of ages are FairFace's brackets."""
    names = task.targets if task.target == "age" else task.sensitive.get("age", {})
    return set(names) == set(BRACKETS)


def _rows(
    table: LabelTable, task: BenchmarkTask, ages: AgeCut, images: Path, folder: str
) -> Iterator[Record | Problem]:
    needs_age = "age" in (task.target, *task.sensitive)
    has_brackets = _has_brackets(task)
    races = {race.lower(): race for race in RACES_7}
    for row in table.rows(_COLUMNS, official=_OFFICIAL_ROWS[folder]):
        if isinstance(row, Problem):
            yield row
            continue
        file, age, gender, race = (row.cells[column] for column in _COLUMNS)
        # fairface/val/1.jpg, val/1.jpg and 1.jpg are the same image.
        path_parts = PurePosixPath(file.replace("\\", "/")).parts
        key = "/".join((folder, *path_parts)[-2:]) if path_parts else ""

        # Copies differ in case, and in Middle_Eastern for Middle Eastern.
        race = races.get(race.lower().replace("_", " "), race)
        person = {"male": "man", "female": "woman"}.get(gender.lower(), gender)
        values = {"age": age, "gender": gender.lower(), "race": race}
        for attribute in PEOPLE:
            values[attribute] = f"{race} {person}".strip()

        if needs_age:
            bracket = bracket_of(age)
            if bracket is None:
                yield value_problem(key, "age", age)
                continue
            if bracket != age.lower():
                yield Problem(ProblemKind.REPAIRED_AGE, f"{key} ({age} is {bracket})")
            label = bracket if has_brackets else ages.label(BRACKETS[bracket][0])
            if label is None:
                yield Problem(ProblemKind.BETWEEN_AGES, f"{key} ({bracket})")
                continue
            values["age"] = label
        yield record_of_task(task, values, images / key, key)
