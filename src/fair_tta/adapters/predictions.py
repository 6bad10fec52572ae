"""From outcomes of a batch to the prediction of each image."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from torch import Tensor

from fair_tta.adapters.contract import Outcome
from fair_tta.metrics.simplex import distance, flip_margin
from fair_tta.prediction import Prediction
from fair_tta.text.task import Task
from fair_tta.tuning.entropy import normalised_entropy

NOT_FINITE = "adaptation gave values that are not finite; this is the zero-shot answer"


def to_predictions(task: Task, zero_shot: Outcome, adapted: Outcome) -> list[Prediction]:
    """Set a method's outcome beside zero-shot's, which fills in what it leaves out."""
    adapted = replace(adapted, sensitive={**zero_shot.sensitive, **adapted.sensitive})
    return [_prediction(task, zero_shot, adapted, i) for i in range(len(adapted.probabilities))]


def _prediction(task: Task, before: Outcome, after: Outcome, index: int) -> Prediction:
    warnings = after.warnings[index] if after.warnings else ()
    values = [after.probabilities, *after.sensitive.values()]
    if not all(bool(value[index].isfinite().all()) for value in values):
        warnings += (NOT_FINITE,)
        after = before
    p, q = before.probabilities[index], after.probabilities[index]
    moved, margin = float(distance(p.double(), q.double())), float(flip_margin(p.double()))
    targets, attributes = tuple(task.targets), task.sensitive.items()
    return Prediction(
        label=targets[int(q.argmax())],
        probabilities=_named(targets, q),
        zero_shot=_named(targets, p),
        sensitive={a: _named(names, after.sensitive[a][index]) for a, names in attributes},
        sensitive_zero_shot={
            a: _named(names, before.sensitive[a][index]) for a, names in attributes
        },
        entropy=_entropy(q),
        entropy_zero_shot=_entropy(p),
        sensitive_entropy={a: _entropy(after.sensitive[a][index]) for a, _ in attributes},
        sensitive_entropy_zero_shot={
            a: _entropy(before.sensitive[a][index]) for a, _ in attributes
        },
        distance=moved,
        flip_margin=margin,
        certified_unchanged=moved < margin,
        learning_rate=_number(after.learning_rate, index),
        relative_step=_number(after.relative_step, index),
        views_kept=_count(after.views_kept, index),
        warnings=warnings,
    )


def _named(names: Iterable[str], values: Tensor) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))


def _number(values: Tensor | None, index: int) -> float | None:
    """None also for what is not finite, which says nothing and JSON cannot hold."""
    number = math.nan if values is None else float(values[index])
    return number if math.isfinite(number) else None


def _count(value: int | Tensor | None, index: int) -> int | None:
    return int(value[index]) if isinstance(value, Tensor) else value


def _entropy(probabilities: Tensor) -> float:
    return float(normalised_entropy(probabilities.log()))
