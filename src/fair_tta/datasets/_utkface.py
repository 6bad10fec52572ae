"""UTKFace: faces whose file names hold age, gender and race (Zhang et al., 2017)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fair_tta._io import Unlisted, walk
from fair_tta.datasets._records import Dataset, Problem, ProblemKind, Record, Split
from fair_tta.datasets._source import Source, labelled
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
_GENDERS = ("male", "female")
_RACES = ("White", "Black", "Asian", "Indian")
_OTHERS = "4"
_OLDEST = 130
_ALIGNED = ".chip.jpg"
_PICTURES = (".jpg", ".jpeg", ".png")


def read_utkface(
    root: str | os.PathLike[str],
    task: BenchmarkTask,
    *,
    ages: AgeCut = DEFAULT_AGES,
    names: Iterable[str] | None = None,
    check_images: bool = True,
) -> Dataset:
    """Read the UTKFace of a local folder, all of it: it has no splits.

    A name should have exactly four parts. The race 4, "Others", is left out in every task, as it
    is not one of the paper's four. An image that lies in several folders is taken once, the
    aligned one (``.jpg.chip.jpg``) if there is a choice.

    Args:
        root: a folder with the files in it or in folders of it, or with a folder `UTKFace`.
        task: what to read.
        ages: who is young and who is old.
        names: the names of the files if the folder should not be looked through.
        check_images: whether images must be there and not empty.
    """
    UTKFACE.check_task(task, ("age", "gender", "race"))
    if names is None:
        base = UTKFACE.check_root(root)
        base = UTKFACE.find(base, [""], _FOLDERS) or base
        paths: Iterable[Path | Unlisted] = _images(base)
    else:
        base = Path(root)
        paths = (base / name for name in names)
    parameters: dict[str, str | int] = {
        "split": Split.ALL.value,
        "races": ", ".join(_RACES),
    }
    if "age" in (task.target, *task.sensitive):
        parameters.update(ages.limits)
    rows = (_row(path, task, ages) for path in paths)
    return UTKFACE.dataset(task, base, rows, parameters, check_images)


def _images(root: Path) -> list[Path | Unlisted]:
    """Images in the order of their names; aligned ones first, so that these are kept."""
    closed: list[Path | Unlisted] = []
    images: list[Path] = []
    for found in walk(root, follow_links=True):
        if isinstance(found, Unlisted):
            closed.append(found)
        elif found.lower().endswith(_PICTURES) and not os.path.basename(
            found
        ).startswith("._"):
            images.append(Path(found))
    images.sort(key=lambda path: (not path.name.endswith(_ALIGNED), path.name, path))
    return [*closed, *images]


def _row(path: Path | Unlisted, task: BenchmarkTask, ages: AgeCut) -> Record | Problem:
    if isinstance(path, Unlisted):
        return Problem(ProblemKind.CLOSED_FOLDER, f"{path.path} ({path.reason})")
    parts = path.name.split("_")
    if not (
        len(parts) == 4
        and all(part.isascii() and part.isdigit() for part in parts[:3])
        and int(parts[0]) <= _OLDEST
        and parts[1] in ("0", "1")
        and parts[2] in ("0", "1", "2", "3", _OTHERS)
    ):
        return Problem(ProblemKind.MALFORMED_NAME, path.name)
    if parts[2] == _OTHERS:
        return Problem(ProblemKind.OTHER_RACE, path.name)
    age = ages.label(int(parts[0]))
    if age is None and "age" in (task.target, *task.sensitive):
        return Problem(ProblemKind.BETWEEN_AGES, path.name)
    values = {
        "age": age or "",
        "gender": _GENDERS[int(parts[1])],
        "race": _RACES[int(parts[2])],
    }
    return labelled(task, values, path, path.name.removesuffix(_ALIGNED))
