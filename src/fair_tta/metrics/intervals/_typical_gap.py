"""The typical gap: by how much two groups of a class differ in accuracy, freed from noise.

``V = mean_c 2 var_g(r_gc)`` is the mean squared difference between two groups of a class, over the
classes that two groups have. Noise alone adds b to it, so ``R = sqrt(max(0, V - b))``. V is a
quadratic form of rates, so its moments are known: with rates of mean m and covariance S, and
``V = r'Qr``::

    b = tr QS      var V = 2 tr QSQS + 4 m'QSQm      third moment = 8 tr QSQSQS + 24 m'QSQSQm

Unlike a minimum or a gap between extremes it is smooth, so ``D = V' - V - (b' - b)`` has a normal
interval, and few images show a change. ``R' - R = D / (R' + R)``, and so are its ends. Means and
covariances are those of `fair_tta.metrics.intervals._noise`: of cells with one image added that
turns right and one that turns wrong. Simulated by `make coverage`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import brentq
from scipy.special import gammaincinv, ndtri

from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import GroupBy, group_label, list_names
from fair_tta.metrics._types import Floats, Ints

LEAST = 5
"""Images of each class in each group that an interval takes."""


@dataclass(frozen=True, eq=False)
class _RateBlock:
    """Classes whose rates are independent of those of others: one, or all if there are clusters.

    Attributes:
        form: Q of one run, ``[cells, cells]``.
        seen: rates as counted, for each run: ``[runs, cells]``.
        mean: the same with the added images.
        covariance: of both, run by run: ``[runs, cells, runs, cells]``.
        n: images: ``[cells]``.
        rank: of Q.
    """

    form: Floats
    seen: Floats
    mean: Floats
    covariance: Floats
    n: Floats
    rank: int

    def of_run(self, run: int) -> _RateBlock:
        """One of the runs."""
        some = slice(run, run + 1)
        covariance = self.covariance[some, :, some]
        return replace(
            self, seen=self.seen[some], mean=self.mean[some], covariance=covariance
        )

    def pulled(self, towards: float) -> _RateBlock:
        """The same with rates pulled towards the mean of their class: 0 leaves no gap."""
        middle = self.mean - self.mean @ np.linalg.pinv(self.form) @ self.form
        mean = middle + towards * (self.mean - middle)
        weight = np.sqrt(mean * (1 - mean) / (self.mean * (1 - self.mean)))
        covariance = self.covariance * weight[:, :, None, None] * weight
        return replace(self, mean=mean, covariance=covariance)


def _blocks(columns: AnswerTable, runs: tuple[int, ...]) -> Iterator[_RateBlock]:
    classes, size = len(columns.targets), columns.sum_by_cell()
    n = size.reshape(-1, classes)
    counted = np.flatnonzero((n > 0).sum(0) > 1)
    hits = np.array([columns.answers[run] == columns.truth for run in runs], np.float64)
    cells = [np.flatnonzero(n[:, c]) * classes + c for c in counted]
    right = np.array([*map(columns.sum_by_cell, hits)])
    # What is added is repeated as often as the images are: repeating them changes no figure.
    repeats = columns.repeats_per_image(GroupBy.TARGET_AND_SENSITIVE)
    mean = (right + repeats) / (size + 2 * repeats)

    def form(groups: int) -> Floats:
        made: Floats = np.eye(groups) - 1 / groups
        return made * 2 / (groups - 1) / len(counted)

    def block(some: Ints, form: Floats, covariance: Floats, rank: int) -> _RateBlock:
        seen = right[:, some] / size[some]
        images = (size / repeats)[some]
        return _RateBlock(form, seen, mean[:, some], covariance, images, rank)

    if columns.clusters is None:
        both = np.array([[columns.sum_by_cell(a * b) for b in hits] for a in hits])
        both[range(len(runs)), range(len(runs))] += (
            1  # each run has one of the added images right
        )
        spread = (both / (size + 2) - mean[:, None] * mean) / (size + 2)
        for some in cells:
            covariance = np.einsum("rsi,ij->risj", spread[..., some], np.eye(len(some)))
            yield block(some, form(len(some)), covariance, len(some) - 1)
    elif cells:
        every = np.concatenate(cells)
        covariance = _clustered(columns, columns.clusters, hits, mean)
        forms = block_diag(*(form(len(some)) for some in cells))
        yield block(
            every, forms, covariance[:, every][..., every], len(every) - len(cells)
        )


def _clustered(
    columns: AnswerTable, clusters: Ints, hits: Floats, mean: Floats
) -> Floats:
    """Covariance of rates by totals of clusters: ``[runs, cells, runs, cells]``."""
    units, (runs, cells) = int(clusters.max()) + 1, mean.shape
    repeats = columns.repeats_per_image(GroupBy.TARGET_AND_SENSITIVE)
    size = columns.sum_by_cell() + 2 * repeats
    cell = columns.cell_codes
    residuals = (hits - mean[:, cell]) / size[cell]
    totals = np.zeros((runs, cells, units))
    for run in range(runs):
        np.add.at(totals[run], (cell, clusters), residuals[run])
    flat = totals.reshape(runs * cells, units)
    found: Floats = flat @ flat.T * units / max(1, units - 1)
    found = found.reshape(runs, cells, runs, cells)
    # the two added images of each cell are right in one run each
    both = np.stack([np.eye(runs)[0], 1 - np.eye(runs)[0]])
    added = (both[:, :, None] - mean) * repeats / size
    found += np.einsum("ari,asj,ij->risj", added, added, np.eye(cells))
    return found


class _Moments(NamedTuple):
    """Of ``V = sum_run sign V_run`` as counted, see above; `there` is V of the mean rates."""

    seen: float = 0.0
    there: float = 0.0
    noise: float = 0.0
    variance: float = 0.0
    variance_there: float = 0.0
    third: float = 0.0
    third_there: float = 0.0
    rank: int = 0

    @classmethod
    def of(cls, blocks: list[_RateBlock], *signs: int) -> _Moments:
        """With the signs of runs; rank 0 if no class has two groups."""
        found = [cls._of_block(block, signs) for block in blocks]
        return cls(*map(sum, zip(*found, strict=True))) if found else cls()

    @classmethod
    def _of_block(cls, block: _RateBlock, signs: tuple[int, ...]) -> _Moments:
        q = np.kron(np.diag(signs), block.form)
        seen, m = block.seen.ravel(), block.mean.ravel()
        s = block.covariance.reshape(len(m), len(m))
        scale = np.tile(
            np.sqrt((block.n + 2) / block.n), len(signs)
        )  # of rates as counted
        qs, qm = q @ s, q @ m
        sqm = s @ qm
        return cls(
            float(seen @ q @ seen),
            float(m @ qm),
            np.sum(q * s * np.outer(scale, scale)),
            2 * np.sum(qs * qs.T),
            4 * float(qm @ sqm),
            8 * np.sum((qs @ qs) * qs.T),
            24 * float(sqm @ q @ sqm),
            block.rank,
        )

    @property
    def slope(self) -> float:
        """By how much the variance grows with V."""
        return max(
            self.variance_there / max(self.there, 1e-12), 4 * self.noise / self.rank
        )

    def lower_end(self, value: float, error: float) -> float:
        """The gap that this value or a larger one follows with this error; 0 if it is smaller."""

        def above(gap: float) -> float:
            deviation = math.sqrt(self.variance + self.slope * gap**2)
            third = self.third + self.third_there / max(self.there, 1e-12) * gap**2
            shape = 4 / max(third / deviation**3, 1e-3) ** 2
            quantile = float(gammaincinv(shape, 1 - error) - shape) / math.sqrt(shape)
            return value**2 - gap**2 - quantile * deviation

        return float(brentq(above, 0.0, value)) if above(0.0) > 0 else 0.0


class TypicalGap:
    """Of one run.

    The variance of V grows with V. Bounds are the V at which what was seen is just as far away as
    allowed, as in Wilson's interval of a rate: a gap that looks small may be one that chance has
    hidden. V is skewed to the right, so the lower end takes the quantile of a gamma distribution
    with the same three moments; and rates that are nearer to one another, as they are there, vary
    more.
    """

    def __init__(self, blocks: list[_RateBlock]) -> None:
        self._blocks = blocks
        self._moments = moments = _Moments.of(blocks, 1)
        self.noise, self.square = moments.noise, moments.seen - moments.noise
        self.value = math.sqrt(max(0.0, self.square)) if moments.rank else math.nan

    def ends(self, error: float) -> tuple[float, float]:
        """Each end fails with this error; the value lies inside."""
        of, z = self._moments, -float(ndtri(error))
        # (V - seen)^2 = z^2 (variance + slope V)
        middle = self.value**2 + z**2 * of.slope / 2
        reach = math.sqrt(middle**2 - self.value**4 + z**2 * of.variance)
        high = math.sqrt(middle + reach)
        low = of.lower_end(self.value, error)
        if low:
            pulled = [block.pulled(low / self.value) for block in self._blocks]
            low = min(low, _Moments.of(pulled, 1).lower_end(self.value, error))
        return low, min(1.0, max(high, self.value))


class TypicalGapChange:
    """From one run to another.

    Attributes:
        value: ``R' - R``.
    """

    def __init__(self, blocks: list[_RateBlock]) -> None:
        self.before, self.after = (
            TypicalGap([b.of_run(k) for b in blocks]) for k in (0, 1)
        )
        self.value = self.after.value - self.before.value
        self._square = self.after.square - self.before.square
        of = _Moments.of(blocks, -1, 1)
        self._deviation = math.sqrt(max(0.0, of.variance + of.variance_there))
        # The sum of both is not less than what noise alone would show.
        by_noise = (math.sqrt(self.before.noise) + math.sqrt(self.after.noise)) / 2
        self._sum = max(self.before.value + self.after.value, by_noise)

    def ends(self, error: float) -> tuple[float, float]:
        """Each end fails with this error; the value lies inside."""
        reach = -float(ndtri(error)) * self._deviation
        low, high = ((self._square + side * reach) / self._sum for side in (-1, 1))
        least = -self.before.ends(error)[1]  # what there was, it cannot fall below 0
        most = self.after.ends(error)[1]
        return min(max(low, least), self.value), max(min(high, most), self.value)


@lru_cache(maxsize=32)  # several runs are judged together, at several levels
def measure_typical_gap(columns: AnswerTable, run: int) -> TypicalGap:
    """Of a run of these columns."""
    return TypicalGap([*_blocks(columns, (run,))])


@lru_cache(maxsize=32)
def measure_typical_gap_change(
    columns: AnswerTable, before: int, after: int
) -> TypicalGapChange:
    """From one run of these columns to another."""
    return TypicalGapChange([*_blocks(columns, (before, after))])


def why_no_interval(
    columns: AnswerTable, before: int = 0, after: int | None = None
) -> str | None:
    """Why there is no interval."""
    if columns.few_clusters_reason:
        return columns.few_clusters_reason
    n = columns.counts().sum(2)
    few = (n > 0) & (n < LEAST) & ((n > 0).sum(0) > 1)  # classes with two groups count
    names = [group_label(*cell) for cell in columns.cells(GroupBy.TARGET_AND_SENSITIVE)]
    what = "images"
    if columns.clusters is not None and not few.any():
        units = np.unique(np.stack([columns.cell_codes, columns.clusters]), axis=1)[0]
        several = np.bincount(units, minlength=n.size).reshape(n.shape)
        few = (n > 0) & (several < LEAST) & ((n > 0).sum(0) > 1)
        what = columns.cluster_noun
    if few.any():
        some = list_names([names[i] for i in np.flatnonzero(few)])
        return f"no interval, as fewer than {LEAST} {what} are of: {some}"
    if after is not None:
        changed = columns.answers[before] != columns.answers[after]
        if not changed.any():
            return "no interval, as no answer changed"
        if changed.all() and n.shape[1] == 2:
            return "no interval, as every answer changed"  # all rates are reversed, noise too
    return None
