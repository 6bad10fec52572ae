"""``fair-tta compare``: files of predictions, group by group, without a model."""

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
    LAST_FILE,
    ColumnOptions,
    FileThresholdOptions,
)

if TYPE_CHECKING:
    from fair_tta.datasets._label_values import LabelValues
    from fair_tta.datasets._records import Record
    from fair_tta.lab._folder import FolderAudit

_SHOWN_RENAMES = 20  # answers that a message shows how to rename


@with_shared_options
def compare_command(
    context: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="CSV files as `fair-tta predict --csv` writes them, or with any column of "
            "answers; the first is what others are compared with.",
        ),
    ],
    *,
    labels: Annotated[
        Path | None,
        typer.Option(help="CSV file.", show_default="columns of the first FILE"),
    ] = None,
    columns: ColumnOptions,
    answer_column: Annotated[
        list[str],
        typer.Option(metavar="COLUMN", help="Column of the answers; or one for each."),
    ] = ["label"],  # noqa: B006
    targets: Annotated[
        list[str],
        typer.Option(
            metavar="NAMES",
            help="All classes, 'cat,dog', if some have no row in the labels.",
            show_default="the labels",
        ),
    ] = [],  # noqa: B006
    rename: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help="'column: value=label' for values of the labels and of the answers.",
        ),
    ] = [],  # noqa: B006
    out: Annotated[
        Path | None, typer.Option(help="Folder for audit and report.")
    ] = None,
    thresholds: FileThresholdOptions,
) -> None:
    """Compare files of predictions on the same images, group by group, without a model.

    Rows are matched by path or id. Those that are not in all files are left out and counted.
    Answers that are no class are counted and are wrong; it is an error if no answer of a FILE is
    one. The exit code is 4 if there are such rows or answers, or 5 if a --fail-if holds. One FILE
    alone is measured.
    """
    if len(answer_column) not in (1, len(files)):
        raise typer.BadParameter(
            "give one, or one for each FILE.", param_hint="--answer-column"
        )
    with errors_as_exit_codes(context, labels_csv="--labels"):
        from msgspec import structs

        from fair_tta.auditing._judge import judge_threshold, read_thresholds
        from fair_tta.datasets._label_values import rename_values
        from fair_tta.datasets._labels import Labels
        from fair_tta.lab._folder import AUDIT_FILE, CARD_FILE, REPORT_FILE
        from fair_tta.lab.report import write_report

        # Runs have the names of their files, and of their columns where files are the same
        answer_columns = (
            answer_column * len(files) if len(answer_column) == 1 else answer_column
        )
        sources = list(zip(files, answer_columns, strict=True))
        names = [file.stem for file in files]
        if len(set(names)) < len(names):
            names = [f"{file}: {column}" for file, column in sources]

        # Options are read before the files, which may be large
        fail_on = names[-1] if thresholds.fail_on == LAST_FILE else thresholds.fail_on
        limits = parse_option(
            "--fail-if / --fail-on", read_thresholds, thresholds.fail_if, fail_on, names
        )
        renames = parse_option("--rename", parse_renames, rename)
        named_classes = (
            parse_option("--targets", parse_target_texts, targets) if targets else {}
        )

        truth = Labels(
            Path(),
            labels or files[0],
            columns.target_column,
            tuple(columns.sensitive_column),
            columns.path_column,
            cluster=columns.cluster_column,
        ).scan()
        answers = [
            Labels(Path(), file, column, (), columns.path_column).scan()
            for file, column in sources
        ]
        chosen = {(run.labels.file, run.path_column): run for run in (truth, *answers)}
        for run in chosen.values():
            log_path_column(run)
        truth, *answers = rename_values([truth, *answers], renames)
        classes = {*truth.labels_in(columns.target_column), *named_classes}
        for column in columns.sensitive_column:
            truth.check_spellings(column)
        for run in answers:
            _suggest_renames(run, classes)

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


def _suggest_renames(run: LabelValues, classes: Collection[str]) -> None:
    """Log how to rename answers that may mean a class.

    Raises:
        DatasetError: no answer of the file is one of the classes.
    """
    from fair_tta._spelling import cell_meaning, escape_invisible, guess_labels
    from fair_tta.datasets._label_values import rename_option
    from fair_tta.errors import DatasetError
    from fair_tta.metrics._estimates import list_names

    column = run.labels.target
    file = run.labels.file.name
    counts = run.value_counts[column]

    # `predict --csv` writes names as spreadsheets and terminals can take them
    known = {*classes, *(csv_cell(name) for name in classes)}
    renamed = run.labels.rename.get(column, {})
    unknown = [answer for answer in counts if renamed.get(answer, answer) not in known]
    unknown.sort(key=lambda answer: -counts[answer])
    meant = guess_labels(unknown, sorted(classes))
    by_meaning = {cell_meaning(label): label for label in classes}
    for answer in unknown:  # 1.0 is the label 1
        if cell_meaning(answer) in by_meaning:
            meant.setdefault(answer, by_meaning[cell_meaning(answer)])
    if len(unknown) < len(counts) or not unknown:
        if meant:
            options = [
                rename_option(column, answer, label) for answer, label in meant.items()
            ]
            log(f"Some answers of {file!r} read like labels: {' '.join(options)}")
        return

    options = [
        rename_option(column, answer, meant.get(answer, "LABEL"))
        for answer in unknown[:_SHOWN_RENAMES]
    ]
    placeholder = (
        "" if len(meant) == len(unknown) else ", with a label in place of LABEL"
    )
    answers = list_names(
        [f"{escape_invisible(answer)!r} ({counts[answer]} rows)" for answer in unknown]
    )
    labels = list_names([repr(escape_invisible(label)) for label in sorted(classes)])
    raise DatasetError(
        f"no answer of {file!r} is among the labels: column {column!r} holds {answers}; "
        f"labels are {labels}. Choose another --answer-column, or rename the "
        f"answers{placeholder}:\n{' '.join(options)}"
    )


def _measure_matched_rows(
    truth: LabelValues, runs: Mapping[str, LabelValues], classes: Collection[str]
) -> FolderAudit:
    """Measure all runs on the rows that every file has, and list what was left out."""
    from fair_tta.auditing import audit, compare
    from fair_tta.datasets._records import Problem, ProblemKind, collect_records
    from fair_tta.errors import FairTTAError, SmallGroupWarning, UnknownAnswerWarning
    from fair_tta.lab._folder import FolderAudit

    records, problems = collect_records(truth.records(check_images=False))
    answers = {
        name: collect_records(run.records(check_images=False))[0]
        for name, run in runs.items()
    }

    # Rows of all files are matched by their paths
    first_paths = [_spelt_path(record) for record in next(iter(answers.values()))]
    labels = _records_by_path(records, first_paths)
    tables = {name: _records_by_path(rows, labels) for name, rows in answers.items()}
    by_file = [(truth.labels.file.name, labels), *tables.items()]
    keys = []
    for key in dict.fromkeys(
        key for table in (labels, *tables.values()) for key in table
    ):
        lacking = [name for name, table in by_file if key not in table]
        if lacking:
            what = f"{key} (not in {', '.join(lacking)})"
            problems = problems.add(Problem(ProblemKind.UNMATCHED, what))
        else:
            keys.append(key)
    if not keys:
        text = "no row is in all files: match them by another column (`path_column`)."
        raise FairTTAError("\n".join([text, *problems.lines()]))

    # `predict --csv` writes names as spreadsheets and terminals can take them
    names = {csv_cell(record.target): record.target for record in records}
    y_true = [labels[key].target for key in keys]
    y_pred = {}
    for name, table in tables.items():
        y_pred[name] = [names.get(table[key].target, table[key].target) for key in keys]
    used = {*y_true}.union(*y_pred.values())
    sensitive = {
        attribute: [labels[key].sensitive[attribute] for key in keys]
        for attribute in truth.labels.sensitive
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)  # the audit has both
        warnings.simplefilter("ignore", UnknownAnswerWarning)
        audits = [
            audit(
                y_true,
                y_pred[name],
                sensitive,
                name=name,
                targets=sorted(used.intersection(classes)),
                clusters=[labels[key].cluster for key in keys],
                provenance={"problems": problems.to_dict()},
            )
            for name in runs
        ]
    return FolderAudit(compare(audits), problems, None, {})


def _records_by_path(
    records: Sequence[Record], known: Collection[str]
) -> dict[str, Record]:
    """Return records by path, without the folders that all of them begin with if more paths are
    `known` so."""
    known = set(known)
    parts = [_spelt_path(record).split("/") for record in records]
    folders = [part[:-1] for part in parts]
    n_shared = len(os.path.commonprefix(folders))  # noqa: RUF071, of lists
    best_keys: list[str] = []
    most_known = -1
    for depth in range(n_shared + 1):
        keys = ["/".join(part[depth:]) for part in parts]
        n_known = len(known.intersection(keys))
        if n_known > most_known:
            best_keys = keys
            most_known = n_known
    return dict(zip(best_keys, records, strict=True))


def _spelt_path(record: Record) -> str:
    """Return the path as `predict --csv` writes it, except for the sign before a formula."""
    path = printable(record.key)
    if path.startswith("'") and csv_cell(path[1:]) == path:
        return path[1:]  # folders may stand before, where it is not a formula
    return path
