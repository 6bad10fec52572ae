"""The mean over groups: its interval, and that of its change, in closed form.

Every group counts alike, however many images it has. Its images are taken as drawn on their own, so
variances add up.
"""

from __future__ import annotations

import numpy as np

from fair_tta.metrics.exact import quantile_of_normal
from fair_tta.metrics.rows import Floats


def mean_rate_ends(correct: Floats, n: Floats, level: float) -> tuple[float, float]:
    """Interval of the mean of independent rates (Price and Bonett, 2004).

    Wald's interval after two images that are right and two that are wrong were added, spread over
    all groups: with k groups ``(r + 2/k) / (n + 4/k)`` in each. Of one group it is the interval of
    Agresti and Coull. They meant groups of about one size. Where one small group brings most of
    the variance, the mean is as uncertain as that group alone, so k is the number of groups that
    matter, ``(sum 1/n)^2 / sum 1/n^2``: from 1 to the number of groups, which it is if all are
    equal.

    Args:
        correct: ``[groups]`` right answers.
        n: ``[groups]`` images, at least one in each.
        level: how often such intervals should hold the truth.
    """
    k = _groups_that_matter(n)
    size = n + 4 / k
    rate = (correct + 2 / k) / size
    return _ends(rate, rate * (1 - rate) / size, float((correct / n).mean()), level)


def mean_change_ends(loss: Floats, gain: Floats, n: Floats, level: float) -> tuple[float, float]:
    """Interval of the mean of changes of rates, each on the same images before and after.

    What Bonett and Price (2012) do for one rate, with the images that they add spread over all
    groups: with k groups, counted as for `mean_rate_ends`, ``1/k`` of each kind of change in each.
    Of one group it is theirs.

    Args:
        loss: ``[groups]`` images that are no longer right.
        gain: ``[groups]`` images that are right now and were not.
        n: ``[groups]`` images, at least one in each.
        level: how often such intervals should hold the truth.
    """
    k = _groups_that_matter(n)
    size = n + 2 / k
    down, up = (loss + 1 / k) / size, (gain + 1 / k) / size
    spread = np.maximum(0.0, up + down - (up - down) ** 2) / size
    return _ends(up - down, spread, float(((gain - loss) / n).mean()), level)


def _groups_that_matter(n: Floats) -> float:
    return float((1 / n).sum() ** 2 / (1 / n**2).sum())


def _ends(parts: Floats, variances: Floats, seen: float, level: float) -> tuple[float, float]:
    """Of the mean of the parts; what was seen lies inside."""
    half = quantile_of_normal(level) * float(np.sqrt(variances.sum())) / len(parts)
    middle = float(parts.mean())
    return min(middle - half, seen), max(middle + half, seen)
