"""Files of visitors, and examinations and audits of them."""

from __future__ import annotations

import os
import re
import shutil
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from fair_tta._io import ENDINGS
from fair_tta.auditing._examine import examine_answers
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.lab._runs.bank import ImageSource
from fair_tta.lab._runs.job import job_of
from fair_tta.lab._runs.local import Local
from fair_tta.lab._runs.runner import Progress, Runner
from fair_tta.lab.app._questions import Classifiers, Fields, read_sensitive, read_targets
from fair_tta.lab.data._label_files import LabelTable, Row
from fair_tta.lab.data._labels import PATH_COLUMNS, Labels, LabelValues
from fair_tta.lab.folder import AUDIT, CARD, PREDICTIONS, PROBLEMS, REPORT, audit_folder
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.prediction import Prediction

_LONGEST = 120  # characters of a name
_FAR, _DEEP = 4096, 16  # characters of a path, and parts
_LISTED = 5  # images that could not be used


class UploadedFile(NamedTuple):
    """A file that was uploaded.

    Attributes:
        path: where the server has put it.
        name: what the visitor calls it, perhaps with folders; any text at all.
    """

    path: str
    name: str


def images_among(files: Iterable[UploadedFile]) -> list[UploadedFile]:
    """Those that look like images by their names; a folder has other files too."""
    return [file for file in files if os.path.splitext(file.name)[1].lower() in ENDINGS]


def plain_name(name: str) -> str:
    """The last part of a name as a file name: no folders, no characters that disks refuse.

    Example:
        >>> plain_name("../../etc/passwd"), plain_name("images/a b.jpg"), plain_name("..")
        ('passwd', 'a b.jpg', '_')
    """
    last = _parts(name)[-1:] or ["_"]
    stem, ending = os.path.splitext("".join(map(_plain, last[0])))
    short = re.sub(r"^\.+", "_", stem)[:_LONGEST].encode()[:_LONGEST].decode("utf-8", "ignore")
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


def header(labels: str | Path) -> list[str]:
    """The columns of a label file."""
    return LabelTable(Path(labels), []).header


def path_column(columns: Sequence[str]) -> str | None:
    """The column that has the names of images, if one is known by its name."""
    names = {name.lower(): name for name in reversed(columns)}
    return next((names[known] for known in PATH_COLUMNS if known in names), None)


def read_uploaded(labels: Labels, staged: Mapping[str, UploadedFile]) -> LabelValues:
    """The rows of an uploaded label file, of staged images only.

    A path in it is just a name here: whatever folder it begins with, it stands for the uploaded
    image whose name it ends with, and for nothing else on this machine.

    Args:
        labels: the file, and the folder of the staged images.
        staged: what `stage` returned.
    """
    values, known = labels.scan(), _by_endings(staged)
    column = values._columns[0]
    rows = [
        replace(row, cells={**row.cells, column: _found(row.cells[column], known)})
        if isinstance(row, Row)
        else row
        for row in values._rows
    ]
    return replace(values, _rows=rows)


def _plain(sign: str) -> str:
    return sign if sign.isprintable() and sign not in '<>:"|?*' else "_"


def _parts(name: str) -> list[str]:
    """The last of them."""
    parts = re.split(r"[/\\]", name[-_FAR:])
    return [p for p in parts if p.strip() and p not in (".", "..")][-_DEEP:]


def _endings(name: str) -> list[tuple[str, ...]]:
    """``a/b/c`` ends with a/b/c, b/c and c."""
    parts = _parts(name)
    return [tuple(parts[i:]) for i in range(len(parts))]


def _by_endings(staged: Mapping[str, UploadedFile]) -> dict[tuple[str, ...], set[str]]:
    known: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
    for name, file in staged.items():
        for ending in _endings(file.name):
            known[ending].add(name)
    return known


def _found(cell: str, known: Mapping[tuple[str, ...], set[str]]) -> str:
    """The upload that a path stands for, or why there is none; that names no file either."""
    for ending in _endings(cell):
        names = known.get(ending, set())
        if len(names) == 1:
            return next(iter(names))
        if names:
            return f"several uploads are called {plain_name(cell)}"
    return f"not uploaded: {plain_name(cell)}" if cell.strip() else ""


def examine_uploads(
    classifier: FairTPTClassifier,
    methods: Mapping[str, Adapter],
    files: Sequence[UploadedFile],
    out: Path,
    *,
    notes: Sequence[str] = (),
    progress: Progress = lambda done, total: None,
) -> list[Path]:
    """Examine images; the page first, then the document.

    Args:
        classifier: with sensitive names.
        methods: to be compared with zero-shot, which is left out.
        files: images. Those that cannot be used are listed on the page.
        out: a new folder.
        notes: sentences to begin the warnings with.
        progress: called after each image.
    """
    if not classifier.sensitive:
        raise FairTTAError("`What should not matter` should name at least two values (got none).")
    tried = {name: one for name, one in methods.items() if not isinstance(one, ZeroShot)}
    for method in tried.values():
        classifier.with_adapter(method)  # what cannot be used is an error before any work is done
    folder, left_out, remarks = out / "images", list[str](), list(notes)
    runner = Runner(job_of(classifier, [ZeroShot(), *tried.values()], is_kept=False), Local())

    def answers() -> Iterator[tuple[str, str, list[Prediction]]]:
        answered = runner.stream(
            stage(files, folder),
            lambda name: ImageSource(name, str(folder / name)),
            size=classifier.batch_size,
            seed=classifier.vision.seed,
        )
        for done, (name, found) in enumerate(answered, start=1):
            path = str(folder / name)
            if isinstance(found, str):
                left_out.append(found.replace(repr(path), repr(name)))
            else:
                yield name, path, [row.prediction for row in found]
            progress(done, len(files))
        if len(left_out) == len(files):
            raise FairTTAError(f"no image could be used: {left_out[0]}")
        remarks.extend(_unusable(left_out, len(files)))

    try:
        examination = examine_answers(classifier, tried, answers(), notes=remarks)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    examination.save_html(out / "examine.html")
    examination.save(out / "examine.json")
    return [out / "examine.html", out / "examine.json"]


def _unusable(left_out: Sequence[str], count: int) -> list[str]:
    if not left_out:
        return []
    more = [f"and {len(left_out) - _LISTED} more."] if len(left_out) > _LISTED else []
    return [f"{len(left_out)} of {count} images could not be used.", *left_out[:_LISTED], *more]


@dataclass(frozen=True)
class LabelColumns:
    """Which columns of the CSV file mean what.

    Attributes:
        target: the true class.
        sensitive: what should not matter.
        paths: the names of images; None if they are known by the column's name.
    """

    target: str
    sensitive: tuple[str, ...]
    paths: str | None = None


def audit_uploads(
    classifiers: Classifiers,
    methods: Mapping[str, Adapter],
    files: Sequence[UploadedFile],
    labels: str,
    columns: LabelColumns,
    fields: Fields,
    out: Path,
    *,
    notes: Sequence[str] = (),
    progress: Progress = lambda done, total: None,
) -> list[Path]:
    """Audit images group by group; the report first, then the other files.

    Args:
        classifiers: of the model.
        methods: the first is what others are compared with.
        files: images.
        labels: the CSV file.
        columns: of it.
        fields: names where they should not be the values of the columns, and the sentence.
        out: a new folder.
        notes: sentences to begin the warnings with.
        progress: called after each row.
    """
    if not columns.target or not columns.sensitive:
        raise FairTTAError("choose the column of classes and at least one that should not matter.")
    try:
        staged = stage(files, out / "images")
        chosen = columns.target, columns.sensitive, columns.paths
        values = read_uploaded(Labels(out / "images", Path(labels), *chosen), staged)
        audit_folder(
            _classifier(classifiers, columns, fields, values),
            methods,
            values,
            out / "audit",
            notes=notes,
            progress=progress,
            skip_unknown=True,
        )
    finally:
        shutil.rmtree(out / "images", ignore_errors=True)
    found = (out / "audit" / name for name in (REPORT, AUDIT, CARD, PREDICTIONS, PROBLEMS))
    return [path for path in found if path.is_file()]


def _classifier(
    classifiers: Classifiers, columns: LabelColumns, fields: Fields, values: LabelValues
) -> FairTPTClassifier:
    one = columns.sensitive[0] if len(columns.sensitive) == 1 else ""
    named = read_sensitive(fields, classifiers.limits, one)
    unknown = [name for name in named if name not in columns.sensitive]
    if unknown:
        raise FairTTAError(
            f"attributes are the chosen columns, {list(columns.sensitive)} (got {unknown}): write "
            f"'{columns.sensitive[0]}: name, name'."
        )
    targets = read_targets(fields, classifiers.limits) if fields.targets.strip() else None
    return classifiers.named(
        targets or _found_values(values, columns.target),
        {c: named[c] if c in named else _found_values(values, c) for c in columns.sensitive},
        fields.template,
    )


def _found_values(values: LabelValues, column: str) -> dict[str, str]:
    names = values.names(column)
    if len(names) < 2:
        raise FairTTAError(
            f"column {column!r} should hold at least two different values (it holds {names})."
        )
    return {name: name for name in names}
