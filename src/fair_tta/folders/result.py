"""From finished rows to the files that are handed over."""

from __future__ import annotations

import csv
import os
import warnings
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fair_tta.adapters import Adapter
from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.auditing.result import dump
from fair_tta.errors import FairTTAError
from fair_tta.folders.tally import Tally
from fair_tta.journal import Journal
from fair_tta.metrics import Bootstrap, SmallGroupWarning

ROWS, PROBLEMS = "rows.jsonl", "problems.csv"
AUDIT, REPORT, CARD, PREDICTIONS = "audit.json", "report.html", "card.md", "predictions.csv"


@dataclass(frozen=True, eq=False)
class FolderAudit:
    """What came of a folder.

    Attributes:
        audit: the figures. Warnings of small groups are in `Audit.warnings` only.
        problems: what was left out.
        out: the folder of the files.
    """

    audit: Audit
    problems: Tally
    out: Path


def finish(
    journal: Journal,
    problems: Tally,
    out: Path,
    *,
    targets: Sequence[str],
    named: Mapping[str, Sequence[str]],
    adapters: Mapping[str, Adapter],
    interval: Bootstrap,
    provenance: Mapping[str, Any],
    notes: Sequence[str] = (),
) -> FolderAudit:
    """Measure the rows of a journal and write all files; a file is there as a whole or not at all.

    Args:
        journal: the rows.
        problems: what was left out.
        out: where files go.
        targets: all labels of the target.
        named: ``{column: all labels}``, of sensitive columns and others.
        adapters: by the names of the runs.
        interval: how intervals are made.
        provenance: what to write down besides.
        notes: sentences to begin `Audit.warnings` with.
    """
    if not len(journal):
        listed = "\n".join(problems.lines())
        raise FairTTAError(f"no row could be used.\n{listed}".rstrip())
    numbers = _Numbers(journal, adapters, out / PREDICTIONS)
    sensitive = numbers.sensitive
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        audits = [
            audit(
                numbers.truth,
                numbers.answers[name],
                sensitive,
                name=name,
                targets=targets,
                values={attribute: named[attribute] for attribute in sensitive},
                scores=numbers.scores(name),
                seconds=numbers.seconds[name],
                interval=interval,
                adapter=adapter,
                provenance={**provenance, "problems": problems.to_dict()},
            )
            for name, adapter in adapters.items()
        ]
        together = audits[0] if len(audits) == 1 else compare(audits)
    if notes:
        document = together.document
        document["warnings"] = [*notes, *document["warnings"]]
        together = replace(together, text=dump(document))
    from fair_tta.report import write_report

    _whole(out / AUDIT, together.save)
    _whole(out / REPORT, lambda path: write_report(together, path))
    _whole(out / CARD, lambda path: write_report(together, path))
    return FolderAudit(together, problems, out)


class _Numbers:
    """Columns of all rows, in the order of the label file; writes predictions on the way."""

    def __init__(self, journal: Journal, runs: Mapping[str, Any], predictions: Path) -> None:
        self.truth: list[str] = []
        self.sensitive: dict[str, list[str]] = {}
        self.answers: dict[str, list[str]] = {name: [] for name in runs}
        self.warnings: dict[str, list[tuple[str, ...]]] = {name: [] for name in runs}
        self.seconds = dict.fromkeys(runs, 0.0)
        self._columns: dict[tuple[str, ...], array[float]] = {}
        places = array("q")

        def read(path: Path) -> None:
            names: dict[str, str] = {}  # each label is in memory once
            with open(path, "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                writer = csv.writer(file)
                for row in journal:
                    if not places:
                        writer.writerow(_header(row))
                    writer.writerow(_cells(row))
                    places.append(row["row"])
                    self._read(row, names)

        _whole(predictions, read)
        order = np.argsort(np.array(places), kind="stable")
        if not (np.diff(order) == 1).all():  # a picture was repaired between two runs
            self._sort(order)

    def scores(self, run: str) -> Scores:
        """What a run says besides its answers."""

        def column(*where: str) -> npt.NDArray[np.float64]:
            return np.array(self._columns[where])

        attributes = [where[-1] for where in self._columns if where[:2] == (run, "sensitive")]
        return Scores(
            confidence=column(run, "confidence"),
            entropy=column(run, "entropy"),
            entropy_zero_shot=column("", "entropy"),
            sensitive_entropy={a: column(run, "sensitive", a) for a in attributes},
            sensitive_entropy_zero_shot={a: column("", "sensitive", a) for a in attributes},
            relative_step=column(run, "relative_step"),
            warnings=self.warnings[run],
        )

    def _read(self, row: Mapping[str, Any], names: dict[str, str]) -> None:
        self.truth.append(names.setdefault(row["target"], row["target"]))
        for attribute, value in row["sensitive"].items():
            self.sensitive.setdefault(attribute, []).append(names.setdefault(value, value))
        self._scores("", row["zero_shot"], ("entropy",))
        for name, run in row["runs"].items():
            self.answers[name].append(names.setdefault(run["label"], run["label"]))
            self.warnings[name].append(tuple(names.setdefault(w, w) for w in run["warnings"]))
            self.seconds[name] += run["seconds"]
            self._scores(name, run, ("confidence", "entropy", "relative_step"))

    def _scores(self, run: str, of: Mapping[str, Any], names: Sequence[str]) -> None:
        numbers = {(run, name): of[name] for name in names} | {
            (run, "sensitive", attribute): entropy
            for attribute, entropy in of["sensitive_entropy"].items()
        }
        for where, number in numbers.items():
            column = self._columns.setdefault(where, array("d"))
            column.append(float("nan") if number is None else number)

    def _sort(self, order: npt.NDArray[np.int64]) -> None:
        for column in (self.truth, *self.sensitive.values(), *self.answers.values()):
            column[:] = [column[i] for i in order]
        for run, texts in self.warnings.items():
            self.warnings[run] = [texts[i] for i in order]
        for where, numbers in self._columns.items():
            self._columns[where] = array("d", np.array(numbers)[order])


def _header(row: Mapping[str, Any]) -> list[str]:
    runs = (
        [f"{name}: answer", f"{name}: confidence", f"{name}: probability of target"]
        for name in row["runs"]
    )
    attributes = (f"sensitive: {attribute}" for attribute in row["sensitive"])
    return ["image", "row", "target", *attributes, *(column for run in runs for column in run)]


def _cells(row: Mapping[str, Any]) -> list[Any]:
    cells = [row["key"], row["row"], row["target"], *row["sensitive"].values()]
    for run in row["runs"].values():
        cells += [run["label"], run["confidence"], run["probability_of_target"]]
    return cells


def _whole(path: Path, write: Any) -> None:
    """Write a file under another name first, so that nobody meets a half of it."""
    part = path.with_name(f".part-{path.name}")
    write(part)
    os.replace(part, path)
