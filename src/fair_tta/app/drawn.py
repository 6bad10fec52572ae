"""Drawn pictures to try the app with."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fair_tta.app.questions import Fields
from fair_tta.miniature import TASKS
from fair_tta.miniature.world import BIRDS, MiniatureTask

OF_EACH_TASK = 4
IN_A_FOLDER = 48


class DrawnExample(NamedTuple):
    """A picture and what to ask of it."""

    path: Path
    fields: Fields


def fields_of(task: MiniatureTask) -> Fields:
    """What to write to ask about a drawn world."""
    return Fields(
        _lines(task.targets),
        "\n".join(_lines(names, f"{a}: ") for a, names in task.sensitive.items()),
        task.template,
    )


def draw_examples(folder: Path) -> list[DrawnExample]:
    """A few pictures of each world, as files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for task in TASKS.values():
        one_of_each = task.draw(len(task.groups))
        step = (len(one_of_each) - 1) / (OF_EACH_TASK - 1)
        for place in range(OF_EACH_TASK):
            path = folder / f"{task.name}-{place}.png"
            one_of_each[round(place * step)].image.save(path)
            made.append(DrawnExample(path, fields_of(task)))
    return made


def draw_folder(folder: Path, count: int = IN_A_FOLDER) -> tuple[list[str], str]:
    """Birds on water and on land: the paths of the pictures, and a CSV file of their labels."""
    folder.mkdir(parents=True, exist_ok=True)
    labels, paths = folder / "labels.csv", []
    with labels.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["file", "class", "background"])
        for place, picture in enumerate(BIRDS.draw(count)):
            path = folder / f"bird-{place:02}.png"
            picture.image.save(path)
            paths.append(str(path))
            rows.writerow([path.name, picture.target, picture.sensitive["background"]])
    return paths, str(labels)


def _lines(names: Mapping[str, str], before: str = "") -> str:
    return "\n".join(
        f"{before}{name}" if name == phrase else f"{before}{name} = {phrase}"
        for name, phrase in names.items()
    )
