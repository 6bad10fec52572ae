"""CelebA: faces of celebrities with forty attributes (Liu et al., 2015)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fair_tta.datasets._label_files import LabelRow
from fair_tta.datasets._records import Dataset, Problem, ProblemKind, Record, Split
from fair_tta.datasets._source import Source, labelled, unexpected
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
_BASES = ("", "celeba", "CelebA", "celebA")
_LABELS = ("list_attr_celeba.txt", "list_attr_celeba.csv")
_PARTS = ("list_eval_partition.txt", "list_eval_partition.csv")
_IMAGES = "img_align_celeba"
_SPLITS = {Split.TRAIN: "0", Split.VALIDATION: "1", Split.TEST: "2"}
_OFFICIAL = 202599  # rows
_NAME = "image_id"
# Attribute of the task: its column, and what yes and no mean. "Dark" is all that is not blond.
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
    split: Split = Split.TEST,
    check_images: bool = True,
) -> Dataset:
    """Read the CelebA of a local folder: official files, torchvision's layout or Kaggle's.

    Args:
        root: the folder with the label files, or the one above it.
        task: what to read.
        split: the part to read. Without the file of splits only `Split.ALL` can be read.
        check_images: whether images must be there; False reads labels only.
    """
    CELEBA.check_task(task, _ATTRIBUTES)
    base = CELEBA.check_root(root)
    columns = {name: _ATTRIBUTES[name] for name in (task.target, *task.sensitive)}
    needed = [_NAME, *(column for column, _, _ in columns.values())]
    labels = CELEBA.table(base, _below("Anno"), _LABELS, needed, _labels_to_csv)
    images = CELEBA.find(base, _below("Img"), [_IMAGES])
    if images is None:
        if check_images:
            zipped = CELEBA.find(base, _below("Img"), [f"{_IMAGES}.zip"])
            hint = " (there is an archive of that name: unpack it)" if zipped else ""
            raise CELEBA.error(f"{str(base)!r} has no folder {_IMAGES}{hint}.")
        images = labels.path.parent / _IMAGES
    inner = images / _IMAGES  # Kaggle's archive has the folder twice
    images = inner if inner.is_dir() else images
    members = None if split is Split.ALL else _members(base)

    def rows() -> Iterator[Record | Problem]:
        for row in labels.rows(needed, official=_OFFICIAL):
            if isinstance(row, Problem):
                yield row
                continue
            name = row.cells[_NAME]
            if members is not None:
                if name not in members:
                    yield Problem(ProblemKind.NO_SPLIT, name)
                elif members[name] not in _SPLITS.values():
                    yield unexpected(name, "split", members[name])
                if members.get(name) != _SPLITS[split]:
                    continue
            values = {}
            for attribute, (column, yes, no) in columns.items():
                cell = row.cells[column]
                values[attribute] = {"1": yes, "-1": no, "0": no}.get(cell, cell)
            yield labelled(task, values, images / name, name)

    parameters = {"split": split.value, "labels": labels.path.name}
    return CELEBA.dataset(task, base, rows(), parameters, check_images)


def _below(folder: str) -> list[str]:
    return [os.path.join(base, inner) for base in _BASES for inner in ("", folder)]


def _members(base: Path) -> dict[str, str]:
    """The split of each image, as the file codes it; both if it is said to be in two."""
    columns = (_NAME, "partition")
    members: dict[str, str] = {}
    for row in CELEBA.table(base, _below("Eval"), _PARTS, columns, _splits_to_csv).rows(
        columns
    ):
        if isinstance(row, LabelRow):
            name, part = row.cells.values()
            first = members.setdefault(name, part)
            if part not in first.split(" and "):
                members[name] = f"{first} and {part}"
    return members


def _labels_to_csv(text: str) -> str:
    """Of the official format: a count, the attribute names, then ``file v1 .. v40``, by spaces."""
    first, *lines = (",".join(line.split()) for line in text.splitlines())
    if first.isdigit():
        names, *lines = lines or [""]
        return "\n".join(["", f"{_NAME},{names}", *lines])
    return "\n".join([f"{_NAME},{first}", *lines])


def _splits_to_csv(text: str) -> str:
    """Of the official format: ``file split``, without a header."""
    return "\n".join(
        [f"{_NAME},partition", *(",".join(line.split()) for line in text.splitlines())]
    )
