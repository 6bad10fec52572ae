"""What a run reports for each image besides its answer."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
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
        entropy = normalised_entropies(probabilities)
        sensitive = _named("sensitive", sensitive)
        if hasattr(probabilities, "detach"):
            probabilities = probabilities.detach().cpu().double().numpy()
        return cls(
            confidence=np.asarray(probabilities, np.float64).max(1),
            entropy=entropy,
            sensitive_entropy={a: normalised_entropies(p) for a, p in sensitive.items()},
        )

    def checked(self, length: int) -> Scores:
        """The same as arrays of this length."""

        def unit(name: str, values: Any) -> Floats | None:
            return None if values is None else check_unit(name, values, length)

        def units(name: str, values: Mapping[str, Any] | None) -> dict[str, Floats]:
            named = _named(name, values).items()
            return {a: check_unit(f"{name}[{a!r}]", v, length) for a, v in named}

        def beliefs(name: str, values: Any) -> Floats:
            found = check_probabilities(name, values)
            check_length(name, found, length)
            return found

        def by_class(columns: Mapping[str, Any]) -> dict[str, Floats] | None:
            found = units("zero_shot", columns)
            if not found:
                return None
            table = beliefs("zero_shot", np.stack([*found.values()], 1))
            return dict(zip(map(str, found), table.T, strict=True))

        return Scores(
            unit("confidence", self.confidence),
            unit("entropy", self.entropy),
            unit("entropy_zero_shot", self.entropy_zero_shot),
            units("sensitive_entropy", self.sensitive_entropy),
            units("sensitive_entropy_zero_shot", self.sensitive_entropy_zero_shot),
            _steps(self.relative_step, length),
            _warnings(self.warnings, length),
            None if self.zero_shot is None else by_class(self.zero_shot),
            {
                a: beliefs(f"sensitive_zero_shot[{a!r}]", p)
                for a, p in _named("sensitive_zero_shot", self.sensitive_zero_shot).items()
            },
        )


_NUMBERS = ("entropy", "entropy_zero_shot", "relative_step")
_BY_ATTRIBUTE = ("sensitive_entropy", "sensitive_entropy_zero_shot")


class CollectedScores:
    """Scores of predictions that pass by one at a time; a few numbers of each stay in memory.

    Args:
        beliefs: keep the probabilities before adaptation too, so that the audit shows what could
            have been estimated without labels.
    """

    def __init__(self, *, beliefs: bool) -> None:
        self._beliefs = beliefs
        self._numbers = {name: array("d") for name in ("confidence", *_NUMBERS)}
        self._entropies: dict[str, dict[str, array[float]]] = {name: {} for name in _BY_ATTRIBUTE}
        self._warnings: list[tuple[str, ...]] = []
        self._zero_shot: dict[str, array[float]] = {}
        self._sensitive_zero_shot: dict[str, array[float]] = {}

    def add(self, prediction: Prediction) -> None:
        """One more image."""
        self._warnings.append(tuple(map(sys.intern, prediction.warnings)))
        self._numbers["confidence"].append(prediction.probabilities[prediction.label])
        for name in _NUMBERS:
            number = getattr(prediction, name)
            self._numbers[name].append(float("nan") if number is None else number)
        for name, columns in self._entropies.items():
            for attribute, entropy in getattr(prediction, name).items():
                columns.setdefault(attribute, array("d")).append(entropy)
        if self._beliefs:
            for target, probability in prediction.zero_shot.items():
                self._zero_shot.setdefault(target, array("d")).append(probability)
            for attribute, values in prediction.sensitive_zero_shot.items():
                column = self._sensitive_zero_shot.setdefault(attribute, array("d"))
                column.extend(values.values())

    def scores(self) -> Scores:
        """The scores of all images so far."""
        n = len(self._warnings)
        if not n:
            return Scores()
        sensitive = self._sensitive_zero_shot.items()
        columns: dict[str, Any] = {**self._numbers, **self._entropies}
        return Scores(
            **columns,
            warnings=self._warnings,
            zero_shot=self._zero_shot if self._beliefs else None,
            sensitive_zero_shot={a: np.array(column).reshape(n, -1) for a, column in sensitive},
        )


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
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence):
        raise FairTTAError(
            f"`warnings` should be a list of texts per image (got {type(values).__name__})."
        )
    for row, texts in enumerate(values):
        if not (isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts)):
            raise FairTTAError(
                f"`warnings` should be a list of texts per image (row {row} is {texts!r:.60})."
            )
    if values:
        check_length("warnings", values, length)
    return values
