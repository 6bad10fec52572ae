"""The exact interval of a rate: never too narrow, whatever the rate and however few the images."""

from __future__ import annotations

import math

from fair_tta.errors import FairTTAError
from fair_tta.metrics.exact import check_share

_STEPS = 60  # of bisection
_PRECISE = 1e-14
_TINY = 1e-300


def clopper_pearson(correct: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The rates at which so few, or so many, right answers would just be too unlikely.

    Wider than Wilson's, which is right on average over rates and too narrow at some of them: where
    many intervals are to hold together, those are the ones that fail.

    Example:
        >>> low, high = clopper_pearson(3, 5)
        >>> round(low, 3), round(high, 3)
        (0.147, 0.947)
    """
    if not 0 <= correct <= n or n == 0:
        raise FairTTAError(f"`correct` should lie from 0 to a positive `n` (got {correct} of {n}).")
    check_share("level", level)
    tail = (1 - level) / 2
    low = 0.0 if correct == 0 else _quantile(tail, correct, n - correct + 1)
    high = 1.0 if correct == n else 1 - _quantile(tail, n - correct, correct + 1)
    return low, high


def _quantile(share: float, a: float, b: float) -> float:
    """Below which lies a share of the beta distribution."""
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if _below(middle, a, b) < share else (low, middle)
    return (low + high) / 2


def _below(x: float, a: float, b: float) -> float:
    """The share of the beta distribution below x (the regularised incomplete beta function)."""
    if x > (a + 1) / (a + b + 2):
        return 1 - _below(1 - x, b, a)  # the fraction converges quickly on this side
    if x <= 0:
        return 0.0
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x)
    return math.exp(log + b * math.log1p(-x)) * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    """Its continued fraction, from front to back (Lentz)."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value, m = d, 0
    while True:
        m += 1
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / _not_zero(1 + term * d), _not_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < _PRECISE:
            return value


def _not_zero(x: float) -> float:
    return x if abs(x) > _TINY else _TINY
