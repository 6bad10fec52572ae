"""Stored rows and true labels, column by column: the input of an audit."""

from __future__ import annotations

import sys
import warnings
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fair_tta.auditing._audit import Audit
from fair_tta.auditing._measure import audit
from fair_tta.auditing._run import HarmSets
from fair_tta.errors import SmallGroupWarning
from fair_tta.lab._runs.store import StoredRow
from fair_tta.lab.data import Record
from fair_tta.methods._base import Adapter
from fair_tta.metrics._bootstrap import DEFAULT, Bootstrap
from fair_tta.metrics._scores import Scores

_NUMBERS = ("entropy", "entropy_zero_shot", "relative_step")
_BY_ATTRIBUTE = ("sensitive_entropy", "sensitive_entropy_zero_shot")


class Columns:
    """The rows of one method. Of each image a few numbers stay in memory.

    Args:
        targets: all labels of the target, in the order of the probabilities.
        keep_beliefs: keep the probabilities before adaptation too, so that the audit shows what
            could have been estimated without labels.

    Attributes:
        images: the names of the images within their dataset.
        truth: the true targets.
        sensitive: ``{attribute: true values}``
        labels: the predicted targets.
        warnings: of the predictions.
        seconds: of all images together.
        by: the engines that did the work, each once.
    """

    def __init__(self, targets: Iterable[str], *, keep_beliefs: bool = False) -> None:
        self.targets = list(targets)
        self._keep_beliefs = keep_beliefs
        self._zero_shot = array("f")
        self._sensitive_zero_shot: dict[str, array[float]] = {}
        self.images: list[str] = []
        self.truth: list[str] = []
        self.sensitive: dict[str, list[str]] = {}
        self.labels: list[str] = []
        self.warnings: list[tuple[str, ...]] = []
        self.seconds = 0.0
        self.by: list[str] = []
        self._numbers = {name: array("d") for name in ("confidence", *_NUMBERS)}
        self._entropies: dict[str, dict[str, array[float]]] = {name: {} for name in _BY_ATTRIBUTE}

    @classmethod
    def of(cls, targets: Iterable[str], rows: Iterable[tuple[Record, StoredRow]]) -> Columns:
        """All of these at once."""
        columns = cls(targets)
        for record, row in rows:
            columns.add(record, row)
        return columns

    def __len__(self) -> int:
        return len(self.labels)

    def add(self, record: Record, row: StoredRow) -> None:
        """One more image."""
        prediction = row.prediction
        self.images.append(record.key)
        self.truth.append(sys.intern(record.target))
        for attribute, value in record.sensitive.items():
            self.sensitive.setdefault(attribute, []).append(sys.intern(value))
        self.labels.append(sys.intern(prediction.label))
        self.warnings.append(tuple(map(sys.intern, prediction.warnings)))
        self.seconds += row.seconds
        if row.by not in self.by:
            self.by.append(row.by)
        self._numbers["confidence"].append(prediction.probabilities[prediction.label])
        for name in _NUMBERS:
            number = getattr(prediction, name)
            self._numbers[name].append(float("nan") if number is None else number)
        for name, columns in self._entropies.items():
            for attribute, entropy in getattr(prediction, name).items():
                columns.setdefault(attribute, array("d")).append(entropy)
        if self._keep_beliefs:
            self._zero_shot.extend(prediction.zero_shot.values())
            for attribute, values in prediction.sensitive_zero_shot.items():
                beliefs = self._sensitive_zero_shot.setdefault(attribute, array("f"))
                beliefs.extend(values.values())

    def scores(self) -> Scores:
        """The columns besides labels."""
        columns: dict[str, Any] = {**self._numbers, **self._entropies}
        if self._keep_beliefs and len(self):
            beliefs = np.array(self._zero_shot).reshape(len(self), -1)
            columns["zero_shot"] = dict(zip(self.targets, beliefs.T, strict=True))
            columns["sensitive_zero_shot"] = {
                attribute: np.array(values).reshape(len(self), -1)
                for attribute, values in self._sensitive_zero_shot.items()
            }
        return Scores(**columns, warnings=self.warnings)

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
        """The figures. Warnings of small groups are in `Audit.warnings` only.

        Args:
            name: what to call the run.
            adapter: the method.
            values: ``{attribute: all values}``
            provenance: what to write down besides.
            harmful: sets of classes, see `audit`.
            interval: how intervals are made.
        """
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
                interval=interval,
                adapter=adapter,
                provenance=provenance,
            )
