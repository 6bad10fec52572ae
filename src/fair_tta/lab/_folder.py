"""Audit a folder, row by row: what is finished is on disk and is not computed again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from shutil import rmtree
from typing import Any

from msgspec import structs

from fair_tta._identity import classifier_provenance
from fair_tta._io import printable, replace_file, sweep, whole_file, write_row
from fair_tta.auditing import Audit, compare
from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._judge import judge_threshold, read_thresholds
from fair_tta.auditing._run import HarmSets, parse_harmful
from fair_tta.classifier import FairTPTClassifier
from fair_tta.datasets._features import FeatureFile
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
from fair_tta.lab._gallery import GroupGallery
from fair_tta.lab._unlabelled import FITS_FOLDER
from fair_tta.lab.report import write_report
from fair_tta.lab.runs._audit_rows import add_row, audit_rows
from fair_tta.lab.runs._job import make_job
from fair_tta.lab.runs._local import Local
from fair_tta.lab.runs._reference import OpenEndedProgress, fit_adapters
from fair_tta.lab.runs._runner import Engine, Progress, Runner
from fair_tta.lab.runs._store import ROWS_FILE, Store, StoredRow
from fair_tta.methods._base import Adapter
from fair_tta.metrics._answer_table import check_clusters, read_clusters
from fair_tta.metrics._scores import AnswerTableBuilder
from fair_tta.metrics.intervals._bootstrap import DEFAULT, Bootstrap

AUDIT_FILE, REPORT_FILE, CARD_FILE = "audit.json", "report.html", "card.md"
PREDICTIONS_FILE, PROBLEMS_FILE = "predictions.csv", "problems.csv"
AUDIT_FILES = (AUDIT_FILE, REPORT_FILE, CARD_FILE, PREDICTIONS_FILE, PROBLEMS_FILE)


@dataclass(frozen=True, eq=False)
class FolderAudit:
    """What came of a folder.

    Attributes:
        audit: the figures. Warnings of small groups are in `Audit.warnings` only.
        problems: what was left out.
        out: the folder of the files, None if none were written.
        adapters: the methods as they answered: fitted, if they had to be.
        embedded: how many images the report has inside.
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
"""A row of the label file with its number; what is about the whole file has number 0."""


def audit_folder(
    classifier: FairTPTClassifier,
    adapters: Mapping[str, Adapter],
    values: LabelValues,
    out: str | os.PathLike[str],
    *,
    skip_unknown: bool = False,
    limit: int | None = None,
    sample: int | None = None,
    harmful: HarmSets | None = None,
    interval: Bootstrap = DEFAULT,
    engine: Engine | None = None,
    model: Any = None,
    restart: bool = False,
    embed_images: bool = False,
    reference: str | os.PathLike[str] | None = None,
    reference_is_data: bool = False,
    fail_if: Sequence[str] = (),
    fail_on: str = "zero-shot",
    notes: Sequence[str] = (),
    conclude: Callable[[AuditDocument], Mapping[str, Any]] = lambda _: {},
    progress: Progress = lambda *_: None,
    fitting: OpenEndedProgress = lambda *_: None,
) -> FolderAudit:
    """Classify the images of a folder with several adapters and measure the answers.

    Images pass by in batches; what stays in memory of each is a few numbers. Finished answers are
    in ``rows.sqlite`` of `out`: the same call goes on from there after Ctrl-C, a kill or a power
    cut, and ends with the same rows; a call with one more adapter asks that one alone. An answer
    belongs to the content of an image, the model, the prompts, the method and the seed, so nothing
    else has to be as it was, except the batch for methods whose `needs` have ``other_images``. Rows
    and images that cannot be used are left out, listed in ``problems.csv``, and tried again by the
    next call.

    Args:
        classifier: its adapter does not matter. Its targets are the labels of the target column;
            an attribute of the name of a sensitive column has the labels of that column.
        adapters: by the names that the runs will have; the first is what others are compared with.
        values: ``Labels(...).scan()``.
        out: a folder, made if it is not there, for ``rows.sqlite``, ``audit.json``,
            ``report.html``, ``card.md``, ``predictions.csv`` and ``problems.csv``.
        skip_unknown: leave rows out whose values were not named, instead of an error.
        limit: the first so many rows only.
        sample: so many images only, of each group its share and at least one; the classifier's
            seed chooses them.
        harmful: classes that should not be answered, see `fair_tta.audit`.
        interval: how intervals are made.
        engine: who does the work: `Local()` or `Local(workers=2)`.
        model: how other processes load the model, such as the string that the classifier was made
            of; if None it is sent to them.
        restart: throw away answers that are there.
        embed_images: show a few of each group in the report; else neither images nor their names
            are in it, nor in ``audit.json``.
        reference: a folder of images; adapters that need a reference and have none are fitted on
            them first. The audit records which, and how many of them were audited. If it is None,
            such adapters are cross-fitted on the audited images: without their labels, except
            those that need classes, of which each image is answered by a fit that has seen neither
            it nor its label.
        reference_is_data: allow the reference to have audited images; else they are refused.
        fail_if: thresholds such as ``"typical_gap > 10"``, in points. The audit and the report name
            the outcome of each: failed if the whole interval lies beyond the threshold.
        fail_on: the name of the adapter that they are about.
        notes: sentences that the audit's warnings are to begin with.
        conclude: is called with the figures; what it returns is added to the provenance.
        progress: receives first, and after each batch, how many rows are finished, and of how many.
        fitting: receives how many images of the reference are finished.
    """
    if not adapters:
        raise FairTTAError(
            "`adapters` should name at least one adapter (got none).",
            argument="adapters",
        )
    parse_harmful(harmful, classifier.targets)  # before any work is done
    check_limit_and_sample(limit, sample)
    thresholds = read_thresholds(fail_if, fail_on, adapters)
    folder, labels = Path(out), values.labels
    if labels.file.resolve() in {
        (folder / name).resolve() for name in (ROWS_FILE, *AUDIT_FILES)
    }:
        raise FairTTAError(
            f"`labels_csv` is a file that the audit would write anew (got {str(labels.file)!r}): "
            "copy it to another place, or choose another place for the audit (--out).",
            argument="labels_csv",
        )
    named = {labels.target: classifier.targets} | {
        column: classifier.sensitive.get(column, tuple(values.labels_in(column)))
        for column in labels.sensitive
    }
    allowed = values.allowed_values(named, skip_unknown=skip_unknown)
    seed = classifier._vision.seed

    image = partial(_image_of_row, labels.features)
    rows = _numbered(values.records(allowed))
    if limit is not None:
        rows = takewhile(
            lambda row: row[0] <= limit, rows
        )  # what is about the file has 0
    chosen = list(
        choose_sample(rows, None, sample, seed, key=_key_of_row, group=_group_of_row)
    )
    if labels.cluster is not None:
        clusters = [row.cluster for _, row in chosen if isinstance(row, Record)]
        check_clusters(read_clusters(clusters, len(clusters)))
    fitted = fit_adapters(
        classifier,
        adapters,
        reference,
        lambda: (asked for row in chosen if (asked := image(row)) is not None),
        classes=[row.target for _, row in chosen if isinstance(row, Record)],
        reference_is_data=reference_is_data,
        kept=folder / FITS_FOLDER,
        progress=fitting,
    )
    adapters = fitted.adapters
    folder.mkdir(parents=True, exist_ok=True)
    sweep(folder)
    problems, gallery = Problems(), GroupGallery(list(adapters))
    tables = {name: AnswerTableBuilder(keep_beliefs=True) for name in adapters}
    total = min(values.row_count, limit or values.row_count, sample or values.row_count)
    done = used = 0
    with (
        Store(folder / ROWS_FILE, restart=restart) as store,
        whole_file(folder / PROBLEMS_FILE) as listed,
        whole_file(folder / PREDICTIONS_FILE) as predicted,
    ):
        runner = Runner(
            make_job(classifier, adapters.values(), model), engine or Local(), store
        )
        size = classifier._batch_size
        with (
            open(listed, "w", encoding="utf-8", newline="") as listing,
            open(predicted, "w", encoding="utf-8", newline="") as predictions,
        ):
            write_row(listing, ["row", "problem", "what"])
            write_row(predictions, _predictions_header(labels.sensitive, adapters))
            answered = runner.stream(
                chosen, image, size=size, seed=seed, read_ahead=True
            )
            progress(0, total)
            for seen, ((place, row), answers) in enumerate(answered, start=1):
                done, used = done + (place > 0), used + isinstance(row, Record)
                if isinstance(row, Record) and isinstance(answers, str):
                    why = answers.replace(repr(_absolute_path(row)), "it")
                    row = Problem(ProblemKind.UNREADABLE, f"{row.key}: {why}")
                if isinstance(row, Problem):
                    problems = problems.add(row)
                    write_row(listing, [place or "", row.kind.value, row.detail])
                elif not isinstance(answers, str):
                    for table, answer in zip(tables.values(), answers, strict=True):
                        add_row(table, row, answer)
                    write_row(predictions, _prediction_cells(place, row, answers))
                    gallery.add(row, answers)
                if seen % size == 0 or seen == len(chosen):
                    progress(done, max(done, total))
        if not any(table.labels for table in tables.values()):
            if not (
                folder / AUDIT_FILE
            ).exists():  # an earlier audit stays, with its problems
                replace_file(listed, folder / PROBLEMS_FILE)
            raise FairTTAError("\n".join(["no row could be used.", *problems.lines()]))
        rmtree(folder / FITS_FOLDER, ignore_errors=True)
        provenance = {
            **classifier_provenance(classifier),
            "data": {
                "labels": printable(labels.file.name),
                "images": printable(labels.images.resolve().name),
                "target_column": labels.target,
                "sensitive_columns": list(labels.sensitive),
                "path_column": values.path_column,
                "cluster_column": labels.cluster,
                "by_position": labels.is_joined_by_position,
                "rename": {
                    column: dict(names) for column, names in labels.rename.items()
                },
                "limit": limit,
                "sample": sample,
            },
            **({"reference": fitted.provenance} if fitted.provenance else {}),
            "problems": problems.to_dict(named=embed_images),
        }
        audits = [
            audit_rows(
                table,
                name,
                adapters[name],
                targets=classifier.targets,
                values=named,
                harmful=harmful,
                interval=interval,
                provenance=provenance,
            )
            for name, table in tables.items()
        ]
        audit = audits[0] if len(audits) == 1 else compare(audits)
        some = [f"the first {limit}"] * (limit is not None)
        some += [f"a sample of {used}"] * (sample is not None)
        joined = [_JOINED_BY_POSITION_NOTE] if labels.is_joined_by_position else []
        remarks = [
            *notes,
            *joined,
            *fitted.notes,
            *(f"Not all rows were used: {what}." for what in some),
        ]
        noted = structs.replace(
            audit.document,
            warnings=(*remarks, *audit.warnings),
            thresholds=tuple(
                judge_threshold(each, audit.document) for each in thresholds
            ),
            provenance={**audit.document.provenance, **conclude(audit.document)},
        )
        audit = replace(audit, document=noted)
        audit.save(folder / AUDIT_FILE)
        shown = gallery.images() if embed_images and labels.features is None else []
        write_report(audit, folder / REPORT_FILE, gallery=shown)
        write_report(audit, folder / CARD_FILE)
    return FolderAudit(audit, problems, folder, adapters, len(shown))


def _predictions_header(attributes: Iterable[str], runs: Iterable[str]) -> list[str]:
    header = ["image", "row", "target", *(f"sensitive: {a}" for a in attributes)]
    for name in runs:
        header += [
            f"{name}: answer",
            f"{name}: confidence",
            f"{name}: probability of target",
        ]
    return header


def _prediction_cells(
    place: int, record: Record, rows: Iterable[StoredRow]
) -> list[object]:
    cells = [record.key, place, record.target, *record.sensitive.values()]
    for label, p in ((r.prediction.label, r.prediction.probabilities) for r in rows):
        cells += [label, p[label], p[record.target]]
    return cells


def _numbered(rows: Iterable[Record | Problem]) -> Iterator[NumberedRow]:
    place = 0
    for row in rows:
        is_row = isinstance(row, Record) or not row.kind.is_of_file
        place += is_row
        yield place if is_row else 0, row


def _key_of_row(row: NumberedRow) -> str:
    return row[1].detail if isinstance(row[1], Problem) else row[1].key


def _group_of_row(row: NumberedRow) -> tuple[str, ...] | None:
    return None if isinstance(row[1], Problem) else row[1].group


def _image_of_row(features: FeatureFile | None, row: NumberedRow) -> ImageSource | None:
    record = row[1]
    if isinstance(record, Problem):
        return None
    stored = features and features.source(record.key)
    return stored or ImageSource(record.key, _absolute_path(record))


def _absolute_path(record: Record) -> str:
    return str(record.path.absolute())  # other processes may be elsewhere
