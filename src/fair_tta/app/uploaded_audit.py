"""Pictures with a file of labels: the report and the files of an audit."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fair_tta.adapters import Adapter
from fair_tta.app.questions import Classifiers, Fields, read_sensitive, read_targets
from fair_tta.app.sweeping import mark_used
from fair_tta.app.uploaded_examination import Progress
from fair_tta.app.uploads import PATHS, UploadedFile, stage, write_staged_labels
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.folders import Labels, LabelValues, audit_folder
from fair_tta.folders.outputs import AUDIT, CARD, PREDICTIONS, PROBLEMS, REPORT


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
        read_targets(fields, classifiers.limits) if targets else _found_values(values, columns.target),
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
