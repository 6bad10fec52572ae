"""Public functions of metrics, made from definitions: name, signature and documentation."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec

import numpy as np

from fair_tta.metrics import definitions
from fair_tta.metrics._answer_table import AnswerTable, read_answer_table
from fair_tta.metrics._arrays import read_entropies
from fair_tta.metrics._clusters import check_clusters, read_clusters
from fair_tta.metrics._custom_metrics import indifference, indifference_change
from fair_tta.metrics._estimates import (
    Estimate,
    GroupBy,
    GroupByText,
    parse_group_by,
    warn_small_groups,
)
from fair_tta.metrics._metric import CustomMetric, MetricDefinition
from fair_tta.metrics._scores import Scores
from fair_tta.metrics._types import Column, Sensitive, Targets, Values
from fair_tta.metrics.definitions import METRICS
from fair_tta.metrics.intervals._bootstrap import Interval, read_interval

P = ParamSpec("P")

_WIDTH = 88  # of documentation, which `help` indents by 4
_STACK_LEVEL = 5  # calls from the warning to the line of the user

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
    """Return a function with the parameters of the template that measures a metric."""
    template_signature = inspect.signature(template)
    # The definition is bound; users pass the rest.
    _definition, *parameters = template_signature.parameters.values()
    signature = template_signature.replace(parameters=parameters)

    def function(*args: P.args, **kwargs: P.kwargs) -> Estimate:
        # Bound here too, so that errors do not name the template.
        signature.bind(*args, **kwargs)
        return template(definition, *args, **kwargs)

    # `help` and the reference page show the signature and the annotations.
    annotations = dict(template.__annotations__)
    del annotations["definition"]
    described: Any = function
    described.__name__ = described.__qualname__ = definition.name
    described.__doc__ = documentation(definition, signature)
    described.__signature__ = signature
    described.__annotations__ = annotations
    return function


def documentation(definition: MetricDefinition, signature: inspect.Signature) -> str:
    """Return a docstring: words, formula, the value of no disparity, parameters, an example."""
    # Each paragraph is left out if the definition does not have it.
    paragraphs = [textwrap.fill(definition.meaning or f"{definition.title}.", _WIDTH)]
    if definition.formula:
        paragraphs.append(_formulas(definition, signature))
    if definition.no_disparity:
        paragraphs.append(f"No disparity: {definition.no_disparity}.")
    if definition.notes:
        paragraphs.append(textwrap.fill(definition.notes, _WIDTH))
    lines = [f"    {name}: {_PARAMETERS[name]}" for name in signature.parameters]
    paragraphs.append("\n".join(["Args:", *lines]))
    if definition.example:
        paragraphs.append("Example:\n" + textwrap.indent(definition.example, "    "))
    return "\n\n".join(paragraphs) + "\n"


def _formulas(definition: MetricDefinition, signature: inspect.Signature) -> str:
    """Return the formula, and that over sensitive values alone if there is one."""
    if "over" not in signature.parameters:
        return f"``{definition.formula}``"
    over_values = _over_values(definition)
    return f"``{definition.formula}``, or with ``over='sensitive'``\n``{over_values.formula}``"


def _over_values(definition: MetricDefinition) -> MetricDefinition:
    """Return the definition of the same metric over sensitive values alone."""
    return METRICS[f"{definition.name}_s"]


def _of_all_images(
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
    table = read_answer_table(y_true, [y_pred], sensitive, targets, values, clusters)
    return _measure(definition, table, interval)


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
    table = read_answer_table(y_true, [y_pred], sensitive, targets, values, clusters)
    return _measure(definition, table, interval)


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
    group_by = parse_group_by("over", over)
    table = read_answer_table(y_true, [y_pred], sensitive, targets, values, clusters)
    if group_by is GroupBy.SENSITIVE:
        definition = _over_values(definition)
    return _measure(definition, table, interval)


def _of_confidences(
    definition: MetricDefinition,
    y_true: Column,
    y_pred: Column,
    confidence: Any,
    *,
    interval: Interval | None = 0.95,
    clusters: Column | None = None,
) -> Estimate:
    table = read_answer_table(
        y_true, [y_pred], None, None, None, clusters, truth_has_classes=False
    )
    scores = Scores(confidence=confidence)._checked(table.n)
    return _measure(definition, replace(table, scores=(scores,)), interval)


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
    # Neither labels nor answers matter: all images have one class, which is answered.
    zeros = np.zeros(n, np.int64)
    cluster_codes = None if clusters is None else read_clusters(clusters, n)
    table = AnswerTable(("",), {}, zeros, zeros, (zeros,), (scores,), cluster_codes)
    return _measure(definition, table, interval)


def _measure(
    definition: MetricDefinition, table: AnswerTable, interval: Interval | None
) -> Estimate:
    check_clusters(table.clusters)
    if definition.over is not None:
        warn_small_groups(table.sizes_by_name(definition.over), _STACK_LEVEL)
    bootstrap = None if interval is None else read_interval(interval)
    return definition.estimate(table, 0, bootstrap)


# One line for each function, so that type checkers know its parameters.
accuracy = metric_function(_of_all_images, definitions.ACCURACY)
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

# Audits have one for each attribute that the model names, so it is not among `METRICS`.
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
    """Return the template with the parameters that a definition needs."""
    # Metrics of scores take the scores; the others take answers, and groups if they need them.
    if isinstance(definition, CustomMetric) and definition.score == "entropy":
        return _of_probabilities
    if isinstance(definition, CustomMetric) and definition.score == "confidence":
        return _of_confidences
    if definition.over is None:
        return _of_all_images
    return _of_either_groups if f"{definition.name}_s" in METRICS else _of_groups


def _is_over_values(name: str) -> bool:
    """Return whether a metric is `over="sensitive"` of another one's function."""
    return name.endswith("_s") and name.removesuffix("_s") in METRICS


FUNCTIONS: dict[str, Callable[..., Estimate]] = {
    function.__name__: function
    for function in (
        accuracy,
        balanced_accuracy,
        worst_group_accuracy,
        bias,
        typical_gap,
        equalized_odds_difference,
        equal_opportunity_difference,
        demographic_parity_difference,
        average_target_confidence,
        expected_calibration_error,
        average_sensitive_indifference,
    )
}
"""All functions that are made from definitions, by name."""

# A definition has its function without a line of its own above.
for _name, _definition in METRICS.items():
    if _name not in FUNCTIONS and not _is_over_values(_name):
        FUNCTIONS[_name] = metric_function(template_of(_definition), _definition)
