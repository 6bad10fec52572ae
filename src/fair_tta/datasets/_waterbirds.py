"""Waterbirds: birds cut out and put on water or land (Sagawa et al., 2020)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from fair_tta.datasets._records import Dataset, Problem, Record, Split
from fair_tta.datasets._source import Source, record_of_task, value_problem
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
# Relative to the folder that the user names
_FOLDERS = (
    "", _FOLDER, "waterbirds", "Waterbirds", f"waterbirds/{_FOLDER}", f"Waterbirds/{_FOLDER}",
    "waterbirds_v1.0", "waterbirds/waterbirds_v1.0",
)  # fmt: skip
_OFFICIAL_ROWS = 11788
_COLUMNS = ("img_filename", "y", "split", "place")
# The codes of the file. The task's labels have another order, because the paper names water first.
_BIRD = {"0": "land bird", "1": "water bird"}
_BACKGROUND = {"0": "land", "1": "water"}
_CODE_OF_SPLIT = {"train": "0", "validation": "1", "test": "2"}


def read_waterbirds(
    root: str | os.PathLike[str],
    task: BenchmarkTask,
    *,
    split: Split = "test",
    check_images: bool = True,
) -> Dataset:
    """Read the Waterbirds of a local folder.

    Args:
        root: the folder with `metadata.csv`, or one above it.
        task: what to read.
        split: the part to read.
        check_images: whether images must be there; False reads labels only.
    """
    WATERBIRDS.check_task(task, ("bird type", "background"))
    base = WATERBIRDS.check_root(root)
    table = WATERBIRDS.table(base, _FOLDERS, ["metadata.csv"], _COLUMNS)

    def rows() -> Iterator[Record | Problem]:
        for row in table.rows(_COLUMNS, official=_OFFICIAL_ROWS):
            if isinstance(row, Problem):
                yield row
                continue
            name, bird, part, background = row.cells.values()
            if split != "all":
                if _without_fraction(part) not in _CODE_OF_SPLIT.values():
                    yield value_problem(name, "split", part)
                    continue
                if _without_fraction(part) != _CODE_OF_SPLIT[split]:
                    continue
            values = {
                "bird type": _BIRD.get(_without_fraction(bird), bird),
                "background": _BACKGROUND.get(
                    _without_fraction(background), background
                ),
            }
            yield record_of_task(task, values, table.path.parent / name, name)

    return WATERBIRDS.dataset(task, base, rows(), {"split": split}, check_images)


def _without_fraction(number: str) -> str:
    """Return 1 for 1.0: libraries write it when a table has been through floats."""
    return number.removesuffix(".0")
