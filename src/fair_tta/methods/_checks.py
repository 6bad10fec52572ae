"""Whether an adapter fits a task, and an outcome the images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from fair_tta import methods as adapters
from fair_tta._prompts.task import Task
from fair_tta.errors import FairTTAError, PromptError, TowerError
from fair_tta.methods._base import Adapter, Chained, Outcome, check_markers
from fair_tta.methods._fitted import FittedMethod

_GRADIENT_FREE = [
    f"{name}()"
    for name in adapters.__all__
    if getattr(getattr(adapters, name), "needs_prompt_gradient", None) is False
]


def check_adapter(adapter: Any, task: Task) -> Adapter:
    """Refuse an adapter that cannot work with a task, before any work is done."""
    check_markers(adapter)
    if adapter.needs_sensitive and not task.sensitive:
        raise PromptError(
            f"{type(adapter).__name__} needs to know what should not matter: pass `sensitive`."
        )
    if adapter.needs_prompt_gradient:
        try:
            _ = task.context
        except TowerError as error:
            raise TowerError(
                f"{type(adapter).__name__} tunes the prompt, but {error}. "
                f"These adapters need no prompt gradient: {', '.join(_GRADIENT_FREE)}."
            ) from error
    for part in parts_of(adapter):
        check_fitted(part, task)
        if hasattr(part, "check_task"):
            part.check_task(task)
    checked: Adapter = adapter
    return checked


def parts_of(adapter: Any) -> tuple[Any, ...]:
    """The methods that an adapter is made of: one, or the two of a chain."""
    return (adapter.first, adapter.then) if isinstance(adapter, Chained) else (adapter,)


def is_fitted(method: Any) -> bool:
    """Whether a method has the reference that it needs, if it needs one."""
    needs = getattr(method, "needs_reference", False)
    return not needs or getattr(method, "reference", None) is not None


def is_ready(adapter: Any) -> bool:
    """Whether all parts of an adapter have the references that they need."""
    return all(map(is_fitted, parts_of(adapter)))


def check_fitted(method: Any, task: Task | None = None) -> None:
    """Raise unless a method has the reference that it needs, and of this task if one is given."""
    if isinstance(method, FittedMethod):
        method.checked_reference(task)
    elif not is_fitted(method):
        name = type(method).__name__
        raise FairTTAError(
            f"{name} has seen no reference images yet: its `reference` should be set by its `fit`."
        )


def _are_texts(notes: Any) -> bool:
    return isinstance(notes, Sequence) and all(isinstance(note, str) for note in notes)


def check_outcome(adapter: Adapter, outcome: Any, task: Task, images: int) -> None:
    """Raise, with the adapter's name, unless an outcome fits the task and the images.

    What it holds is looked at in `predictions`, where it is fetched from the device.
    """
    should = f"{type(adapter).__name__}.adapt should"
    if not isinstance(outcome, Outcome):
        raise FairTTAError(f"{should} return an Outcome (got a {type(outcome).__name__}).")
    if not isinstance(outcome.sensitive, Mapping):
        raise FairTTAError(
            f"{should} give `sensitive` as {{attribute: probabilities}}, or leave it out (got a "
            f"{type(outcome.sensitive).__name__})."
        )
    if not isinstance(outcome.warnings, Sequence) or not all(map(_are_texts, outcome.warnings)):
        raise FairTTAError(
            f"{should} give `warnings` as texts for each image, or leave them out (got "
            f"{outcome.warnings!r:.80})."
        )
    unknown = [name for name in outcome.sensitive if name not in task.sensitive]
    if unknown:
        raise FairTTAError(
            f"{should} give `sensitive` of attributes among {list(task.sensitive)} "
            f"(got {unknown[0]!r})."
        )
    shapes = {"probabilities": (outcome.probabilities, [images, len(task.targets)])}
    for name, value in outcome.sensitive.items():
        shapes[f"sensitive[{name!r}]"] = value, [images, len(task.sensitive[name])]
    for name in ("learning_rate", "relative_step", "views_kept"):
        if not isinstance(getattr(outcome, name), int | None):
            shapes[name] = getattr(outcome, name), [images]
    for name, flag in outcome.flags.items():
        shapes[f"flags[{name!r}]"] = flag, [images]
    for name, (value, shape) in shapes.items():
        got = list(value.shape) if isinstance(value, Tensor) else f"a {type(value).__name__}"
        if got != shape:
            raise FairTTAError(f"{should} give `{name}` of shape {shape} (got {got}).")
        if value.is_complex() or value.is_meta:
            what = "the meta device" if value.is_meta else f"{value.dtype}"
            raise FairTTAError(f"{should} give `{name}` as real numbers (got {what}).")
    if len(outcome.warnings) not in (0, images):
        raise FairTTAError(
            f"{should} give `warnings` for each of {images} images, or none (got "
            f"{len(outcome.warnings)})."
        )
