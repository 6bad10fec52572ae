"""From the outcome of a batch to one prediction per image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fair_tta._prompts.task import Task
from fair_tta.errors import FairTTAError
from fair_tta.methods._base import Adapter, Outcome, not_finite
from fair_tta.methods._tuning.entropy import normalised_entropy
from fair_tta.metrics.simplex import distance, flip_margin
from fair_tta.prediction import Prediction

NOT_FINITE = "adaptation gave values that are not finite; this is the zero-shot answer"


def to_predictions(
    task: Task, zero_shot: Outcome, adapted: Outcome, adapter: Adapter
) -> list[Prediction]:
    """Set a method's outcome beside zero-shot's, which fills in what it leaves out.

    Args:
        task: the text side.
        zero_shot: the outcome of `ZeroShot`.
        adapted: that of the method.
        adapter: the method; what a user-defined one returns is checked.

    Raises:
        ModelError: zero-shot's outcome is not finite.
        FairTTAError: a user-defined method returns something else than probabilities.
    """
    checked = is_user_defined(adapter)
    if checked:
        _check_outcome(adapter, adapted, task, len(zero_shot.probabilities))
    host = fetch(_parts(zero_shot, adapted))
    before, after = host["before"], host["after"]
    if not bool(before.isfinite().all()):
        raise not_finite(task)
    sensitive_before = {a: host[f"before {a}"] for a in zero_shot.sensitive}
    sensitive = {a: host.get(f"after {a}", p) for a, p in sensitive_before.items()}
    finite = torch.stack([p.isfinite().all(1) for p in (after, *sensitive.values())]).all(0)
    if checked:
        _check_probabilities(adapter, "probabilities", after[finite])
        for name, p in sensitive.items():
            _check_probabilities(adapter, f"sensitive[{name!r}]", p[finite])
    rows = finite[:, None]
    after = after.where(rows, before)
    sensitive = {a: p.where(rows, sensitive_before[a]) for a, p in sensitive.items()}
    moved, margin = distance(before, after).tolist(), flip_margin(before).tolist()
    targets = list(task.targets)
    labels = after.argmax(1).tolist()
    named, named_before = _named(targets, after), _named(targets, before)
    groups = {a: _named(task.sensitive[a], p) for a, p in sensitive.items()}
    groups_before = {a: _named(task.sensitive[a], p) for a, p in sensitive_before.items()}
    entropy, entropy_before = _entropy(after), _entropy(before)
    entropies = {a: _entropy(p) for a, p in sensitive.items()}
    entropies_before = {a: _entropy(p) for a, p in sensitive_before.items()}
    kept = adapted.views_kept
    predictions = []
    for i, is_finite in enumerate(finite.tolist()):
        notes = adapted.warnings[i] if adapted.warnings else ()
        notes += tuple(text for text in adapted.flags if host[f"flag {text}"][i, 0])
        count = host["kept"][i, 0].item() if isinstance(kept, Tensor) else kept
        prediction = Prediction(
            label=targets[labels[i]],
            probabilities=named[i],
            zero_shot=named_before[i],
            sensitive={a: each[i] for a, each in groups.items()},
            sensitive_zero_shot={a: each[i] for a, each in groups_before.items()},
            entropy=entropy[i],
            entropy_zero_shot=entropy_before[i],
            sensitive_entropy={a: each[i] for a, each in entropies.items()},
            sensitive_entropy_zero_shot={a: each[i] for a, each in entropies_before.items()},
            distance=moved[i],
            flip_margin=margin[i],
            certified_unchanged=moved[i] < margin[i],
            learning_rate=_number(host.get("rate"), i) if is_finite else None,
            relative_step=_number(host.get("step"), i) if is_finite else None,
            views_kept=int(count) if is_finite and count is not None else None,
            warnings=notes if is_finite else (*notes, NOT_FINITE),
        )
        predictions.append(prediction)
    return predictions


def is_user_defined(adapter: Adapter) -> bool:
    """Whether a method, or one of a chain, is not one of this library."""
    return any(not type(part).__module__.startswith("fair_tta.") for part in adapter.parts)


def fetch(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``{name: [images, numbers]}`` on the CPU in float64; ``[images]`` becomes ``[images, 1]``.

    Each device is waited for once, whatever there is to fetch from it.
    """
    rows = {name: part.detach().reshape(len(part), -1) for name, part in parts.items()}
    found: dict[str, Tensor] = {}
    for device in dict.fromkeys(part.device for part in rows.values()):
        some = {name: part for name, part in rows.items() if part.device == device}
        wide = [p if p.dtype == torch.float64 else p.float() for p in some.values()]
        together = torch.cat(wide, 1).cpu().double()
        sizes = [part.shape[1] for part in some.values()]
        found |= zip(some, together.split(sizes, 1), strict=True)
    return found


def _parts(zero_shot: Outcome, adapted: Outcome) -> dict[str, Tensor]:
    """All tensors of two outcomes by name."""
    numbers = {
        "rate": adapted.learning_rate,
        "step": adapted.relative_step,
        "kept": adapted.views_kept if isinstance(adapted.views_kept, Tensor) else None,
    }
    return {
        "before": zero_shot.probabilities,
        "after": adapted.probabilities,
        **{f"before {a}": p for a, p in zero_shot.sensitive.items()},
        **{f"after {a}": p for a, p in adapted.sensitive.items()},
        **{f"flag {text}": flag for text, flag in adapted.flags.items()},
        **{name: values for name, values in numbers.items() if values is not None},
    }


def _named(names: Iterable[str], p: Tensor) -> list[dict[str, float]]:
    keys = list(names)
    return [dict(zip(keys, row, strict=True)) for row in p.tolist()]


def _entropy(p: Tensor) -> list[float]:
    entropies: list[float] = normalised_entropy(p.log()).clamp(0, 1).tolist()
    return entropies


def _number(values: Tensor | None, index: int) -> float | None:
    """None also for what is not finite, which JSON cannot hold."""
    if values is None or not bool(values[index].isfinite()):
        return None
    return float(values[index])


def _check_outcome(adapter: Adapter, outcome: Any, task: Task, images: int) -> None:
    """Raise unless the outcome of a user-defined method fits the task and the images."""
    should = f"{type(adapter).__name__}.adapt should"
    if not isinstance(outcome, Outcome):
        raise FairTTAError(f"{should} return an Outcome (got a {type(outcome).__name__}).")
    unknown = [name for name in outcome.sensitive if name not in task.sensitive]
    if unknown or not isinstance(outcome.sensitive, Mapping):
        raise FairTTAError(
            f"{should} return `sensitive` as {{attribute: probabilities}} for attributes among "
            f"{list(task.sensitive)} (got {unknown or outcome.sensitive!r:.80})."
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
            raise FairTTAError(f"{should} return `{name}` of shape {shape} (got {got}).")
    notes = outcome.warnings
    if len(notes) not in (0, images) or any(isinstance(each, str) for each in notes):
        raise FairTTAError(
            f"{should} return `warnings` as a tuple of texts for each of {images} images, or none "
            f"(got {notes!r:.80})."
        )


def _check_probabilities(adapter: Adapter, what: str, p: Tensor) -> None:
    if not bool((p >= 0).all() and ((p.sum(1) - 1).abs() < 1e-3).all()):
        raise FairTTAError(
            f"{type(adapter).__name__}.adapt should return `{what}` that are not negative and sum "
            "to one: take the softmax of logits."
        )
