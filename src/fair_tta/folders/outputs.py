"""From finished rows to the files that are handed over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from fair_tta.adapters import Adapter
from fair_tta.auditing import Audit, compare
from fair_tta.auditing.columns import Columns
from fair_tta.auditing.harm_sets import HarmSets
from fair_tta.data.csv_rows import CsvRows
from fair_tta.data.problems import Problem, Problems
from fair_tta.data.records import Record
from fair_tta.errors import FairTTAError
from fair_tta.metrics import Bootstrap
from fair_tta.report import Picture, write_report
from fair_tta.runs.answer import Answer

ROWS, PROBLEMS = "rows.jsonl", "problems.csv"
AUDIT, REPORT, CARD, PREDICTIONS = "audit.json", "report.html", "card.md", "predictions.csv"
WRITTEN = (ROWS, PROBLEMS, AUDIT, REPORT, CARD, PREDICTIONS)


@dataclass(frozen=True, eq=False)
class FolderAudit:
    """What came of a folder.

    Attributes:
        audit: the figures. Warnings of small groups are in `Audit.warnings` only.
        problems: what was left out.
        out: the folder of the files.
    """

    audit: Audit
    problems: Problems
    out: Path


def finish(
    columns: Mapping[str, Columns],
    problems: Problems,
    out: Path,
    *,
    named: Mapping[str, Sequence[str]],
    adapters: Mapping[str, Adapter],
    interval: Bootstrap,
    provenance: Mapping[str, Any],
    harmful: HarmSets | None = None,
    gallery: Sequence[Picture] = (),
    notes: Sequence[str] = (),
    named_problems: bool = True,
) -> FolderAudit:
    """Measure answers and write all files; a file is there as a whole or not at all.

    Args:
        columns: the answers, by the names of the runs.
        problems: what was left out.
        out: where files go.
        named: ``{column: all labels}``, of sensitive columns and others.
        adapters: by the names of the runs.
        interval: how intervals are made.
        provenance: what to write down besides.
        harmful: sets of classes, see `fair_tta.audit`.
        gallery: pictures for the report.
        notes: sentences to begin `Audit.warnings` with.
        named_problems: whether the audit names pictures that were left out, or counts them only.
    """
    if not len(next(iter(columns.values()))):
        listed = "\n".join(problems.lines())
        raise FairTTAError(f"no row could be used.\n{listed}".rstrip())
    audits = [
        of.audit(
            name,
            adapters[name],
            values=named,
            harmful=harmful,
            interval=interval,
            provenance={**provenance, "problems": problems.to_dict(named=named_problems)},
        )
        for name, of in columns.items()
    ]
    together = audits[0] if len(audits) == 1 else compare(audits)
    if notes:
        told = structs.replace(together.document, warnings=(*notes, *together.warnings))
        together = replace(together, document=told)
    together.save(out / AUDIT)
    write_report(together, out / REPORT, gallery=gallery)
    write_report(together, out / CARD)
    return FolderAudit(together, problems, out)


class _Csv:
    """A file that grows row by row."""

    def __init__(self, path: Path, header: Sequence[str]) -> None:
        self._file = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115
        self._rows = CsvRows(self._file)
        self._rows.add(header)

    def close(self) -> None:
        """There are no more rows."""
        self._file.close()


class ProblemsFile(_Csv):
    """What was left out, with the numbers of rows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ["row", "problem", "what"])

    def add(self, row: int, problem: Problem) -> None:
        """One more; what is about the whole label file has row 0."""
        self._rows.add([row or "", problem.kind.value, problem.what])


class PredictionsFile(_Csv):
    """A row for each picture: labels, and what each run says.

    Args:
        path: where to write it.
        runs: by their names.
        attributes: the sensitive columns.
    """

    def __init__(self, path: Path, runs: Mapping[str, Columns], attributes: Iterable[str]) -> None:
        self._targets = next(iter(runs.values())).targets
        header = ["image", "row", "target", *(f"sensitive: {a}" for a in attributes)]
        for name in runs:
            header += [f"{name}: answer", f"{name}: confidence", f"{name}: probability of target"]
        super().__init__(path, header)

    def add(self, row: int, record: Record, answers: Sequence[Answer]) -> None:
        """One more picture."""
        cells = [record.key, row, record.target, *record.sensitive.values()]
        own = self._targets.index(record.target)
        for answer in answers:
            confidence = answer.probabilities[self._targets.index(answer.label)]
            cells += [answer.label, confidence, answer.probabilities[own]]
        self._rows.add(cells)
