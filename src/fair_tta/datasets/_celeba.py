"""CelebA: faces of celebrities with forty attributes (Liu et al., 2015)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fair_tta.datasets._label_files import LabelRow
from fair_tta.datasets._records import Dataset, Problem, ProblemKind, Record, Split
from fair_tta.datasets._source import Source, record_of_task, value_problem
from fair_tta.datasets._tasks import BenchmarkTask

CELEBA = Source(
    "CelebA",
    "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html",
    """\
DIR/celeba/                             or DIR itself
    img_align_celeba/000001.jpg ...     also in Img/
    list_attr_celeba.txt                also in Anno/, also .csv (Kaggle)
    list_eval_partition.txt             also in Eval/, also .csv (Kaggle)""",
)
# Relative to the folder that the user names
_FOLDERS = ("", "celeba", "CelebA", "celebA")
_LABEL_FILES = ("list_attr_celeba.txt", "list_attr_celeba.csv")
_SPLIT_FILES = ("list_eval_partition.txt", "list_eval_partition.csv")
_IMAGES = "img_align_celeba"
_CODE_OF_SPLIT = {"train": "0", "validation": "1", "test": "2"}
_OFFICIAL_ROWS = 202599
_NAME = "image_id"
# Attribute of a task: its column, and the labels of yes and no. Hair that is not blond is "dark".
_ATTRIBUTES = {
    "hair color": ("Blond_Hair", "blond", "dark"),
    "smiling": ("Smiling", "smiling", "not smiling"),
    "makeup": ("Heavy_Makeup", "makeup", "no makeup"),
    "glasses": ("Eyeglasses", "glasses", "no glasses"),
    "gender": ("Male", "male", "female"),
}


def read_celeba(
    root: str | os.PathLike[str],
    task: BenchmarkTask,
    *,
    split: Split = "test",
    check_images: bool = True,
) -> Dataset:
    """Read the CelebA of a local folder in the official layout, torchvision's or Kaggle's.

    Args:
        root: the folder with the label files, or the one above it.
        task: what to read.
        split: the part to read; without the file of splits it has to be "all".
        check_images: whether images must be there; False reads labels only.
    """
    CELEBA.check_task(task, _ATTRIBUTES)
    base = CELEBA.check_root(root)
    columns = {name: _ATTRIBUTES[name] for name in (task.target, *task.sensitive)}
    needed = [_NAME, *(column for column, _, _ in columns.values())]
    labels = CELEBA.table(
        base, _folders_with("Anno"), _LABEL_FILES, needed, _labels_to_csv
    )
    images = _find_images_folder(base, labels.path.parent, check_images)
    split_of_image = None if split == "all" else _read_splits(base)

    def rows() -> Iterator[Record | Problem]:
        for row in labels.rows(needed, official=_OFFICIAL_ROWS):
            if isinstance(row, Problem):
                yield row
                continue
            name = row.cells[_NAME]
            # Images of other splits are skipped, those of no split are problems
            if split_of_image is not None:
                code = split_of_image.get(name)
                if code is None:
                    yield Problem(ProblemKind.NO_SPLIT, name)
                elif code not in _CODE_OF_SPLIT.values():
                    yield value_problem(name, "split", code)
                if code != _CODE_OF_SPLIT[split]:
                    continue
            values = {}
            for attribute, (column, yes, no) in columns.items():
                cell = row.cells[column]
                # Official files write -1 for no, some copies of them 0.
                values[attribute] = {"1": yes, "-1": no, "0": no}.get(cell, cell)
            yield record_of_task(task, values, images / name, name)

    parameters = {"split": split, "labels": labels.path.name}
    return CELEBA.dataset(task, base, rows(), parameters, check_images)


def _find_images_folder(base: Path, labels_folder: Path, check_images: bool) -> Path:
    """Return the folder of the images, which need not be there unless they are checked."""
    folders = _folders_with("Img")
    images = CELEBA.find(base, folders, [_IMAGES])
    if images is None and check_images:
        archive = CELEBA.find(base, folders, [f"{_IMAGES}.zip"])
        hint = " (there is an archive of that name: unpack it)" if archive else ""
        raise CELEBA.error(f"{str(base)!r} has no folder {_IMAGES}{hint}.")
    images = images or labels_folder / _IMAGES
    inner = images / _IMAGES  # Kaggle's archive has the folder twice
    return inner if inner.is_dir() else images


def _folders_with(subfolder: str) -> list[str]:
    """Return the folders in which files may lie, each with and without a subfolder."""
    folders = []
    for folder in _FOLDERS:
        folders += [folder, os.path.join(folder, subfolder)]
    return folders


def _read_splits(base: Path) -> dict[str, str]:
    """Return the code of each image's split; all codes of an image that is in several."""
    columns = (_NAME, "partition")
    table = CELEBA.table(
        base, _folders_with("Eval"), _SPLIT_FILES, columns, _splits_to_csv
    )
    split_of_image: dict[str, str] = {}
    for row in table.rows(columns):
        if isinstance(row, LabelRow):
            name, code = row.cells.values()
            codes = split_of_image.setdefault(name, code)
            if code not in codes.split(" and "):
                split_of_image[name] = f"{codes} and {code}"
    return split_of_image


def _labels_to_csv(text: str) -> str:
    """Convert the official format: a count, attribute names, then ``file v1 .. v40``, by spaces."""
    lines = [",".join(line.split()) for line in text.splitlines()]
    if lines[0].isdigit():
        # An empty line takes the place of the count, so that problems name the right lines
        lines = ["", *(lines[1:] or [""])]
        lines[1] = f"{_NAME},{lines[1]}"
    else:
        lines[0] = f"{_NAME},{lines[0]}"
    return "\n".join(lines)


def _splits_to_csv(text: str) -> str:
    """Convert the official format: ``file split``, without a header."""
    lines = [",".join(line.split()) for line in text.splitlines()]
    return "\n".join([f"{_NAME},partition", *lines])
