"""Intervals for what changes between two runs on the same images, and for several such changes.

Images are taken as drawn within each class of each group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

import numpy as np

from fair_tta.metrics._columns import Columns, Floats
from fair_tta.metrics._estimate import direction
from fair_tta.metrics._extremes import ExtremeChange, balanced, overall
from fair_tta.metrics._intervals import mean_change_ends, paired_ends
from fair_tta.metrics._noise import Noise, noise_of

Ends: TypeAlias = tuple[float, float]
ChangeInterval: TypeAlias = Callable[[Columns, int, int, float], Ends]
"""Columns, the two runs and the level to the ends of the change; NaN where there is none."""


def overall_change(columns: Columns, before: int, after: int, level: float) -> Ends:
    """The change of accuracy (Bonett and Price)."""
    if columns.clusters is not None:
        return ByDraws(partial(ExtremeChange, overall))(columns, before, after, level)
    loss, gain, n = (part.sum() for part in _losses_and_gains(columns, before, after))
    low, high = paired_ends(loss, gain, n, level)
    return max(-1.0, float(low)), min(1.0, float(high))


def balanced_change(columns: Columns, before: int, after: int, level: float) -> Ends:
    """The change of the mean accuracy of groups."""
    if columns.clusters is not None:
        return ByDraws(partial(ExtremeChange, balanced))(columns, before, after, level)
    loss, gain, n = _losses_and_gains(columns, before, after)
    some = n > 0
    low, high = mean_change_ends(loss[some], gain[some], n[some], level)
    return max(-1.0, low), min(1.0, high)


def _losses_and_gains(columns: Columns, before: int, after: int) -> tuple[Floats, Floats, Floats]:
    """Images no longer right, newly right, and all, of each class in each group."""
    was, now = (columns.answers[run] == columns.truth for run in (before, after))
    cell, cells = columns.group * len(columns.targets) + columns.truth, columns.counts().sum(2).size
    parts = (cell[was & ~now], cell[~was & now], cell)
    loss, gain, n = (np.bincount(part, minlength=cells).astype(np.float64) for part in parts)
    return loss, gain, n


class DrawnChange(Protocol):
    """The change of a figure between two runs, with ends from draws."""

    value: float

    def ends(self, error: float) -> Ends:
        """Each end fails with this error."""

    def roots(self, error: float) -> list[Floats]:
        """For each end a figure of each draw: the smallest are those at which it fails."""


@dataclass(frozen=True)
class ByDraws:
    """Intervals by `Noise`; `sign` is -1 if the change is that of minus the metric."""

    make: Callable[[Noise, int, int], DrawnChange]
    sign: int = 1

    def __call__(self, columns: Columns, before: int, after: int, level: float) -> Ends:
        change = self.make(noise_of(columns, (before, after)), 0, 1)
        return self._turned(change.ends((1 - level) / 2))

    def together(self, columns: Columns, runs: Sequence[int], level: float) -> list[Ends]:
        """Changes from the first run to each of the others, at levels at which all hold together.

        Step-down max-T (Romano and Wolf 2005): changes that are shown leave, and the rest is judged
        by itself.
        """
        noise = noise_of(columns, tuple(runs))
        changes = [self.make(noise, 0, i) for i in range(1, len(runs))]
        ranks = [_ranks(change.roots((1 - level) / len(changes))) for change in changes]
        found: dict[int, Ends] = {}
        while left := [i for i in range(len(changes)) if i not in found]:
            error = _joint_error([ranks[i] for i in left], 1 - level)
            ends = {i: changes[i].ends(error) for i in left}
            shown = {i: pair for i, pair in ends.items() if direction(*pair)}
            found |= shown or ends
        return [self._turned(found[i]) for i in range(len(changes))]

    def _turned(self, ends: Ends) -> Ends:
        return ends if self.sign > 0 else (-ends[1], -ends[0])


def _ranks(roots: list[Floats]) -> Floats:
    """The smallest rank of each draw among the ends of a change, each on its own scale.

    So all ends are equally likely to fail.
    """
    ranks = np.array(roots).argsort(1, kind="stable").argsort(1) + 1
    smallest: Floats = ranks.min(0) / (ranks.shape[1] + 1)
    return smallest


def _joint_error(ranks: Sequence[Floats], error: float) -> float:
    """The error of each end at which all of them hold together; at least Bonferroni's."""
    smallest = np.quantile(np.min(ranks, 0), error)
    return (
        float(np.clip(smallest, error / 2 / len(ranks), error / 2)) if len(ranks) > 1 else error / 2
    )
