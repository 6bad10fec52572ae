"""Stored rows and true labels, column by column: the input of an audit."""

from __future__ import annotations

import sys
import warnings
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

from fair_tta.auditing._audit import Audit
from fair_tta.auditing._measure import audit
from fair_tta.auditing._run import HarmSets
from fair_tta.datasets._records import Record
from fair_tta.errors import SmallGroupWarning
from fair_tta.lab.runs._store import StoredRow
from fair_tta.methods._base import Adapter
from fair_tta.metrics._scores import CollectedScores, Scores
from fair_tta.metrics.intervals._bootstrap import DEFAULT, Bootstrap


class RunColumns:
    """The rows of one method. Of each image a few numbers stay in memory.

    `targets` are in the order of the probabilities; for `keep_beliefs` see `CollectedScores`.
    """

    def __init__(
        self,
        targets: Iterable[str],
        rows: Iterable[tuple[Record, StoredRow]] = (),
        keep_beliefs: bool = False,
    ) -> None:
        self.targets = list(targets)
        self._scores = CollectedScores(beliefs=keep_beliefs)
        self.truth: list[str] = []
        self.sensitive: dict[str, list[str]] = {}
        self.clusters: list[str] = []  # none, or one for each image
        self.digests = array("Q")  # the first 64 bits tell images apart
        self.labels: list[str] = []
        self.seconds = 0.0
        self.by: list[str] = []  # the engines that did the work, each once
        for record, row in rows:
            self.add(record, row)

    def add(self, record: Record, row: StoredRow) -> None:
        """One more image."""
        prediction = row.prediction
        self.truth.append(sys.intern(record.target))
        for attribute, value in record.sensitive.items():
            self.sensitive.setdefault(attribute, []).append(sys.intern(value))
        if record.cluster is not None:
            self.clusters.append(sys.intern(record.cluster))
        self.digests.append(int(row.key.content[:16], 16))
        self.labels.append(sys.intern(prediction.label))
        self._scores.add(prediction)
        self.seconds += row.seconds
        if row.by not in self.by:
            self.by.append(row.by)

    def scores(self) -> Scores:
        """The columns besides labels."""
        return self._scores.scores()

    def audit(
        self,
        name: str,
        adapter: Adapter,
        *,
        values: Mapping[str, Iterable[str]],
        provenance: Mapping[str, Any],
        harmful: HarmSets | None = None,
        interval: Bootstrap = DEFAULT,
    ) -> Audit:
        """The figures, see `audit`. Warnings of small groups are in `Audit.warnings` only."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)
            return audit(
                self.truth,
                self.labels,
                self.sensitive,
                name=name,
                targets=self.targets,
                values={attribute: list(values[attribute]) for attribute in self.sensitive},
                scores=self.scores(),
                seconds=self.seconds,
                harmful=harmful,
                clusters=self.clusters or None,
                digests=self.digests,
                interval=interval,
                adapter=adapter,
                provenance=provenance,
            )
