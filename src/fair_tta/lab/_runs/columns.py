"""Kept answers and true labels, column by column: what an audit is made of."""

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
from fair_tta.lab._runs.store import Answer
from fair_tta.lab.data import Record
from fair_tta.methods._base import Adapter
from fair_tta.metrics._bootstrap import DEFAULT, Bootstrap
from fair_tta.metrics._scores import Scores

_NUMBERS = ("entropy", "entropy_zero_shot", "relative_step")
_BY_ATTRIBUTE = ("sensitive_entropy", "sensitive_entropy_zero_shot")


class Columns:
    """The answers of one setting. Of each picture a few numbers stay in memory.

    Args:
        targets: all labels of the target, in the order of the answers' probabilities.
        keep_beliefs: keep what the model believes before adaptation too, so that the audit shows
            what would have been said without labels.

    Attributes:
        images: the names of the pictures within their dataset.
        truth: the true targets.
        sensitive: ``{attribute: true values}``
        labels: the answers.
        warnings: what the method had to say about each picture.
        seconds: what it took, all pictures together.
        by: who did the work, each once.
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
    def of(cls, targets: Iterable[str], rows: Iterable[tuple[Record, Answer]]) -> Columns:
        """All of these at once."""
        columns = cls(targets)
        for record, answer in rows:
            columns.add(record, answer)
        return columns

    def __len__(self) -> int:
        return len(self.labels)

    def add(self, record: Record, answer: Answer) -> None:
        """One more picture."""
        self.images.append(record.key)
        self.truth.append(sys.intern(record.target))
        for attribute, value in record.sensitive.items():
            self.sensitive.setdefault(attribute, []).append(sys.intern(value))
        self.labels.append(sys.intern(answer.label))
        self.warnings.append(tuple(map(sys.intern, answer.warnings)))
        self.seconds += answer.seconds
        if answer.by not in self.by:
            self.by.append(answer.by)
        self._numbers["confidence"].append(answer.probabilities[self.targets.index(answer.label)])
        for name in _NUMBERS:
            number = getattr(answer, name)
            self._numbers[name].append(float("nan") if number is None else number)
        for name, columns in self._entropies.items():
            for attribute, entropy in getattr(answer, name).items():
                columns.setdefault(attribute, array("d")).append(entropy)
        if self._keep_beliefs:
            self._zero_shot.extend(answer.zero_shot)
            for attribute, values in answer.sensitive_zero_shot.items():
                self._sensitive_zero_shot.setdefault(attribute, array("f")).extend(values)

    def scores(self) -> Scores:
        """What the setting says besides its answers."""
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
