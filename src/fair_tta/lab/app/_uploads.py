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
from fair_tta.lab.app._questions import Classifiers, FormFields, need_reference
from fair_tta.lab.app._server import UploadLimits
from fair_tta.lab.runs._runner import Progress
from fair_tta.methods._base import Adapter

# Letters, and bytes, of the name of a staged file without its ending
_MAX_NAME = 120

# Letters of a path in a label file; only its end is looked at
_MAX_PATH = 4096


class UploadedFile(NamedTuple):
    """The path of a file on the server, and the visitor's name for it: any text, with folders."""

    path: str
    name: str


def only_images(files: Iterable[UploadedFile]) -> list[UploadedFile]:
    """Return the files with names of images; a folder has other files too."""
    images = []
    for file in files:
        suffix = os.path.splitext(file.name)[1]
        if suffix.lower() in IMAGE_SUFFIXES:
            images.append(file)
    return images


def plain_name(name: str) -> str:
    """Return a name without folders and without characters that disks refuse.

    Example:
        >>> plain_name("../../etc/passwd"), plain_name("images/a b.jpg"), plain_name("..")
        ('passwd', 'a b.jpg', '_')
    """
    letters = ""
    for letter in _last_part(name):
        is_allowed = letter.isprintable() and letter not in '<>:"|?*'
        letters += letter if is_allowed else "_"
    stem, suffix = os.path.splitext(letters)
    stem = re.sub(r"^\.+", "_", stem)[:_MAX_NAME]
    stem = stem.encode()[:_MAX_NAME].decode("utf-8", "ignore")
    return (stem or "_") + suffix[:10]


def stage(files: Sequence[UploadedFile], folder: Path) -> dict[str, UploadedFile]:
    """Link uploads into a new folder under distinct names: ``{name there: upload}``.

    They stay there when Gradio deletes the uploads an hour after they came.
    """
    folder.mkdir(parents=True)
    staged: dict[str, UploadedFile] = {}
    # As disks compare names that ignore case
    folded_names: set[str] = set()
    for number, file in enumerate(files):
        name = plain_name(file.name)
        while _folded(name) in folded_names:
            name = f"{number}-{name}"
        folded_names.add(_folded(name))
        try:
            os.link(file.path, folder / name)
        except FileExistsError:
            # It must not be overwritten: it is the upload of a visitor
            raise
        except OSError:
            # The folder is on another disk
            shutil.copyfile(file.path, folder / name)
        staged[name] = file
    return staged


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def read_header(labels: str | Path, limits: UploadLimits) -> list[str]:
    """Return the columns of a label file, which is text and neither too long nor too wide."""
    with open(labels, "rb") as file:
        # Spreadsheets and parquet files are compressed: a small one may hold very much
        if file.read(4) in (b"PK\3\4", b"PAR1"):
            raise FairTTAError(
                "`labels_csv` should be text: save the table as CSV.",
                argument="labels_csv",
            )
    # One row more than allowed is read, so that a huge file costs no more than a large one
    table = LabelTable(Path(labels), [])
    rows = islice(table.rows(table.header[:1]), limits.rows + 1)
    limits.check("labels_csv", rows=sum(1 for _ in rows), columns=len(table.header))
    return table.header


def guess_columns(columns: list[str]) -> tuple[str | None, str | None, list[str]]:
    """Return the column of paths, that of classes, and what should not matter if one is left.

    Example:
        >>> guess_columns(["file", "place", "label"])
        ('file', 'label', ['place'])
    """
    path_column = usual_column(columns, PATH_COLUMNS)
    labels = [name for name in columns if name != path_column]
    if len(labels) == 1:
        return path_column, labels[0], []
    target = None
    for name in labels:
        if name.lower() in ("class", "label", "target"):
            target = name
            break
    sensitive = [name for name in labels if name != target]
    return path_column, target, sensitive if len(sensitive) == 1 else []


def read_uploaded(labels: Labels, staged: Mapping[str, UploadedFile]) -> LabelValues:
    """Return the rows of an uploaded label file, of staged images only.

    A path in it is just a name here: whatever folder it begins with, it stands for the uploaded
    image whose name it ends with, and for nothing else on this machine.
    """
    # Browsers do not send the folders of images, so several may have one name
    staged_names: defaultdict[str, list[str]] = defaultdict(list)
    for name, file in staged.items():
        staged_names[_last_part(file.name)].append(name)
    values = labels.scan()
    column = values._columns[0]
    rows = []
    for row in values._rows:
        if isinstance(row, LabelRow):
            path = _staged_path(row.cells[column], staged_names)
            row = row._replace(cells={**row.cells, column: path})
        rows.append(row)
    return replace(values, _rows=rows)


def _last_part(path: str) -> str:
    """Return the last part of a path of any machine: ``1.png`` of ``D:\\faces\\1.png``."""
    for part in reversed(re.split(r"[/\\]", path[-_MAX_PATH:])):
        if part.strip() and part not in (".", ".."):
            return part
    return ""


def _staged_path(path: str, staged_names: Mapping[str, Sequence[str]]) -> str:
    """Return the upload that a path stands for, or a text with the reason why there is none."""
    names = staged_names.get(_last_part(path), ())
    if len(names) == 1:
        return names[0]
    if names:
        return f"several uploads are called {plain_name(path)}"
    return f"not uploaded: {plain_name(path)}" if path.strip() else ""


def staged_reference(
    methods: Mapping[str, Adapter], files: Sequence[UploadedFile], out: Path
) -> Path | None:
    """Return a new folder of reference images; None without any, or if no method needs them."""
    if not files or not need_reference(methods):
        return None
    folder = out / "reference"
    stage(files, folder)
    return folder


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
    """Examine images; return the page, the document, and why some could not be used."""
    if not classifier.sensitive:
        raise FairTTAError(
            "`sensitive` should name at least two values (got none).",
            argument="sensitive",
        )
    folder = out / "images"
    problems: list[str] = []
    # Staged images go even if the visitor cancels
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
    files_made = [out / EXAMINATION_PAGE, out / EXAMINATION_FILE]
    if problems:
        files_made.append(out / PROBLEMS_FILE)
        with open(out / PROBLEMS_FILE, "w", encoding="utf-8", newline="") as file:
            for row in ("problem", *problems):
                write_csv_row(file, [row])
    return files_made


def audit_uploads(
    classifiers: Classifiers,
    methods: Mapping[str, Adapter],
    files: Sequence[UploadedFile],
    labels: Labels,
    fields: FormFields,
    out: Path,
    *,
    reference: Sequence[UploadedFile] = (),
    notes: Sequence[str] = (),
    embed_images: bool = False,
    progress: Progress = lambda done, total: None,
) -> list[Path]:
    """Audit images group by group; return the report, then the other files.

    Images are staged in the folder of `labels`, which is new. Names that `fields` lacks are the
    values of the columns.
    """
    if not labels.target or not labels.sensitive:
        raise FairTTAError(
            "choose the column of classes and at least one that should not matter."
        )
    # The header is read for its limits: a visitor may have uploaded anything
    try:
        read_header(labels.file, classifiers.limits)
        values = read_uploaded(labels, stage(files, labels.images))
        result = audit_folder(
            classifiers.get(fields, values),
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
    names = [REPORT_FILE, AUDIT_FILE, CARD_FILE, PREDICTIONS_FILE]
    if result.problems:
        names.append(PROBLEMS_FILE)
    return [out / name for name in names]
