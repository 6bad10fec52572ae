"""Intervals and tests of rates and means, several of them together, and sample sizes.

Groups have equal weight, however many images they have. Their images are taken as independent, so
variances add up. Formulas: docs/statistics.md, "Rates and means".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import TypeAlias, TypeVar

import numpy as np
from scipy.special import bdtr, betainccinv, betaincinv

from fair_tta.errors import FairTTAError, check_count, check_number
from fair_tta.metrics._types import Floats

Bounds: TypeAlias = tuple[float, float]
"""The lower and the upper end of an interval."""

T = TypeVar("T")


def quantile_of_normal(level: float) -> float:
    """Return how many standard deviations a two-sided interval extends: 1.96 for 0.95."""
    check_share("level", level)
    # A level next to 1 would round to 1, where the quantile is infinite.
    return NormalDist().inv_cdf(min((1 + level) / 2, math.nextafter(1, 0)))


def wilson(correct: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval of a rate, which holds for few images and rates of 0 and 1.

    Example:
        >>> low, high = wilson(0, 5)
        >>> round(low, 2), round(high, 2)
        (0.0, 0.43)
    """
    _check_correct(correct, n)
    low, high = wilson_bounds(np.asarray(correct, float), np.asarray(n, float), level)
    return float(low), float(high)


def wilson_bounds(correct: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    """Return `wilson` of many rates at once."""
    z = quantile_of_normal(level)
    rate = correct / n
    added = z * z / n
    center = (rate + added / 2) / (1 + added)
    margin = z * np.sqrt(rate * (1 - rate) / n + added / (4 * n)) / (1 + added)
    # Where nothing or everything is correct, an end is the rate itself, which rounding may miss.
    low = np.minimum(center - margin, rate)
    high = np.maximum(center + margin, rate)
    return np.maximum(0.0, low), np.minimum(1.0, high)


def paired_bounds(
    loss: Floats, gain: Floats, n: Floats, level: float
) -> tuple[Floats, Floats]:
    """Return intervals of changes of accuracy on the same images (Bonett and Price, 2012).

    Wald's interval with one image added to each kind of change, so that it has a width even where
    nothing changed. It may extend beyond -1 and 1.
    """
    gain_rate = (gain + 1) / (n + 2)
    loss_rate = (loss + 1) / (n + 2)
    change = gain_rate - loss_rate
    variance = np.maximum(0.0, gain_rate + loss_rate - change**2) / (n + 2)
    margin = quantile_of_normal(level) * np.sqrt(variance)
    observed = (gain - loss) / n
    return np.minimum(change - margin, observed), np.maximum(change + margin, observed)


def mcnemar(right_to_wrong: int, wrong_to_right: int) -> float:
    """Return the exact two-sided p-value of McNemar's test: are both changes equally likely?

    Answers that stayed right or stayed wrong do not matter. The p-value is the probability that
    as many fair coins as answers changed fall at least as unevenly, 1 if nothing changed.

    Example:
        >>> round(mcnemar(right_to_wrong=1, wrong_to_right=9), 9)
        0.021484375
    """
    check_count("right_to_wrong", right_to_wrong, least=0)
    check_count("wrong_to_right", wrong_to_right, least=0)
    changed = right_to_wrong + wrong_to_right
    fewer = min(right_to_wrong, wrong_to_right)
    return min(1.0, 2 * float(bdtr(fewer, changed, 0.5)))


def images_for_half_width(rate: float, half_width: float, level: float = 0.95) -> int:
    """Return about how many images of a group it takes to know its rate up to `half_width`.

    ``n = z^2 r (1 - r) / h^2``, Wald's formula. It assumes that `rate` is the true rate, so it is a
    plan and not a promise; for rates within `half_width` of 0 or 1 it is too small.

    Example:
        >>> images_for_half_width(0.6, 0.05)
        369
    """
    check_share("rate", rate, closed=True)
    check_share("half_width", half_width)
    z = quantile_of_normal(level)
    return max(1, math.ceil((z / half_width) ** 2 * rate * (1 - rate)))


def images_for_change(
    right_to_wrong: int,
    wrong_to_right: int,
    n: int,
    level: float = 0.95,
    power: float = 0.8,
) -> int | None:
    """Return about how many images it would take to show a change of accuracy.

    If changes keep happening at the rates that were seen on `n` images, McNemar's test on so many
    images finds them significant at `1 - level` with probability `power` (Connor, 1987)::

        n = (z_level sqrt(b + c) + z_power sqrt(b + c - (b - c)^2))^2 / (b - c)^2

    with b and c the rates of both kinds of change. None if both are equal: then no number is
    enough. The observed rates are uncertain themselves, most of all in small groups: it is a plan
    and not a promise.

    Example:
        >>> images_for_change(right_to_wrong=4, wrong_to_right=12, n=100)
        194
    """
    _check_changes(right_to_wrong, wrong_to_right, n)
    check_share("power", power)
    if right_to_wrong == wrong_to_right:
        return None
    changed = (right_to_wrong + wrong_to_right) / n
    net_change = (wrong_to_right - right_to_wrong) / n
    deviation_without_change = math.sqrt(changed)
    deviation = math.sqrt(max(0.0, changed - net_change**2))
    z_level = quantile_of_normal(level)
    z_power = NormalDist().inv_cdf(power)
    root = z_level * deviation_without_change + z_power * deviation
    return max(1, math.ceil((root / net_change) ** 2))


def check_share(argument: str, value: float, closed: bool = False) -> None:
    """Raise an error unless the value lies between 0 and 1, which `closed` allows too."""

    def is_share(x: float) -> bool:
        return 0 <= x <= 1 if closed else 0 < x < 1

    check_number(argument, value, "lie between 0 and 1", is_share)


def _check_correct(correct: float, n: float) -> None:
    if not 0 <= correct <= n or n == 0:
        raise FairTTAError(
            f"`correct` should be between 0 and `n`, and `n` > 0 (got {correct} of {n}).",
            argument="correct",
        )


def _check_changes(right_to_wrong: int, wrong_to_right: int, n: int) -> None:
    if min(right_to_wrong, wrong_to_right) < 0 or n < max(
        1, right_to_wrong + wrong_to_right
    ):
        raise FairTTAError(
            "`right_to_wrong` and `wrong_to_right` should be >= 0 and add up to at most `n` "
            f"(got {right_to_wrong} and {wrong_to_right} of {n}).",
            argument="n",
        )


def clopper_pearson_bounds(
    correct: Floats, n: Floats, level: float
) -> tuple[Floats, Floats]:
    """Return exact intervals of rates (Clopper and Pearson, 1934).

    They are wider than Wilson's, which hold on average over rates and are too narrow at some of
    them: where many intervals are to hold together, those are the ones that fail.
    """
    check_share("level", level)
    tail = (1 - level) / 2
    low = betaincinv(np.maximum(correct, 1), n - correct + 1, tail)
    high = betainccinv(correct + 1, np.maximum(n - correct, 1), tail)
    return np.where(correct == 0, 0.0, low), np.where(correct == n, 1.0, high)


def step_down(
    count: int,
    error_of: Callable[[list[int]], float],
    compare: Callable[[int, float], T],
    is_shown: Callable[[T], object],
) -> list[T]:
    """Judge several comparisons so that they hold together (Holm 1979, Romano and Wolf 2005).

    Those that show a difference leave, and the rest is judged by itself, until none does.

    Args:
        count: number of comparisons.
        error_of: positions of comparisons to the error at which they hold together.
        compare: position and error to the result of a comparison.
        is_shown: whether a result shows a difference.
    """
    judged: dict[int, T] = {}
    while len(judged) < count:
        remaining = [i for i in range(count) if i not in judged]
        error = error_of(remaining)
        results = {i: compare(i, error) for i in remaining}
        different = {i: result for i, result in results.items() if is_shown(result)}
        judged |= different or results
    return [judged[i] for i in range(count)]


def mean_rate_bounds(correct: Floats, n: Floats, level: float) -> tuple[float, float]:
    """Return the interval of the mean of independent rates (Price and Bonett, 2004).

    Wald's interval after two right and two wrong images were added, spread over k groups:
    ``(correct + 2/k) / (n + 4/k)`` in each. Right answers and images are ``[groups]``, with at
    least one image in each.
    """
    k = _effective_groups(n)
    size = n + 4 / k
    rate = (correct + 2 / k) / size
    observed = float((correct / n).mean())
    return _wald_bounds(rate, rate * (1 - rate) / size, observed, level)


def mean_change_bounds(
    loss: Floats, gain: Floats, n: Floats, level: float
) -> tuple[float, float]:
    """Return the interval of the mean of changes of rates on the same images.

    Bonett and Price (2012) for several groups: ``1/k`` image is added to each kind of change in
    each group, with k as for `mean_rate_bounds`.
    """
    k = _effective_groups(n)
    size = n + 2 / k
    loss_rate = (loss + 1 / k) / size
    gain_rate = (gain + 1 / k) / size
    change = gain_rate - loss_rate
    variance = np.maximum(0.0, gain_rate + loss_rate - change**2) / size
    return _wald_bounds(change, variance, float(((gain - loss) / n).mean()), level)


def _effective_groups(n: Floats) -> float:
    """Return k, the number of groups that matter: ``(sum 1/n)^2 / sum 1/n^2``.

    It is the number of groups if all have the same size. Where one small group brings most of the
    variance, the mean is as uncertain as that group alone, and k is near 1.
    """
    return float((1 / n).sum() ** 2 / (1 / n**2).sum())


def _wald_bounds(
    figures: Floats, variances: Floats, observed: float, level: float
) -> tuple[float, float]:
    """Return Wald's interval of the mean of independent figures; `observed` lies inside."""
    deviation_of_sum = float(np.sqrt(variances.sum()))
    margin = quantile_of_normal(level) * deviation_of_sum / len(figures)
    center = float(figures.mean())
    return min(center - margin, observed), max(center + margin, observed)
