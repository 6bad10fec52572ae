"""FairFace: faces balanced over seven races (Karkkainen and Joo, 2021)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Literal, TypeAlias

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


Padding: TypeAlias = Literal["narrow", "wide"]
"""The margin around faces in FairFace's images: a padding of 0.25 or 1.25."""

_PADDING_FOLDERS = {
    "narrow": "fairface-img-margin025-trainval",
    "wide": "fairface-img-margin125-trainval",
}

BRACKETS = {
    "0-2": 0,
    "3-9": 3,
    "10-19": 10,
    "20-29": 20,
    "30-39": 30,
    "40-49": 40,
    "50-59": 50,
    "60-69": 60,
    "more than 70": 70,
}
"""The ages that FairFace distinguishes, and the youngest of each bracket."""

PEOPLE = ("race and gender", "race, gender or child")
"""Attributes whose values are race and gender together, such as ``White man``."""

# Relative to the folder that the user names
_FOLDERS = ("", "fairface", "FairFace")
_COLUMNS = ("file", "age", "gender", "race")
# The folder of each split, and the official name and a common one of its label file
_LABEL_FILES = {
    "train": ("train", ["fairface_label_train.csv", "train_labels.csv"]),
    "validation": ("val", ["fairface_label_val.csv", "val_labels.csv"]),
}
_OFFICIAL_ROWS = {"train": 86744, "val": 10954}

# Spreadsheets take two brackets for dates: a day and a month, and 10-19 also October 2019
_DATES_OF_BRACKETS = {
    "3-9": re.compile(
        r"0?3[-. ]+sep[a-z]*\.?|sep[a-z]*[-. ]+0?3|\d{4}-09-03( 00:00:00)?|"
        r"0?9[-. ]+mar[a-z]*\.?|mar[a-z]*[-. ]+0?9|\d{4}-03-09( 00:00:00)?"
    ),
    "10-19": re.compile(
        r"19[-. ]+oct[a-z]*\.?|oct[a-z]*[-. ]+19|\d{4}-10-19( 00:00:00)?|"
        r"2019-10-01( 00:00:00)?"
    ),
}


def read_fairface(
    root: str | os.PathLike[str],
    task: BenchmarkTask,
    *,
    split: Split = "validation",
    ages: AgeCut = DEFAULT_AGES,
    padding: Padding | None = None,
    check_images: bool = True,
) -> Dataset:
    """Read the FairFace of a local folder.

    Age is the bracket if the task names the brackets, otherwise young or old.

    Ages that a spreadsheet has turned into dates (``03-Sep``, ``9-Mar`` for 3-9, ``Oct-19`` for
    10-19) are repaired and counted: no other bracket can become these dates. If the task is about
    age, a record whose age is not a bracket is left out.

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
    if split == "test":
        raise DatasetError(
            "`split` should not be 'test': the test split of FairFace is not public.",
            argument="split",
        )
    base = FAIRFACE.check_root(root)
    parameters: dict[str, str | int] = {"split": split}
    if "age" in (task.target, *task.sensitive) and not _has_brackets(task):
        _check_ages(ages)
        parameters.update(ages.limits)

    # Both splits have their own label file, and their images lie beside each other
    parts = list(_LABEL_FILES.values()) if split == "all" else [_LABEL_FILES[split]]
    tables = [FAIRFACE.table(base, _FOLDERS, names, _COLUMNS) for _, names in parts]
    part_folder = parts[0][0]
    images = _find_parts_folder(base, part_folder, padding)
    if images is not None:
        parameters["images"] = images.relative_to(base).as_posix()
    elif check_images:
        folder = part_folder
        if padding is not None:
            folder = f"{_PADDING_FOLDERS[padding]}/{part_folder}"
        raise FAIRFACE.error(f"{str(base)!r} has no folder {folder}.")

    def rows() -> Iterator[Record | Problem]:
        for (folder, _), table in zip(parts, tables, strict=True):
            yield from _rows(table, task, ages, images or base, folder)

    return FAIRFACE.dataset(task, base, rows(), parameters, check_images)


def _check_ages(ages: AgeCut) -> None:
    """Raise if a limit of age falls inside a bracket."""
    edges = list(BRACKETS.values())[1:]
    for name, limit in ages.limits.items():
        if limit not in edges:
            raise DatasetError(
                f"`{name}` should be an age at which a bracket of FairFace begins, one of {edges} "
                f"(got {limit}).",
                argument=name,
            )


def _find_parts_folder(
    base: Path, part_folder: str, padding: Padding | None
) -> Path | None:
    """Return the folder with the parts' folders of images, None if there is none."""
    if padding is None:
        padding_folders = [_PADDING_FOLDERS["narrow"], "", _PADDING_FOLDERS["wide"]]
    else:
        padding_folders = [_PADDING_FOLDERS[padding]]
    names = []
    for padding_folder in padding_folders:
        for folder in _FOLDERS:
            names.append(os.path.join(folder, padding_folder, part_folder))
    images = FAIRFACE.find(base, [""], names)
    return None if images is None else images.parent


def bracket_of(age: str) -> str | None:
    """Return the bracket of a cell, repaired if a spreadsheet made it a date; None if none."""
    text = " ".join(age.lower().replace("\N{EN DASH}", "-").split())
    if text in BRACKETS:
        return text
    for bracket, dates in _DATES_OF_BRACKETS.items():
        if dates.fullmatch(text):
            return bracket
    return None


def _has_brackets(task: BenchmarkTask) -> bool:
    """Return True if the names of ages are FairFace's brackets."""
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
        file, age, gender, race = row.cells.values()
        # fairface/val/1.jpg, val/1.jpg and 1.jpg are the same image
        path_parts = PurePosixPath(file.replace("\\", "/")).parts
        key = "/".join((folder, *path_parts)[-2:]) if path_parts else ""

        # Copies differ in case, and in Middle_Eastern for Middle Eastern
        race = races.get(race.lower().replace("_", " "), race)
        person = {"male": "man", "female": "woman"}.get(gender.lower(), gender)
        values = {"age": age, "gender": gender.lower(), "race": race}
        for attribute in PEOPLE:
            values[attribute] = f"{race} {person}".strip()

        # Ages that cannot be read matter only where the task is about age
        if needs_age:
            bracket = bracket_of(age)
            if bracket is None:
                yield value_problem(key, "age", age)
                continue
            if bracket != age.lower():
                yield Problem(ProblemKind.REPAIRED_AGE, f"{key} ({age} is {bracket})")
            label = bracket if has_brackets else ages.label(BRACKETS[bracket])
            if label is None:
                yield Problem(ProblemKind.BETWEEN_AGES, f"{key} ({bracket})")
                continue
            values["age"] = label
        yield record_of_task(task, values, images / key, key)
