"""Stratified bootstrap on confusion counts: resampled tables instead of resampled rows.

To draw n images of a stratum with replacement is to draw a multinomial table of their answers, so
10,000 resamples of 20,000 images take as long as those of 200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fair_tta.errors import FairTTAError, check_count
from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import GroupBy, GroupByText, parse_group_by
from fair_tta.metrics._types import Floats, Ints
from fair_tta.metrics.intervals._closed_forms import check_share

if TYPE_CHECKING:
    from fair_tta.metrics._metric import RateMetric

ArrayBounds: TypeAlias = tuple[Floats, Floats]

_AT_ONCE = 4_000_000  # numbers in memory


@dataclass(frozen=True)
class Bootstrap:
    """How intervals are made.

    Args:
        resamples: how many tables are drawn.
        seed: the same seed gives the same interval.
        level: how often intervals like this one should cover the truth.
        strata: what is held fixed: the number of images of each class and sensitive value, or with
            ``"sensitive"`` of each sensitive value only, so that classes may become more or less
            frequent.

    Example:
        >>> Bootstrap(resamples=10_000, seed=1).level
        0.95
    """

    resamples: int = 2000
    seed: int = 0
    level: float = 0.95
    strata: GroupBy | GroupByText = "target and sensitive"

    def __post_init__(self) -> None:
        check_count("resamples", self.resamples)
        check_count("seed", self.seed, least=0)
        check_share("level", self.level)
        object.__setattr__(self, "strata", parse_group_by("strata", self.strata))


DEFAULT = Bootstrap()


Interval: TypeAlias = Bootstrap | float
"""How intervals are made, or just their level."""


def read_interval(interval: Interval) -> Bootstrap:
    """How intervals are made; an error if it is neither a `Bootstrap` nor a level."""
    if isinstance(interval, Bootstrap):
        return interval
    if isinstance(interval, bool) or not isinstance(interval, float | int):
        raise FairTTAError(
            f"`interval` should be a Bootstrap or a level such as 0.95 (got {interval!r}).",
            argument="interval",
        )
    return Bootstrap(level=interval)


def resampled_bounds(metric: RateMetric, counts: Ints, how: Bootstrap) -> ArrayBounds:
    """Interval of a metric of one run that has no closed form; NaN where it is not defined.

    Tables are drawn with four images added to each class of each group (Agresti and Coull, 1998):
    two right and two spread over the wrong answers. The noise of the rates, drawn minus expected,
    is added to the rates that were seen. Without the added images a group of one, or one that is
    all right or all wrong, would look certain.

    For a gap the ends are ``value -+ q`` with q the `level` quantile of the gap of the noise
    alone. By the triangle inequality no gap differs from the true one by more than the gap of its
    noise. Quantiles of resampled gaps would never reach 0, however equal the groups are.
    """
    seen = metric.rates(counts.astype(np.float64))
    value, figures = metric.combine(seen), []
    for tables, expected in _tables(counts, how):
        noise = metric.rates(tables) - metric.rates(expected)
        figures.append(metric.combine(noise if metric.is_gap else seen + noise))
    if metric.is_gap:
        reach = quantile(figures, how.level)
        low, high = value - reach, value + reach
    else:
        low, high = quantile_bounds(value, figures, how)
    return np.maximum(low, 0.0), np.minimum(high, 1.0)


def resampled_change_bounds(
    metric: RateMetric, columns: AnswerTable, before: int, after: int, how: Bootstrap
) -> tuple[float, float]:
    """Interval of ``after - before`` for a metric that has no closed form.

    Images are resampled within their stratum, each with both its answers, after two were added to
    each class of each group: one that turns right and one that turns wrong, spread over the wrong
    answers. Quantiles of the resampled differences, so for smooth functions of rates only.
    """
    groups, classes = len(columns.groups), len(columns.targets)
    cell = columns.cell_codes
    present = np.repeat(np.unique(cell), classes - 1)
    right = present % classes
    wrong = (right + np.tile(np.arange(1, classes), len(np.unique(cell)))) % classes
    cells = np.concatenate([cell, present, present])
    worth = np.where(np.arange(len(cells)) < len(cell), 1.0, 1 / max(1, classes - 1))
    places = [
        cells * classes + np.concatenate([columns.answers[run], *added])
        for run, added in ((before, (right, wrong)), (after, (wrong, right)))
    ]
    # images with the same class, group and answers are drawn together
    (cells, *places), same = np.unique([cells, *places], axis=1, return_inverse=True)
    worth = np.bincount(same.ravel(), worth)
    by_group = how.strata is GroupBy.SENSITIVE
    strata = cells // classes if by_group else cells
    sizes = [
        *zip(
            *np.unique(columns.group_codes if by_group else cell, return_counts=True),
            strict=True,
        )
    ]
    generator = np.random.default_rng(how.seed)
    width, figures = groups * classes**2, []
    for some in batch_sizes(how.resamples, max(width, len(cells))):
        drawn = np.zeros((some, len(cells)))
        for stratum, n in sizes:
            shares = worth[strata == stratum]
            drawn[:, strata == stratum] = generator.multinomial(
                n, shares / shares.sum(), some
            )
        tables = (_sums(drawn, place, width) for place in places)
        a, b = (table.reshape(some, groups, classes, classes) for table in tables)
        figures.append(metric(b) - metric(a))
    value = metric(columns.counts(after)) - metric(columns.counts(before))
    low, high = quantile_bounds(value, figures, how)
    return float(low), float(high)


def quantile_bounds(
    value: Floats, figures: list[Floats], how: Bootstrap
) -> ArrayBounds:
    """Quantiles of resampled figures, moved outwards where the value itself is not inside."""
    low = quantile(figures, (1 - how.level) / 2)
    high = quantile(figures, (1 + how.level) / 2)
    return np.minimum(low, value), np.maximum(high, value)


def quantile(figures: list[Floats], level: float) -> Floats:
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
    shape, sizes = counts.shape, counts.sum(-1)
    right = np.eye(shape[-1])
    added = 2 * right + 2 * (1 - right) / max(1, shape[-1] - 1)
    shares = (counts + added) / (sizes[..., None] + added.sum(-1)[:, None])
    if how.strata is GroupBy.SENSITIVE:
        frequent = sizes + (sizes.sum(-1, keepdims=True) == 0)
        shares = (shares * frequent[..., None]).reshape(len(counts), 1, -1)
        sizes = sizes.sum(-1, keepdims=True)
    shares = shares / shares.sum(-1, keepdims=True)
    expected = (shares * sizes[..., None]).reshape(shape)
    for some in batch_sizes(how.resamples, counts.size):
        tables = generator.multinomial(sizes, shares, (some, *sizes.shape))
        yield tables.reshape(some, *shape).astype(np.float64), expected


def _sums(weights: Floats, index: Ints, width: int) -> Floats:
    """Add up the columns that share an index: ``[some, cells] -> [some, width]``."""
    some = len(weights)
    flat = (np.arange(some)[:, None] * width + index).ravel()
    sums: Floats = np.bincount(flat, weights.ravel(), some * width).astype(np.float64)
    return sums.reshape(some, width)


def batch_sizes(total: int, size: int) -> Iterator[int]:
    """How many of `total` resamples of `size` numbers to draw at once."""
    step = max(1, _AT_ONCE // size)
    for start in range(0, total, step):
        yield min(step, total - start)
