"""A metric is defined in one place; functions, audits, comparisons, reports and docs follow."""

from __future__ import annotations

import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from internals import MetricDefinition
from internals import functions_module as _functions

import mkdocs_metrics
from fair_tta import metrics
from fair_tta.metrics import definitions
from fair_tta.metrics.definitions import METRICS

ROOT = Path(__file__).parents[2]

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
