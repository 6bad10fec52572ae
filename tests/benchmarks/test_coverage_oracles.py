"""What the oracles of benchmarks/coverage.py show, on populations where that is known."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from coverage import (  # type: ignore[import-not-found]
    Design,
    named_group_shown,
    upper_ends,
)

from fair_tta.metrics import definitions

WGA, EOD = definitions.WORST_GROUP_ACCURACY, definitions.EQUALIZED_ODDS


def design(n: object, right: object, lost: object, won: object) -> Design:
    sizes = np.array(n)
    parts = [
        np.broadcast_to(np.array(x, np.float64), sizes.shape)
        for x in (right, lost, won)
    ]
    return Design("", sizes, *parts)


def test_both_agree_where_no_other_group_can_be_the_worst() -> None:
    clear = design(
        np.full((2, 2), 200), [[0.2, 0.95], [0.95, 0.95]], 0.02, [[0.08, 0.02]] * 2
    )
    assert clear.fair_oracle(WGA) == pytest.approx(clear.oracle(WGA), abs=0.03)


def test_the_fair_one_shows_less_where_many_groups_may_be() -> None:
    tied = design(np.full((7, 2), 140), [[0.6, 0.85]] * 7, 0.02, [[0.12, 0.02]] * 7)
    assert tied.fair_oracle(WGA) < tied.oracle(WGA) - 0.1
    assert tied.fair_oracle(EOD) <= tied.oracle(EOD)


def test_a_figure_without_extremes_has_one_oracle() -> None:
    small_design = design(
        np.full((2, 2), 100), [[0.9, 0.6], [0.6, 0.9]], 0.02, [[0.02, 0.15]] * 2
    )
    assert small_design.fair_oracle(definitions.ACCURACY) == small_design.oracle(
        definitions.ACCURACY
    )


def test_the_upper_end_of_a_mean_is_over_every_combination() -> None:
    random = np.random.default_rng(0)
    classes = [
        random.normal(random.normal(0, 1, (3, 1)), 0.3, (3, 50)) for _ in range(2)
    ]
    means = np.array([(a + b) / 2 for a in classes[0] for b in classes[1]])
    bounds = means + norm.ppf(0.975) * means.std(1, ddof=1, keepdims=True)
    assert upper_ends(classes) == pytest.approx(bounds.max(0), abs=1e-9)


def test_five_images_never_show_a_group_named_before_looking() -> None:
    assert named_group_shown(5, 1.0) == 0
    assert named_group_shown(6, 1.0) == 1
