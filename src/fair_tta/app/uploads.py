"""Files of visitors: names are never used as paths, and labels name uploaded pictures only."""

from __future__ import annotations

import csv
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fair_tta.data.folder import PATH_COLUMNS
from fair_tta.data.label_files import LabelTable
from fair_tta.data.problems import Problem
from fair_tta.data.records import DatasetError
from fair_tta.vision.files import ENDINGS

PATHS = "picture"
"""The column of paths in label files that are written here."""

_LONGEST = 120  # characters of a name


class UploadedFile(NamedTuple):
    """A file that was uploaded.

    Attributes:
        path: where the server has put it.
        name: what the visitor calls it, perhaps with folders; any text at all.
    """

    path: str
    name: str


def pictures_among(files: Iterable[UploadedFile]) -> list[UploadedFile]:
    """Those that look like pictures by their names; a folder has other files too."""
    return [file for file in files if os.path.splitext(file.name)[1].lower() in ENDINGS]


def plain_name(name: str) -> str:
    """The last part of a name, fit to be a file's: no folders, no signs that are not printed.

    Example:
        >>> plain_name("../../etc/passwd"), plain_name("pictures/a b.jpg"), plain_name("..")
        ('passwd', 'a b.jpg', '_')
    """
    last = _parts(name)[-1:] or ["_"]
    stem, ending = os.path.splitext("".join(c if c.isprintable() else "_" for c in last[0]))
    short = re.sub(r"^\.+", "_", stem)[:_LONGEST].encode()[:_LONGEST].decode("utf-8", "ignore")
    return (short or "_") + ending[:10]


def stage(files: Sequence[UploadedFile], folder: Path) -> dict[str, UploadedFile]:
    """Put uploads into a new folder under names of their own: ``{name there: upload}``."""
    folder.mkdir(parents=True)
    staged: dict[str, UploadedFile] = {}
    for place, file in enumerate(files):
        name = plain_name(file.name)
        if name.casefold() in map(str.casefold, staged):
            name = f"{place}-{name}"
        try:
            os.link(file.path, folder / name)
        except OSError:  # another disk
            shutil.copyfile(file.path, folder / name)
        staged[name] = file
    return staged


def header(labels: str | Path) -> list[str]:
    """The columns of a label file."""
    return LabelTable(Path(labels), []).header


def path_column(columns: Sequence[str]) -> str | None:
    """The column that has the names of pictures, if one is known by its name."""
    names = {name.lower(): name for name in reversed(columns)}
    return next((names[known] for known in PATH_COLUMNS if known in names), None)


def write_staged_labels(
    labels: str | Path,
    columns: Sequence[str],
    paths: str | None,
    staged: dict[str, UploadedFile],
    out: Path,
) -> None:
    """The same rows with the names of staged pictures in the place of paths.

    A path in an uploaded file is just a name here: whatever folder it begins with, it stands for
    the uploaded picture whose name it ends with, and for nothing else on this machine.

    Args:
        labels: the uploaded file.
        columns: what to keep beside the paths.
        paths: the column of paths; known by its name if None.
        staged: what `stage` gave.
        out: the file to write.
    """
    chosen = paths or path_column(header(labels))
    if chosen is None:
        raise DatasetError(
            f"the CSV file has no column of paths that is known by its name (it has "
            f"{header(labels)}): choose `Column of paths`."
        )
    table = LabelTable(Path(labels), [chosen, *columns])
    known = _by_endings(staged)
    with out.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow([PATHS, *columns])
        for row in table.rows([chosen, *columns]):
            if isinstance(row, Problem):
                if not row.kind.is_of_file:
                    rows.writerow(["not as long as the header"])  # stays a problem of its own
                continue
            name = _found(row.cells[chosen], known)
            rows.writerow([name, *(row.cells[column] for column in columns)])


def _parts(name: str) -> list[str]:
    return [p for p in re.split(r"[/\\]", name) if p.strip() and p not in (".", "..")]


def _endings(name: str) -> list[tuple[str, ...]]:
    """``a/b/c`` ends with a/b/c, b/c and c."""
    parts = _parts(name)
    return [tuple(parts[i:]) for i in range(len(parts))]


def _by_endings(staged: dict[str, UploadedFile]) -> dict[tuple[str, ...], set[str]]:
    known: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for name, file in staged.items():
        for ending in _endings(file.name):
            known[ending].add(name)
    return known


def _found(cell: str, known: dict[tuple[str, ...], set[str]]) -> str:
    for ending in _endings(cell):
        names = known.get(ending, set())
        if len(names) == 1:
            return next(iter(names))
        if names:
            return f"several uploads are called {plain_name(cell)}"
    return f"not uploaded: {plain_name(cell)}" if cell.strip() else ""
