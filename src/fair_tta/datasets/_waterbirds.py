"""Waterbirds: birds cut out and put on water or land (Sagawa et al., 2020)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from fair_tta.datasets._records import Dataset, Problem, Record, Split
from fair_tta.datasets._source import Source, labelled, unexpected
from fair_tta.datasets._tasks import BenchmarkTask

WATERBIRDS = Source(
    "Waterbirds",
    "https://github.com/kohpangwei/group_DRO",
    """\
DIR/waterbird_complete95_forest2water2/
    metadata.csv                        img_filename, y, split, place
    001.Black_footed_Albatross/*.jpg
    ...""",
)
_FOLDER = "waterbird_complete95_forest2water2"
_FOLDERS = (
    "", _FOLDER, "waterbirds", "Waterbirds", f"waterbirds/{_FOLDER}", f"Waterbirds/{_FOLDER}",
    "waterbirds_v1.0", "waterbirds/waterbirds_v1.0",
)  # fmt: skip
_OFFICIAL = 11788  # rows
_COLUMNS = ("img_filename", "y", "split", "place")
# The file's coding. The paper names water first, which is the order of the task's labels.
_BIRD = {"0": "land bird", "1": "water bird"}
_PLACE = {"0": "land", "1": "water"}
_SPLITS = {Split.TRAIN: "0", Split.VALIDATION: "1", Split.TEST: "2"}


def read_waterbirds(
    root: str | os.PathLike[str],
    task: BenchmarkTask | None = None,
    *,
    split: Split = Split.TEST,
    check_images: bool = True,
) -> Dataset:
    """Read the Waterbirds of a local folder.

    Args:
        root: the folder with `metadata.csv`, or one above it.
        task: the paper's only pair, bird type x background, if None.
        split: the part to read.
        check_images: whether images must be there; False reads labels only.
    """
    task = task or BenchmarkTask.find("Waterbirds", "bird type", "background")
    WATERBIRDS.check_task(task, ("bird type", "background"))
    base = WATERBIRDS.check_root(root)
    table = WATERBIRDS.table(base, _FOLDERS, ["metadata.csv"], _COLUMNS)

    def rows() -> Iterator[Record | Problem]:
        for row in table.rows(_COLUMNS, official=_OFFICIAL):
            if isinstance(row, Problem):
                yield row
                continue
            name, y, part, place = (row.cells[column] for column in _COLUMNS)
            if split is not Split.ALL and _whole(part) not in _SPLITS.values():
                yield unexpected(name, "split", part)
            elif split is Split.ALL or _whole(part) == _SPLITS[split]:
                values = {
                    "bird type": _BIRD.get(_whole(y), y),
                    "background": _PLACE.get(_whole(place), place),
                }
                yield labelled(task, values, table.path.parent / name, name)

    return WATERBIRDS.dataset(task, base, rows(), {"split": split.value}, check_images)


def _whole(number: str) -> str:
    """1.0 is 1: what a table becomes that has been through floats."""
    return number.removesuffix(".0")
