"""Rates before and after on the same images: which images are counted, and what changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fair_tta.metrics.exact import paired_ends, wilson_ends
from fair_tta.metrics.rows import Floats, Ints, Rows

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Shift:
    """Rates before and after on the same images; all arrays of one shape.

    Attributes:
        before: images counted before.
        after: images counted after.
        loss: counted before and no longer.
        gain: counted after and not before.
        n: images that could be counted.
    """

    before: Floats
    after: Floats
    loss: Floats
    gain: Floats
    n: Floats

    def of(self, choose: Callable[[Floats], Floats]) -> Shift:
        """Some of the rates, or rates added up."""
        parts = self.before, self.after, self.loss, self.gain, self.n
        return Shift(*map(choose, parts))

    @property
    def change(self) -> Floats:
        """Rates after minus rates before."""
        change: Floats = (self.gain - self.loss) / self.n
        return change

    def reach(self, level: float) -> tuple[Floats, Floats]:
        """How far the intervals of the changes reach down and up from them."""
        low, high = paired_ends(self.loss, self.gain, self.n, level)
        return self.change - low, high - self.change

    def bands(self, level: float) -> tuple[Band, Band]:
        """Intervals of the rates before and after."""
        before = wilson_ends(self.before, self.n, level)
        return Band(*before), Band(*wilson_ends(self.after, self.n, level))


@dataclass(frozen=True, eq=False)
class Band:
    """Intervals of rates that hold together, and what they leave open."""

    low: Floats
    high: Floats

    @property
    def may_be_lowest(self) -> Mask:
        """No other is shown to lie below."""
        return np.asarray(self.low <= self.high.min())

    @property
    def may_be_apart(self) -> Mask:
        """Pairs whose first may be the highest and whose second the lowest."""
        highest = self.high >= self.low.max()
        pairs: Mask = highest[:, None] & self.may_be_lowest
        return pairs & ~np.eye(len(highest), dtype=np.bool_)

    @property
    def largest_gap(self) -> float:
        """At most so far apart."""
        return float(self.high.max() - self.low.min())

    @property
    def least_gap(self) -> float:
        """At least so far apart."""
        return max(0.0, float(self.low.max() - self.high.min()))


Count: TypeAlias = Callable[[Rows, int, int], Shift]


def hits(rows: Rows, before: int, after: int) -> Shift:
    """Images of a class that are answered so: ``[groups, targets]``."""
    a, b = rows.answers[before], rows.answers[after]
    right = a == rows.truth, b == rows.truth
    return _shift(rows, (rows.truth, rows.truth), right, _sizes(rows))


def false_alarms(rows: Rows, before: int, after: int) -> Shift:
    """Images of other classes that are answered so: ``[groups, targets]``."""
    a, b = rows.answers[before], rows.answers[after]
    sizes = _sizes(rows)
    others = sizes.sum(1, keepdims=True) - sizes
    return _shift(rows, (a, b), (a != rows.truth, b != rows.truth), others)


def selections(rows: Rows, before: int, after: int) -> Shift:
    """Images that are answered so: ``[groups, targets]``."""
    answers = rows.answers[before], rows.answers[after]
    everybody = np.ones(len(rows.truth), np.bool_)
    sizes = _sizes(rows)
    all_of_group = sizes.sum(1, keepdims=True) + 0 * sizes
    return _shift(rows, answers, (everybody, everybody), all_of_group)


def _sizes(rows: Rows) -> Floats:
    """Images of each class in each group."""
    sizes: Floats = rows.counts().sum(2).astype(np.float64)
    return sizes


def _shift(rows: Rows, answers: tuple[Ints, Ints], counted: tuple[Mask, Mask], n: Floats) -> Shift:
    """Count images by group and by the class under which they are counted, before and after."""
    (a, b), (was, now) = answers, counted
    stays = was & now & (a == b)

    def total(answer: Ints, some: Mask) -> Floats:
        place = rows.group * n.shape[1] + answer
        return np.bincount(place[some], minlength=n.size).reshape(n.shape).astype(np.float64)

    return Shift(total(a, was), total(b, now), total(a, was & ~stays), total(b, now & ~stays), n)
