"""``fair-tta compare``: measure files of predictions, group by group, without a model."""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fair_tta._io import csv_cell, printable
from fair_tta.lab.cli._console import errors_as_exit_codes, log, parse_option
from fair_tta.lab.cli._expand import with_shared_options
from fair_tta.lab.cli._labels import log_path_column, print_and_exit
from fair_tta.lab.cli._names import parse_renames, parse_target_texts
from fair_tta.lab.cli._options import (
    FileColumnOptions,
    FileThresholdOptions,
)

if TYPE_CHECKING:
    from fair_tta.datasets._label_values import LabelValues
    from fair_tta.datasets._records import Record
    from fair_tta.lab._folder import FolderAudit

_SHOWN_RENAMES = 20  # options in a message


@with_shared_options
def compare_command(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="CSV files as `fair-tta predict --csv` writes them, or with any column of "
            "predicted classes. The others are compared with the first.",
        ),
    ],
    *,
    columns: FileColumnOptions,
    answer_column: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN",
            help="Column of the predicted classes: one for all files, or one for each.",
        ),
    ] = ["label"],  # noqa: B006
    targets: Annotated[
        list[str],
        typer.Option(
            metavar="NAMES",
            help="All classes, such as 'cat,dog', if some do not occur in the labels.",
            show_default="the classes in the labels",
        ),
    ] = [],  # noqa: B006
    rename: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help="Replace a value of the labels or of the predictions: 'column: value=label'.",
        ),
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the audit and the report."),
    ] = None,
    thresholds: FileThresholdOptions,
) -> None:
    """Compare files of predictions for the same images, group by group, without a model.

    Rows are matched by path or id; those that are missing in a file are left out and counted. A
    prediction that is not a class is counted as wrong, and a FILE without any class is an error.
    The exit code is 4 if there are such rows or predictions, or 5 if a --fail-if threshold is
    exceeded. A single FILE is measured.
    """
    if len(answer_column) not in (1, len(files)):
        raise typer.BadParameter(
            "name one column, or one for each FILE.", param_hint="--answer-column"
        )
    with errors_as_exit_codes(context, labels_csv="--labels"):
        from msgspec import structs

        from fair_tta.auditing._judge import judge_threshold, read_thresholds
        from fair_tta.datasets._label_values import rename_values
        from fair_tta.datasets._labels import Labels
        from fair_tta.lab._folder import AUDIT_FILE, CARD_FILE, REPORT_FILE
        from fair_tta.lab.report import write_report

        # Predictions are named by their files, and by their columns if names of files repeat
        answer_columns = answer_column
        if len(answer_column) == 1:
            answer_columns = answer_column * len(files)
        sources = list(zip(files, answer_columns, strict=True))
        names = [file.stem for file in files]
        if len(set(names)) < len(names):
            names = [f"{file}: {column}" for file, column in sources]

        # Options are read before the files, which may be large
        fail_on = names[-1] if thresholds.fail_on is None else thresholds.fail_on
        limits = parse_option(
            "--fail-if / --fail-on", read_thresholds, thresholds.fail_if, fail_on, names
        )
        renames = parse_option("--rename", parse_renames, rename)
        named_classes = (
            parse_option("--targets", parse_target_texts, targets) if targets else {}
        )

        truth = Labels(
            Path(),
            columns.labels or files[0],
            columns.target_column,
            tuple(columns.sensitive_column),
            columns.path_column,
            cluster=columns.cluster_column,
        ).scan()
        answers = [
            Labels(Path(), file, column, (), columns.path_column).scan()
            for file, column in sources
        ]
        # A file may contain labels and predictions; its column of paths is logged once
        by_path_column = {
            (table.labels.file, table.path_column): table for table in (truth, *answers)
        }
        for table in by_path_column.values():
            log_path_column(table)
        truth, *answers = rename_values([truth, *answers], renames)
        classes = {*truth.labels_in(columns.target_column), *named_classes}
        for column in columns.sensitive_column:
            truth.check_spellings(column)
        for table in answers:
            _suggest_renames(table, classes)

        # Thresholds are judged after the audit, which is then saved with the outcomes
        result = _measure_matched_rows(
            truth, dict(zip(names, answers, strict=True)), classes
        )
        document = result.audit.document
        outcomes = tuple(judge_threshold(limit, document) for limit in limits)
        audit = replace(
            result.audit, document=structs.replace(document, thresholds=outcomes)
        )
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            audit.save(out / AUDIT_FILE)
            for name in (REPORT_FILE, CARD_FILE):
                write_report(audit, out / name)
        print_and_exit(replace(result, audit=audit, out=out))


def _suggest_renames(answers: LabelValues, classes: Collection[str]) -> None:
    """Log how to rename answers that may mean a class.

    Raises:
        DatasetError: no answer of the file is one of the classes.
    """
    from fair_tta._spelling import cell_meaning, escape_invisible, guess_labels
    from fair_tta.datasets._label_values import rename_option
    from fair_tta.errors import DatasetError
    from fair_tta.metrics._estimates import list_names

    column = answers.labels.target
    file = answers.labels.file.name
    counts = answers.value_counts[column]

    # `predict --csv` writes names as spreadsheets and terminals can take them
    known = {*classes, *(csv_cell(name) for name in classes)}
    renamed = answers.labels.rename.get(column, {})
    unknown = [answer for answer in counts if renamed.get(answer, answer) not in known]
    unknown.sort(key=lambda answer: -counts[answer])

    # By similar spelling, or by equal meaning as 1.0 and 1
    meant = guess_labels(unknown, sorted(classes))
    by_meaning = {cell_meaning(label): label for label in classes}
    for answer in unknown:
        if cell_meaning(answer) in by_meaning:
            meant.setdefault(answer, by_meaning[cell_meaning(answer)])
    if len(unknown) < len(counts) or not unknown:
        if meant:
            options = [rename_option(column, *pair) for pair in meant.items()]
            log(f"Some answers of {file!r} read like labels: {' '.join(options)}")
        return

    options = []
    for answer in unknown[:_SHOWN_RENAMES]:
        label = meant.get(answer, "LABEL")
        options.append(rename_option(column, answer, label))
    placeholder = ""
    if len(meant) < len(unknown):
        placeholder = ", with a label in place of LABEL"
    shown_answers = [
        f"{escape_invisible(name)!r} ({counts[name]} rows)" for name in unknown
    ]
    shown_labels = [repr(escape_invisible(label)) for label in sorted(classes)]
    raise DatasetError(
        f"no answer of {file!r} is among the labels: column {column!r} holds "
        f"{list_names(shown_answers)}; labels are {list_names(shown_labels)}. Choose another "
        f"--answer-column, or rename the answers{placeholder}:\n{' '.join(options)}"
    )


def _measure_matched_rows(
    truth: LabelValues, answers: Mapping[str, LabelValues], classes: Collection[str]
) -> FolderAudit:
    """Measure the answers of all files on the rows that every file has.

    Args:
        truth: the true labels.
        answers: the answers by the name of their file.
        classes: all classes.
    """
    from fair_tta.auditing import audit, compare
    from fair_tta.datasets._records import Problem, ProblemKind, collect_records
    from fair_tta.errors import FairTTAError, SmallGroupWarning, UnknownAnswerWarning
    from fair_tta.lab._folder import FolderAudit

    true_records, problems = collect_records(truth.records(check_images=False))
    answer_records = {}
    for name, values in answers.items():
        answer_records[name], _ = collect_records(values.records(check_images=False))

    # Rows of all files are matched by their paths
    first_records = next(iter(answer_records.values()))
    first_paths = [_unquoted_path(record) for record in first_records]
    labels = _records_by_path(true_records, first_paths)
    tables = {}
    for name, records in answer_records.items():
        tables[name] = _records_by_path(records, labels)
    files = [(truth.labels.file.name, labels), *tables.items()]
    all_paths: dict[str, None] = {}  # in the order of the files
    for _, table in files:
        all_paths |= dict.fromkeys(table)
    matched_paths = []
    for path in all_paths:
        missing_in = [name for name, table in files if path not in table]
        if missing_in:
            text = f"{path} (not in {', '.join(missing_in)})"
            problems = problems.add(Problem(ProblemKind.UNMATCHED, text))
        else:
            matched_paths.append(path)
    if not matched_paths:
        text = "no row is in all files: match them by another column (`path_column`)."
        raise FairTTAError("\n".join([text, *problems.lines()]))

    # `predict --csv` writes names as spreadsheets and terminals can take them
    names_in_cells = {csv_cell(record.target): record.target for record in true_records}
    y_true = [labels[path].target for path in matched_paths]
    y_pred: dict[str, list[str]] = {}
    for name, table in tables.items():
        cells = [table[path].target for path in matched_paths]
        y_pred[name] = [names_in_cells.get(cell, cell) for cell in cells]
    used_names = set(y_true).union(*y_pred.values())
    sensitive = {}
    for attribute in truth.labels.sensitive:
        sensitive[attribute] = [
            labels[path].sensitive[attribute] for path in matched_paths
        ]
    audits = []
    with warnings.catch_warnings():
        # The audit contains both warnings
        warnings.simplefilter("ignore", SmallGroupWarning)
        warnings.simplefilter("ignore", UnknownAnswerWarning)
        for name, predicted in y_pred.items():
            measured = audit(
                y_true,
                predicted,
                sensitive,
                name=name,
                targets=sorted(used_names.intersection(classes)),
                clusters=[labels[path].cluster for path in matched_paths],
                provenance={"problems": problems.to_dict()},
            )
            audits.append(measured)
    return FolderAudit(compare(audits), problems, None, {})


def _records_by_path(
    records: Sequence[Record], known_paths: Collection[str]
) -> dict[str, Record]:
    """Return records by path.

    Of the folders that all paths begin with, as many are dropped as makes the most paths known.
    """
    known = set(known_paths)
    parts = [_unquoted_path(record).split("/") for record in records]
    folders = [part[:-1] for part in parts]
    n_shared = len(os.path.commonprefix(folders))  # noqa: RUF071, of lists
    best_paths: list[str] = []
    most_known = -1
    for depth in range(n_shared + 1):
        paths = ["/".join(part[depth:]) for part in parts]
        n_known = len(known.intersection(paths))
        if n_known > most_known:
            best_paths = paths
            most_known = n_known
    return dict(zip(best_paths, records, strict=True))


def _unquoted_path(record: Record) -> str:
    """Return the path as `predict --csv` writes it, without the apostrophe before a formula."""
    path = printable(record.key)
    if path.startswith("'") and csv_cell(path[1:]) == path:
        return path[
            1:
        ]  # below a folder the path is not a formula, and has no apostrophe
    return path
