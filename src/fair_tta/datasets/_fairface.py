"""FairFace: faces balanced over seven races (Karkkainen and Joo, 2021)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path, PurePosixPath

from fair_tta.datasets._label_files import LabelTable
from fair_tta.datasets._records import Dataset, Problem, ProblemKind, Record, Split
from fair_tta.datasets._source import Source, labelled, unexpected
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
    """How much of the surroundings FairFace's images show: the value is the folder's name."""

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
"""The ages that FairFace distinguishes: youngest and oldest."""

PEOPLE = ("race and gender", "race, gender or child")
"""Attributes whose values are race and gender together, such as ``White man``."""

_BASES = ("", "fairface", "FairFace")
_COLUMNS = ("file", "age", "gender", "race")
_FILES = {
    Split.TRAIN: ("train", ["fairface_label_train.csv", "train_labels.csv"]),
    Split.VALIDATION: ("val", ["fairface_label_val.csv", "val_labels.csv"]),
}
_OFFICIAL = {"train": 86744, "val": 10954}  # rows
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
# Spreadsheets take two brackets for dates: the month and the other number (a day, or for 10-19 the
# year 2019) tell which.
_DATES = {(9, 3): "3-9", (3, 9): "3-9", (10, 19): "10-19"}


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

    A task that names the brackets of age themselves gets them; others get young and old.

    Ages that a spreadsheet has turned into dates (``03-Sep``, ``9-Mar`` for 3-9, ``Oct-19`` for
    10-19) are repaired and counted: no other bracket can give these dates. Ages that are no
    bracket at all leave their record out if the task asks for age.

    Args:
        root: the folder with the label files, or the one above it.
        task: what to read.
        split: the part to read; FairFace has no public test split.
        ages: who is young and who is old; must not cut a bracket in two.
        padding: which of the two sets of images; if None the narrow one (the usual choice)
            before `val/` and `train/` themselves before the wide one. It is recorded.
        check_images: whether images must be there; False reads labels only.
    """
    FAIRFACE.check_task(task, ("age", "gender", "race", *PEOPLE))
    if split is Split.TEST:
        raise DatasetError(
            "`split` should not be TEST: that of FairFace is not public.",
            argument="split",
        )
    base = FAIRFACE.check_root(root)
    parameters: dict[str, str | int] = {"split": split.value}
    if "age" in (task.target, *task.sensitive) and not _asks_for_brackets(task):
        for name, (youngest, oldest) in BRACKETS.items():
            if ages.splits(youngest, oldest):
                raise DatasetError(
                    f"`ages` should cut between the brackets of FairFace, but {ages.limits} "
                    f"cuts {name!r} in two.",
                    argument="ages",
                )
        parameters.update(ages.limits)
    parts = [_FILES[s] for s in _FILES if split in (s, Split.ALL)]
    tables = [FAIRFACE.table(base, _BASES, names, _COLUMNS) for _, names in parts]
    first = parts[0][0]
    choices = (
        [Padding.NARROW.value, "", Padding.WIDE.value]
        if padding is None
        else [padding.value]
    )
    places = [
        os.path.join(start, choice, first) for choice in choices for start in _BASES
    ]
    found = FAIRFACE.find(base, [""], places)
    if found is not None:
        parameters["images"] = found.parent.relative_to(base).as_posix()
    elif check_images:
        wanted = first if padding is None else f"{padding.value}/{first}"
        raise FAIRFACE.error(f"{str(base)!r} has no folder {wanted}.")
    images = base if found is None else found.parent
    rows = (
        row
        for (folder, _), table in zip(parts, tables, strict=True)
        for row in _rows(table, task, ages, images, folder)
    )
    return FAIRFACE.dataset(task, base, rows, parameters, check_images)


def bracket_of(age: str) -> str | None:
    """The bracket that a cell means, repaired if a spreadsheet made it a date; None if none."""
    text = " ".join(age.lower().replace("\N{EN DASH}", "-").split())
    if text in BRACKETS:
        return text
    if match := re.fullmatch(r"\d\d(\d\d)-(\d\d)-(\d\d)( 00:00:00)?", text):
        year, month, day = (int(number) for number in match.group(1, 2, 3))
        return (
            _DATES.get((month, year))
            if (month, day) == (10, 1)
            else _DATES.get((month, day))
        )
    match = re.fullmatch(
        r"(\d+)[-. ]+([a-z]{3})[a-z]*\.?|([a-z]{3})[a-z]*[-. ]+(\d+)", text
    )
    if match is None:
        return None
    number, name = match.group(1) or match.group(4), match.group(2) or match.group(3)
    return (
        _DATES.get((_MONTHS.index(name) + 1, int(number))) if name in _MONTHS else None
    )


def _asks_for_brackets(task: BenchmarkTask) -> bool:
    names = task.targets if task.target == "age" else task.sensitive.get("age", {})
    return set(names) == set(BRACKETS)


def _rows(
    table: LabelTable, task: BenchmarkTask, ages: AgeCut, images: Path, folder: str
) -> Iterator[Record | Problem]:
    needs_age = "age" in (task.target, *task.sensitive)
    brackets = _asks_for_brackets(task)
    races = {race.lower(): race for race in RACES_7}
    for row in table.rows(_COLUMNS, official=_OFFICIAL[folder]):
        if isinstance(row, Problem):
            yield row
            continue
        file, cell, gender, race = (row.cells[column] for column in _COLUMNS)
        # fairface/val/1.jpg, val/1.jpg and 1.jpg are the same image.
        parts = PurePosixPath(file.replace("\\", "/")).parts
        key = "/".join((folder, *parts)[-2:]) if parts else ""
        values = {
            "age": cell,
            "gender": gender.lower(),
            "race": races.get(race.lower().replace("_", " "), race),
        }
        adult = {"male": "man", "female": "woman"}.get(values["gender"], gender)
        values |= dict.fromkeys(PEOPLE, f"{values['race']} {adult}".strip())
        if needs_age:
            bracket = bracket_of(cell)
            if bracket is None:
                yield unexpected(key, "age", cell)
                continue
            if bracket != cell.lower():
                yield Problem(ProblemKind.REPAIRED_AGE, f"{key} ({cell} is {bracket})")
            age = bracket if brackets else ages.label(BRACKETS[bracket][0])
            if age is None:
                yield Problem(ProblemKind.BETWEEN_AGES, f"{key} ({bracket})")
                continue
            values["age"] = age
        yield labelled(task, values, images / key, key)
