"""From the outcome of a batch to one prediction per image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fair_tta._prompts.task import Task
from fair_tta.errors import FairTTAError, ModelError
from fair_tta.methods._base import Outcome
from fair_tta.metrics._calibration import normalised_entropies
from fair_tta.metrics.simplex import distance, flip_margin
from fair_tta.prediction import Prediction


def fetch(parts: Mapping[str, Tensor]) -> dict[str, npt.NDArray[np.float64]]:
    """``{name: [images, numbers]}`` on the host in float64; ``[images]`` becomes ``[images, 1]``.

    Each device is waited for once, whatever there is to fetch from it.
    """
    rows = {name: part.detach().reshape(len(part), -1) for name, part in parts.items()}
    found: dict[str, npt.NDArray[np.float64]] = {}
    for device in dict.fromkeys(part.device for part in rows.values()):
        some = {name: part for name, part in rows.items() if part.device == device}
        together = torch.cat([_float(part) for part in some.values()], 1).cpu().double().numpy()
        ends = np.cumsum([part.shape[1] for part in some.values()])[:-1]
        found |= zip(some, np.split(together, ends, 1), strict=True)
    return found


def _float(part: Tensor) -> Tensor:
    """In float32 at least, which holds a truth value too."""
    return part if part.dtype == torch.float64 else part.float()


NOT_FINITE = "adaptation gave values that are not finite; this is the zero-shot answer"

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Answers:
    """Probabilities of all images in float64 on the host, and their normalised entropies."""

    targets: _Floats
    sensitive: Mapping[str, _Floats]
    entropy: _Floats = field(init=False)
    sensitive_entropy: Mapping[str, _Floats] = field(init=False)

    def __post_init__(self) -> None:
        every = {name: normalised_entropies(values) for name, values in self.sensitive.items()}
        vars(self).update(entropy=normalised_entropies(self.targets), sensitive_entropy=every)


def to_predictions(
    task: Task, zero_shot: Outcome, adapted: Outcome, *, name: str = "the adapter"
) -> list[Prediction]:
    """Set a method's outcome beside zero-shot's, which fills in what it leaves out.

    Both are fetched from the device at once.

    Args:
        task: the text side.
        zero_shot: the outcome of `ZeroShot`.
        adapted: that of the method; `check_outcome` has looked at its shapes.
        name: the method, for messages.

    Raises:
        ModelError: zero-shot's outcome is not finite.
        FairTTAError: the method's probabilities are none.
    """
    parts = {"before": zero_shot.probabilities, "after": adapted.probabilities}
    parts |= {f"before {a}": values for a, values in zero_shot.sensitive.items()}
    parts |= {f"after {a}": values for a, values in adapted.sensitive.items()}
    parts |= {f"flag {text}": flag for text, flag in adapted.flags.items()}
    kept = adapted.views_kept
    numbers = {"rate": adapted.learning_rate, "step": adapted.relative_step}
    numbers["kept"] = kept if isinstance(kept, Tensor) else None
    parts |= {key: values for key, values in numbers.items() if values is not None}
    host = fetch(parts)
    if not np.isfinite(host["before"]).all():
        raise not_finite(task)
    before = {a: host[f"before {a}"] for a in zero_shot.sensitive}
    after = {a: host.get(f"after {a}", values) for a, values in before.items()}
    finite: npt.NDArray[np.bool_] = np.asarray(np.isfinite(host["after"]).all(1))
    _check_probabilities(host["after"][finite], name, "probabilities")
    for attribute, values in after.items():
        finite &= np.isfinite(values).all(1)
        _check_probabilities(values[finite], name, f"sensitive[{attribute!r}]")
    rows = finite[:, None]
    own = _Answers(host["before"], before)
    new = _Answers(
        np.where(rows, host["after"], own.targets),
        {a: np.where(rows, values, before[a]) for a, values in after.items()},
    )
    p = torch.from_numpy(own.targets)
    moved, margin = distance(p, torch.from_numpy(new.targets)).tolist(), flip_margin(p).tolist()
    labels, attributes = tuple(task.targets), task.sensitive.items()
    return [
        Prediction(
            label=labels[int(new.targets[i].argmax())],
            probabilities=_named(labels, new.targets[i]),
            zero_shot=_named(labels, own.targets[i]),
            sensitive={a: _named(names, new.sensitive[a][i]) for a, names in attributes},
            sensitive_zero_shot={a: _named(names, own.sensitive[a][i]) for a, names in attributes},
            entropy=float(new.entropy[i]),
            entropy_zero_shot=float(own.entropy[i]),
            sensitive_entropy={a: float(new.sensitive_entropy[a][i]) for a, _ in attributes},
            sensitive_entropy_zero_shot={
                a: float(own.sensitive_entropy[a][i]) for a, _ in attributes
            },
            distance=moved[i],
            flip_margin=margin[i],
            certified_unchanged=moved[i] < margin[i],
            learning_rate=_number(host.get("rate"), i) if finite[i] else None,
            relative_step=_number(host.get("step"), i) if finite[i] else None,
            views_kept=_count(kept, host, i) if finite[i] else None,
            warnings=_warnings(adapted, host, i) + (() if finite[i] else (NOT_FINITE,)),
        )
        for i in range(len(finite))
    ]


def not_finite(task: Task) -> ModelError:
    """What to say of a model whose own answer is not finite."""
    return ModelError(
        f"{task.backend.name} gives features that are not finite; if it runs in half precision, "
        "try float32."
    )


def _check_probabilities(p: _Floats, name: str, what: str) -> None:
    if not ((p >= 0).all() and (np.abs(p.sum(1) - 1) < 1e-3).all()):
        raise FairTTAError(
            f"{name}.adapt should give `{what}` from 0 on that sum to one: take the softmax of "
            "logits."
        )


def _warnings(adapted: Outcome, host: Mapping[str, _Floats], index: int) -> tuple[str, ...]:
    told = adapted.warnings[index] if adapted.warnings else ()
    return told + tuple(text for text in adapted.flags if host[f"flag {text}"][index, 0])


def _named(names: Iterable[str], values: _Floats) -> dict[str, float]:
    return dict(zip(names, values.tolist(), strict=True))


def _number(values: _Floats | None, index: int) -> float | None:
    """None also for what is not finite, which says nothing and JSON cannot hold."""
    number = np.nan if values is None else float(values[index, 0])
    return number if np.isfinite(number) else None


def _count(kept: int | Tensor | None, host: Mapping[str, _Floats], index: int) -> int | None:
    return int(host["kept"][index, 0]) if isinstance(kept, Tensor) else kept
