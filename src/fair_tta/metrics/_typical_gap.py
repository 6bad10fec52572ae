"""The typical gap: by how much two groups of a class differ in accuracy, freed from noise.

``V = mean_c 2 var_g(r_gc)`` is the mean squared difference between two groups of a class. Noise
alone adds b to it, so ``R = sqrt(max(0, V - b))``. Unlike a minimum or a gap between extremes it is
smooth, so ``D = V' - V - (b' - b)`` has a normal interval, and few images show a change.
``R' - R = D / (R' + R)``, and so are its ends.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri

from fair_tta.metrics._columns import Columns, Floats
from fair_tta.metrics._estimate import Over, listed
from fair_tta.metrics._noise import Noise, square_gap

LEAST = 5
"""Images of each class in each group that an interval takes."""


class TypicalGap:
    """Of one run.

    The variance of V grows with V: ``q + k V``, where q is that of noise alone. Ends are the V at
    which what was seen is just as far away as allowed, as in Wilson's interval of a rate: a gap
    that looks small may be one that chance has hidden. Noise alone is skewed to the right, so the
    lower end takes its quantile, the more so the smaller V is.
    """

    def __init__(self, noise: Noise, run: int) -> None:
        n, self.noise = noise.n, noise.square_gaps[run]
        self.square = float(square_gap(noise.seen[run].right, n)) - self.noise
        right, drawn = noise.smoothed[run].right, noise.draws[run].right
        self.draws = square_gap(right + drawn, n)
        self._noise = square_gap(drawn, n)
        self._alone = float(self._noise.var())
        there = float(square_gap(right, n))
        self._slope = max(0.0, float(self.draws.var()) - self._alone) / max(there, 1e-12)
        self.value = math.sqrt(max(0.0, self.square)) if self.square == self.square else math.nan

    def ends(self, error: float) -> tuple[float, float]:
        """Each end fails with this error; the value lies inside."""
        if math.isnan(self.value):
            return math.nan, math.nan
        z = -float(ndtri(error))
        # (V - seen)^2 = z^2 (q + k V)
        middle = self.square + z**2 * self._slope / 2
        reach = math.sqrt(max(0.0, middle**2 - self.square**2 + z**2 * self._alone))
        high = math.sqrt(max(0.0, middle + reach))
        deviation = math.sqrt(self._alone) or 1e-12
        skewed = float(np.quantile(self._noise, 1 - error) - self._noise.mean()) / deviation

        def too_low(square: float) -> float:
            spread = math.sqrt(self._alone + self._slope * square)
            share = min(1.0, 1.5 * deviation / max(spread, deviation))
            return self.square - square - (z + max(0.0, skewed - z) * share) * spread

        low = math.sqrt(brentq(too_low, 0.0, self.square)) if too_low(0.0) > 0 else 0.0
        return min(low, self.value), min(1.0, max(high, self.value))


class TypicalGapChange:
    """From one run to another.

    Attributes:
        value: ``R' - R``.
    """

    def __init__(self, noise: Noise, before: int, after: int) -> None:
        self.before, self.after = TypicalGap(noise, before), TypicalGap(noise, after)
        self.value = self.after.value - self.before.value
        self._square = self.after.square - self.before.square
        draws = self.after.draws - self.before.draws
        self._deviation = float(draws.std())
        self._noise = (draws - draws.mean()) / (self._deviation or 1.0)
        # The sum of both is not less than what noise alone would show.
        by_noise = (math.sqrt(self.before.noise) + math.sqrt(self.after.noise)) / 2
        self._sum = max(self.before.value + self.after.value, by_noise)

    def ends(self, error: float) -> tuple[float, float]:
        """Each end fails with this error; the value lies inside."""
        reach = -ndtri(error) * self._deviation
        low, high = ((self._square + side * reach) / self._sum for side in (-1, 1))
        least = -self.before.ends(error)[1]  # what there was, it cannot fall below 0
        most = self.after.ends(error)[1]
        return min(max(low, least), self.value), max(min(high, most), self.value)

    def roots(self, error: float) -> list[Floats]:
        """For each end a figure of each draw: the smallest ones are those at which it fails."""
        return [self._noise, -self._noise]

    def power(self, n: int, level: float, power: float = 0.8) -> tuple[float, int | None]:
        """The change that n such images show so often, and how many would show the one seen."""
        reach = float(ndtri(power) + ndtri((1 + level) / 2)) * self._deviation
        needed = n * (reach / self._square) ** 2 if self._square else math.inf
        return min(1.0, reach / self._sum), math.ceil(needed) if needed < 1e9 else None


def withheld(columns: Columns, before: int, after: int | None = None) -> str | None:
    """Why there is no interval."""
    n = columns.counts().sum(2)
    n = np.where((n > 0).sum(0) > 1, n, 0).ravel()  # classes with two groups count
    names = [
        name for name, size in zip(columns.sizes(Over.TARGET_AND_SENSITIVE), n) if 0 < size < LEAST
    ]
    if names:
        return f"no interval, as fewer than {LEAST} images are of: {listed(names)}"
    if after is not None and np.array_equal(columns.answers[before], columns.answers[after]):
        return "no interval, as no answer changed"
    return None
