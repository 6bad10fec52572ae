"""Scores of a run: numbers for each image besides its answer."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics._answer_table import AnswerTable, read_answer_table
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
        """Return scores from ``[images, targets]`` and ``{attribute: [images, values]}``.

        The confidence is that of the most probable target.
        """
        p = read_probabilities("probabilities", probabilities)
        by_attribute = sensitive or {}
        _check_is_mapping("sensitive", by_attribute)
        entropies = {
            attribute: normalised_entropies(columns)
            for attribute, columns in by_attribute.items()
        }
        return cls(p.max(1), normalised_entropies(p), sensitive_entropy=entropies)

    def _checked(self, length: int) -> Scores:
        """Return the same as arrays of this length, or raise an error."""
        checked: dict[str, Any] = {}
        # One number per image.
        for name in ("confidence", "entropy", "entropy_zero_shot"):
            scores = getattr(self, name)
            if scores is not None:
                checked[name] = read_unit_scores(name, scores, length)
        if self.relative_step is not None:
            steps = read_array("relative_step", self.relative_step, 1, length)
            # Without a single number nothing was tuned.
            checked["relative_step"] = steps if np.isfinite(steps).any() else None

        # Several columns by name; those of an attribute's values are the rows of one array.
        for name in (*_ENTROPIES, *_BELIEFS):
            columns = getattr(self, name) or {}
            _check_is_mapping(name, columns)
            has_rows = name == "sensitive_zero_shot"
            reader = read_probabilities if has_rows else read_unit_scores
            checked[name] = {
                str(key): reader(f"{name}[{key!r}]", column, length)
                for key, column in columns.items()
            }
        # Probabilities of the classes come as columns, and together sum to 1.
        if checked["zero_shot"]:
            by_class = np.stack(list(checked["zero_shot"].values()), 1)
            read_probabilities("zero_shot", by_class)

        if not all(isinstance(texts, list | tuple) for texts in self.warnings):
            raise FairTTAError(
                "`warnings` should be a list of texts per image.", argument="warnings"
            )
        if self.warnings:
            check_length("warnings", self.warnings, length)
        return Scores(**checked, warnings=self.warnings)


def _check_is_mapping(argument: str, columns: Any) -> None:
    """Raise unless the columns are by name."""
    if not isinstance(columns, Mapping):
        raise FairTTAError(
            f"`{argument}` should be {{name: numbers}} (got {type(columns).__name__}).",
            argument=argument,
        )


# Fields of `Scores` and of `Prediction`: numbers, numbers by attribute, probabilities by name.
_SCORE_FIELDS = ("entropy", "entropy_zero_shot", "relative_step")
_ENTROPIES = ("sensitive_entropy", "sensitive_entropy_zero_shot")
_BELIEFS = ("zero_shot", "sensitive_zero_shot")


class AnswerTableBuilder:
    """Collects the answers of one method; a few numbers of each image stay in memory.

    Args:
        keep_beliefs: keep the probabilities before adaptation too, see `Scores.zero_shot`.

    Attributes:
        labels: the answer for each image.
        truth: its true class, if classes were given.
        sensitive: ``{attribute: [images]}``, if values were given.
        clusters: the person or source of each image, if they were given.
        digests: by which images are distinguished, if their contents were given.
        seconds: the cost of all answers.
    """

    def __init__(self, *, keep_beliefs: bool) -> None:
        self.labels: list[str] = []
        self.truth: list[str] = []
        self.sensitive: dict[str, list[str]] = {}
        self.clusters: list[str] = []
        self.digests = array("Q")
        self.seconds = 0.0
        self._warnings: list[tuple[str, ...]] = []
        self._numbers = {name: array("d") for name in ("confidence", *_SCORE_FIELDS)}
        kept = (*_ENTROPIES, *_BELIEFS) if keep_beliefs else _ENTROPIES
        self._by_name: dict[str, dict[str, array[float]]] = {name: {} for name in kept}

    def add(self, prediction: Prediction) -> None:
        """Add the answer for one more image."""
        # Labels and warnings repeat, so that interned ones take no memory per image.
        self.labels.append(sys.intern(prediction.label))
        warnings = [sys.intern(warning) for warning in prediction.warnings]
        self._warnings.append(tuple(warnings))
        self._numbers["confidence"].append(prediction.probabilities[prediction.label])
        for name in _SCORE_FIELDS:
            number = getattr(prediction, name)
            self._numbers[name].append(float("nan") if number is None else number)
        for name, columns in self._by_name.items():
            for key, numbers in getattr(prediction, name).items():
                column = columns.setdefault(key, array("d"))
                # Beliefs of an attribute have several numbers per image, one for each value.
                if isinstance(numbers, dict):
                    column.extend(numbers.values())
                else:
                    column.append(numbers)

    def add_known(
        self,
        target: str,
        sensitive: Mapping[str, str],
        cluster: str | None,
        content: str,
    ) -> None:
        """Add the labels of the image of the last answer.

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

    def build(
        self, targets: Sequence[str], values: Mapping[str, Iterable[str]]
    ) -> AnswerTable:
        """Return the table of all answers.

        Args:
            targets: all classes; each answer is one of them.
            values: ``{attribute: all values}``, at least of the attributes that were added.
        """
        table = read_answer_table(
            self.truth,
            [self.labels],
            self.sensitive,
            targets,
            {attribute: list(values[attribute]) for attribute in self.sensitive},
            self.clusters or None,
        )
        return replace(table, scores=(self.scores()._checked(table.n),))

    def scores(self) -> Scores:
        """Return the scores of the answers."""
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
