"""A metric is defined in one place, and audits, comparisons, reports and docs follow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fair_tta import metrics
from fair_tta.metrics._definitions import METRICS

NEW_METRIC = """
import numpy as np
from fair_tta.metrics import Metric, definitions

definitions.METRICS["best_group_accuracy"] = Metric(
    "best_group_accuracy",
    definitions.by_group,
    lambda rates: np.fmax.reduce(rates, -1),
    title="Best-group accuracy",
    better=1,
    meaning="Accuracy of the group that fares best.",
)

from pathlib import Path
from fair_tta.auditing import Audit, audit, compare, schema
from fair_tta.lab.report import html, markdown

truth, groups = ["a", "b"] * 60, ["x"] * 60 + ["y"] * 60
before = audit(truth, ["a"] * 60 + truth[60:], groups, name="before")
both = compare([before, audit(truth, truth, groups, name="after")])
assert both.estimate("best_group_accuracy").value == 1
assert both.document.runs[0].metrics.best_group_accuracy.low is not None
change = both.difference("best_group_accuracy", "after")
assert change.value == 0 and change.low <= 0 <= change.high
assert Audit.from_json(both.to_json()) == both
assert "best_group_accuracy" in schema()["$defs"]["RunMetrics"]["properties"]
assert "best_group_accuracy" in set(both.to_frame()["figure"])
assert "Best-group accuracy" in markdown(both)
assert "Best-group accuracy" in html(both)
assert "Accuracy of the group that fares best." in html(both)
"""


def test_a_new_metric_is_one_definition() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", NEW_METRIC], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_described_and_documented(name: str) -> None:
    metric = METRICS[name]
    assert metric.name == name
    assert metric.title
    assert metric.meaning.endswith(".")
    function = name.removesuffix("_s")  # `over=Over.SENSITIVE`
    assert callable(getattr(metrics, function))
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert f"`{function}`" in page.read_text("utf-8")
