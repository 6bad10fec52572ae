"""Files of visitors, and audits and examinations of them."""

from __future__ import annotations

import csv
import os
import re
import shutil
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fair_tta._io import ENDINGS
from fair_tta.auditing._examine import examine_answers
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import DatasetError, FairTTAError
from fair_tta.lab._runs.bank import ImageSource
from fair_tta.lab._runs.job import job_of
from fair_tta.lab._runs.local import Local
from fair_tta.lab._runs.runner import Runner, batched
from fair_tta.lab.app._questions import Classifiers, Fields, read_sensitive, read_targets
from fair_tta.lab.app._server import mark_used
from fair_tta.lab.data._label_files import LabelTable
from fair_tta.lab.data._labels import PATH_COLUMNS, Labels, LabelValues
from fair_tta.lab.data._records import Problem
from fair_tta.lab.folder import AUDIT, CARD, PREDICTIONS, PROBLEMS, REPORT, audit_folder
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.prediction import Prediction

PATHS = "picture"
"""The column of paths in label files that are written here."""

_LONGEST = 120  # characters of a name
_FAR, _DEEP = 4096, 16  # characters of a path, and parts


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
    """The last part of a name, fit to be a file's: no folders, no signs that no disk has.

    Example:
        >>> plain_name("../../etc/passwd"), plain_name("pictures/a b.jpg"), plain_name("..")
        ('passwd', 'a b.jpg', '_')
    """
    last = _parts(name)[-1:] or ["_"]
    stem, ending = os.path.splitext("".join(map(_plain, last[0])))
    short = re.sub(r"^\.+", "_", stem)[:_LONGEST].encode()[:_LONGEST].decode("utf-8", "ignore")
    return (short or "_") + ending[:10]


def stage(files: Sequence[UploadedFile], folder: Path) -> dict[str, UploadedFile]:
    """Put uploads into a new folder under names of their own: ``{name there: upload}``."""
    folder.mkdir(parents=True)
    staged: dict[str, UploadedFile] = {}
    taken: set[str] = set()  # as disks compare names that do not tell A from a
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


def _plain(sign: str) -> str:
    return sign if sign.isprintable() and sign not in '<>:"|?*' else "_"


def _parts(name: str) -> list[str]:
    """The last of them; more tell nothing."""
    parts = re.split(r"[/\\]", name[-_FAR:])
    return [p for p in parts if p.strip() and p not in (".", "..")][-_DEEP:]


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


Progress = Callable[[int, int], None]
"""Is told how many are finished, and of how many."""

_SHOWN = 5  # problems


def examine_uploads(
    classifier: FairTPTClassifier,
    methods: Mapping[str, Adapter],
    files: Sequence[UploadedFile],
    out: Path,
    *,
    notes: Sequence[str] = (),
    progress: Progress = lambda done, total: None,
) -> list[Path]:
    """Look at pictures; the page first, then the document.

    Args:
        classifier: with sensitive names.
        methods: to be compared with zero-shot, which is left out.
        files: pictures. Those that cannot be used are told on the page.
        out: a folder.
        notes: sentences to begin the warnings with.
        progress: is told after each picture.
    """
    if not classifier.sensitive:
        raise FairTTAError("`What should not matter` should name at least two values (got none).")
    tried = {name: one for name, one in methods.items() if not isinstance(one, ZeroShot)}
    for method in tried.values():
        classifier.with_adapter(method)  # what cannot be used is told before anything is done
    left_out: list[str] = []
    notes = list(notes)
    job = job_of(classifier, [ZeroShot(), *tried.values()], is_kept=False)
    size = classifier.batch_size

    def in_use() -> Iterator[UploadedFile]:
        for some in batched(files, size):
            mark_used(file.path for file in files)  # also those that the page shows at the end
            yield from some

    runner, seed = Runner(job, Local()), classifier.vision.seed
    answered = runner.stream(in_use(), _asked, size=size, seed=seed)

    def predictions() -> Iterator[tuple[str, str, list[Prediction]]]:
        for done, (file, answers) in enumerate(answered, start=1):
            name = plain_name(file.name)
            if isinstance(answers, str):
                left_out.append(answers.replace(repr(file.path), repr(name)))
            else:
                yield name, file.path, [row.prediction for row in answers]
            progress(done, len(files))
        if len(left_out) == len(files):
            raise FairTTAError(f"no picture could be used: {left_out[0]}")
        notes.extend(_told(left_out, len(files)))

    examination = examine_answers(classifier, tried, predictions(), notes=notes)
    out.mkdir(parents=True, exist_ok=True)
    examination.save_html(out / "examine.html")
    examination.save(out / "examine.json")
    return [out / "examine.html", out / "examine.json"]


def _asked(file: UploadedFile) -> ImageSource:
    return ImageSource(plain_name(file.name), file.path)


def _told(left_out: Sequence[str], count: int) -> list[str]:
    if not left_out:
        return []
    more = [f"and {len(left_out) - _SHOWN} more."] if len(left_out) > _SHOWN else []
    return [f"{len(left_out)} of {count} pictures could not be used.", *left_out[:_SHOWN], *more]


@dataclass(frozen=True)
class LabelColumns:
    """Which columns of the CSV file mean what.

    Attributes:
        target: the true class.
        sensitive: what should not matter.
        paths: the names of pictures; None if they are known by the column's name.
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
    """Measure answers group by group; the report first, then the other files.

    Args:
        classifiers: of the model.
        methods: the first is what others are compared with.
        files: pictures.
        labels: the CSV file.
        columns: of it.
        fields: names where they should not be the values of the columns, and the sentence.
        out: a new folder.
        notes: sentences to begin the warnings with.
        progress: is told after each row.
    """
    if not columns.target or not columns.sensitive:
        raise FairTTAError("choose the column of classes and at least one that should not matter.")
    out.mkdir(parents=True)
    mark_used([labels, *(file.path for file in files)])
    try:
        staged = stage(files, out / "pictures")
        kept = (columns.target, *columns.sensitive)
        (out / "labels").mkdir()
        file = out / "labels" / "labels.csv"
        write_staged_labels(labels, kept, columns.paths, staged, file)
        values = Labels(out / "pictures", file, columns.target, columns.sensitive, PATHS).scan()
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
        shutil.rmtree(out / "pictures", ignore_errors=True)
    found = (out / "audit" / name for name in (REPORT, AUDIT, CARD, PREDICTIONS, PROBLEMS))
    return [path for path in found if path.is_file()]


def _classifier(
    classifiers: Classifiers, columns: LabelColumns, fields: Fields, values: LabelValues
) -> FairTPTClassifier:
    one = columns.sensitive[0] if len(columns.sensitive) == 1 else ""
    told = read_sensitive(fields, classifiers.limits, one)
    unknown = [name for name in told if name not in columns.sensitive]
    if unknown:
        raise FairTTAError(
            f"attributes are the chosen columns, {list(columns.sensitive)} (got {unknown}): write "
            f"'{columns.sensitive[0]}: name, name'."
        )
    targets = fields.targets.strip()
    return classifiers.named(
        read_targets(fields, classifiers.limits)
        if targets
        else _found_values(values, columns.target),
        {c: told[c] if c in told else _found_values(values, c) for c in columns.sensitive},
        fields.template,
    )


def _found_values(values: LabelValues, column: str) -> dict[str, str]:
    names = values.names(column)
    if len(names) < 2:
        raise FairTTAError(
            f"column {column!r} should hold at least two different values (it holds {names})."
        )
    return {name: name for name in names}
