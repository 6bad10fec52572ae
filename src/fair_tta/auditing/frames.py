"""Rows and predictions as pandas data frames, and fairlearn's MetricFrame."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from fair_tta.errors import require
from fair_tta.metrics.rows import Rows
from fair_tta.prediction import Prediction


def rows_to_dataframe(rows: Rows, runs: Sequence[str]) -> Any:
    """Columns ``y_true``, ``sensitive: ATTRIBUTE`` and ``y_pred: RUN``."""
    pandas = require("pandas", "fairlearn")
    columns = {"y_true": _labels(rows, None)}
    columns |= {f"sensitive: {a}": column for a, column in _sensitive(rows).items()}
    columns |= {f"y_pred: {name}": _labels(rows, run) for run, name in enumerate(runs)}
    return pandas.DataFrame(columns)


def metric_frame(rows: Rows, run: int, metrics: Mapping[str, Any] | None) -> Any:
    """A `fairlearn.metrics.MetricFrame`; accuracy and count if no metrics are given."""
    pandas = require("pandas", "fairlearn")
    fairlearn = require("fairlearn.metrics", "fairlearn")
    if metrics is None:
        metrics = {"accuracy": _accuracy, "count": fairlearn.count}
    return fairlearn.MetricFrame(
        metrics=dict(metrics),
        y_true=_labels(rows, None),
        y_pred=_labels(rows, run),
        sensitive_features=pandas.DataFrame(_sensitive(rows)),
    )


def predictions_to_dataframe(predictions: Sequence[Prediction]) -> Any:
    """Predictions as a pandas DataFrame, one row each, one column per number."""
    pandas = require("pandas", "fairlearn")
    return pandas.DataFrame([_flat(p) for p in predictions])


def _flat(prediction: Prediction) -> dict[str, Any]:
    row: dict[str, Any] = {"label": prediction.label, "flipped": prediction.flipped}
    for name, value in vars(prediction).items():
        if name == "label":
            continue
        if name == "warnings":
            row[name] = "; ".join(value)
        elif isinstance(value, dict):
            for key, inner in value.items():
                nested = inner if isinstance(inner, dict) else {None: inner}
                for last, number in nested.items():
                    row[": ".join(k for k in (name, key, last) if k is not None)] = number
        else:
            row[name] = value
    return row


def _labels(rows: Rows, run: int | None) -> list[Hashable]:
    codes = rows.truth if run is None else rows.answers[run]
    return [rows.targets[i] for i in codes]


def _sensitive(rows: Rows) -> dict[str, list[Hashable]]:
    groups = rows.groups
    return {a: [groups[i][k] for i in rows.group] for k, a in enumerate(rows.values)}


def _accuracy(y_true: Any, y_pred: Any) -> float:
    return float((y_true == y_pred).mean())
