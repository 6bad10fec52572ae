"""UTKFace: faces whose file names hold age, gender and race (Zhang et al., 2017)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from fair_tta._io import UnlistedFolder, walk_files
from fair_tta.datasets._records import Dataset, Problem, ProblemKind, Record
from fair_tta.datasets._source import Source, record_of_task
from fair_tta.datasets._tasks import DEFAULT_AGES, AgeCut, BenchmarkTask

UTKFACE = Source(
    "UTKFace",
    "https://susanqq.github.io/UTKFace/",
    """\
DIR/UTKFace/                            the files, or folders part1/ part2/ part3/ with them
    1_0_0_20161219140623097.jpg.chip.jpg    age_gender_race_date
    ...""",
)
_FOLDERS = ("UTKFace", "utkface")
# age_gender_race_date
_NAME = re.compile(r"(?P<age>[0-9]+)_(?P<gender>[01])_(?P<race>[0-4])_[^_]*", re.S)
_GENDERS = ("male", "female")
_RACES = ("White", "Black", "Asian", "Indian")
_OTHER_RACE = "4"
_OLDEST = 130  # years: a larger number at the beginning of a name is not an age
_ALIGNED = ".chip.jpg"
_IMAGE_ENDINGS = (".jpg", ".jpeg", ".png")


def read_utkface(
    root: str | os.PathLike[str],
    task: BenchmarkTask,
    *,
    ages: AgeCut = DEFAULT_AGES,
    check_images: bool = True,
) -> Dataset:
    """Read the UTKFace of a local folder, all of it: it has no splits.

    A name should have exactly four parts. The race 4, "Others", is left out in every task: it is
    not one of the paper's four. An image that lies in several folders is taken once, the
    aligned one (``.jpg.chip.jpg``) if there is a choice.

    Args:
        root: a folder with the files in it or in folders of it, or with a folder `UTKFace`.
        task: what to read.
        ages: who is young and who is old.
        check_images: whether images must be there and not empty.
    """
    UTKFACE.check_task(task, ("age", "gender", "race"))
    base = UTKFACE.check_root(root)
    base = UTKFACE.find(base, [""], _FOLDERS) or base
    parameters: dict[str, str | int] = {
        "split": "all",
        "races": ", ".join(_RACES),
    }
    if "age" in (task.target, *task.sensitive):
        parameters.update(ages.limits)
    rows = (_record_of_name(path, task, ages) for path in _list_images(base))
    return UTKFACE.dataset(task, base, rows, parameters, check_images)


def _list_images(root: Path) -> list[Path | UnlistedFolder]:
    """Return images in the order of their names, aligned ones first."""
    closed_folders: list[Path | UnlistedFolder] = []
    images: list[Path] = []
    for entry in walk_files(root, follow_links=True):
        if isinstance(entry, UnlistedFolder):
            closed_folders.append(entry)
            continue
        path = Path(entry)
        # macOS adds a file "._name" beside each file of an archive
        if entry.lower().endswith(_IMAGE_ENDINGS) and not path.name.startswith("._"):
            images.append(path)
    # Of an image that lies in several folders the first is kept, which should be aligned.
    images.sort(key=lambda path: (not path.name.endswith(_ALIGNED), path.name, path))
    return [*closed_folders, *images]


def _record_of_name(
    path: Path | UnlistedFolder, task: BenchmarkTask, ages: AgeCut
) -> Record | Problem:
    if isinstance(path, UnlistedFolder):
        return Problem(ProblemKind.CLOSED_FOLDER, f"{path.path} ({path.reason})")
    # The whole name has to fit: faces without an attribute have three parts
    match = _NAME.fullmatch(path.name)
    if match is None or int(match["age"]) > _OLDEST:
        return Problem(ProblemKind.MALFORMED_NAME, path.name)
    if match["race"] == _OTHER_RACE:
        return Problem(ProblemKind.OTHER_RACE, path.name)
    age = ages.label(int(match["age"]))
    if age is None and "age" in (task.target, *task.sensitive):
        return Problem(ProblemKind.BETWEEN_AGES, path.name)
    values = {
        "age": age or "",
        "gender": _GENDERS[int(match["gender"])],
        "race": _RACES[int(match["race"])],
    }
    return record_of_task(task, values, path, path.name.removesuffix(_ALIGNED))
