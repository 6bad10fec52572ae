"""Intervals and tests in closed form, and how many images a claim would need."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics.rows import Floats


def quantile_of_normal(level: float) -> float:
    """How many standard deviations a two-sided interval reaches: 1.96 for 0.95."""
    check_share("level", level)
    return NormalDist().inv_cdf(min((1 + level) / 2, math.nextafter(1, 0)))


def wilson(correct: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a rate, which is honest for few images and for rates of 0 and 1.

    Example:
        >>> low, high = wilson(0, 5)
        >>> round(low, 2), round(high, 2)
        (0.0, 0.43)
    """
    if not 0 <= correct <= n or n == 0:
        raise FairTTAError(f"`correct` should lie from 0 to a positive `n` (got {correct} of {n}).")
    low, high = wilson_ends(np.float64(correct), np.float64(n), level)
    return float(low), float(high)


def wilson_ends(correct: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    """`wilson` of many rates at once."""
    z = quantile_of_normal(level)
    rate, extra = correct / n, z * z / n
    middle = (rate + extra / 2) / (1 + extra)
    half = z * np.sqrt(rate * (1 - rate) / n + extra / (4 * n)) / (1 + extra)
    # the ends are exact where nothing or everything is correct; the estimate itself lies inside
    low, high = np.minimum(middle - half, rate), np.maximum(middle + half, rate)
    return np.maximum(0.0, low), np.minimum(1.0, high)


def paired_interval(
    right_to_wrong: int, wrong_to_right: int, n: int, level: float = 0.95
) -> tuple[float, float]:
    """Interval of a change of accuracy on the same images (Bonett and Price, 2012).

    Wald's interval with one image added to each kind of change, so that it has a width even where
    nothing changed.
    """
    _check_changes(right_to_wrong, wrong_to_right, n)
    counts = np.float64(right_to_wrong), np.float64(wrong_to_right), np.float64(n)
    low, high = paired_ends(*counts, level)
    return max(-1.0, float(low)), min(1.0, float(high))


def paired_ends(loss: Floats, gain: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    """`paired_interval` of many rates at once, also beyond -1 and 1: distances may be added up."""
    up, down = (gain + 1) / (n + 2), (loss + 1) / (n + 2)
    spread = np.maximum(0.0, up + down - (up - down) ** 2)
    half = quantile_of_normal(level) * np.sqrt(spread / (n + 2))
    observed = (gain - loss) / n
    return np.minimum(up - down - half, observed), np.maximum(up - down + half, observed)


def mcnemar(right_to_wrong: int, wrong_to_right: int) -> float:
    """Exact two-sided p-value of McNemar's test: are both kinds of change equally likely?

    Answers that stayed right or stayed wrong do not matter. The p-value is the probability that
    as many fair coins as answers changed fall at least as unevenly, 1 if nothing changed.

    Example:
        >>> mcnemar(right_to_wrong=1, wrong_to_right=9)
        0.021484375
    """
    if min(right_to_wrong, wrong_to_right) < 0:
        raise FairTTAError(
            "`right_to_wrong` and `wrong_to_right` should be counts "
            f"(got {right_to_wrong} and {wrong_to_right})."
        )
    n, k = right_to_wrong + wrong_to_right, min(right_to_wrong, wrong_to_right)
    if n <= 1000:  # exact in whole numbers
        tail = float(sum(math.comb(n, i) for i in range(k + 1)) / 2**n)
    else:
        logs = [
            math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) - n * math.log(2)
            for i in range(k + 1)
        ]
        top = max(logs)
        tail = math.exp(top) * math.fsum(math.exp(x - top) for x in logs)
    return min(1.0, 2 * tail)


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
    return max(1, math.ceil((quantile_of_normal(level) / half_width) ** 2 * rate * (1 - rate)))


def images_for_change(
    right_to_wrong: int, wrong_to_right: int, n: int, level: float = 0.95, power: float = 0.8
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
    either, net = (right_to_wrong + wrong_to_right) / n, (wrong_to_right - right_to_wrong) / n
    z_level, z_power = quantile_of_normal(level), NormalDist().inv_cdf(power)
    root = z_level * math.sqrt(either) + z_power * math.sqrt(max(0.0, either - net**2))
    return max(1, math.ceil((root / net) ** 2))


def check_share(argument: str, value: float, closed: bool = False) -> None:
    """Refuse what is not between 0 and 1."""
    try:
        inside = 0 <= value <= 1 if closed else 0 < value < 1
    except TypeError:  # not a number
        inside = False
    if not inside:
        raise FairTTAError(f"`{argument}` should lie between 0 and 1 (got {value!r}).")


def _check_changes(right_to_wrong: int, wrong_to_right: int, n: int) -> None:
    if min(right_to_wrong, wrong_to_right) < 0 or n < max(1, right_to_wrong + wrong_to_right):
        raise FairTTAError(
            "changes should be counts of at most `n` images in all "
            f"(got {right_to_wrong} and {wrong_to_right} of {n})."
        )
