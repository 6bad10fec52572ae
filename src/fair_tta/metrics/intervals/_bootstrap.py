"""Stratified bootstrap on confusion counts: resampled tables instead of resampled rows.

To draw n images of a stratum with replacement is to draw a multinomial table of their answers, so
10,000 resamples of 20,000 images take as long as those of 200.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from fair_tta.errors import FairTTAError, check_count
from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import GroupBy, GroupByText, parse_group_by
from fair_tta.metrics._types import Floats, Ints
from fair_tta.metrics.intervals._closed_forms import check_share

if TYPE_CHECKING:
    from fair_tta.metrics._metric import RateMetric

ArrayBounds: TypeAlias = tuple[Floats, Floats]

# Numbers in memory at a time: 32 MB.
_MAX_NUMBERS = 4_000_000


@dataclass(frozen=True)
class Bootstrap:
    """Settings of intervals.

    Args:
        resamples: number of tables that are drawn.
        seed: the same seed gives the same interval.
        level: how often intervals like this one should cover the truth.
        strata: the numbers of images that are held fixed: those of each class and sensitive value,
            or with ``"sensitive"`` those of each sensitive value, so that classes may become more
            or less frequent.

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
"""Settings of intervals, or just their level."""


def read_interval(interval: Interval) -> Bootstrap:
    """Return settings of intervals; an error if it is neither a `Bootstrap` nor a level."""
    if isinstance(interval, Bootstrap):
        return interval
    if isinstance(interval, bool) or not isinstance(interval, float | int):
        raise FairTTAError(
            f"`interval` should be a Bootstrap or a level such as 0.95 (got {interval!r}).",
            argument="interval",
        )
    return Bootstrap(level=interval)


def resampled_bounds(
    metric: RateMetric, counts: Ints, bootstrap: Bootstrap
) -> ArrayBounds:
    """Return the interval of a metric of one run that has no closed form; NaN if not defined.

    See docs/statistics.md, "User-defined metrics". Resampled gaps would never reach 0, however
    equal the groups are, so a gap is widened by the gap of the noise.
    """
    rates = metric.rates(counts.astype(np.float64))
    value = metric.combine(rates)
    resampled = []
    for drawn_counts, expected_counts in _draw_counts(counts, bootstrap):
        noise = metric.rates(drawn_counts) - metric.rates(expected_counts)
        resampled.append(metric.combine(noise if metric.is_gap else rates + noise))
    if metric.is_gap:
        margin = quantile(resampled, bootstrap.level)
        low, high = value - margin, value + margin
    else:
        low, high = quantile_bounds(value, resampled, bootstrap)
    return np.maximum(low, 0.0), np.minimum(high, 1.0)


def resampled_change_bounds(
    metric: RateMetric,
    table: AnswerTable,
    before: int,
    after: int,
    bootstrap: Bootstrap,
) -> tuple[float, float]:
    """Return the interval of ``after - before`` for a metric that has no closed form.

    Images are resampled within their stratum, each with both its answers. Quantiles of the
    resampled differences fit smooth functions of rates only. See docs/statistics.md, "User-defined
    metrics".
    """
    groups = len(table.groups)
    classes = len(table.targets)
    table_size = groups * classes**2
    images = _distinct_images(table, before, after)
    by_group = bootstrap.strata is GroupBy.SENSITIVE
    strata = images.cell // classes if by_group else images.cell
    stratum_of_image = table.group_codes if by_group else table.cell_codes
    stratum_codes, stratum_sizes = np.unique(stratum_of_image, return_counts=True)

    generator = np.random.default_rng(bootstrap.seed)
    changes = []
    for draws in batch_sizes(bootstrap.resamples, max(table_size, len(strata))):
        drawn = np.zeros((draws, len(strata)))
        for stratum, size in zip(stratum_codes, stratum_sizes, strict=True):
            weights = images.weight[strata == stratum]
            shares = weights / weights.sum()
            drawn[:, strata == stratum] = generator.multinomial(size, shares, draws)
        shape = (draws, groups, classes, classes)
        counts_before = _sum_by_code(drawn, images.before, table_size).reshape(shape)
        counts_after = _sum_by_code(drawn, images.after, table_size).reshape(shape)
        changes.append(metric(counts_after) - metric(counts_before))
    value = metric(table.counts(after)) - metric(table.counts(before))
    low, high = quantile_bounds(value, changes, bootstrap)
    return float(low), float(high)


class _DistinctImages(NamedTuple):
    """Images with the same class, group and answers in both runs, which are drawn together.

    Attributes:
        cell: class and group, ``[images]``.
        before: place in the confusion counts of the run before, ``[images]``.
        after: the same of the run after.
        weight: number of images.
    """

    cell: Ints
    before: Ints
    after: Ints
    weight: Floats


def _distinct_images(table: AnswerTable, before: int, after: int) -> _DistinctImages:
    """Return the images of a table, and two that are added to each class of each group.

    One of the two turns from right to wrong, the other from wrong to right, each spread over the
    wrong answers: without them rates of 0 and 1 would look certain.
    """
    classes = len(table.targets)
    cell = table.cell_codes
    present = np.unique(cell)
    added_cell = np.repeat(present, classes - 1)
    right = added_cell % classes
    steps = np.tile(np.arange(1, classes), len(present))
    wrong = (right + steps) % classes

    cells = np.concatenate([cell, added_cell, added_cell])
    answers_before = np.concatenate([table.answers[before], right, wrong])
    answers_after = np.concatenate([table.answers[after], wrong, right])
    weight = np.ones(len(cells))
    weight[len(cell) :] = 1 / max(1, classes - 1)
    codes = [cells, cells * classes + answers_before, cells * classes + answers_after]
    distinct, position = np.unique(codes, axis=1, return_inverse=True)
    cell, code_before, code_after = distinct
    images = np.bincount(position.ravel(), weight).astype(np.float64)
    return _DistinctImages(cell, code_before, code_after, images)


def quantile_bounds(
    value: Floats, resampled: list[Floats], bootstrap: Bootstrap
) -> ArrayBounds:
    """Return quantiles of resampled figures, moved outwards until the value lies inside."""
    low = quantile(resampled, (1 - bootstrap.level) / 2)
    high = quantile(resampled, (1 + bootstrap.level) / 2)
    return np.minimum(low, value), np.maximum(high, value)


def quantile(resampled: list[Floats], level: float) -> Floats:
    """Return the quantile over the resamples in which a figure is defined; NaN if in none.

    Args:
        resampled: batches of figures: ``[resamples, ...]``.
    """
    figures = np.concatenate(resampled)
    is_undefined = np.isnan(figures)
    if not is_undefined.any():
        return np.asarray(np.quantile(figures, level, axis=0))
    never_defined = is_undefined.all(0)
    # `nanquantile` warns where all values are NaN.
    quantiles = np.nanquantile(np.where(never_defined, 0.0, figures), level, axis=0)
    return np.where(never_defined, np.nan, quantiles)


def _draw_counts(counts: Ints, bootstrap: Bootstrap) -> Iterator[tuple[Floats, Floats]]:
    """Yield drawn confusion counts ``[draws, groups, true, predicted]`` and their expectation.

    Four images are added to each class of each group (Agresti and Coull, 1998), two of them right
    and two spread over the wrong answers: without them a group of one image, or one that is all
    right, would look certain.
    """
    classes = counts.shape[-1]
    sizes = counts.sum(-1)
    right = np.eye(classes)
    added = 2 * right + 2 * (1 - right) / max(1, classes - 1)
    shares = (counts + added) / (sizes[..., None] + added.sum(-1)[:, None])
    if bootstrap.strata is GroupBy.SENSITIVE:
        # A group without images gets equally frequent classes, to avoid dividing by 0.
        frequency = sizes + (sizes.sum(-1, keepdims=True) == 0)
        shares = (shares * frequency[..., None]).reshape(len(counts), 1, -1)
        sizes = sizes.sum(-1, keepdims=True)
    shares = shares / shares.sum(-1, keepdims=True)
    expected = (shares * sizes[..., None]).reshape(counts.shape)
    generator = np.random.default_rng(bootstrap.seed)
    for draws in batch_sizes(bootstrap.resamples, counts.size):
        drawn = generator.multinomial(sizes, shares, (draws, *sizes.shape))
        yield drawn.reshape(draws, *counts.shape).astype(np.float64), expected


def _sum_by_code(weights: Floats, code: Ints, codes: int) -> Floats:
    """Add up the columns that share a code: ``[draws, images] -> [draws, codes]``."""
    draws = len(weights)
    # One `bincount` of all draws, whose codes follow one another.
    flat = (np.arange(draws)[:, None] * codes + code).ravel()
    sums: Floats = np.bincount(flat, weights.ravel(), draws * codes).astype(np.float64)
    return sums.reshape(draws, codes)


def batch_sizes(resamples: int, size: int) -> Iterator[int]:
    """Yield how many resamples of `size` numbers to draw at once, until all are drawn."""
    step = max(1, _MAX_NUMBERS // size)
    for start in range(0, resamples, step):
        yield min(step, resamples - start)
