"""Definitions: their values against the formulas, and all that follows from one definition."""

from __future__ import annotations

import inspect
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answer_columns import CLASSES, VALUES, Columns, answer_columns
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import GroupByText, MetricDefinition
from internals import functions_module as _functions

import mkdocs_metrics
from fair_tta import metrics
from fair_tta.metrics import definitions
from fair_tta.metrics.definitions import METRICS

ROOT = Path(__file__).parents[2]
SMALL_GROUPS_ARE_FINE = pytest.mark.filterwarnings(
    "ignore::fair_tta.errors.SmallGroupWarning"
)

# What follows from a definition

NEW_DEFINITION = """
BEST_GROUP_ACCURACY = RateMetric(
    "best_group_accuracy",
    rates.accuracy_by_group,
    lambda accuracies: accuracies.max(-1),
    title="Best-group accuracy",
    better=1,
    meaning="Accuracy of the group that fares best.",
    formula="max_s sum_i M^(s)_ii / K^(s)",
)
"""

WHAT_FOLLOWS = """
import inspect, mkdocs_metrics
from pathlib import Path
from fair_tta import metrics
from fair_tta.auditing import Audit, audit, compare
from fair_tta.auditing._document import schema
from fair_tta.lab.report import html, markdown
from fair_tta.metrics import best_group_accuracy, definitions

truth, groups = ["a", "b"] * 60, ["x"] * 60 + ["y"] * 60
first = ["a"] * 60 + truth[60:]
assert "best_group_accuracy" in metrics.__all__
assert "BEST_GROUP_ACCURACY" in definitions.__all__
value = best_group_accuracy(truth, first, groups, interval=None)
assert value.value == 1 and value.low is None
assert best_group_accuracy(truth, first, groups).low <= 1
assert inspect.getdoc(best_group_accuracy).startswith("Accuracy of the group that fares best.")
assert "max_s sum_i M^(s)_ii / K^(s)" in mkdocs_metrics.listing()
stream = metrics.MetricStream()
stream.update(truth, first, groups)
assert stream.compute()["best_group_accuracy"].value == 1
paired = metrics.paired_difference(definitions.BEST_GROUP_ACCURACY, truth, first, truth, groups)

before = audit(truth, first, groups, name="before")
both = compare([before, audit(truth, truth, groups, name="after")])
assert both.estimate("best_group_accuracy").value == 1
assert both.document.runs[0].metrics.best_group_accuracy.low is not None
change = both.difference("best_group_accuracy", "after")
assert change == paired and change.value == 0 and change.low <= 0 <= change.high
assert Audit.from_json(both.to_json()) == both
assert "best_group_accuracy" in schema()["$defs"]["RunMetrics"]["properties"]
assert "best_group_accuracy" in set(both.to_frame()["figure"])
assert "Best-group accuracy" in markdown(both)
assert "Best-group accuracy" in html(both)
assert "Accuracy of the group that fares best." in html(both)
"""


def test_a_new_metric_is_one_definition(tmp_path: Path) -> None:
    """In a copy of the package, in which nothing else is edited."""
    package = tmp_path / "fair_tta"
    shutil.copytree(
        ROOT / "src" / "fair_tta", package, ignore=shutil.ignore_patterns("*.pyc")
    )
    file = package / "metrics" / "definitions.py"
    others, end, rest = file.read_text("utf-8").partition("\n_DEFINED = ")
    file.write_text(others + NEW_DEFINITION + end + rest, "utf-8")
    paths = os.pathsep.join([str(tmp_path), str(ROOT / "tools")])
    done = subprocess.run(
        [sys.executable, "-c", WHAT_FOLLOWS],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_described_and_documented(name: str) -> None:
    metric = METRICS[name]
    assert metric.name == name
    assert metric.title
    assert metric.meaning.endswith(".")
    function = getattr(metrics, name.removesuffix("_s"))  # `over="sensitive"`
    documentation = inspect.getdoc(function)
    assert documentation
    assert metric.formula in documentation
    assert f"`fair_tta.metrics.{function.__name__}`" in mkdocs_metrics.listing()


def test_definitions_are_all_that_is_public() -> None:
    """Those of groups of one value alone are `over="sensitive"` of functions, and in the table."""
    capitals = {name for name in vars(definitions) if name.isupper() and name[0] != "_"}
    of_values = {name for name in capitals if name.endswith("_S")}
    assert capitals - {"METRICS"} - of_values == {*definitions.__all__}
    defined = [getattr(definitions, name) for name in definitions.__all__]
    assert all(isinstance(definition, MetricDefinition) for definition in defined)
    assert defined == [d for name, d in METRICS.items() if not name.endswith("_s")]


@pytest.mark.parametrize("name", _functions.FUNCTIONS)
def test_a_function_is_that_of_its_definition(name: str) -> None:
    function = _functions.FUNCTIONS[name]
    assert getattr(metrics, name) is function
    assert name in metrics.__all__
    assert function.__name__ == function.__qualname__ == name
    parameters = inspect.signature(function).parameters
    assert parameters["interval"].default == 0.95
    assert {"interval", "clusters"} <= parameters.keys()
    definition = METRICS.get(name)
    if (
        definition is not None
    ):  # the line that type checkers read has the right template
        expected = inspect.signature(_functions.template_of(definition)).parameters
        assert [*parameters] == [*expected][1:]


def test_the_reference_has_the_place_of_the_functions() -> None:
    page = (ROOT / "docs" / "reference.md").read_text("utf-8")
    assert page.count(mkdocs_metrics.MARK) == 1
    assert "tools/mkdocs_metrics.py" in (ROOT / "mkdocs.yml").read_text("utf-8")
    filled = mkdocs_metrics.on_page_markdown(page)
    assert "bias(y_true, y_pred, sensitive, *, over='target and sensitive', " in filled


# Values


def odds_by_formula(columns: Columns) -> float:
    """The paper's formula on explicit confusion matrices, in loops."""
    confusion = {s: np.zeros((3, 3)) for s in VALUES}
    for truth, answer, value in zip(*columns, strict=True):
        confusion[value][CLASSES.index(truth), CLASSES.index(answer)] += 1
    gaps = []
    for i in range(3):
        true_positive = []
        false_positive = []
        for counts in confusion.values():
            images = counts[i].sum()
            others = counts.sum() - images
            if images:
                true_positive.append(counts[i, i] / images)
            if others:
                false_positive.append((counts[:, i].sum() - counts[i, i]) / others)
        if len(true_positive) >= 2 and len(false_positive) >= 2:
            gaps.append(max(np.ptp(true_positive), np.ptp(false_positive)))
    return sum(gaps) / len(gaps) if gaps else math.nan


@SMALL_GROUPS_ARE_FINE
@settings(deadline=None)
@given(answer_columns(3, 3))
def test_equalized_odds_is_the_papers_formula(columns: Columns) -> None:
    odds = metrics.equalized_odds_difference(*columns, targets=CLASSES, values=VALUES)
    assert float(odds) == pytest.approx(odds_by_formula(columns), nan_ok=True)
    assert odds.value is not None or odds.reason is not None
    assert odds.value is None or 0 <= odds.value <= 1


@SMALL_GROUPS_ARE_FINE
@settings(deadline=None)
@given(answer_columns(3, 2))
def test_worst_group_and_bias_by_hand(columns: Columns) -> None:
    y_true, y_pred, sensitive = map(np.array, columns)
    is_correct = y_true == y_pred
    groups: dict[GroupByText, Any] = {
        "sensitive": sensitive,
        "target and sensitive": np.char.add(y_true, sensitive),
    }
    for over, keys in groups.items():
        names = set(keys.tolist())
        worst = min(is_correct[keys == name].mean() for name in names)
        estimate = metrics.worst_group_accuracy(*columns, over=over, targets=CLASSES)
        assert estimate.value == pytest.approx(worst)
        assert estimate.n in {int((keys == name).sum()) for name in names}
        bias = metrics.bias(*columns, over=over, targets=CLASSES)
        assert bias.value == pytest.approx(is_correct.mean() - worst, abs=1e-12)
        for low, value, high in (bounds(estimate), bounds(bias)):
            assert 0 <= low <= value <= high <= 1
    default = metrics.worst_group_accuracy(*columns, targets=CLASSES)
    assert default == estimate


def bounds(estimate: metrics.Estimate) -> tuple[float, float, float]:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, float(estimate), estimate.high


def values_of(y_true: Any, y_pred: Any, sensitive: Any, **names: Any) -> list[float]:
    """Return the accuracy, and the metrics of groups."""
    estimates = [metrics.accuracy(y_true, y_pred, targets=CLASSES)]
    for metric in (
        metrics.worst_group_accuracy,
        metrics.bias,
        metrics.equalized_odds_difference,
        metrics.equal_opportunity_difference,
        metrics.demographic_parity_difference,
    ):
        estimates.append(metric(y_true, y_pred, sensitive, **names))
    return [float(estimate) for estimate in estimates]


@SMALL_GROUPS_ARE_FINE
@settings(max_examples=40, deadline=None)
@given(answer_columns(3, 3), st.permutations(VALUES), st.permutations(CLASSES))
def test_renaming_and_reordering_change_nothing(
    columns: Columns, new_values: list[str], classes: list[str]
) -> None:
    y_true, y_pred, sensitive = columns
    values = values_of(*columns, targets=CLASSES, values=VALUES)
    expected = pytest.approx(values, nan_ok=True)
    renamed = [new_values[VALUES.index(s)] for s in sensitive]
    again = values_of(y_true, y_pred, renamed, targets=classes, values=new_values)
    assert again == expected
    order = np.random.default_rng(0).permutation(len(y_true))
    shuffled = [np.array(column)[order] for column in columns]
    assert values_of(*shuffled, targets=CLASSES, values=VALUES) == expected


@SMALL_GROUPS_ARE_FINE
@settings(max_examples=30, deadline=None)
@given(answer_columns(3, 2))
def test_an_absent_group_is_reported_and_changes_no_other(columns: Columns) -> None:
    listed: Any = {"targets": CLASSES, "values": VALUES}
    plain = values_of(*columns, targets=CLASSES)
    assert values_of(*columns, **listed) == pytest.approx(plain, nan_ok=True)
    accuracies = metrics.group_accuracy(*columns, **listed)
    assert list(accuracies) == VALUES
    absent = metrics.Estimate(None, 0, reason="no images: other")
    assert accuracies["other"] == absent
    worst = metrics.worst_group_accuracy(*columns, **listed, over="sensitive")
    assert worst.reason is not None
    assert "other" in worst.reason


def test_equal_groups_have_no_gap() -> None:
    y_true = ["cat", "dog", "bird"] * 80
    y_pred = ["cat", "dog", "dog"] * 80
    columns = y_true, y_pred, ["man"] * 120 + ["woman"] * 120
    assert metrics.equalized_odds_difference(*columns).value == 0
    assert metrics.demographic_parity_difference(*columns).value == 0
    for gaps in metrics.class_gaps(*columns).values():
        assert [gap.value for gap in vars(gaps).values()] == [0, 0, 0]
    assert metrics.bias(*columns, over="sensitive").value == 0
