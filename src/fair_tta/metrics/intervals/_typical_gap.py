"""The typical gap: by how much two groups of a class differ in accuracy, corrected for noise.

The gap is the root of a quadratic form of rates, ``V = r'Qr``, minus what noise adds to it. The
formulas are in docs/statistics.md, "Typical gap". `make coverage` simulates how often the
intervals hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import brentq
from scipy.special import gammaincinv, ndtri

from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import GroupBy, group_label, list_names
from fair_tta.metrics._types import Floats, Ints, Mask
from fair_tta.metrics.intervals._closed_forms import Bounds

MIN_CELL_IMAGES = 5
"""Images, or clusters, of each class in each group that an interval takes."""

# Keeps a division by the square of a gap finite where there is none.
_MIN_SQUARE = 1e-12


@dataclass(frozen=True, eq=False)
class _RateBlock:
    """Cells whose rates are independent of all others: of one class, or all with clusters.

    Attributes:
        form: Q of one run, ``[cells, cells]``.
        counted: rates as counted, ``[runs, cells]``.
        mean: rates with the added images, ``[runs, cells]``.
        covariance: of `mean`, ``[runs, cells, runs, cells]``.
        n: images of each cell, repeated ones once, ``[cells]``.
        rank: of Q.
    """

    form: Floats
    counted: Floats
    mean: Floats
    covariance: Floats
    n: Floats
    rank: int

    def of_run(self, run: int) -> _RateBlock:
        """Return the block of one of the runs."""
        only = slice(run, run + 1)
        return replace(
            self,
            counted=self.counted[only],
            mean=self.mean[only],
            covariance=self.covariance[only, :, only],
        )

    def with_smaller_gap(self, factor: float) -> _RateBlock:
        """Return the block with rates nearer to the mean of their class: with 0 there is no gap.

        The variance of each rate follows its mean, as that of a share does.
        """
        class_mean = self.mean - self.mean @ np.linalg.pinv(self.form) @ self.form
        mean = class_mean + factor * (self.mean - class_mean)
        scale = np.sqrt(mean * (1 - mean) / (self.mean * (1 - self.mean)))
        covariance = self.covariance * scale[:, :, None, None] * scale
        return replace(self, mean=mean, covariance=covariance)


def _rate_blocks(table: AnswerTable, runs: tuple[int, ...]) -> list[_RateBlock]:
    """Return the rates of all classes that two groups have."""
    classes = len(table.targets)
    n = table.sum_by_cell()
    has_images = n.reshape(-1, classes) > 0
    counted_classes = np.flatnonzero(has_images.sum(0) > 1)
    if not len(counted_classes):
        return []
    is_right = np.array([table.answers[run] == table.truth for run in runs], np.float64)
    hits = np.array([table.sum_by_cell(run_is_right) for run_is_right in is_right])
    # The added images are repeated as often as the images are on average: an audit in which every
    # image is repeated has the same rates.
    repeats = table.repeats_per_image(GroupBy.TARGET_AND_SENSITIVE)
    mean = (hits + repeats) / (n + 2 * repeats)
    cells_of_class = [
        np.flatnonzero(has_images[:, c]) * classes + c for c in counted_classes
    ]
    forms = [
        _variance_form(len(cells)) / len(counted_classes) for cells in cells_of_class
    ]

    def block(cells: Ints, form: Floats, covariance: Floats, rank: int) -> _RateBlock:
        counted = hits[:, cells] / n[cells]
        images = (n / repeats)[cells]
        return _RateBlock(form, counted, mean[:, cells], covariance, images, rank)

    if table.clusters is not None:
        # Images of a person may be in several cells, so all rates depend on one another.
        cells = np.concatenate(cells_of_class)
        covariance = _clustered_covariance(table, table.clusters, is_right, mean)
        covariance = covariance[:, cells][..., cells]
        rank = len(cells) - len(cells_of_class)
        return [block(cells, block_diag(*forms), covariance, rank)]

    blocks = []
    covariances = _covariance_of_runs(table, is_right, mean)
    for cells, form in zip(cells_of_class, forms, strict=True):
        # Different cells have different images, so only runs depend on one another.
        covariance = np.einsum(
            "rsi,ij->risj", covariances[..., cells], np.eye(len(cells))
        )
        blocks.append(block(cells, form, covariance, len(cells) - 1))
    return blocks


def _variance_form(groups: int) -> Floats:
    """Return Q of one class: ``r'Qr`` is the mean squared difference between two groups."""
    form: Floats = (np.eye(groups) - 1 / groups) * 2 / (groups - 1)
    return form


def _covariance_of_runs(table: AnswerTable, is_right: Floats, mean: Floats) -> Floats:
    """Return the covariance of the rates of each cell in any two runs: ``[runs, runs, cells]``.

    Args:
        is_right: ``[runs, images]``.
        mean: ``[runs, cells]``.
    """
    right_in_both = np.array(
        [[table.sum_by_cell(a * b) for b in is_right] for a in is_right]
    )
    # Each run has one of the added images right, and no image is right in the first run and in
    # another.
    runs = range(len(is_right))
    right_in_both[runs, runs] += 1
    n = table.sum_by_cell() + 2
    covariance: Floats = (right_in_both / n - mean[:, None] * mean) / n
    return covariance


def _clustered_covariance(
    table: AnswerTable, clusters: Ints, is_right: Floats, mean: Floats
) -> Floats:
    """Return the covariance of rates from totals of clusters: ``[runs, cells, runs, cells]``."""
    runs, cells = mean.shape
    cluster_count = int(clusters.max()) + 1
    repeats = table.repeats_per_image(GroupBy.TARGET_AND_SENSITIVE)
    n = table.sum_by_cell() + 2 * repeats
    cell = table.cell_codes
    residuals = (is_right - mean[:, cell]) / n[cell]
    totals = np.zeros((runs, cells, cluster_count))
    for run in range(runs):
        np.add.at(totals[run], (cell, clusters), residuals[run])
    flat = totals.reshape(runs * cells, cluster_count)
    covariance: Floats = flat @ flat.T * cluster_count / max(1, cluster_count - 1)
    covariance = covariance.reshape(runs, cells, runs, cells)
    # Of the added images one is right in the first run only, the other in all other runs.
    first_run = np.eye(runs)[0]
    added_right = np.stack([first_run, 1 - first_run])
    added = (added_right[:, :, None] - mean) * repeats / n
    covariance += np.einsum("ari,asj,ij->risj", added, added, np.eye(cells))
    return covariance


class _Moments(NamedTuple):
    """Moments of V, or of the signed sum of V over runs, with rates of mean m and covariance S.

    Variance and third moment have a part that is there without a gap, and a part that grows with
    the gap; see docs/statistics.md, "Typical gap".

    Attributes:
        counted: V of the rates as counted.
        smoothed: V of the mean rates, ``m'Qm``.
        noise: what noise adds to `counted`, b.
        variance: ``2 tr QSQS``.
        gap_variance: ``4 m'QSQm``.
        third: ``8 tr QSQSQS``.
        gap_third: ``24 m'QSQSQm``.
        rank: of Q; 0 if no class has two groups.
    """

    counted: float = 0.0
    smoothed: float = 0.0
    noise: float = 0.0
    variance: float = 0.0
    gap_variance: float = 0.0
    third: float = 0.0
    gap_third: float = 0.0
    rank: int = 0

    @classmethod
    def of(cls, blocks: list[_RateBlock], *signs: int) -> _Moments:
        """Return the moments of the sum over runs with these signs."""
        if not blocks:
            return cls()
        moments = [cls._of_block(block, signs) for block in blocks]
        return cls(*map(sum, zip(*moments, strict=True)))

    @classmethod
    def _of_block(cls, block: _RateBlock, sign_of_run: tuple[int, ...]) -> _Moments:
        """Return the moments of ``sum over runs of sign r'Qr``.

        The block is of cells that all have images.
        """
        q = np.kron(np.diag(sign_of_run), block.form)
        counted = block.counted.ravel()
        m = block.mean.ravel()
        s = block.covariance.reshape(len(m), len(m))
        # S is that of rates with two more images than those counted. Only b, the noise of the
        # counted rates, is scaled back; the other moments are of the smoothed rates.
        scale = np.tile(np.sqrt((block.n + 2) / block.n), len(sign_of_run))
        qs = q @ s
        qm = q @ m
        sqm = s @ qm
        return cls(
            counted=float(counted @ q @ counted),
            smoothed=float(m @ qm),
            noise=np.sum(q * s * np.outer(scale, scale)),
            variance=2 * np.sum(qs * qs.T),
            gap_variance=4 * float(qm @ sqm),
            third=8 * np.sum((qs @ qs) * qs.T),
            gap_third=24 * float(sqm @ q @ sqm),
            rank=block.rank,
        )

    @property
    def slope(self) -> float:
        """Growth of the variance with V."""
        observed = self.gap_variance / max(self.smoothed, _MIN_SQUARE)
        # Where the smoothed rates hardly differ, that of a gap in a random direction.
        return max(observed, 4 * self.noise / self.rank)

    def lower_end(self, value: float, error: float) -> float:
        """Return the gap at which this value or a larger one is seen with this probability.

        0 if it is more likely even without a gap.
        """

        def excess(gap: float) -> float:
            deviation = math.sqrt(self.variance + self.slope * gap**2)
            third_slope = self.gap_third / max(self.smoothed, _MIN_SQUARE)
            skewness = (self.third + third_slope * gap**2) / deviation**3
            quantile = _gamma_quantile(skewness, 1 - error)
            return value**2 - gap**2 - quantile * deviation

        return float(brentq(excess, 0.0, value)) if excess(0.0) > 0 else 0.0


def _gamma_quantile(skewness: float, probability: float) -> float:
    """Return the quantile of a gamma distribution with mean 0, variance 1 and this skewness."""
    shape = 4 / max(skewness, 1e-3) ** 2  # below, it is a normal distribution
    return float(gammaincinv(shape, probability) - shape) / math.sqrt(shape)


class TypicalGap:
    """The typical gap of one run.

    Attributes:
        value: the gap.
        square: its square before it is cut at 0: ``V - b``.
        noise: what noise adds to V, b.
    """

    def __init__(self, blocks: list[_RateBlock]) -> None:
        self._blocks = blocks
        self._moments = _Moments.of(blocks, 1)
        self.noise = self._moments.noise
        self.square = self._moments.counted - self.noise
        is_defined = self._moments.rank > 0
        self.value = math.sqrt(max(0.0, self.square)) if is_defined else math.nan

    def bounds(self, error: float) -> Bounds:
        """Return an interval whose ends each fail with this error; the value lies inside.

        The ends are the gaps from which the value is just as far away as chance allows, as in
        Wilson's interval of a rate.
        """
        moments = self._moments
        z = -float(ndtri(error))
        # The larger root of (V - value^2)^2 = z^2 (variance + slope V)
        center = self.value**2 + z**2 * moments.slope / 2
        margin = math.sqrt(center**2 - self.value**4 + z**2 * moments.variance)
        high = math.sqrt(center + margin)
        # V is skewed to the right, so the lower end takes a gamma quantile. Rates that are nearer
        # to one another, as they are there, may vary more: the end is computed again from such.
        low = moments.lower_end(self.value, error)
        if low:
            nearer = [
                block.with_smaller_gap(low / self.value) for block in self._blocks
            ]
            low = min(low, _Moments.of(nearer, 1).lower_end(self.value, error))
        return low, min(1.0, max(high, self.value))


class TypicalGapChange:
    """The change of the typical gap from one run to another.

    Attributes:
        value: the gap after minus the gap before.
        square: the change of its square, D.
        deviation: of D.
    """

    def __init__(self, blocks: list[_RateBlock]) -> None:
        self.before = TypicalGap([block.of_run(0) for block in blocks])
        self.after = TypicalGap([block.of_run(1) for block in blocks])
        self.value = self.after.value - self.before.value
        self.square = self.after.square - self.before.square
        moments = _Moments.of(blocks, -1, 1)
        self.deviation = math.sqrt(max(0.0, moments.variance + moments.gap_variance))

    def bounds(self, error: float) -> Bounds:
        """Return an interval whose ends each fail with this error; the value lies inside."""
        # The change is D / (before + after). The sum is not less than what noise alone would show.
        by_noise = (math.sqrt(self.before.noise) + math.sqrt(self.after.noise)) / 2
        gap_sum = max(self.before.value + self.after.value, by_noise)
        margin = -float(ndtri(error)) * self.deviation
        low = (self.square - margin) / gap_sum
        high = (self.square + margin) / gap_sum
        # A gap cannot fall below 0, nor rise beyond what the gap after can be.
        least = -self.before.bounds(error)[1]
        most = self.after.bounds(error)[1]
        return min(max(low, least), self.value), max(min(high, most), self.value)


@lru_cache(maxsize=32)  # several runs are judged together, at several levels
def measure_typical_gap(table: AnswerTable, run: int) -> TypicalGap:
    """Return the typical gap of a run."""
    return TypicalGap(_rate_blocks(table, (run,)))


@lru_cache(maxsize=32)
def measure_typical_gap_change(
    table: AnswerTable, before: int, after: int
) -> TypicalGapChange:
    """Return the change of the typical gap from one run to another."""
    return TypicalGapChange(_rate_blocks(table, (before, after)))


def why_no_interval(
    table: AnswerTable, before: int = 0, after: int | None = None
) -> str | None:
    """Return the reason why a gap, or its change, has no interval; None if it has one."""
    if table.few_clusters_reason:
        return table.few_clusters_reason
    n = table.counts().sum(2)
    unit = "images"
    is_small = _is_small_cell(n, n)
    if table.clusters is not None and not is_small.any():
        unit = table.cluster_noun
        pairs = np.unique(np.stack([table.cell_codes, table.clusters]), axis=1)
        clusters = np.bincount(pairs[0], minlength=n.size).reshape(n.shape)
        is_small = _is_small_cell(n, clusters)
    if is_small.any():
        cells = table.cells(GroupBy.TARGET_AND_SENSITIVE)
        names = list_names([group_label(*cells[i]) for i in np.flatnonzero(is_small)])
        return f"no interval, as fewer than {MIN_CELL_IMAGES} {unit} are of: {names}"
    if after is not None:
        is_changed = table.answers[before] != table.answers[after]
        if not is_changed.any():
            return "no interval, as no answer changed"
        # All rates of two classes are then reversed, and so is their noise.
        if is_changed.all() and n.shape[1] == 2:
            return "no interval, as every answer changed"
    return None


def _is_small_cell(n: Ints, units: Ints) -> Mask:
    """Return which cells of classes that two groups have are small: ``[groups, classes]``."""
    is_compared = (n > 0).sum(0) > 1
    is_small: Mask = (n > 0) & (units < MIN_CELL_IMAGES) & is_compared
    return is_small
