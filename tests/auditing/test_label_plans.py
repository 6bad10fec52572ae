"""Plans of labels against the formulas, written out."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from internals import change_labels, gap_labels, group_labels

Z = NormalDist().inv_cdf(0.975)
POWER = NormalDist().inv_cdf(0.8)


def connor(loss: float, gain: float) -> int:
    change = gain - loss
    changed = gain + loss
    root = Z * math.sqrt(changed) + POWER * math.sqrt(changed - change**2)
    return math.ceil((root / change) ** 2 - 1e-9)


def test_each_group_at_the_accuracy_that_needs_most() -> None:
    shares = np.array([[0.4, 0.1], [0.3, 0.2]])
    plan = group_labels(shares, ["man", "woman"], ["blond", "dark"], 0.95)
    assert plan.each == math.ceil((Z / 0.05) ** 2 / 4) == 385
    assert (plan.groups, plan.half_width) == (4, 0.05)
    assert (plan.rarest_target, plan.rarest_value) == ("dark", "man")
    assert plan.rarest_share == 0.1
    assert plan.at_random == 3850
    never = group_labels(np.array([[1.0, 0.0]]), ["man"], ["blond", "dark"], 0.95)
    assert never.at_random is None


@pytest.mark.parametrize(
    ("changed", "n"),
    [
        (4, 160),
        (70, 200),
        (1, 1),
        (3, 10_000),
    ],
)
def test_two_of_three_change_the_same_way(changed: int, n: int) -> None:
    plan = change_labels(changed, n, 0.95)
    share = changed / n
    assert plan.pictures == connor(share / 3, 2 * share / 3)
    assert plan.labels == math.ceil(plan.pictures * changed / n)
    assert change_labels(0, n, 0.95).pictures is None
    assert change_labels(0, n, 0.95).labels is None


@pytest.mark.parametrize(
    ("change", "share", "loss", "gain"),
    [
        (-0.05, 0.2, 0.075, 0.125),
        (0.05, 0.2, 0.075, 0.125),
        (0.1, 0.02, 0.0, 0.1),
    ],
)
def test_a_gap_that_falls_on_one_group(
    change: float, share: float, loss: float, gain: float
) -> None:
    """Answers change at least as often as the accuracy does."""
    assert gap_labels(change, share, 0.95) == connor(loss, gain)


def test_no_change_needs_no_number() -> None:
    assert gap_labels(0.0, 0.3, 0.95) is None
    assert gap_labels(None, 0.3, 0.95) is None
