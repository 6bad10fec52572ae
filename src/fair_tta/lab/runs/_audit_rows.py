"""Audits made of stored rows and records."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from fair_tta.auditing._audit import Audit
from fair_tta.auditing._measure import audit_table
from fair_tta.auditing._run import HarmSets
from fair_tta.datasets._records import Record
from fair_tta.errors import SmallGroupWarning
from fair_tta.lab.runs._store import StoredRow
from fair_tta.methods._base import Adapter
from fair_tta.metrics._scores import AnswerTableBuilder
from fair_tta.metrics.intervals._bootstrap import DEFAULT, Bootstrap


def add_row(table: AnswerTableBuilder, record: Record, row: StoredRow) -> None:
    """Add the answer for one more image, its labels and its cost."""
    table.add(row.prediction)
    table.add_known(record.target, record.sensitive, record.cluster, row.key.content)
    table.seconds += row.seconds


def audit_rows(
    table: AnswerTableBuilder,
    name: str,
    adapter: Adapter,
    *,
    targets: Iterable[str],
    values: Mapping[str, Iterable[str]],
    provenance: Mapping[str, Any],
    harmful: HarmSets | None = None,
    interval: Bootstrap = DEFAULT,
) -> Audit:
    """Return the figures of one method, see `audit`."""
    answers = table.build(list(targets), values)
    with warnings.catch_warnings():
        # `Audit.warnings` names small groups, and reports print it.
        warnings.simplefilter("ignore", SmallGroupWarning)
        return audit_table(
            answers,
            name=name,
            adapter=adapter,
            seconds=table.seconds,
            harmful=harmful,
            digests=table.digests,
            bootstrap=interval,
            provenance=provenance,
        )
