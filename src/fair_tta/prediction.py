"""Predictions: the answer for one image, and a sequence of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TypedDict, overload

import numpy as np
import numpy.typing as npt

from fair_tta._display import abbreviate, probability_bars
from fair_tta.errors import require

__all__ = ["Predictions"]


class Score(TypedDict):
    """One entry of what a transformers zero-shot pipeline returns."""

    score: float
    label: str


@dataclass(frozen=True, repr=False)
class Prediction:
    """Answer for one image, next to the zero-shot answer.

    Attributes:
        label: the most probable target.
        probabilities: ``{target: probability}`` after adaptation.
        zero_shot: the same before adaptation.
        sensitive: ``{attribute: {value: probability}}`` after adaptation.
        sensitive_zero_shot: the same before adaptation.
        entropy: normalised entropy of `probabilities`: 0 is certain, 1 is indifferent.
        entropy_zero_shot: the same before adaptation.
        sensitive_entropy: ``{attribute: normalised entropy}`` after adaptation.
        sensitive_entropy_zero_shot: the same before adaptation.
        distance: how far the probabilities moved, half their l1 distance, between 0 and 1.
        flip_margin: how far the zero-shot probabilities must move before the label can change.
        certified_unchanged: the move was shorter than the margin, so no flip was possible.
        learning_rate: the rate used, None if nothing was tuned.
        relative_step: how far what was tuned, context or weights, moved in all steps together,
            relative to its norm; None if nothing was tuned.
        views_kept: how many views the method kept, None if it uses none.
        warnings: what went wrong or was bounded on the way, empty if nothing.
    """

    label: str
    probabilities: dict[str, float]
    zero_shot: dict[str, float]
    sensitive: dict[str, dict[str, float]]
    sensitive_zero_shot: dict[str, dict[str, float]]
    entropy: float
    entropy_zero_shot: float
    sensitive_entropy: dict[str, float]
    sensitive_entropy_zero_shot: dict[str, float]
    distance: float
    flip_margin: float
    certified_unchanged: bool
    learning_rate: float | None = None
    relative_step: float | None = None
    views_kept: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def flipped(self) -> bool:
        """Whether the label differs from the zero-shot label."""
        return self.label != max(self.zero_shot, key=self.zero_shot.__getitem__)

    def to_dict(self, top_k: int | None = None) -> list[Score]:
        """Return scores in the shape of the transformers zero-shot pipeline, best first.

        Args:
            top_k: how many; None for all.
        """
        best_first = sorted(self.probabilities.items(), key=lambda item: -item[1])
        return [{"score": score, "label": label} for label, score in best_first[:top_k]]

    def __repr__(self) -> str:
        before = max(self.zero_shot, key=self.zero_shot.__getitem__)
        return (
            f"Prediction({self.label!r}, {self.probabilities[self.label]:.3f}; zero-shot "
            f"{before!r}, {self.zero_shot[before]:.3f})"
        )

    def _repr_html_(self) -> str:
        """Return bars of each class and each sensitive value, before and after, for notebooks."""
        changed = " (changed)" if self.flipped else ""
        parts = [f"<p><strong>{escape(self.label)}</strong>{changed}</p>"]
        parts.append(probability_bars("class", self.zero_shot, self.probabilities))
        for name, after in self.sensitive.items():
            parts.append(
                probability_bars(
                    f"perceived: {name}", self.sensitive_zero_shot[name], after
                )
            )
        parts += [f"<p>{escape(warning)}</p>" for warning in self.warnings]
        return "".join(parts)

    def __str__(self) -> str:
        scores = abbreviate(f"{s['label']} {s['score']:.3f}" for s in self.to_dict())
        return f"{self.label} ({scores})"


class Predictions(Sequence[Prediction]):
    """Immutable sequence of the answers for several images.

    A slice has the same type. ``predict(images, errors="skip")`` keeps the place of an image that
    cannot be read: its prediction and its label are None, and its probabilities are NaN.

    Args:
        predictions: one for each image.
        targets: labels of the classes; those of the first prediction if None.
        adapter: the method that answered, whose name an audit shows.

    Example:
        >>> from fair_tta import FairTPTClassifier, miniature
        >>> clf = FairTPTClassifier("miniature", ["a circle", "a square"])
        >>> answers = clf.predict([drawn.image for drawn in miniature.SCENES.draw(3)])
        >>> answers.probabilities.shape, answers[:2].labels == answers.labels[:2]
        ((3, 2), True)
    """

    def __init__(
        self,
        predictions: Iterable[Prediction],
        targets: Iterable[str] | None = None,
        adapter: Any = None,
    ) -> None:
        self._predictions = tuple(predictions)
        if targets is None:
            readable = (p for p in self._predictions if p is not None)
            first = next(readable, None)
            targets = () if first is None else first.probabilities
        self._targets = tuple(targets)
        self._adapter = adapter

    @property
    def labels(self) -> list[str]:
        """The most probable target of each image."""
        return [None if p is None else p.label for p in self._predictions]

    @property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """Probabilities in the order of the classifier's targets: ``[images, targets]``."""
        # NaN stays where an image could not be read.
        table = np.full((len(self), len(self._targets)), np.nan)
        for row, prediction in zip(table, self._predictions, strict=True):
            if prediction is not None:
                row[:] = [prediction.probabilities[target] for target in self._targets]
        return table

    def to_dataframe(self) -> Any:
        """Return a pandas DataFrame: a row for each image, a column for each number."""
        rows = [_table_row(prediction) for prediction in self._predictions]
        return require("pandas", "fairlearn").DataFrame(rows)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> Predictions: ...
    def __getitem__(self, index: int | slice) -> Prediction | Predictions:
        if isinstance(index, slice):
            return Predictions(self._predictions[index], self._targets, self._adapter)
        return self._predictions[index]

    def __len__(self) -> int:
        return len(self._predictions)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Predictions | list | tuple):
            return NotImplemented
        return self._predictions == tuple(other)

    # Like a list: predictions hold dictionaries, which have no hash.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Predictions([{abbreviate(map(repr, self._predictions))}])"


def _table_row(prediction: Prediction | None) -> dict[str, Any]:
    """Return ``{column: cell}`` of a prediction; None is an image that could not be read."""
    if prediction is None:
        return {"label": None}
    row: dict[str, Any] = {"label": prediction.label, "flipped": prediction.flipped}
    for name, content in vars(prediction).items():
        row.update(_flatten(name, content))
    row["warnings"] = "; ".join(prediction.warnings)
    return row


def _flatten(name: str, content: Any) -> dict[str, Any]:
    """Return ``{column: cell}`` of a field, with a column for each entry of a dictionary."""
    if not isinstance(content, dict):
        return {name: content}
    cells = {}
    for key, inner in content.items():
        cells.update(_flatten(f"{name}: {key}", inner))
    return cells
