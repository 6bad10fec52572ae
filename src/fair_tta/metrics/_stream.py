"""Metrics of rows that arrive in batches, on one machine or on many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics._answer_table import AnswerTable, read_answer_table
from fair_tta.metrics._columns import read_column, read_sensitive
from fair_tta.metrics._estimates import Estimate, GroupBy, warn_small_groups
from fair_tta.metrics._metric import CustomMetric
from fair_tta.metrics._types import Column, Sensitive, Targets, Values
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

    targets: Targets = field(default=None, kw_only=True)
    values: Values | None = field(default=None, kw_only=True)
    interval: Interval | None = field(default=0.95, kw_only=True)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all rows."""
        self._attributes: tuple[str, ...] = ()
        # How often each (label, answer, *values) came.
        self._counts: Counter[tuple[Hashable, ...]] = Counter()

    def update(self, y_true: Column, y_pred: Column, sensitive: Sensitive) -> None:
        """Count some rows."""
        truth = read_column("y_true", y_true)
        answers = read_column("y_pred", y_pred, len(truth))
        values = read_sensitive(sensitive, len(truth))
        rows = zip(truth, answers, *values.values(), strict=True)
        self._add(tuple(values), Counter(rows))

    def merge(self, *others: MetricStream) -> MetricStream:
        """Add the rows of other streams to this one, and return it."""
        for stream in others:
            self._add(stream._attributes, stream._counts)
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the rows, without settings; JSON can hold it if it can hold labels and values."""
        counts = [[*row, n] for row, n in self._counts.items()]
        return {"attributes": list(self._attributes), "counts": counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace the rows by those of `state_dict`."""
        self.reset()
        counts = Counter({tuple(row): n for *row, n in state["counts"]})
        self._add(tuple(state["attributes"]), counts)

    def compute(self) -> dict[str, Estimate]:
        """Return all metrics of answers by name; ``_s`` is for ``over="sensitive"``."""
        table = self._table(self._attributes, self._counts, has_all_rows=True)
        warn_small_groups(table.sizes_by_name(GroupBy.TARGET_AND_SENSITIVE))
        bootstrap = None if self.interval is None else read_interval(self.interval)
        estimates = {}
        for metric in METRICS.values():
            if not isinstance(metric, CustomMetric) or metric.score is None:
                estimates[metric.name] = metric.estimate(table, 0, bootstrap)
        return estimates

    def _add(
        self, attributes: tuple[str, ...], counts: Counter[tuple[Hashable, ...]]
    ) -> None:
        if not counts:
            return
        if self._counts and attributes != self._attributes:
            names = f"{list(self._attributes)}, as before (got {list(attributes)})"
            raise FairTTAError(
                f"`sensitive` should have the attributes {names}.", argument="sensitive"
            )
        # Rows that do not fit raise here, before any of them is counted.
        self._table(attributes, self._counts | counts)
        self._attributes = attributes
        self._counts.update(counts)

    def _table(
        self,
        attributes: Sequence[str],
        counts: Counter[tuple[Hashable, ...]],
        *,
        has_all_rows: bool = False,
    ) -> AnswerTable:
        """Return a table with an entry for each distinct row, and how often it came."""
        # Rows become columns again: labels, answers and the values of each attribute.
        truth, answers, *values = zip(*counts, strict=True) if counts else ((), ())
        table = read_answer_table(
            truth,
            [answers],
            dict(zip(attributes, values, strict=True)) or None,
            self.targets,
            self.values,
            # Labels of some rows may lack classes.
            truth_has_classes=has_all_rows,
        )
        return replace(table, times=np.array(list(counts.values()), np.int64))
