"""What a run reports for each image besides its answer."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics._answer_table import check_length
from fair_tta.metrics._calibration import (
    check_probabilities,
    check_unit,
    normalised_entropies,
    read_array,
)

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
        p = check_probabilities("probabilities", probabilities)
        if not isinstance(sensitive or {}, Mapping):
            kind = type(sensitive).__name__
            raise FairTTAError(f"`sensitive` should be {{name: numbers}} (got {kind}).")
        entropies = {a: normalised_entropies(of) for a, of in (sensitive or {}).items()}
        return cls(p.max(1), normalised_entropies(p), sensitive_entropy=entropies)

    def _checked(self, length: int) -> Scores:
        """The same as arrays of this length."""
        found: dict[str, Any] = {}
        for name in ("confidence", *_NUMBERS):
            values = getattr(self, name)
            if values is not None and name == "relative_step":
                steps = read_array(name, values, 1, length)
                found[name] = steps if np.isfinite(steps).any() else None
            elif values is not None:
                found[name] = check_unit(name, values, length)
        for name in (*_BY_NAME, "sensitive_zero_shot"):
            named = getattr(self, name) or {}
            if not isinstance(named, Mapping):
                kind = type(named).__name__
                raise FairTTAError(f"`{name}` should be {{name: numbers}} (got {kind}).")
            check = check_probabilities if name == "sensitive_zero_shot" else check_unit
            found[name] = {str(k): check(f"{name}[{k!r}]", of, length) for k, of in named.items()}
        if found["zero_shot"]:
            check_probabilities("zero_shot", np.stack([*found["zero_shot"].values()], 1))
        if not all(isinstance(texts, list | tuple) for texts in self.warnings):
            raise FairTTAError("`warnings` should be a list of texts per image.")
        if self.warnings:
            check_length("warnings", self.warnings, length)
        return Scores(**found, warnings=self.warnings)


_NUMBERS = ("entropy", "entropy_zero_shot", "relative_step")
_BY_NAME = ("sensitive_entropy", "sensitive_entropy_zero_shot", "zero_shot")


class CollectedScores:
    """Scores of predictions that pass by one at a time; a few numbers of each stay in memory.

    With `beliefs`, the probabilities before adaptation are kept too: see `Scores.zero_shot`.
    """

    def __init__(self, *, beliefs: bool) -> None:
        self._numbers = {name: array("d") for name in ("confidence", *_NUMBERS)}
        by_name = (*_BY_NAME, "sensitive_zero_shot") if beliefs else _BY_NAME[:-1]
        self._by_name: dict[str, dict[str, array[float]]] = {name: {} for name in by_name}
        self._warnings: list[tuple[str, ...]] = []

    def add(self, prediction: Prediction) -> None:
        """One more image."""
        self._warnings.append(tuple(map(sys.intern, prediction.warnings)))
        self._numbers["confidence"].append(prediction.probabilities[prediction.label])
        for name in _NUMBERS:
            number = getattr(prediction, name)
            self._numbers[name].append(float("nan") if number is None else number)
        for name, columns in self._by_name.items():
            for key, found in getattr(prediction, name).items():
                numbers = found.values() if isinstance(found, dict) else [found]
                columns.setdefault(key, array("d")).extend(numbers)

    def scores(self) -> Scores:
        """The scores of all images so far."""
        n = len(self._warnings)
        if not n:
            return Scores()
        columns: dict[str, Any] = {**self._numbers, **self._by_name}
        sensitive = self._by_name.get("sensitive_zero_shot", {}).items()
        columns["sensitive_zero_shot"] = {a: np.array(of).reshape(n, -1) for a, of in sensitive}
        return Scores(**columns, warnings=self._warnings)
