"""Files of visitors, and examinations and audits of them."""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from fair_tta._io import IMAGE_SUFFIXES, write_csv_row
from fair_tta.classifier import FairTPTClassifier
from fair_tta.datasets._label_files import LabelRow, LabelTable
from fair_tta.datasets._label_values import LabelValues
from fair_tta.datasets._labels import Labels
from fair_tta.datasets._path_columns import PATH_COLUMNS, usual_column
from fair_tta.errors import FairTTAError
from fair_tta.lab._folder import (
    AUDIT_FILE,
    CARD_FILE,
    PREDICTIONS_FILE,
    PROBLEMS_FILE,
    REPORT_FILE,
    audit_folder,
)
from fair_tta.lab._folder_options import FolderExaminationOptions
from fair_tta.lab._unlabelled import (
    EXAMINATION_FILE,
    EXAMINATION_PAGE,
    examine_folder,
)
from fair_tta.lab.app._questions import Classifiers, Fields, need_reference
from fair_tta.lab.app._server import UploadLimits
from fair_tta.lab.runs._runner import Progress
from fair_tta.methods._base import Adapter

_LONGEST = 120  # characters of a name
_FAR = 4096  # characters of a path


class UploadedFile(NamedTuple):
    """Where the server has put a file, and what the visitor calls it: any text, with folders."""

    path: str
    name: str


def images_among(files: Iterable[UploadedFile]) -> list[UploadedFile]:
    """Those that look like images by their names; a folder has other files too."""
    return [
        file
        for file in files
        if os.path.splitext(file.name)[1].lower() in IMAGE_SUFFIXES
    ]


def plain_name(name: str) -> str:
    """A name without folders and without characters that disks refuse.

    Example:
        >>> plain_name("../../etc/passwd"), plain_name("images/a b.jpg"), plain_name("..")
        ('passwd', 'a b.jpg', '_')
    """
    plain = [c if c.isprintable() and c not in '<>:"|?*' else "_" for c in _last(name)]
    stem, ending = os.path.splitext("".join(plain))
    short = (
        re.sub(r"^\.+", "_", stem)[:_LONGEST]
        .encode()[:_LONGEST]
        .decode("utf-8", "ignore")
    )
    return (short or "_") + ending[:10]


def stage(files: Sequence[UploadedFile], folder: Path) -> dict[str, UploadedFile]:
    """Link uploads into a new folder under distinct names: ``{name there: upload}``.

    They stay there when Gradio deletes the uploads an hour after they came.
    """
    folder.mkdir(parents=True)
    staged: dict[str, UploadedFile] = {}
    taken: set[str] = set()  # as disks compare names that ignore case
    for place, file in enumerate(files):
        name = plain_name(file.name)
        while (same := unicodedata.normalize("NFKC", name).casefold()) in taken:
            name = f"{place}-{name}"
        taken.add(same)
        try:
            os.link(file.path, folder / name)
        except FileExistsError:  # it must not be written to: it is a visitor's
            raise
        except OSError:  # another disk
            shutil.copyfile(file.path, folder / name)
        staged[name] = file
    return staged


def header(labels: str | Path, limits: UploadLimits) -> list[str]:
    """The columns of a label file, which is text and neither too long nor too wide."""
    with open(labels, "rb") as file:
        if file.read(4) in (
            b"PK\3\4",
            b"PAR1",
        ):  # which may be small and hold very much
            raise FairTTAError(
                "`labels_csv` should be text: save the table as CSV.",
                argument="labels_csv",
            )
    table = LabelTable(Path(labels), [])
    rows = islice(table.rows(table.header[:1]), limits.rows + 1)
    limits.check("labels_csv", rows=sum(1 for _ in rows), columns=len(table.header))
    return table.header


def guessed(columns: list[str]) -> tuple[str | None, str | None, list[str]]:
    """The column of paths, that of classes, and what should not matter if one is left.

    Example:
        >>> guessed(["file", "place", "label"])
        ('file', 'label', ['place'])
    """
    where = usual_column(columns, PATH_COLUMNS)
    others = [name for name in columns if name != where]
    classes = next(
        (n for n in others if n.lower() in ("class", "label", "target")), None
    )
    if len(others) == 1:
        classes = others[0]
    left = [name for name in others if name != classes]
    return where, classes, left if len(left) == 1 else []


def read_uploaded(labels: Labels, staged: Mapping[str, UploadedFile]) -> LabelValues:
    """The rows of an uploaded label file, of staged images only.

    A path in it is just a name here: whatever folder it begins with, it stands for the uploaded
    image whose name it ends with, and for nothing else on this machine.
    """
    known: defaultdict[str, list[str]] = defaultdict(list)
    for name, file in staged.items():
        known[_last(file.name)].append(name)
    values = labels.scan()
    column = values._columns[0]
    rows = [
        row._replace(cells={**row.cells, column: _found(row.cells[column], known)})
        if isinstance(row, LabelRow)
        else row
        for row in values._rows
    ]
    return replace(values, _rows=rows)


def _last(name: str) -> str:
    """The last part of a path of any machine: ``1.png`` of ``D:\\faces\\1.png``."""
    parts = re.split(r"[/\\]", name[-_FAR:])
    return next((p for p in reversed(parts) if p.strip() and p not in (".", "..")), "")


def _found(cell: str, known: Mapping[str, Sequence[str]]) -> str:
    """The upload that a path stands for, or why there is none; that names no file either."""
    names = known.get(_last(cell), ())
    if len(names) == 1:
        return names[0]
    if names:
        return f"several uploads are called {plain_name(cell)}"
    return f"not uploaded: {plain_name(cell)}" if cell.strip() else ""


def staged_reference(
    methods: Mapping[str, Adapter], files: Sequence[UploadedFile], out: Path
) -> Path | None:
    """A new folder of reference images; None without any, or if no method needs them."""
    if not files or not need_reference(methods):
        return None
    stage(files, out / "reference")
    return out / "reference"


def examine_uploads(
    classifier: FairTPTClassifier,
    methods: Mapping[str, Adapter],
    files: Sequence[UploadedFile],
    out: Path,
    *,
    reference: Sequence[UploadedFile] = (),
    notes: Sequence[str] = (),
    embed_images: bool = False,
    progress: Progress = lambda done, total: None,
) -> list[Path]:
    """Examine images; the page first, then the document, and why some could not be used."""
    if not classifier.sensitive:
        raise FairTTAError(
            "`sensitive` should name at least two values (got none).",
            argument="sensitive",
        )
    folder, problems = out / "images", list[str]()
    try:
        paths = [str(folder / name) for name in stage(files, folder)]
        options = FolderExaminationOptions(
            reference=staged_reference(methods, reference, out),
            notes=notes,
            embed_images=embed_images,
            problem=lambda reason: problems.append(
                reason.replace(f"{folder}{os.sep}", "")
            ),
            progress=lambda done, _: progress(done, len(files)),
            fitting=lambda done, _: progress(done, len(reference) or len(files)),
        )
        examine_folder(classifier, methods, lambda: paths, out, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not problems:
        return [out / EXAMINATION_PAGE, out / EXAMINATION_FILE]
    with open(out / PROBLEMS_FILE, "w", encoding="utf-8", newline="") as file:
        for row in ("problem", *problems):
            write_csv_row(file, [row])
    return [out / EXAMINATION_PAGE, out / EXAMINATION_FILE, out / PROBLEMS_FILE]


def audit_uploads(
    classifiers: Classifiers,
    methods: Mapping[str, Adapter],
    files: Sequence[UploadedFile],
    labels: Labels,
    fields: Fields,
    out: Path,
    *,
    reference: Sequence[UploadedFile] = (),
    notes: Sequence[str] = (),
    embed_images: bool = False,
    progress: Progress = lambda done, total: None,
) -> list[Path]:
    """Audit images group by group; the report first, then the other files.

    Images are staged in the folder of `labels`, which is new. Names that `fields` lacks are the
    values of the columns.
    """
    if not labels.target or not labels.sensitive:
        raise FairTTAError(
            "choose the column of classes and at least one that should not matter."
        )
    try:
        header(labels.file, classifiers.limits)
        values = read_uploaded(labels, stage(files, labels.images))
        result = audit_folder(
            classifiers.of(fields, values),
            methods,
            values,
            out,
            reference=staged_reference(methods, reference, out),
            notes=notes,
            embed_images=embed_images,
            progress=progress,
            fitting=lambda done, _: progress(done, len(reference) or len(files)),
            skip_unknown=True,
        )
    finally:
        shutil.rmtree(labels.images, ignore_errors=True)
    names = [
        REPORT_FILE,
        AUDIT_FILE,
        CARD_FILE,
        PREDICTIONS_FILE,
        *([PROBLEMS_FILE] if result.problems else []),
    ]
    return [out / name for name in names]
