"""From the outcome of a batch to one prediction per image."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fair_tta._linalg import describe_shape
from fair_tta.errors import FairTTAError
from fair_tta.methods._base import Adapter, Outcome, non_finite_error
from fair_tta.methods.tuning._entropy import normalised_entropy
from fair_tta.metrics.simplex import distance, flip_margin
from fair_tta.prediction import Prediction
from fair_tta.prompts._task import Task

NOT_FINITE = "adaptation gave values that are not finite; this is the zero-shot answer"
_TARGET = "\0target"  # beside the names of attributes
_NUMBERS = ("learning_rate", "relative_step", "views_kept")


def to_predictions(
    task: Task, zero_shot: Outcome, adapted: Outcome, adapter: Adapter
) -> list[Prediction]:
    """Set a method's outcome beside zero-shot's, which fills in what it leaves out.

    What a user-defined method returns is checked.

    Raises:
        ModelError: zero-shot's outcome is not finite.
    """
    is_checked = not is_builtin(adapter)
    if is_checked:
        _check_outcome(adapter, adapted, task, len(zero_shot.probabilities))
    names = {_TARGET: task.targets, **task.sensitive}
    before = {_TARGET: zero_shot.probabilities, **zero_shot.sensitive}
    changed = {_TARGET: adapted.probabilities, **adapted.sensitive}
    if adapted is zero_shot:
        changed = {}
    numbers = {name: getattr(adapted, name) for name in _NUMBERS}
    host = fetch_to_cpu(
        {("before", name): p for name, p in before.items()}
        | {("after", name): p for name, p in changed.items()}
        | {("flag", text): flag for text, flag in adapted.flags.items()}
        | {
            name: values
            for name, values in numbers.items()
            if isinstance(values, Tensor)
        }
    )
    before = {name: host["before", name] for name in before}
    if not bool(before[_TARGET].isfinite().all()):
        raise non_finite_error(task)
    changed = {name: host["after", name] for name in changed}
    finite = torch.stack(
        [p.isfinite().all(1) for p in (changed or before).values()]
    ).all(0)
    if is_checked:
        for name, p in changed.items():
            _check_probabilities(adapter, name, p[finite])
    changed = {
        name: p.where(finite[:, None], before[name]) for name, p in changed.items()
    }
    after = before | changed
    moved = distance(before[_TARGET], after[_TARGET]).tolist()
    margin = flip_margin(before[_TARGET]).tolist()
    labels = [list(task.targets)[index] for index in after[_TARGET].argmax(1).tolist()]
    named_before, entropies_before = _named(names, before), _entropies(before)
    named = named_before | _named(names, changed)
    entropies = entropies_before | _entropies(changed)
    predictions = []
    for i, is_finite in enumerate(finite.tolist()):
        notes = adapted.warnings[i] if adapted.warnings else ()
        notes += tuple(text for text in adapted.flags if host["flag", text][i, 0])
        count = (
            host["views_kept"][i, 0].item()
            if "views_kept" in host
            else adapted.views_kept
        )
        prediction = Prediction(
            label=labels[i],
            probabilities=named[_TARGET][i],
            zero_shot=named_before[_TARGET][i],
            sensitive={a: named[a][i] for a in task.sensitive},
            sensitive_zero_shot={a: named_before[a][i] for a in task.sensitive},
            entropy=entropies[_TARGET][i],
            entropy_zero_shot=entropies_before[_TARGET][i],
            sensitive_entropy={a: entropies[a][i] for a in task.sensitive},
            sensitive_entropy_zero_shot={
                a: entropies_before[a][i] for a in task.sensitive
            },
            distance=moved[i],
            flip_margin=margin[i],
            certified_unchanged=moved[i] < margin[i],
            learning_rate=_number(host.get("learning_rate"), i) if is_finite else None,
            relative_step=_number(host.get("relative_step"), i) if is_finite else None,
            views_kept=int(count) if is_finite and count is not None else None,
            warnings=notes if is_finite else (*notes, NOT_FINITE),
        )
        predictions.append(prediction)
    return predictions


def is_builtin(adapter: Adapter) -> bool:
    """Whether a method is of this library, so that its outcome needs no check."""
    return all(type(part).__module__.startswith("fair_tta.") for part in adapter.parts)


def fetch_to_cpu(parts: Mapping[Any, Tensor]) -> dict[Hashable, Tensor]:
    """``{name: [images, numbers]}`` on the CPU in float64; ``[images]`` becomes ``[images, 1]``.

    Each device is waited for once, whatever there is to fetch from it.
    """
    rows = {name: part.detach().reshape(len(part), -1) for name, part in parts.items()}
    found: dict[Hashable, Tensor] = {}
    for device in dict.fromkeys(part.device for part in rows.values()):
        some = {name: part for name, part in rows.items() if part.device == device}
        wide = [p if p.dtype == torch.float64 else p.float() for p in some.values()]
        together = torch.cat(wide, 1).cpu().double()
        sizes = [part.shape[1] for part in some.values()]
        found |= zip(some, together.split(sizes, 1), strict=True)
    return found


def _named(
    names: Mapping[str, Iterable[str]], parts: Mapping[str, Tensor]
) -> dict[str, list[dict[str, float]]]:
    return {
        a: [dict(zip(names[a], row, strict=True)) for row in p.tolist()]
        for a, p in parts.items()
    }


def _entropies(parts: Mapping[str, Tensor]) -> dict[str, list[float]]:
    return {
        a: normalised_entropy(p.log()).clamp(0, 1).tolist() for a, p in parts.items()
    }


def _number(values: Tensor | None, index: int) -> float | None:
    """None also for what is not finite, which JSON cannot hold."""
    if values is None or not bool(values[index].isfinite()):
        return None
    return float(values[index])


def _check_outcome(adapter: Adapter, outcome: Any, task: Task, images: int) -> None:
    """Raise unless the outcome of a user-defined method fits the task and the images."""
    should = f"{type(adapter).__name__}.adapt should"
    if not isinstance(outcome, Outcome):
        raise FairTTAError(
            f"{should} return an Outcome (got a {type(outcome).__name__})."
        )
    unknown = [name for name in outcome.sensitive if name not in task.sensitive]
    if unknown or not isinstance(outcome.sensitive, Mapping):
        raise FairTTAError(
            f"{should} return `sensitive` as {{attribute: probabilities}} for attributes among "
            f"{list(task.sensitive)} (got {unknown or outcome.sensitive!r:.80})."
        )
    shapes = {"probabilities": (outcome.probabilities, [images, len(task.targets)])}
    for name, value in outcome.sensitive.items():
        shapes[f"sensitive[{name!r}]"] = value, [images, len(task.sensitive[name])]
    for name in _NUMBERS:
        if not isinstance(getattr(outcome, name), int | None):
            shapes[name] = getattr(outcome, name), [images]
    for name, flag in outcome.flags.items():
        shapes[f"flags[{name!r}]"] = flag, [images]
    for name, (value, shape) in shapes.items():
        if describe_shape(value) != shape:
            raise FairTTAError(
                f"{should} return `{name}` of shape {shape} (got {describe_shape(value)})."
            )
    notes = outcome.warnings
    if len(notes) not in (0, images) or any(isinstance(each, str) for each in notes):
        raise FairTTAError(
            f"{should} return `warnings` as a tuple of texts for each of {images} images, or none "
            f"(got {notes!r:.80})."
        )


def _check_probabilities(adapter: Adapter, attribute: str, p: Tensor) -> None:
    if not bool((p >= 0).all() and ((p.sum(1) - 1).abs() < 1e-3).all()):
        what = "probabilities" if attribute == _TARGET else f"sensitive[{attribute!r}]"
        raise FairTTAError(
            f"{type(adapter).__name__}.adapt should return `{what}` that are not negative and sum "
            "to one: take the softmax of logits."
        )
