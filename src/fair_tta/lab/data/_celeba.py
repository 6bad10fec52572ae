"""CelebA: faces of celebrities with forty attributes (Liu et al., 2015)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from fair_tta.lab.data._label_files import Row, Source, labelled, unknown_split
from fair_tta.lab.data._records import Dataset, Problem, ProblemKind, Record, Split
from fair_tta.lab.data._tasks import BenchmarkTask

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
    labels = CELEBA.need(base, _below("Anno"), _LABELS)
    images = CELEBA.find(base, _below("Img"), [_IMAGES])
    if images is None:
        if check_images:
            zipped = CELEBA.find(base, _below("Img"), [f"{_IMAGES}.zip"])
            hint = " (there is an archive of that name: unpack it)" if zipped else ""
            raise CELEBA.error(f"{str(base)!r} has no folder {_IMAGES}{hint}.")
        images = labels.parent / _IMAGES
    inner = images / _IMAGES  # Kaggle's archive has the folder twice
    images = inner if inner.is_dir() else images
    wanted = None
    if split is not Split.ALL:
        wanted = _members(CELEBA.need(base, _below("Eval"), _PARTS))
    rows = _rows(labels, images, task, wanted, _SPLITS.get(split))
    parameters = {"split": split.value, "labels": labels.name}
    return CELEBA.dataset(task, base, rows, parameters, check_images)


def _below(folder: str) -> list[str]:
    return [os.path.join(base, inner) for base in _BASES for inner in ("", folder)]


def _members(path: Path) -> dict[str, str]:
    """The split of each image, as the file codes it; both if it is said to be in two."""
    members: dict[str, str] = {}
    for name, part in _parts(path):
        first = members.setdefault(name, part)
        if part not in first.split(" and "):
            members[name] = f"{first} and {part}"
    return members


def _parts(path: Path) -> Iterator[tuple[str, str]]:
    if path.suffix == ".csv":
        table = CELEBA.table(path, (_NAME, "partition"))
        for row in table.rows((_NAME, "partition")):
            if isinstance(row, Row):
                yield row.cells[_NAME], row.cells["partition"]
        return
    for line in CELEBA.text(path).splitlines():
        fields = line.split()
        if len(fields) == 2:
            yield fields[0], fields[1]


def _rows(
    labels: Path,
    images: Path,
    task: BenchmarkTask,
    members: dict[str, str] | None,
    wanted: str | None,
) -> Iterator[Record | Problem]:
    columns = {name: _ATTRIBUTES[name] for name in (task.target, *task.sensitive)}
    needed = [_NAME, *(column for column, _, _ in columns.values())]
    for row in _table(labels, needed) if labels.suffix == ".csv" else _text(labels, needed):
        if isinstance(row, Problem):
            yield row
            continue
        name = row.cells[_NAME]
        if members is not None:
            if name not in members:
                yield Problem(ProblemKind.NO_SPLIT, name)
            elif members[name] not in _SPLITS.values():
                yield unknown_split(members[name], name)
            if members.get(name) != wanted:
                continue
        values = {}
        for attribute, (column, yes, no) in columns.items():
            cell = row.cells[column]
            values[attribute] = {"1": yes, "-1": no, "0": no}.get(cell, cell)
        yield labelled(task, values, images / name, name)


def _table(path: Path, needed: list[str]) -> Iterator[Row | Problem]:
    yield from CELEBA.table(path, needed).rows(needed, official=_OFFICIAL)


def _text(path: Path, needed: list[str]) -> Iterator[Row | Problem]:
    """The official format: a count, the attribute names, then ``file v1 .. v40``, by spaces."""
    numbered = (
        (i, line.split())
        for i, line in enumerate(CELEBA.text(path).splitlines(), 1)
        if line.strip()
    )
    announced = None
    _, header = next(numbered)
    if len(header) == 1 and header[0].isdigit():
        announced = int(header[0])
        _, header = next(numbered, (0, []))
    header = [_NAME, *header]
    missing = [name for name in needed if name not in header]
    if missing:
        raise CELEBA.error(f"{str(path)!r} has no column {' and no '.join(missing)}.")
    places = [(name, header.index(name)) for name in needed]
    count = 0
    for line, fields in numbered:
        count += 1
        if len(fields) == len(header):
            yield Row(line, {name: fields[place] for name, place in places})
        else:
            yield Problem(ProblemKind.MALFORMED_ROW, f"{path.name} line {line}")
    if announced is not None and announced != count:
        yield Problem(ProblemKind.PARTIAL, f"{path.name}: {count} instead of {announced}")
