"""Intervals and tests of rates and means, several of them together, and sample sizes.

Every group counts alike, however many images it has. Its images are taken as drawn on their own, so
variances add up.
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
T = TypeVar("T")


def quantile_of_normal(level: float) -> float:
    """How many standard deviations a two-sided interval reaches: 1.96 for 0.95."""
    check_share("level", level)
    return NormalDist().inv_cdf(min((1 + level) / 2, math.nextafter(1, 0)))


def wilson(correct: float, n: float, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate, which is honest for few images and for rates of 0 and 1.

    Example:
        >>> low, high = wilson(0, 5)
        >>> round(low, 2), round(high, 2)
        (0.0, 0.43)
    """
    _check_correct(correct, n)
    low, high = wilson_bounds(np.asarray(correct, float), np.asarray(n, float), level)
    return float(low), float(high)


def wilson_bounds(correct: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    """`wilson` of many rates at once."""
    z = quantile_of_normal(level)
    rate, extra = correct / n, z * z / n
    middle = (rate + extra / 2) / (1 + extra)
    half = z * np.sqrt(rate * (1 - rate) / n + extra / (4 * n)) / (1 + extra)
    # the ends are exact where nothing or everything is correct; the estimate itself lies inside
    low, high = np.minimum(middle - half, rate), np.maximum(middle + half, rate)
    return np.maximum(0.0, low), np.minimum(1.0, high)


def paired_bounds(
    loss: Floats, gain: Floats, n: Floats, level: float
) -> tuple[Floats, Floats]:
    """Intervals of changes of accuracy on the same images (Bonett and Price, 2012).

    Wald's interval with one image added to each kind of change, so that it has a width even where
    nothing changed. It may reach beyond -1 and 1, as distances are added up.
    """
    up, down = (gain + 1) / (n + 2), (loss + 1) / (n + 2)
    spread = np.maximum(0.0, up + down - (up - down) ** 2)
    half = quantile_of_normal(level) * np.sqrt(spread / (n + 2))
    observed = (gain - loss) / n
    return np.minimum(up - down - half, observed), np.maximum(
        up - down + half, observed
    )


def mcnemar(right_to_wrong: int, wrong_to_right: int) -> float:
    """Exact two-sided p-value of McNemar's test: are both kinds of change equally likely?

    Answers that stayed right or stayed wrong do not matter. The p-value is the probability that
    as many fair coins as answers changed fall at least as unevenly, 1 if nothing changed.

    Example:
        >>> round(mcnemar(right_to_wrong=1, wrong_to_right=9), 9)
        0.021484375
    """
    check_count("right_to_wrong", right_to_wrong, least=0)
    check_count("wrong_to_right", wrong_to_right, least=0)
    changed, fewer = (
        right_to_wrong + wrong_to_right,
        min(right_to_wrong, wrong_to_right),
    )
    return min(1.0, 2 * float(bdtr(fewer, changed, 0.5)))


def images_for_half_width(rate: float, half_width: float, level: float = 0.95) -> int:
    """How many images of a group it takes to know its rate up to `half_width`, approximately.

    ``n = z^2 r (1 - r) / h^2``, Wald's formula. It takes `rate` for the truth, so it is a plan and
    not a promise; for rates within `half_width` of 0 or 1 it is too small.

    Example:
        >>> images_for_half_width(0.6, 0.05)
        369
    """
    check_share("rate", rate, closed=True)
    check_share("half_width", half_width)
    return max(
        1, math.ceil((quantile_of_normal(level) / half_width) ** 2 * rate * (1 - rate))
    )


def images_for_change(
    right_to_wrong: int,
    wrong_to_right: int,
    n: int,
    level: float = 0.95,
    power: float = 0.8,
) -> int | None:
    """How many images it would take to show a change of accuracy, approximately.

    If changes keep happening at the rates that were seen on `n` images, McNemar's test on so many
    images finds them significant at `1 - level` with probability `power` (Connor, 1987)::

        n = (z_level sqrt(b + c) + z_power sqrt(b + c - (b - c)^2))^2 / (b - c)^2

    with b and c the rates of both kinds of change. None if both are equal: then no number will do.
    The observed rates are uncertain themselves, most of all in small groups: it is a plan and not
    a promise.

    Example:
        >>> images_for_change(right_to_wrong=4, wrong_to_right=12, n=100)
        194
    """
    _check_changes(right_to_wrong, wrong_to_right, n)
    check_share("power", power)
    if right_to_wrong == wrong_to_right:
        return None
    either, net = (
        (right_to_wrong + wrong_to_right) / n,
        (wrong_to_right - right_to_wrong) / n,
    )
    z_level, z_power = quantile_of_normal(level), NormalDist().inv_cdf(power)
    root = z_level * math.sqrt(either) + z_power * math.sqrt(max(0.0, either - net**2))
    return max(1, math.ceil((root / net) ** 2))


def check_share(argument: str, value: float, closed: bool = False) -> None:
    """Refuse what is not between 0 and 1."""
    ends = (0, 1) if closed else ()
    check_number(
        argument, value, "lie between 0 and 1", lambda x: 0 < x < 1 or x in ends
    )


def _check_correct(correct: float, n: float) -> None:
    if not 0 <= correct <= n or n == 0:
        raise FairTTAError(
            f"`correct` should lie from 0 to a positive `n` (got {correct} of {n}).",
            argument="correct",
        )


def _check_changes(right_to_wrong: int, wrong_to_right: int, n: int) -> None:
    if min(right_to_wrong, wrong_to_right) < 0 or n < max(
        1, right_to_wrong + wrong_to_right
    ):
        raise FairTTAError(
            "changes should be counts of at most `n` images in all "
            f"(got {right_to_wrong} and {wrong_to_right} of {n}).",
            argument="n",
        )


def clopper_pearson_bounds(
    correct: Floats, n: Floats, level: float
) -> tuple[Floats, Floats]:
    """The rates at which so few, or so many, right answers would just be too unlikely.

    Wider than Wilson's, which is right on average over rates and too narrow at some of them: where
    many intervals are to hold together, those are the ones that fail.
    """
    check_share("level", level)
    tail = (1 - level) / 2
    low = betaincinv(np.maximum(correct, 1), n - correct + 1, tail)
    high = betainccinv(correct + 1, np.maximum(n - correct, 1), tail)
    return np.where(correct == 0, 0.0, low), np.where(correct == n, 1.0, high)


def step_down(
    count: int,
    error_of: Callable[[list[int]], float],
    at: Callable[[int, float], T],
    is_shown: Callable[[T], object],
) -> list[T]:
    """Several comparisons, judged so that they hold together (Holm 1979, Romano and Wolf 2005).

    Those that show a difference leave, and the rest is judged by itself, until none does.

    Args:
        count: how many there are.
        error_of: the error at which those at these places hold together.
        at: what a comparison, by its place, finds at an error.
        is_shown: whether that is a difference.
    """
    found: dict[int, T] = {}
    while left := [i for i in range(count) if i not in found]:
        error = error_of(left)
        now = {i: at(i, error) for i in left}
        found |= {i: one for i, one in now.items() if is_shown(one)} or now
    return [found[i] for i in range(count)]


def mean_rate_bounds(correct: Floats, n: Floats, level: float) -> tuple[float, float]:
    """Interval of the mean of independent rates (Price and Bonett, 2004).

    Wald's interval after two images that are right and two that are wrong were added, spread over
    all groups: with k groups ``(r + 2/k) / (n + 4/k)`` in each. Of one group it is the interval of
    Agresti and Coull. They meant groups of about one size. Where one small group brings most of
    the variance, the mean is as uncertain as that group alone, so k is the number of groups that
    matter, ``(sum 1/n)^2 / sum 1/n^2``: from 1 to the number of groups, which it is if all are
    equal. Right answers and images are ``[groups]``, with at least one image in each.
    """
    k = _groups_that_matter(n)
    size = n + 4 / k
    rate = (correct + 2 / k) / size
    return _ends(rate, rate * (1 - rate) / size, float((correct / n).mean()), level)


def mean_change_bounds(
    loss: Floats, gain: Floats, n: Floats, level: float
) -> tuple[float, float]:
    """Interval of the mean of changes of rates, each on the same images before and after.

    What Bonett and Price (2012) do for one rate, with the images that they add spread over all
    groups: with k groups, counted as for `mean_rate_bounds`, ``1/k`` of each kind of
    change in each.
    """
    k = _groups_that_matter(n)
    size = n + 2 / k
    down, up = (loss + 1 / k) / size, (gain + 1 / k) / size
    spread = np.maximum(0.0, up + down - (up - down) ** 2) / size
    return _ends(up - down, spread, float(((gain - loss) / n).mean()), level)


def _groups_that_matter(n: Floats) -> float:
    return float((1 / n).sum() ** 2 / (1 / n**2).sum())


def _ends(
    parts: Floats, variances: Floats, seen: float, level: float
) -> tuple[float, float]:
    """Of the mean of the parts; what was seen lies inside."""
    half = quantile_of_normal(level) * float(np.sqrt(variances.sum())) / len(parts)
    middle = float(parts.mean())
    return min(middle - half, seen), max(middle + half, seen)
