"""The typical gap: by how much two groups of a class differ in accuracy, freed from noise.

``V = mean_c 2 var_g(r_gc)`` is the mean squared difference between two groups of a class. Noise alone
adds b to it, so ``R = sqrt(max(0, V - b))``. Unlike a minimum or a gap between extremes it is smooth,
so ``D = V' - V - (b' - b)`` has a normal interval, and few images show a change. ``R' - R`` is
``D / (R' + R)``, and so are its ends.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtri

from fair_tta.metrics._columns import Floats
from fair_tta.metrics._noise import Noise, square_gap


class TypicalGap:
    """Of one run.

    The variance of V grows with V: ``q + k V``, where q is that of noise alone. Ends are the V at
    which what was seen is just as far away as allowed, as in Wilson's interval of a rate: a gap that
    looks small may be one that chance has hidden.
    """

    def __init__(self, noise: Noise, run: int) -> None:
        n, self.noise = noise.n, noise.square_gaps[run]
        self.square = float(square_gap(noise.seen[run].right, n)) - self.noise
        right, drawn = noise.smoothed[run].right, noise.draws[run].right
        self.draws = square_gap(right + drawn, n)
        self._alone = float(square_gap(drawn, n).var())
        there = float(square_gap(right, n))
        self._slope = max(0.0, float(self.draws.var()) - self._alone) / max(there, 1e-12)
        self.value = math.sqrt(max(0.0, self.square)) if self.square == self.square else math.nan

    def ends(self, error: float) -> tuple[float, float]:
        """Each end fails with this error; the value lies inside."""
        # (V - seen)^2 = z^2 (q + k V)
        z = float(ndtri(error)) ** 2
        middle = self.square + z * self._slope / 2
        reach = math.sqrt(max(0.0, middle**2 - self.square**2 + z * self._alone))
        low, high = (math.sqrt(max(0.0, end)) for end in (middle - reach, middle + reach))
        return min(low, self.value), min(1.0, max(high, self.value))


class TypicalGapChange:
    """From one run to another.

    Attributes:
        value: ``R' - R``.
        p: two-sided p-value of no change.
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

    def detectable(self, power: float = 0.8, error: float = 0.025) -> float:
        """The change that such images show so often."""
        return float(ndtri(power) - ndtri(error)) * self._deviation / self._sum
