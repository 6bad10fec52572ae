"""Audit of a folder, row by row; finished rows are on disk and are not computed again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from shutil import rmtree
from typing import IO, Any

from msgspec import structs

from fair_tta._identity import classifier_provenance
from fair_tta._io import (
    atomic_file,
    printable,
    remove_stale_parts,
    replace_file,
    write_csv_row,
)
from fair_tta.auditing import Audit, compare
from fair_tta.auditing._document import Threshold
from fair_tta.auditing._judge import judge_threshold, read_thresholds
from fair_tta.auditing._run import parse_harmful
from fair_tta.classifier import FairTPTClassifier
from fair_tta.datasets._label_values import LabelValues
from fair_tta.datasets._records import (
    Problem,
    ProblemKind,
    Problems,
    Record,
    check_limit_and_sample,
    choose_sample,
)
from fair_tta.errors import FairTTAError
from fair_tta.images._stored import ImageSource
from fair_tta.lab._folder_options import FolderAuditOptions
from fair_tta.lab._gallery import GroupGallery
from fair_tta.lab._unlabelled import FITS_FOLDER
from fair_tta.lab.report import write_report
from fair_tta.lab.runs._audit_rows import add_row, audit_rows
from fair_tta.lab.runs._job import make_job
from fair_tta.lab.runs._local import Local
from fair_tta.lab.runs._reference import FittedAdapters, fit_adapters
from fair_tta.lab.runs._runner import Runner
from fair_tta.lab.runs._store import ROWS_FILE, Store, StoredRow
from fair_tta.lab.runs._worker import ImageRows
from fair_tta.methods._base import Adapter
from fair_tta.metrics._clusters import check_clusters, read_clusters
from fair_tta.metrics._scores import AnswerTableBuilder

AUDIT_FILE = "audit.json"
REPORT_FILE = "report.html"
CARD_FILE = "card.md"
PREDICTIONS_FILE = "predictions.csv"
PROBLEMS_FILE = "problems.csv"
AUDIT_FILES = (AUDIT_FILE, REPORT_FILE, CARD_FILE, PREDICTIONS_FILE, PROBLEMS_FILE)


@dataclass(frozen=True, eq=False)
class FolderAudit:
    """The result of `audit_folder`.

    Attributes:
        audit: the figures. Warnings of small groups are in `Audit.warnings` only.
        problems: rows and images that were left out.
        out: the folder of the files; None if none were written.
        adapters: the methods that answered, fitted if they had to be.
        embedded: how many images are embedded in the report.
    """

    audit: Audit
    problems: Problems
    out: Path | None
    adapters: Mapping[str, Adapter]
    embedded: int = 0


_JOINED_BY_POSITION_NOTE = (
    "The features have no ids: they were joined with the labels by the order of the rows of both, "
    "which nothing here can check."
)

NumberedRow = tuple[int, Record | Problem]
"""A row of the label file with its number; a problem of the whole file has number 0."""


def audit_folder(
    classifier: FairTPTClassifier,
    adapters: Mapping[str, Adapter],
    values: LabelValues,
    out: str | os.PathLike[str],
    **options: Any,
) -> FolderAudit:
    """Classify the images of a folder with several adapters and measure the answers.

    Images pass by in batches; a few numbers of each stay in memory. Finished answers are
    in ``rows.sqlite`` of `out`: after Ctrl-C, a kill or a power cut the same call resumes
    there and ends with the same rows; a call with one more adapter computes the answers
    of that adapter only. An answer belongs to the content of an image, the model, the
    prompts, the method and the seed. Everything else may change between calls, except the
    batch size for methods whose `needs` have ``other_images``. Rows and images that cannot
    be used are left out, listed in ``problems.csv``, and tried again by the next call.

    Args:
        classifier: its adapter does not matter. Its targets are the labels of the target
            column; an attribute with the name of a sensitive column has the labels of
            that column.
        adapters: by the names of their runs; others are compared with the first.
        values: ``Labels(...).scan()``.
        out: a folder for ``rows.sqlite``, ``audit.json``, ``report.html``, ``card.md``,
            ``predictions.csv`` and ``problems.csv``; made if it does not exist.
        **options: fields of `fair_tta.lab._folder_options.FolderAuditOptions`, which
            explains them: ``skip_unknown limit sample harmful interval restart
            embed_images reference reference_is_data fail_if fail_on notes progress
            fitting engine model conclude``.
    """
    return FolderRun(
        classifier, adapters, values, Path(out), FolderAuditOptions(**options)
    ).audit()


@dataclass(frozen=True, eq=False)
class FolderRun:
    """One call of `audit_folder`, stage by stage."""

    classifier: FairTPTClassifier
    adapters: Mapping[str, Adapter]
    values: LabelValues
    folder: Path
    options: FolderAuditOptions

    def audit(self) -> FolderAudit:
        """Return the audit after its files were written."""
        # Options are checked before any image is read: reading may take hours
        thresholds = self._check_options()
        rows = self._choose_rows()
        fitted = self._fit(rows)
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_stale_parts(self.folder)  # partial files of killed runs

        answers = _Answers(fitted.adapters)
        with (
            Store(self.folder / ROWS_FILE, restart=self.options.restart) as store,
            atomic_file(self.folder / PROBLEMS_FILE) as problems_csv,
            atomic_file(self.folder / PREDICTIONS_FILE) as predictions_csv,
        ):
            self._answer(rows, store, answers, problems_csv, predictions_csv)
            if answers.is_empty:
                # An earlier audit stays, and so does the list of its problems
                if not (self.folder / AUDIT_FILE).exists():
                    replace_file(problems_csv, self.folder / PROBLEMS_FILE)
                lines = ["no row could be used.", *answers.problems.lines()]
                raise FairTTAError("\n".join(lines))
            rmtree(self.folder / FITS_FOLDER, ignore_errors=True)

            # The CSV files replace earlier ones after all others are written
            audit = self._measure(answers, fitted)
            audit = self._finish(audit, answers, fitted, thresholds)
            n_embedded = self._write(audit, answers.gallery)
        return FolderAudit(
            audit, answers.problems, self.folder, fitted.adapters, n_embedded
        )

    def _check_options(self) -> list[Threshold]:
        """Return the thresholds, or raise if an option cannot be used."""
        options = self.options
        if not self.adapters:
            raise FairTTAError(
                "`adapters` should name at least one adapter (got none).",
                argument="adapters",
            )
        parse_harmful(options.harmful, self.classifier.targets)
        check_limit_and_sample(options.limit, options.sample)

        # The label file may lie in the output folder, but must not be overwritten
        label_file = self.values.labels.file
        outputs = {(self.folder / name).resolve() for name in (ROWS_FILE, *AUDIT_FILES)}
        if label_file.resolve() in outputs:
            raise FairTTAError(
                f"`labels_csv` should not be a file that the audit writes (got "
                f"{str(label_file)!r}): copy it elsewhere, or choose another --out.",
                argument="labels_csv",
            )
        return read_thresholds(options.fail_if, options.fail_on, self.adapters)

    @cached_property
    def _labels_of_columns(self) -> dict[str, Sequence[str]]:
        """The labels of each column: those of the classifier, otherwise those of the file."""
        # Labels of the classifier come first: all of them are reported, even without images
        labels = self.values.labels
        names: dict[str, Sequence[str]] = {labels.target: self.classifier.targets}
        for column in labels.sensitive:
            names[column] = self.classifier.sensitive.get(
                column, tuple(self.values.labels_in(column))
            )
        return names

    def _choose_rows(self) -> list[NumberedRow]:
        """Return the first rows, or a sample of them, with all problems of whole files."""
        options = self.options
        allowed = self.values.allowed_values(
            self._labels_of_columns, skip_unknown=options.skip_unknown
        )
        rows = _numbered(self.values.records(allowed))
        limit = options.limit
        if limit is not None:
            # By number, as problems of the whole file do not count
            rows = takewhile(lambda row: row[0] <= limit, rows)
        seed = self.classifier._vision.seed
        chosen = list(
            choose_sample(
                rows, None, options.sample, seed, key=_key_of_row, group=_group_of_row
            )
        )
        if self.values.labels.cluster is not None:
            clusters = [row.cluster for _, row in chosen if isinstance(row, Record)]
            check_clusters(read_clusters(clusters, len(clusters)))
        return chosen

    def _fit(self, rows: Sequence[NumberedRow]) -> FittedAdapters:
        """Return the adapters, fitted on the reference or cross-fitted on the rows."""
        return fit_adapters(
            self.classifier,
            self.adapters,
            self.options.reference,
            lambda: filter(None, map(self._find_image, rows)),
            classes=[row.target for _, row in rows if isinstance(row, Record)],
            reference_is_data=self.options.reference_is_data,
            kept=self.folder / FITS_FOLDER,
            progress=self.options.fitting,
        )

    def _find_image(self, row: NumberedRow) -> ImageSource | None:
        """Return the image or stored features of a row; None for a problem."""
        record = row[1]
        if isinstance(record, Problem):
            return None
        features = self.values.labels.features
        stored = None if features is None else features.source(record.key)
        return stored or ImageSource(record.key, _absolute_path(record))

    def _answer(
        self,
        rows: Sequence[NumberedRow],
        store: Store,
        answers: _Answers,
        problems_csv: Path,
        predictions_csv: Path,
    ) -> None:
        """Answer the rows batch by batch, and write each to one of the CSV files."""
        options = self.options
        job = make_job(self.classifier, answers.adapters.values(), options.model)
        batch_size = self.classifier._batch_size
        answered = Runner(job, options.engine or Local(), store).stream(
            rows,
            self._find_image,
            size=batch_size,
            seed=self.classifier._vision.seed,
            read_ahead=True,
        )
        # The rows that the progress bar expects; problems of the whole file are not rows
        n_rows = self.values.row_count
        n_expected = min(n_rows, options.limit or n_rows, options.sample or n_rows)
        n_finished = 0
        options.progress(n_finished, n_expected)

        with (
            _open_for_rows(problems_csv) as problems_file,
            _open_for_rows(predictions_csv) as predictions_file,
        ):
            write_csv_row(problems_file, ["row", "problem", "what"])
            attributes = self.values.labels.sensitive
            header = _predictions_header(attributes, answers.tables)
            write_csv_row(predictions_file, header)
            for position, ((number, row), stored) in enumerate(answered, start=1):
                if number:
                    n_finished += 1
                problem = answers.add(row, stored)
                if problem is not None:
                    cells: list[object] = [number or ""]
                    cells += [problem.kind.value, problem.detail]
                    write_csv_row(problems_file, cells)
                elif isinstance(row, Record) and not isinstance(stored, str):
                    cells = _prediction_cells(number, row, stored)
                    write_csv_row(predictions_file, cells)
                if position % batch_size == 0 or position == len(rows):
                    options.progress(n_finished, max(n_finished, n_expected))

    def _measure(self, answers: _Answers, fitted: FittedAdapters) -> Audit:
        """Return the figures of all runs, compared with the first."""
        labels = self.values.labels
        provenance = {
            **classifier_provenance(self.classifier),
            "data": {
                "labels": printable(labels.file.name),
                "images": printable(labels.images.resolve().name),
                "target_column": labels.target,
                "sensitive_columns": list(labels.sensitive),
                "path_column": self.values.path_column,
                "cluster_column": labels.cluster,
                "by_position": labels.is_joined_by_position,
                "rename": {
                    column: dict(names) for column, names in labels.rename.items()
                },
                "limit": self.options.limit,
                "sample": self.options.sample,
            },
        }
        if fitted.provenance:
            provenance["reference"] = fitted.provenance
        # Names of images are private unless the images are embedded anyway
        named = self.options.embed_images
        provenance["problems"] = answers.problems.to_dict(named=named)
        # One audit for each method, of the same rows
        audits = []
        for name, table in answers.tables.items():
            audits.append(
                audit_rows(
                    table,
                    name,
                    fitted.adapters[name],
                    targets=self.classifier.targets,
                    values=self._labels_of_columns,
                    harmful=self.options.harmful,
                    interval=self.options.interval,
                    provenance=provenance,
                )
            )
        return audits[0] if len(audits) == 1 else compare(audits)

    def _finish(
        self,
        audit: Audit,
        answers: _Answers,
        fitted: FittedAdapters,
        thresholds: Sequence[Threshold],
    ) -> Audit:
        """Return the audit with its remarks, outcomes of thresholds and conclusion."""
        options = self.options
        document = audit.document
        # Remarks say which rows and methods the figures are of: they come before the warnings
        remarks = [*options.notes]
        if self.values.labels.is_joined_by_position:
            remarks.append(_JOINED_BY_POSITION_NOTE)
        remarks += fitted.notes
        if options.limit is not None:
            remarks.append(f"Not all rows were used: the first {options.limit}.")
        if options.sample is not None:
            remarks.append(f"Not all rows were used: a sample of {answers.n_records}.")
        finished = structs.replace(
            document,
            warnings=(*remarks, *audit.warnings),
            thresholds=tuple(
                judge_threshold(threshold, document) for threshold in thresholds
            ),
            provenance={**document.provenance, **options.conclude(document)},
        )
        return replace(audit, document=finished)

    def _write(self, audit: Audit, gallery: GroupGallery) -> int:
        """Write the document, the report and the card; return how many images are embedded."""
        # Of stored features there are no images to show
        images = []
        if self.options.embed_images and self.values.labels.features is None:
            images = gallery.images()
        audit.save(self.folder / AUDIT_FILE)
        write_report(audit, self.folder / REPORT_FILE, gallery=images)
        write_report(audit, self.folder / CARD_FILE)
        return len(images)


class _Answers:
    """Numbers for the figures, problems, and images to show, collected row by row.

    Attributes:
        adapters: by the names of their runs.
        tables: the numbers of each run.
        problems: rows and images that were left out.
        gallery: candidates for the images in the report.
        n_records: how many rows had labels, readable image or not.
    """

    def __init__(self, adapters: Mapping[str, Adapter]) -> None:
        self.adapters = adapters
        self.tables = {name: AnswerTableBuilder(keep_beliefs=True) for name in adapters}
        self.problems = Problems()
        self.gallery = GroupGallery(list(adapters))
        self.n_records = 0

    @property
    def is_empty(self) -> bool:
        """Return True if no row was answered."""
        return not any(table.labels for table in self.tables.values())

    def add(self, row: Record | Problem, stored: ImageRows) -> Problem | None:
        """Add a row with its answers; return the problem if there is one."""
        if isinstance(row, Record):
            self.n_records += 1
            if not isinstance(stored, str):
                for table, answer in zip(self.tables.values(), stored, strict=True):
                    add_row(table, row, answer)
                self.gallery.add(row, stored)
                return None
            # The reason names the absolute path, which the key of the row replaces
            reason = stored.replace(repr(_absolute_path(row)), "it")
            row = Problem(ProblemKind.UNREADABLE, f"{row.key}: {reason}")
        self.problems = self.problems.add(row)
        return row


def _open_for_rows(path: Path) -> IO[str]:
    return open(path, "w", encoding="utf-8", newline="")


def _predictions_header(attributes: Iterable[str], runs: Iterable[str]) -> list[str]:
    header = ["image", "row", "target"]
    header += [f"sensitive: {attribute}" for attribute in attributes]
    for run in runs:
        header += [f"{run}: answer", f"{run}: confidence"]
        header.append(f"{run}: probability of target")
    return header


def _prediction_cells(
    row_number: int, record: Record, answers: Iterable[StoredRow]
) -> list[object]:
    """Return the cells of one image under `_predictions_header`."""
    cells = [record.key, row_number, record.target, *record.sensitive.values()]
    for answer in answers:
        label = answer.prediction.label
        probabilities = answer.prediction.probabilities
        cells += [label, probabilities[label], probabilities[record.target]]
    return cells


def _numbered(rows: Iterable[Record | Problem]) -> Iterator[NumberedRow]:
    """Yield rows with their numbers; a problem of the whole file does not count."""
    number = 0
    for row in rows:
        if isinstance(row, Problem) and row.kind.is_of_file:
            yield 0, row
        else:
            number += 1
            yield number, row


def _key_of_row(row: NumberedRow) -> str:
    return row[1].detail if isinstance(row[1], Problem) else row[1].key


def _group_of_row(row: NumberedRow) -> tuple[str, ...] | None:
    return None if isinstance(row[1], Problem) else row[1].group


def _absolute_path(record: Record) -> str:
    # Other processes may have another current folder
    return str(record.path.absolute())
