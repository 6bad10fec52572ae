"""Public functions of metrics, made from definitions: name, signature and documentation."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec

import numpy as np

from fair_tta.metrics import definitions
from fair_tta.metrics._answer_table import (
    AnswerTable,
    check_clusters,
    read_answer_table,
    read_clusters,
)
from fair_tta.metrics._calibration import read_entropies
from fair_tta.metrics._estimates import (
    Estimate,
    GroupBy,
    GroupByText,
    parse_group_by,
    warn_small_groups,
)
from fair_tta.metrics._metric import CustomMetric, MetricDefinition
from fair_tta.metrics._score_figures import indifference, indifference_change
from fair_tta.metrics._scores import Scores
from fair_tta.metrics._types import Column, Sensitive, Targets, Values
from fair_tta.metrics.definitions import METRICS
from fair_tta.metrics.intervals._bootstrap import Interval, read_interval

P = ParamSpec("P")

_WIDTH = 88  # of documentation, which `help` indents by 4
_STACK = 5  # calls from the warning to the line of the user

_PARAMETERS = {
    "y_true": "true labels, names or numbers.",
    "y_pred": "answers to the same images.",
    "sensitive": "sensitive values, or ``{attribute: values}``; groups are then intersections.",
    "confidence": "the probability of each answer.",
    "probabilities": "``[images, names]``; or pass `entropies`.",
    "entropies": "``[images]`` normalised entropies.",
    "over": "what a group is: images of a class and a sensitive value, or of a value alone.",
    "targets": "all classes, if some may not occur.",
    "values": "all sensitive values, if some may not occur.",
    "interval": "the level of the interval, or how it is made; None for none.",
    "clusters": "the person or source of each image, if several images come from one.",
}


def metric_function(
    template: Callable[Concatenate[MetricDefinition, P], Estimate],
    definition: MetricDefinition,
) -> Callable[P, Estimate]:
    """Return a function with the parameters of the template that measures what is defined."""
    whole = inspect.signature(template)
    signature = whole.replace(parameters=[*whole.parameters.values()][1:])

    def function(*args: P.args, **kwargs: P.kwargs) -> Estimate:
        signature.bind(*args, **kwargs)  # its errors do not name the template
        return template(definition, *args, **kwargs)

    described: Any = function
    described.__name__ = described.__qualname__ = definition.name
    described.__doc__ = documentation(definition, signature)
    described.__signature__ = signature
    described.__annotations__ = {
        name: note
        for name, note in template.__annotations__.items()
        if name != "definition"
    }
    return function


def documentation(definition: MetricDefinition, signature: inspect.Signature) -> str:
    """Return a docstring: words, formula, the value of no disparity, parameters, an example."""
    parts = [textwrap.fill(definition.meaning or f"{definition.title}.", _WIDTH)]
    if definition.formula:
        parts.append(_formulas(definition, with_values="over" in signature.parameters))
    if definition.no_disparity:
        parts.append(f"No disparity: {definition.no_disparity}.")
    if definition.notes:
        parts.append(textwrap.fill(definition.notes, _WIDTH))
    explained = [f"    {name}: {_PARAMETERS[name]}" for name in signature.parameters]
    parts.append("\n".join(["Args:", *explained]))
    if definition.example:
        parts.append("Example:\n" + textwrap.indent(definition.example, "    "))
    return "\n\n".join(parts) + "\n"


def _formulas(definition: MetricDefinition, *, with_values: bool) -> str:
    """Return the formula, and that over sensitive values alone if there is one."""
    if not with_values:
        return f"``{definition.formula}``"
    of_values = _over_values(definition)
    return f"``{definition.formula}``, or with ``over='sensitive'``\n``{of_values.formula}``"


def _over_values(definition: MetricDefinition) -> MetricDefinition:
    """Return the definition of the same over sensitive values alone."""
    return METRICS[f"{definition.name}_s"]


def _of_everybody(
    definition: MetricDefinition,
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive | None = None,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> Estimate:
    columns = read_answer_table(y_true, [y_pred], sensitive, targets, values, clusters)
    return _measured(definition, columns, interval)


def _of_groups(
    definition: MetricDefinition,
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> Estimate:
    columns = read_answer_table(y_true, [y_pred], sensitive, targets, values, clusters)
    return _measured(definition, columns, interval)


def _of_either_groups(
    definition: MetricDefinition,
    y_true: Column,
    y_pred: Column,
    sensitive: Sensitive,
    *,
    over: GroupByText = "target and sensitive",
    targets: Targets = None,
    values: Values | None = None,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> Estimate:
    is_of_values = parse_group_by("over", over) is GroupBy.SENSITIVE
    columns = read_answer_table(y_true, [y_pred], sensitive, targets, values, clusters)
    chosen = _over_values(definition) if is_of_values else definition
    return _measured(chosen, columns, interval)


def _of_confidences(
    definition: MetricDefinition,
    y_true: Column,
    y_pred: Column,
    confidence: Any,
    *,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> Estimate:
    columns = read_answer_table(
        y_true, [y_pred], None, None, None, clusters, truth_has_classes=False
    )
    scores = Scores(confidence=confidence)._checked(columns.n)
    return _measured(definition, replace(columns, scores=(scores,)), interval)


def _of_probabilities(
    definition: MetricDefinition,
    *,
    probabilities: Any = None,
    entropies: Any = None,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> Estimate:
    scores = Scores(entropy=read_entropies(probabilities, entropies))
    n = len(scores.entropy)
    numbers = None if clusters is None else read_clusters(clusters, n)
    # Neither labels nor answers matter: they are all the same here.
    nothing = np.zeros(n, np.int64)
    columns = AnswerTable(("",), {}, nothing, nothing, (nothing,), (scores,), numbers)
    return _measured(definition, columns, interval)


def _measured(
    definition: MetricDefinition, columns: AnswerTable, interval: Interval | None
) -> Estimate:
    check_clusters(columns.clusters)
    if definition.over is not None:
        warn_small_groups(columns.sizes_by_name(definition.over), _STACK)
    how = None if interval is None else read_interval(interval)
    return definition.estimate(columns, 0, how)


accuracy = metric_function(_of_everybody, definitions.ACCURACY)
balanced_accuracy = metric_function(_of_groups, definitions.BALANCED_ACCURACY)
worst_group_accuracy = metric_function(
    _of_either_groups, definitions.WORST_GROUP_ACCURACY
)
bias = metric_function(_of_either_groups, definitions.BIAS)
typical_gap = metric_function(_of_groups, definitions.TYPICAL_GAP)
equalized_odds_difference = metric_function(_of_groups, definitions.EQUALIZED_ODDS)
equal_opportunity_difference = metric_function(
    _of_groups, definitions.EQUAL_OPPORTUNITY
)
demographic_parity_difference = metric_function(
    _of_groups, definitions.DEMOGRAPHIC_PARITY
)
average_target_confidence = metric_function(
    _of_probabilities, definitions.AVERAGE_TARGET_CONFIDENCE
)
expected_calibration_error = metric_function(
    _of_confidences, definitions.EXPECTED_CALIBRATION_ERROR
)

# Audits have it by attribute of the model, so it is not among `METRICS`.
_INDIFFERENCE = CustomMetric(
    "average_sensitive_indifference",
    indifference,
    indifference_change,
    over=None,
    score="entropy",
    meaning="ASI: the mean normalised entropy of a sensitive attribute. 1 is indifferent, 0 is "
    "certain.",
    formula="mean_i H(p_i) / log(values)",
    no_disparity="1, as the model cannot tell",
    example="""\
>>> round(average_sensitive_indifference(probabilities=[[0.5, 0.5], [1.0, 0.0]]).value, 3)
0.5""",
)
average_sensitive_indifference = metric_function(_of_probabilities, _INDIFFERENCE)


def template_of(definition: MetricDefinition) -> Callable[..., Estimate]:
    """Return the template whose parameters a definition takes."""
    score = definition.score if isinstance(definition, CustomMetric) else None
    if score is not None:
        return _of_probabilities if score == "entropy" else _of_confidences
    if definition.over is None:
        return _of_everybody
    return _of_either_groups if f"{definition.name}_s" in METRICS else _of_groups


FUNCTIONS: dict[str, Callable[..., Estimate]] = {
    _INDIFFERENCE.name: average_sensitive_indifference
}
"""All functions that are made from definitions, by name."""

# A definition has its function without a line of its own; those above are for type checkers.
for _name, _definition in METRICS.items():
    if _name.endswith("_s") and _name[:-2] in METRICS:
        continue  # `over="sensitive"` of the other
    if _name not in globals():
        globals()[_name] = metric_function(template_of(_definition), _definition)
    FUNCTIONS[_name] = globals()[_name]
