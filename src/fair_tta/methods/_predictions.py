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

# The key of the target's probabilities beside those of the attributes. An attribute may have any
# name, "target" too, so this one has a character that no name has.
_TARGET = "\0target"
_OPTIONAL_NUMBER_FIELDS = ("learning_rate", "relative_step", "views_kept")
# Sums of float32 probabilities are nearer to one than this, those of logits much farther.
_SUM_TOLERANCE = 1e-3


def to_predictions(
    task: Task, zero_shot: Outcome, adapted: Outcome, adapter: Adapter
) -> list[Prediction]:
    """Join a method's outcome with zero-shot's, which fills in what the method leaves out.

    The outcome of a user-defined method is checked.

    Raises:
        ModelError: zero-shot's outcome is not finite.
    """
    is_user_defined = not is_builtin(adapter)
    if is_user_defined:
        _check_outcome(adapter, adapted, task, len(zero_shot.probabilities))

    # Everything is fetched at once, because each transfer waits for the device.
    is_changed = adapted is not zero_shot
    on_device: dict[Hashable, Tensor] = {}
    for name, p in _all_probabilities(zero_shot).items():
        on_device["before", name] = p
    for name, p in _all_probabilities(adapted).items() if is_changed else ():
        on_device["after", name] = p
    for sentence, flag in adapted.flags.items():
        on_device["flag", sentence] = flag
    for name in _OPTIONAL_NUMBER_FIELDS:
        number = getattr(adapted, name)
        if isinstance(number, Tensor):
            on_device[name] = number
    # Probabilities are [images, classes or values]; flags and numbers, [images], become
    # [images, 1].
    fetched = fetch_to_cpu(on_device)

    # Each of these is {_TARGET or attribute: [images, classes or values]}.
    before = {name: fetched["before", name] for name in _all_probabilities(zero_shot)}
    if not bool(before[_TARGET].isfinite().all()):
        raise non_finite_error(task)
    changed = {}
    if is_changed:
        changed = {name: fetched["after", name] for name in _all_probabilities(adapted)}
    used = changed or before
    finite_rows = [p.isfinite().all(1) for p in used.values()]
    is_finite = torch.stack(finite_rows).all(0)
    for name, p in changed.items():
        if is_user_defined:
            _check_probabilities(adapter, name, p[is_finite])
        changed[name] = p.where(is_finite[:, None], before[name])
    after = before | changed

    # All numbers become Python's at once: reading a tensor number by number is slow.
    labels = list(task.targets)
    best = after[_TARGET].argmax(1).tolist()
    distances = distance(before[_TARGET], after[_TARGET]).tolist()
    margins = flip_margin(before[_TARGET]).tolist()
    names = {_TARGET: task.targets, **task.sensitive}
    named_before = _named_rows(names, before)
    named = named_before | _named_rows(names, changed)
    entropies_before = _entropies(before)
    entropies = entropies_before | _entropies(changed)
    attributes = list(task.sensitive)

    predictions = []
    for i, image_is_finite in enumerate(is_finite.tolist()):
        notes = adapted.warnings[i] if adapted.warnings else ()
        for sentence in adapted.flags:
            if fetched["flag", sentence][i, 0]:
                notes += (sentence,)
        rate = _finite_number(fetched.get("learning_rate"), i)
        step = _finite_number(fetched.get("relative_step"), i)
        views_kept = adapted.views_kept
        if "views_kept" in fetched:
            views_kept = fetched["views_kept"][i, 0]
        if not image_is_finite:
            rate = step = views_kept = None
            notes += (NOT_FINITE,)
        prediction = Prediction(
            label=labels[best[i]],
            probabilities=named[_TARGET][i],
            zero_shot=named_before[_TARGET][i],
            sensitive={a: named[a][i] for a in attributes},
            sensitive_zero_shot={a: named_before[a][i] for a in attributes},
            entropy=entropies[_TARGET][i],
            entropy_zero_shot=entropies_before[_TARGET][i],
            sensitive_entropy={a: entropies[a][i] for a in attributes},
            sensitive_entropy_zero_shot={a: entropies_before[a][i] for a in attributes},
            distance=distances[i],
            flip_margin=margins[i],
            certified_unchanged=distances[i] < margins[i],
            learning_rate=rate,
            relative_step=step,
            views_kept=None if views_kept is None else int(views_kept),
            warnings=notes,
        )
        predictions.append(prediction)
    return predictions


def _all_probabilities(outcome: Outcome) -> dict[str, Tensor]:
    return {_TARGET: outcome.probabilities, **outcome.sensitive}


def is_builtin(adapter: Adapter) -> bool:
    """Return whether a method is of this library, so that its outcome needs no check."""
    modules = [type(part).__module__ for part in adapter.parts]
    return all(module.startswith("fair_tta.") for module in modules)


def fetch_to_cpu(tensors: Mapping[Any, Tensor]) -> dict[Hashable, Tensor]:
    """Return ``{name: [images, numbers]}`` on the CPU in float64; ``[images]`` become columns.

    Each device is waited for once, whatever there is to fetch from it.
    """
    names_on_device: dict[torch.device, list[Hashable]] = {}
    rows = {}
    for name, tensor in tensors.items():
        rows[name] = tensor.detach().reshape(len(tensor), -1)
        names_on_device.setdefault(tensor.device, []).append(name)

    fetched: dict[Hashable, Tensor] = {}
    for names in names_on_device.values():
        # Half precision, counts and flags are exact in float32; some devices have no float64.
        columns = []
        for name in names:
            part = rows[name]
            columns.append(part if part.dtype == torch.float64 else part.float())
        on_cpu = torch.cat(columns, 1).cpu().double()
        widths = [part.shape[1] for part in columns]
        fetched.update(zip(names, on_cpu.split(widths, 1), strict=True))
    return fetched


def _named_rows(
    names: Mapping[str, Iterable[str]], probabilities: Mapping[str, Tensor]
) -> dict[str, list[dict[str, float]]]:
    """Return ``{attribute: [{value: probability} of each image]}``."""
    named: dict[str, list[dict[str, float]]] = {}
    for attribute, p in probabilities.items():
        values = list(names[attribute])
        named[attribute] = []
        for row in p.tolist():
            named[attribute].append(dict(zip(values, row, strict=True)))
    return named


def _entropies(probabilities: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Return ``{attribute: [normalised entropy of each image]}``."""
    entropies = {}
    for attribute, p in probabilities.items():
        # Rounding may lead out of [0, 1] by a hair.
        of_images = normalised_entropy(p.log()).clamp(0, 1)
        entropies[attribute] = of_images.tolist()
    return entropies


def _finite_number(numbers: Tensor | None, index: int) -> float | None:
    """Return one of the numbers; None if there are none or JSON cannot hold it."""
    if numbers is None or not bool(numbers[index].isfinite()):
        return None
    return float(numbers[index])


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

    shapes: dict[str, tuple[Any, list[int]]] = {}
    shapes["probabilities"] = outcome.probabilities, [images, len(task.targets)]
    for name, p in outcome.sensitive.items():
        shapes[f"sensitive[{name!r}]"] = p, [images, len(task.sensitive[name])]
    for name in _OPTIONAL_NUMBER_FIELDS:
        number = getattr(outcome, name)
        if not isinstance(number, int | None):
            shapes[name] = number, [images]
    for sentence, flag in outcome.flags.items():
        shapes[f"flags[{sentence!r}]"] = flag, [images]
    for name, (tensor, shape) in shapes.items():
        if describe_shape(tensor) != shape:
            raise FairTTAError(
                f"{should} return `{name}` of shape {shape} (got {describe_shape(tensor)})."
            )

    # A text instead of a tuple of texts would become a note for each of its letters.
    notes = outcome.warnings
    has_texts = any(isinstance(note, str) for note in notes)
    if len(notes) not in (0, images) or has_texts:
        raise FairTTAError(
            f"{should} return `warnings` as a tuple of texts for each of {images} images, or none "
            f"(got {notes!r:.80})."
        )


def _check_probabilities(adapter: Adapter, attribute: str, p: Tensor) -> None:
    """Raise unless the rows are probabilities."""
    sums_to_one = (p.sum(1) - 1).abs() < _SUM_TOLERANCE
    is_probability = (p >= 0).all(1) & sums_to_one
    if not bool(is_probability.all()):
        name = f"sensitive[{attribute!r}]"
        if attribute == _TARGET:
            name = "probabilities"
        raise FairTTAError(
            f"{type(adapter).__name__}.adapt should return `{name}` that are not negative and sum "
            "to one: take the softmax of logits."
        )
