"""Stratified bootstrap on confusion counts: resampled tables instead of resampled rows.

To draw n images of a stratum with replacement is to draw a multinomial table of their answers, so
10,000 resamples of 20,000 images take as long as those of 200.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics.definitions import Metric
from fair_tta.metrics.estimate import Over
from fair_tta.metrics.exact import check_share
from fair_tta.metrics.rows import Floats, Ints, Rows

Ends: TypeAlias = tuple[Floats, Floats]

_AT_ONCE = 4_000_000  # numbers in memory


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made.

    Args:
        resamples: how many tables are drawn.
        seed: the same seed gives the same interval.
        level: how often intervals like this one should cover the truth.
        strata: what is held fixed: the number of images of each class and sensitive value, or of
            each sensitive value only, so that classes may become more or less frequent.

    Example:
        >>> Bootstrap(resamples=10_000, seed=1).level
        0.95
    """

    resamples: int = 2000
    seed: int = 0
    level: float = 0.95
    strata: Over = Over.TARGET_AND_SENSITIVE

    def __post_init__(self) -> None:
        for name, least in (("resamples", 1), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise FairTTAError(
                    f"`{name}` should be a whole number from {least} on (got {value!r})."
                )
        check_share("level", self.level)
        if not isinstance(self.strata, Over):
            raise FairTTAError(
                f"`strata` should be a choice of Over, such as {Over.SENSITIVE} "
                f"(got {self.strata!r})."
            )


DEFAULT = Bootstrap()


def intervals(metrics: Sequence[Metric], counts: Ints, how: Bootstrap) -> list[Ends]:
    """Intervals of metrics of one run, all from the same tables; NaN where one is not defined.

    Tables are drawn with one image added to each stratum, spread evenly over the answers, and the
    noise of the rates (drawn minus expected) is added to the rates that were seen. Without the
    added image a stratum of one, or one that is all right or all wrong, would look certain.

    For a gap the ends are ``value -+ q`` with q the `level` quantile of the gap of the noise
    alone. By the triangle inequality no gap differs from the true one by more than the gap of its
    noise. Quantiles of resampled gaps would never reach 0, however equal the groups are.
    """
    observed = [metric.rates(counts.astype(np.float64)) for metric in metrics]
    drawn: list[list[Floats]] = [[] for _ in metrics]
    for tables, expected in _tables(counts, how):
        for metric, seen, figures in zip(metrics, observed, drawn, strict=True):
            noise = metric.rates(tables) - metric.rates(expected)
            figures.append(metric.combine(noise if metric.is_gap else seen + noise))
    ends: list[Ends] = []
    for metric, seen, figures in zip(metrics, observed, drawn, strict=True):
        value = metric.combine(seen)
        if metric.is_gap:
            reach = _quantile(figures, how.level)
            ends.append((np.maximum(value - reach, 0.0), np.minimum(value + reach, 1.0)))
        else:
            low, high = _around(value, figures, how)
            ends.append((np.maximum(low, 0.0), np.minimum(high, 1.0)))
    return ends


def paired_intervals(
    metrics: Sequence[Metric], rows: Rows, before: int, after: int, how: Bootstrap
) -> list[Ends]:
    """Intervals of differences ``after - before`` of two runs on the same images.

    Images are resampled with both their answers. Quantiles of the resampled differences.
    """
    groups, classes = len(rows.groups), len(rows.targets)
    stratum = rows.group
    if how.strata is Over.TARGET_AND_SENSITIVE:
        stratum = stratum * classes + rows.truth
    a = (rows.group * classes + rows.truth) * classes + rows.answers[before]
    b = (rows.group * classes + rows.truth) * classes + rows.answers[after]
    # what occurs of (stratum, answers), sorted by stratum
    cells, sizes = np.unique(np.stack([stratum, a, b]), axis=1, return_counts=True)
    shape = (-1, groups, classes, classes)
    drawn: list[list[Floats]] = [[] for _ in metrics]
    for weights in _weights(cells[0], sizes, how, groups * classes * classes):
        tables = [_sums(weights, index, groups * classes**2).reshape(shape) for index in cells[1:]]
        for metric, figures in zip(metrics, drawn, strict=True):
            figures.append(metric(tables[1]) - metric(tables[0]))
    values = [metric(rows.counts(after)) - metric(rows.counts(before)) for metric in metrics]
    return [_around(value, figures, how) for value, figures in zip(values, drawn, strict=True)]


def _around(value: Floats, figures: list[Floats], how: Bootstrap) -> Ends:
    """Quantiles of resampled figures, moved outwards where the value itself is not inside."""
    low = _quantile(figures, (1 - how.level) / 2)
    high = _quantile(figures, (1 + how.level) / 2)
    return np.minimum(low, value), np.maximum(high, value)


def _quantile(figures: list[Floats], level: float) -> Floats:
    """Over the resamples in which there is a figure, NaN if there is none."""
    together = np.concatenate(figures)
    unknown = np.isnan(together)
    if not unknown.any():
        return np.asarray(np.quantile(together, level, axis=0))
    never = unknown.all(0)
    some = np.nanquantile(np.where(never, 0.0, together), level, axis=0)
    return np.where(never, np.nan, some)


def _tables(counts: Ints, how: Bootstrap) -> Iterator[tuple[Floats, Floats]]:
    """Drawn tables ``[some, groups, true, predicted]`` and what was to be expected."""
    generator = np.random.default_rng(how.seed)
    shape = counts.shape
    if how.strata is Over.SENSITIVE:
        counts = counts.reshape(len(counts), 1, -1)
    sizes = counts.sum(-1)
    shares = (counts + 1 / counts.shape[-1]) / (sizes[..., None] + 1)
    shares /= shares.sum(-1, keepdims=True)
    expected = (shares * sizes[..., None]).reshape(shape)
    for some in _parts(how.resamples, counts.size):
        tables = generator.multinomial(sizes, shares, (some, *sizes.shape))
        yield tables.reshape(some, *shape).astype(np.float64), expected


def _weights(strata: Ints, sizes: Ints, how: Bootstrap, width: int) -> Iterator[Floats]:
    """How often each cell is drawn: ``[some, cells]``."""
    generator = np.random.default_rng(how.seed)
    starts = np.flatnonzero(np.r_[True, strata[1:] != strata[:-1]])
    parts = np.split(sizes, starts[1:])
    for some in _parts(how.resamples, max(width, len(sizes))):
        drawn = [generator.multinomial(p.sum(), p / p.sum(), some) for p in parts]
        yield np.concatenate(drawn, 1).astype(np.float64)


def _sums(weights: Floats, index: Ints, width: int) -> Floats:
    """Add up the columns that share an index: ``[some, cells] -> [some, width]``."""
    some = len(weights)
    flat = (np.arange(some)[:, None] * width + index).ravel()
    sums: Floats = np.bincount(flat, weights.ravel(), some * width).astype(np.float64)
    return sums.reshape(some, width)


def _parts(total: int, size: int) -> Iterator[int]:
    step = max(1, _AT_ONCE // size)
    for start in range(0, total, step):
        yield min(step, total - start)
