"""Audit a folder, row by row: what is finished is on disk and is not done again."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from fair_tta.adapters import Adapter
from fair_tta.benchmarks.datasets.problems import Problem
from fair_tta.benchmarks.datasets.records import Record
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError, ImageError
from fair_tta.folders.labels import Values
from fair_tta.folders.result import PROBLEMS, ROWS, FolderAudit, finish
from fair_tta.folders.tally import Tally, shown
from fair_tta.images import load_image
from fair_tta.journal import Journal
from fair_tta.metrics.bootstrap import DEFAULT, Bootstrap
from fair_tta.prediction import Prediction
from fair_tta.provenance import (
    adapter_settings,
    classifier_provenance,
    environment,
    preprocessing_hash,
)
from fair_tta.streaming import Answer, answer_batch, batched

Progress = Callable[[int, int], None]
"""Is told how many rows are finished, and how many there are."""

UNREADABLE = "picture cannot be read"


def audit_folder(
    classifier: FairTPTClassifier,
    adapters: Mapping[str, Adapter],
    values: Values,
    out: str | os.PathLike[str],
    *,
    skip_unknown: bool = False,
    interval: Bootstrap = DEFAULT,
    restart: bool = False,
    notes: Sequence[str] = (),
    progress: Progress | None = None,
) -> FolderAudit:
    """Classify the pictures of a folder with several adapters and measure the answers.

    Images pass by in batches; what stays in memory of each is a few numbers. Finished rows are in
    ``rows.jsonl`` of `out`: the same call goes on from there after Ctrl-C, a kill or a power cut,
    and ends with the same rows. A picture whose size or time of modification is not that of its
    finished row is done again. Rows and pictures that cannot be used are left out, listed in
    ``problems.csv``, and tried again by the next call.

    Args:
        classifier: its adapter does not matter. Its targets are the labels of the target column;
            an attribute of the name of a sensitive column has the labels of that column.
        adapters: by the names that the runs will have; the first is what others are compared with.
        values: ``Labels(...).scan()``.
        out: a folder, made if it is not there, for ``rows.jsonl``, ``audit.json``,
            ``report.html``, ``card.md``, ``predictions.csv`` and ``problems.csv``.
        skip_unknown: leave rows out whose values were not named, instead of an error.
        interval: how intervals are made.
        restart: throw away rows that are there.
        notes: sentences that the audit's warnings are to begin with.
        progress: is told after each batch how many rows are finished, and how many there are.
    """
    if not adapters:
        raise FairTTAError("`adapters` should name at least one adapter (got none).")
    folder, labels = Path(out), values.labels
    named = {labels.target: classifier.targets} | {
        column: classifier.sensitive.get(column, tuple(values.names(column)))
        for column in labels.sensitive
    }
    allowed = values.allowed(named, skip_unknown=skip_unknown)
    classifiers = {name: classifier.with_adapter(adapter) for name, adapter in adapters.items()}
    provenance = classifier_provenance(classifier)
    data = {
        "labels": shown(labels.file.name),
        "labels_sha256": values.sha256,
        "images": shown(labels.images.resolve().name),
        "target_column": labels.target,
        "sensitive_columns": list(labels.sensitive),
        "path_column": labels.path,
        "rename": {column: dict(names) for column, names in labels.rename.items()},
    }
    settings = {name: adapter_settings(adapter) for name, adapter in adapters.items()}
    facts = {
        "fair_tta": environment()["fair_tta"],
        **provenance,
        "model": _without_names(provenance["model"], preprocessing_hash(classifier.backend)),
        "data": {**data, "images_place": _place(labels.images)},
        "adapters": settings,
    }
    folder.mkdir(parents=True, exist_ok=True)
    tally = Tally()
    with (
        Journal(folder / ROWS, facts, restart=restart) as journal,
        open(folder / PROBLEMS, "w", encoding="utf-8", errors="surrogateescape", newline="") as to,
    ):
        gone = journal.keys()  # done before, and not met now
        listing = csv.writer(to)
        listing.writerow(["row", "problem", "what"])

        def note(place: int, kind: str, what: str, *, is_lost: bool = True) -> None:
            tally.add(kind, shown(what), row=place > 0, lost=is_lost)
            listing.writerow([place or "", kind, what])

        rows = _numbered(values.unique(labels.rows(allowed)))
        for batch in batched(rows, classifier.batch_size):
            records: list[tuple[int, Record]] = []
            for place, row in batch:
                if isinstance(row, Problem):
                    note(place, row.kind.value, row.what, is_lost=not row.kind.is_note)
                else:
                    records.append((place, row))
            _forget_changed(records, journal)
            found, errors = _answer(classifiers, records, journal)
            journal.append(found)
            gone.difference_update(record.key for _, record in records)
            for place, record, error in errors:
                reason = str(error).replace(repr(str(record.path)), "it")
                note(place, UNREADABLE, f"{record.key}: {reason}")
            if progress is not None:
                progress(len(journal) + tally.rows, values.rows)
        for key in gone:
            journal.forget(key)
        return finish(
            journal, tally, folder, targets=classifier.targets, named=named, adapters=adapters,
            interval=interval, provenance={**provenance, "data": data}, notes=notes,
        )  # fmt: skip


def _numbered(
    rows: Iterable[Record | Problem],
) -> Iterator[tuple[int, Record | Problem]]:
    """Rows of the label file from 1 on; what is about the whole file has number 0."""
    place = 0
    for row in rows:
        is_row = isinstance(row, Record) or not row.kind.is_of_file
        place += is_row
        yield place if is_row else 0, row


def _without_names(model: Mapping[str, Any], preprocessing: str | None) -> dict[str, Any]:
    """A model whose weights are known may have moved: what it is called says nothing."""
    names = () if model["weights_sha256"] is None else ("name", "origin")
    known = {key: value for key, value in model.items() if key not in names}
    return {**known, "preprocessing_sha256": preprocessing}


def _place(folder: Path) -> str:
    """Tells a folder from others of its name without saying where it is."""
    return sha256(os.fsencode(folder.resolve())).hexdigest()[:16]


def _forget_changed(records: Sequence[tuple[int, Record]], journal: Journal) -> None:
    """Rows of pictures that were written over since. Rows of older versions do not tell."""
    known = [record for _, record in records if record.key in journal]
    for record, row in zip(known, journal.read([r.key for r in known]), strict=True):
        if "file" in row and row["file"] != _stamp(record.path):
            journal.forget(record.key)


def _stamp(path: Path) -> dict[str, int] | None:
    """Tells a file from what it was before, without reading it; None if it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return {"bytes": found.st_size, "modified": found.st_mtime_ns}


def _answer(
    classifiers: Mapping[str, FairTPTClassifier],
    records: Sequence[tuple[int, Record]],
    journal: Journal,
) -> tuple[list[dict[str, Any]], list[tuple[int, Record, ImageError]]]:
    """Rows of a batch that are not in the journal yet, and pictures that fail.

    A batch of which a part is there is asked about as a whole, so that its answers have the same
    bits as those of a run that was not stopped.
    """
    missing = [(place, record) for place, record in records if record.key not in journal]
    if len(missing) < len(records):
        errors = _unreadable(missing)
        if len(errors) == len(missing):
            return [], errors
    stamps = [_stamp(record.path) for _, record in records]  # before they are read
    answers = answer_batch(classifiers, [record.path for _, record in records])
    rows, errors = [], []
    for (place, record), answer, stamp in zip(records, answers, stamps, strict=True):
        if record.key in journal:
            continue
        if isinstance(answer, ImageError):
            errors.append((place, record, answer))
        else:
            rows.append({**_row(place, record, answer), "file": stamp})
    return rows, errors


def _unreadable(
    records: Iterable[tuple[int, Record]],
) -> list[tuple[int, Record, ImageError]]:
    errors = []
    for place, record in records:
        try:
            load_image(record.path)
        except ImageError as error:
            errors.append((place, record, error))
    return errors


def _row(place: int, record: Record, answer: Answer) -> dict[str, Any]:
    some = next(iter(answer.predictions.values()))
    return {
        "key": record.key,
        "row": place,
        "target": record.target,
        "sensitive": dict(record.sensitive),
        "zero_shot": {
            "entropy": _finite(some.entropy_zero_shot),
            "sensitive_entropy": {
                a: _finite(e) for a, e in some.sensitive_entropy_zero_shot.items()
            },
        },
        "runs": {
            name: _run(record, prediction) | {"seconds": answer.seconds[name]}
            for name, prediction in answer.predictions.items()
        },
    }


def _run(record: Record, prediction: Prediction) -> dict[str, Any]:
    return {
        "label": prediction.label,
        "confidence": prediction.probabilities[prediction.label],
        "probability_of_target": prediction.probabilities[record.target],
        "entropy": _finite(prediction.entropy),
        "sensitive_entropy": {a: _finite(e) for a, e in prediction.sensitive_entropy.items()},
        "relative_step": _finite(prediction.relative_step),
        "warnings": list(prediction.warnings),
    }


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
