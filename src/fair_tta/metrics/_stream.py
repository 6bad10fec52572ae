"""Metrics of rows that arrive in batches, on one machine or on many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics import _answer_table as columns
from fair_tta.metrics._estimates import Estimate, GroupBy, warn_small_groups
from fair_tta.metrics._metric import CustomMetric
from fair_tta.metrics._types import Column, Sensitive, Values
from fair_tta.metrics.definitions import METRICS
from fair_tta.metrics.intervals._bootstrap import Interval, read_interval


@dataclass
class MetricStream:
    """Metrics with intervals of rows that arrive in batches.

    The state is how often each combination of label, answer and sensitive values came, so memory
    does not grow with the rows. Batches may lack classes and groups: names are kept, so nothing is
    relabelled. The result is that of the functions of the same names on all rows at once.

    Args:
        targets: all classes, if some may not occur.
        values: all sensitive values, or ``{attribute: all values}``, if some may not occur.
        interval: level of the intervals, or how they are made; None for none.

    Example:
        >>> stream = MetricStream()
        >>> for group in ("indoors", "outdoors"):
        ...     stream.update(["cat", "dog"] * 50, ["cat"] * 100, [group] * 100)
        >>> stream.compute()["accuracy"].value
        0.5
    """

    targets: Sequence[Hashable] | None = field(default=None, kw_only=True)
    values: Values | None = field(default=None, kw_only=True)
    interval: Interval | None = field(default=0.95, kw_only=True)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self._attributes: tuple[str, ...] = ()
        self._counts: Counter[tuple[Hashable, ...]] = Counter()

    def update(
        self,
        y_true: Column,
        y_pred: Column,
        sensitive: Sensitive,
    ) -> None:
        """Count some rows."""
        truth = columns.read_column("y_true", y_true)
        answers = columns.read_column("y_pred", y_pred, len(truth))
        values = columns.read_sensitive(sensitive, len(truth))
        self._add(
            (*values,), Counter(zip(truth, answers, *values.values(), strict=True))
        )

    def merge(self, *others: MetricStream) -> MetricStream:
        """Add the rows of others to this one, and return it."""
        for other in others:
            self._add(other._attributes, other._counts)
        return self

    def state_dict(self) -> dict[str, Any]:
        """The rows, without settings; JSON can hold it if it can hold labels and values."""
        counts = [[*row, n] for row, n in self._counts.items()]
        return {"attributes": [*self._attributes], "counts": counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the rows by those of `state_dict`."""
        self.reset()
        counts = Counter({tuple(row): n for *row, n in state["counts"]})
        self._add(tuple(state["attributes"]), counts)

    def compute(self) -> dict[str, Estimate]:
        """All metrics that rest on answers alone, by name; ``_s`` is for ``over="sensitive"``."""
        rows = self._columns(self._attributes, self._counts, are_all=True)
        warn_small_groups(rows.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE))
        how = None if self.interval is None else read_interval(self.interval)
        estimates = {}
        for metric in METRICS.values():
            if not isinstance(metric, CustomMetric) or metric.score is None:
                estimates[metric.name] = metric.estimate(rows, 0, how)
        return estimates

    def _add(
        self, attributes: tuple[str, ...], counts: Counter[tuple[Hashable, ...]]
    ) -> None:
        if self._counts and counts and attributes != self._attributes:
            names = f"{list(self._attributes)}, as before (got {list(attributes)})"
            raise FairTTAError(
                f"`sensitive` should have the attributes {names}.", argument="sensitive"
            )
        if counts:
            self._columns(
                attributes, self._counts | counts
            )  # raises before anything is counted
            self._attributes = attributes
            self._counts.update(counts)

    def _columns(
        self,
        attributes: Sequence[str],
        counts: Counter[tuple[Hashable, ...]],
        *,
        are_all: bool = False,
    ) -> columns.AnswerTable:
        """Distinct rows, and how often each came; labels of some rows may lack classes."""
        truth, answers, *values = zip(*counts, strict=True) if counts else ((), ())
        sensitive = dict(zip(attributes, values, strict=True)) or None
        found = columns.read_answer_table(
            truth,
            [answers],
            sensitive,
            self.targets,
            self.values,
            truth_has_classes=are_all,
        )
        return replace(found, times=np.array([*counts.values()], np.int64))
