"""What a run reports for each image besides its answer."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics._arrays import (
    normalised_entropies,
    read_array,
    read_probabilities,
    read_unit_scores,
)
from fair_tta.metrics._columns import check_length

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
        """Return everything that predictions carry."""
        builder = AnswerTableBuilder(keep_beliefs=True)
        for prediction in predictions:
            builder.add(prediction)
        return builder.scores()

    @classmethod
    def from_probabilities(
        cls, probabilities: Any, sensitive: Mapping[str, Any] | None = None
    ) -> Scores:
        """From ``[images, targets]`` and ``{attribute: [images, values]}``.

        The confidence is that of the most probable target.
        """
        p = read_probabilities("probabilities", probabilities)
        if not isinstance(sensitive or {}, Mapping):
            kind = type(sensitive).__name__
            raise FairTTAError(
                f"`sensitive` should be {{name: numbers}} (got {kind}).",
                argument="sensitive",
            )
        entropies = {a: normalised_entropies(of) for a, of in (sensitive or {}).items()}
        return cls(p.max(1), normalised_entropies(p), sensitive_entropy=entropies)

    def _checked(self, length: int) -> Scores:
        """Return the same as arrays of this length, or raise an error."""
        checked: dict[str, Any] = {}
        for name in ("confidence", *_NUMBERS):
            values = getattr(self, name)
            if values is None:
                continue
            if name == "relative_step":
                # No number at all means that nothing was tuned.
                steps = read_array(name, values, 1, length)
                checked[name] = steps if np.isfinite(steps).any() else None
            else:
                checked[name] = read_unit_scores(name, values, length)

        for name in _BY_NAME:
            columns = getattr(self, name) or {}
            if not isinstance(columns, Mapping):
                raise FairTTAError(
                    f"`{name}` should be {{name: numbers}} (got {type(columns).__name__}).",
                    argument=name,
                )
            check = (
                read_probabilities
                if name == "sensitive_zero_shot"
                else read_unit_scores
            )
            checked[name] = {
                str(key): check(f"{name}[{key!r}]", column, length)
                for key, column in columns.items()
            }
        if checked["zero_shot"]:
            read_probabilities(
                "zero_shot", np.stack([*checked["zero_shot"].values()], 1)
            )

        if not all(isinstance(texts, list | tuple) for texts in self.warnings):
            raise FairTTAError(
                "`warnings` should be a list of texts per image.", argument="warnings"
            )
        if self.warnings:
            check_length("warnings", self.warnings, length)
        return Scores(**checked, warnings=self.warnings)


_NUMBERS = ("entropy", "entropy_zero_shot", "relative_step")
_ENTROPIES = ("sensitive_entropy", "sensitive_entropy_zero_shot")
_BELIEFS = ("zero_shot", "sensitive_zero_shot")
_BY_NAME = (*_ENTROPIES, *_BELIEFS)


class AnswerTableBuilder:
    """Collects the answers of one method; a few numbers of each image stay in memory.

    `fair_tta.auditing.audit` makes an `AnswerTable` of what it collects.

    Args:
        keep_beliefs: keep the probabilities before adaptation too, see `Scores.zero_shot`.

    Attributes:
        labels: the answer for each image.
        truth: its true class, if classes were given.
        sensitive: ``{attribute: [images]}``, if values were given.
        clusters: the person or source of each image, if they were given.
        digests: what tells images apart, if their contents were given.
        seconds: the cost of all answers.
    """

    def __init__(self, *, keep_beliefs: bool) -> None:
        self.labels: list[str] = []
        self.truth: list[str] = []
        self.sensitive: dict[str, list[str]] = {}
        self.clusters: list[str] = []
        self.digests = array("Q")
        self.seconds = 0.0
        by_name = [name for name in _BY_NAME if keep_beliefs or name not in _BELIEFS]
        self._numbers = {name: array("d") for name in ("confidence", *_NUMBERS)}
        self._by_name: dict[str, dict[str, array[float]]] = {
            name: {} for name in by_name
        }
        self._warnings: list[tuple[str, ...]] = []

    def add(self, prediction: Prediction) -> None:
        """Add the answer for one more image."""
        self.labels.append(sys.intern(prediction.label))
        self._warnings.append(tuple(map(sys.intern, prediction.warnings)))
        self._numbers["confidence"].append(prediction.probabilities[prediction.label])
        for name in _NUMBERS:
            number = getattr(prediction, name)
            self._numbers[name].append(float("nan") if number is None else number)
        for name, columns in self._by_name.items():
            for key, value in getattr(prediction, name).items():
                numbers = value.values() if isinstance(value, dict) else [value]
                columns.setdefault(key, array("d")).extend(numbers)

    def add_known(
        self,
        target: str,
        sensitive: Mapping[str, str],
        cluster: str | None,
        content: str,
    ) -> None:
        """Add what is known of the image of the last answer.

        Args:
            target: its true class.
            sensitive: its values.
            cluster: its person or source; None for all images or for none.
            content: the hexadecimal hash of its content.
        """
        self.truth.append(sys.intern(target))
        for attribute, value in sensitive.items():
            self.sensitive.setdefault(attribute, []).append(sys.intern(value))
        if cluster is not None:
            self.clusters.append(sys.intern(cluster))
        # 64 bits tell images apart: of a million, two share them once in 37 million audits.
        self.digests.append(int(content[:16], 16))

    def scores(self) -> Scores:
        """Return what answers report besides their labels."""
        n = len(self.labels)
        if not n:
            return Scores()
        columns: dict[str, Any] = {**self._numbers, **self._by_name}
        beliefs = self._by_name.get("sensitive_zero_shot", {})
        # Probabilities of all values of an attribute came image by image.
        columns["sensitive_zero_shot"] = {
            attribute: np.array(probabilities).reshape(n, -1)
            for attribute, probabilities in beliefs.items()
        }
        return Scores(**columns, warnings=self._warnings)
