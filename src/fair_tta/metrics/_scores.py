"""What a run reports for each image besides its answer."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics._calibration import check_probabilities, check_unit, normalised_entropies
from fair_tta.metrics._columns import Floats, check_length

if TYPE_CHECKING:
    from fair_tta.prediction import Prediction


@dataclass(frozen=True, eq=False)
class Scores:
    """Numbers per image that an audit can use. All may be left out.

    Args:
        confidence: ``[images]`` probability of the answer.
        entropy: ``[images]`` normalised entropy of the targets.
        entropy_zero_shot: the same before adaptation.
        sensitive_entropy: ``{attribute: [images]}`` normalised entropy of sensitive attributes, of
            those that the classifier names, whatever attributes the data has.
        sensitive_entropy_zero_shot: the same before adaptation.
        relative_step: ``[images]`` how far the context moved; None or NaN where nothing was tuned.
        warnings: for each image what went wrong or was bounded; the audit counts them.
        zero_shot: ``{class: [images]}`` probabilities before adaptation. With the next, an audit
            shows what could have been estimated without labels.
        sensitive_zero_shot: ``{attribute: [images, values]}`` the same of sensitive attributes.
    """

    confidence: Any = None
    entropy: Any = None
    entropy_zero_shot: Any = None
    sensitive_entropy: Mapping[str, Any] | None = None
    sensitive_entropy_zero_shot: Mapping[str, Any] | None = None
    relative_step: Any = None
    warnings: Sequence[Sequence[str]] = ()
    zero_shot: Mapping[str, Any] | None = None
    sensitive_zero_shot: Mapping[str, Any] | None = None

    @classmethod
    def from_predictions(cls, predictions: Iterable[Prediction]) -> Scores:
        """Everything that predictions carry."""
        collected = CollectedScores(beliefs=True)
        for prediction in predictions:
            collected.add(prediction)
        return collected.scores()

    @classmethod
    def from_probabilities(
        cls, probabilities: Any, sensitive: Mapping[str, Any] | None = None
    ) -> Scores:
        """From ``[images, targets]`` and ``{attribute: [images, values]}``.

        The confidence is that of the most probable target.
        """
        p, named = (
            check_probabilities("probabilities", probabilities),
            _named("sensitive", sensitive),
        )
        return cls(
            confidence=p.max(1),
            entropy=normalised_entropies(p),
            sensitive_entropy={a: normalised_entropies(of) for a, of in named.items()},
        )

    def checked(self, length: int) -> Scores:
        """The same as arrays of this length."""

        def unit(name: str) -> Floats | None:
            values = getattr(self, name)
            return None if values is None else check_unit(name, values, length)

        def by_name(name: str, check: Callable[[str, Any, int], Floats]) -> dict[str, Floats]:
            named = _named(name, getattr(self, name)).items()
            return {str(key): check(f"{name}[{key!r}]", values, length) for key, values in named}

        zero_shot = by_name("zero_shot", check_unit)
        if zero_shot:
            check_probabilities("zero_shot", np.stack([*zero_shot.values()], 1))
        return Scores(
            unit("confidence"),
            unit("entropy"),
            unit("entropy_zero_shot"),
            by_name("sensitive_entropy", check_unit),
            by_name("sensitive_entropy_zero_shot", check_unit),
            _steps(self.relative_step, length),
            _warnings(self.warnings, length),
            zero_shot,
            by_name("sensitive_zero_shot", check_probabilities),
        )


_NUMBERS = ("entropy", "entropy_zero_shot", "relative_step")
_BY_NAME = ("sensitive_entropy", "sensitive_entropy_zero_shot", "zero_shot")


class CollectedScores:
    """Scores of predictions that pass by one at a time; a few numbers of each stay in memory.

    Args:
        beliefs: keep the probabilities before adaptation too, so that the audit shows what could
            have been estimated without labels.
    """

    def __init__(self, *, beliefs: bool) -> None:
        self._numbers = {name: array("d") for name in ("confidence", *_NUMBERS)}
        by_name = _BY_NAME if beliefs else _BY_NAME[:-1]
        self._by_name: dict[str, dict[str, array[float]]] = {name: {} for name in by_name}
        self._sensitive: dict[str, array[float]] | None = {} if beliefs else None
        self._warnings: list[tuple[str, ...]] = []

    def add(self, prediction: Prediction) -> None:
        """One more image."""
        self._warnings.append(tuple(map(sys.intern, prediction.warnings)))
        self._numbers["confidence"].append(prediction.probabilities[prediction.label])
        for name in _NUMBERS:
            number = getattr(prediction, name)
            self._numbers[name].append(float("nan") if number is None else number)
        for name, columns in self._by_name.items():
            for key, number in getattr(prediction, name).items():
                columns.setdefault(key, array("d")).append(number)
        if self._sensitive is not None:
            for attribute, values in prediction.sensitive_zero_shot.items():
                self._sensitive.setdefault(attribute, array("d")).extend(values.values())

    def scores(self) -> Scores:
        """The scores of all images so far."""
        n = len(self._warnings)
        if not n:
            return Scores()
        columns: dict[str, Any] = {**self._numbers, **self._by_name}
        columns["sensitive_zero_shot"] = {
            a: np.array(column).reshape(n, -1) for a, column in (self._sensitive or {}).items()
        }
        return Scores(**columns, warnings=self._warnings)


def _steps(values: Any, length: int) -> Floats | None:
    if values is None:
        return None
    if hasattr(values, "detach"):  # a tensor, perhaps on a GPU or in half precision
        values = values.detach().double().cpu().numpy()
    try:
        steps = np.array([np.nan if v is None else float(v) for v in values], np.float64)
    except (TypeError, ValueError):
        raise FairTTAError("`relative_step` should be a number or None per image.") from None
    check_length("relative_step", steps, length)
    return steps if np.isfinite(steps).any() else None


def _named(name: str, values: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if values is not None and not isinstance(values, Mapping):
        raise FairTTAError(f"`{name}` should be {{name: numbers}} (got {type(values).__name__}).")
    return values or {}


def _warnings(values: Sequence[Sequence[str]], length: int) -> Sequence[Sequence[str]]:
    """Of each image, or none at all."""

    def is_list(of: Any, kind: type | tuple[type, ...]) -> bool:
        return isinstance(of, list | tuple) and all(isinstance(one, kind) for one in of)

    if not is_list(values, (list, tuple)) or not all(is_list(texts, str) for texts in values):
        raise FairTTAError("`warnings` should be a list of texts per image.")
    if values:
        check_length("warnings", values, length)
    return values
