"""How often intervals hold the truth, and how often they show an effect that is there.

    python benchmarks/coverage.py [--audits 1000] [--only NAME] [--jobs 2] [--kept FOLDER]
    python benchmarks/coverage.py --oracles

Audits are simulated: images of every class and group, right or wrong before and after with known
probabilities. For each figure it prints how many of 100 intervals of level 95 % hold the truth; for
changes also how many of 100 audits show one for the better and for the worse, and beside them, in
brackets, how many two oracles show. The first knows the variances, and which groups are truly the
worst (or the farthest apart) before and after; no data of this size contain that. The fair one
knows them before only, and allows for every group that may be the worst after. Then the same with
several images of each person. With `--oracles` nothing but these two is computed, in two minutes.

Ends with an error if an interval holds too seldom, if a change is shown that is not there, or if
those that are there are shown too seldom: see the bars below. It takes an hour of one core; with
`--kept` a call that was interrupted continues after the designs that are done.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from fair_tta._io import write_atomically
from fair_tta.metrics import Bootstrap, definitions
from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._calibration import mean_estimate
from fair_tta.metrics._estimates import Estimate
from fair_tta.metrics._metric import MetricDefinition, RateMetric
from fair_tta.metrics._rates import true_positive_rates
from fair_tta.metrics._types import Floats, Ints
from fair_tta.metrics.intervals._closed_forms import (
    mcnemar,
    mean_change_bounds,
    mean_rate_bounds,
    paired_bounds,
    wilson_bounds,
)
from fair_tta.metrics.intervals._extremes import MaxMinInterval
from fair_tta.metrics.intervals._noise import CellRates

LEVEL = 0.95
MIN_COVERAGE = 0.94  # in every design

# These hold in just 95 %, so fewer than 94 of 100 may be chance in 1,000 audits. Accuracy and
# balanced accuracy are counted on `MANY_AUDITS` too, where it may not.
EXACT_FIGURES = ("accuracy", "balanced", "ATC")
MANY_AUDITS = 10_000

# Shares of audits that show a change which is not there.
MAX_FALSE = 0.03  # mean over designs
MAX_FALSE_IN_DESIGN = 0.04

# Shares of audits that show a change which is there, mean over designs.
MIN_SHOWN = {"WGA": 0.50, "bias": 0.40, "EOD": 0.52}
MIN_TYPICAL_GAP_SHOWN = {
    "birds-like 2x2 of 100: gap 30 -> 18": 0.85,
    "7x2 of 140: worst tied, all lifted .1": 0.85,
    "5 classes x 2 of 100: gaps 30 -> 10": 0.85,
}
FIGURES: dict[str, MetricDefinition] = {
    "typical gap": definitions.TYPICAL_GAP,
    "accuracy": definitions.ACCURACY,
    "balanced": definitions.BALANCED_ACCURACY,
    "WGA": definitions.WORST_GROUP_ACCURACY,
    "bias": definitions.BIAS,
    "EOD": definitions.EQUALIZED_ODDS,
    "WGA (s)": definitions.WORST_GROUP_ACCURACY_S,
    "bias (s)": definitions.BIAS_S,
    "EOpp": definitions.EQUAL_OPPORTUNITY,
    "DP": definitions.DEMOGRAPHIC_PARITY,
}


def square_gap(table: Floats) -> float:
    """Return the mean squared difference between two groups of a class, pair by pair.

    NaN if no class has two groups. This is the square of the true typical gap, by another formula
    than the library's.
    """
    n = table.sum(-1)
    rates = true_positive_rates(table)
    class_means = []
    for c in range(n.shape[1]):
        differences = [
            first - second for first, second in combinations(rates[n[:, c] > 0, c], 2)
        ]
        if differences:
            class_means.append(float(np.mean(np.square(differences))))
    return float(np.mean(class_means)) if class_means else math.nan


def value(figure: MetricDefinition, table: Floats) -> float:
    """Return the true figure of expected confusion counts."""
    if isinstance(figure, RateMetric):
        return float(figure(table))
    return math.sqrt(square_gap(table))


@dataclass(frozen=True, eq=False)
class Design:
    """A population of audits; arrays are ``[groups, targets]``.

    Attributes:
        name: what is special about it.
        n: images.
        right: probability of a right answer before.
        lost: probability of right before and wrong after.
        won: probability of wrong before and right after.
        next_class: wrong answers are the next class, instead of any.
        skew: shape of the entropies: the larger, the more of them are near 0.
    """

    name: str
    n: Ints
    right: Floats
    lost: Floats
    won: Floats
    next_class: bool = False
    skew: float = 1.0

    @cached_property
    def tables(self) -> tuple[Floats, Floats]:
        """Expected confusion counts before and after: ``[groups, true, predicted]``."""
        before = self._expected_counts(self.right)
        after = self._expected_counts(self.right - self.lost + self.won)
        return before, after

    def _expected_counts(self, right: Floats) -> Floats:
        counts = (1 - right)[..., None] * self._wrong()
        classes = np.arange(self.n.shape[1])
        counts[:, classes, classes] = right
        return counts * self.n[..., None]

    def _wrong(self) -> Floats:
        """Return the shares of wrong answers: ``[true, predicted]``."""
        classes = self.n.shape[1]
        if self.next_class:
            return np.roll(np.eye(classes), 1, axis=1)
        return (1 - np.eye(classes)) / max(1, classes - 1)

    def truth(self, figure: MetricDefinition) -> float:
        """Return the true change."""
        before, after = self.tables
        return value(figure, after) - value(figure, before)

    @cached_property
    def pairs(self) -> Floats:
        """Probabilities of both answers: ``[groups, true, before, after]``."""
        groups, classes = self.n.shape
        pairs = np.zeros((groups, classes, classes, classes))
        wrong = self._wrong()
        for g in range(groups):
            for c in range(classes):
                pairs[g, c, c, c] = self.right[g, c] - self.lost[g, c]
                pairs[g, c, c] += self.lost[g, c] * wrong[c]
                pairs[g, c, :, c] += self.won[g, c] * wrong[c]
                twice = 0.8 * np.diag(wrong[c]) + 0.2 * np.outer(wrong[c], wrong[c])
                pairs[g, c] += (1 - self.right[g, c] - self.won[g, c]) * twice
        return pairs

    def oracle(self, figure: MetricDefinition) -> float:
        """Return how often an oracle shows the change that knows variances and extreme groups.

        The extreme groups before and after, so the figure is linear, and its variance follows from
        its gradient (the delta method).
        """
        function = figure if isinstance(figure, RateMetric) else square_gap
        # Of equal groups one has to be the worst.
        shape = self.tables[0].shape
        tie_breaker = np.random.default_rng(0).uniform(0.999999, 1.000001, shape)
        before, after = self.tables
        gradient_before = self._gradient(function, before * tie_breaker)
        gradient_after = self._gradient(function, after * tie_breaker)
        # By how much an image with these answers changes the figure.
        effect = gradient_after[:, :, None, :] - gradient_before[:, :, :, None]
        mean = (self.pairs * effect).sum((2, 3), keepdims=True)
        variances = (self.pairs * (effect - mean) ** 2).sum((2, 3))
        variance = (variances / np.maximum(1, self.n)).sum()
        change = float(function(after)) - float(function(before))
        if variance < 1e-15:
            return float(abs(change) > 1e-9)
        return float(ndtr(abs(change) / math.sqrt(variance) + ndtri((1 - LEVEL) / 2)))

    def _gradient(self, function: Callable[[Floats], Any], table: Floats) -> Floats:
        """Return the derivative by the share of each answer: ``[groups, true, predicted]``."""
        step = 1e-7
        gradient = np.zeros_like(table)
        for cell in np.ndindex(table.shape):
            moved = table.copy()
            moved[cell] += step * self.n[cell[:2]]
            gradient[cell] = (float(function(moved)) - float(function(table))) / step
        return gradient

    def fair_oracle(self, figure: MetricDefinition, draws: int = 2000) -> float:
        """Return how often an oracle shows the change that knows variances and the extreme before.

        It does not know which form is the extreme after, so each has to lie on the same side: the
        upper end is the largest over all forms after. For a figure that rises runs are exchanged.
        Figures without extremes have one oracle.
        """
        if not isinstance(figure, RateMetric) or figure.intervals is None:
            return self.oracle(figure)
        change = figure.intervals.change
        if not isinstance(change, MaxMinInterval):
            return self.oracle(figure)
        true_forms = [change.forms(rates) for rates in self._true_rates()]
        drawn_forms = [change.forms(rates) for rates in self._drawn_rates(draws)]
        largest_before, largest_after = (
            np.mean([form.max() for form in forms]) for forms in true_forms
        )
        known, guarded = (0, 1) if largest_after < largest_before else (1, 0)
        differences = []
        for c, forms in enumerate(true_forms[known]):
            extreme = int(forms[:, 0].argmax())
            differences.append(drawn_forms[guarded][c] - drawn_forms[known][c][extreme])
        return float(np.mean(upper_ends(differences) < 0))

    def _true_rates(self) -> list[CellRates]:
        """Return the expected rates before and after, as one draw."""
        return self._rates_of(self.pairs[None] * self.n[..., None, None])

    def _drawn_rates(self, draws: int) -> list[CellRates]:
        """Return the rates before and after of drawn audits."""
        groups, classes = self.n.shape
        generator = np.random.default_rng(0)
        drawn = []
        for g, c in np.ndindex(groups, classes):
            shares = np.maximum(0.0, self.pairs[g, c].ravel())
            drawn.append(
                generator.multinomial(self.n[g, c], shares / shares.sum(), draws)
            )
        counts = np.stack(drawn, 1)
        return self._rates_of(counts.reshape(draws, groups, classes, classes, classes))

    def _rates_of(self, counts: Any) -> list[CellRates]:
        """Return the rates before and after of ``[draws, groups, true, before, after]``."""
        n = self.n.astype(np.float64)
        n_of_group = np.maximum(1, n.sum(1))[:, None]
        cell_rates = []
        for other_run in (4, 3):
            # [groups, true, predicted, draws]
            table = np.moveaxis(counts.sum(other_run), 0, -1)
            right = np.einsum("gccd->gcd", table)
            cell_rates.append(
                CellRates(
                    cell_accuracy=right / np.maximum(1, n)[..., None],
                    answer_share=table.sum(1) / n_of_group[..., None],
                    group_accuracy=right.sum(1) / n_of_group,
                    n=n,
                )
            )
        return cell_rates

    def draw(
        self, generator: np.random.Generator, images_of_person: int = 1
    ) -> tuple[AnswerTable, Floats, Floats]:
        """Draw an audit of two runs, and entropies before and after.

        Images of a person share a random number, so their answers agree; half of the persons are
        in several groups.
        """
        groups, classes = self.n.shape
        cell = np.repeat(np.arange(self.n.size), self.n.ravel())
        if images_of_person > 1:
            half = len(cell) // 2
            cell = generator.permutation(cell)
            cell = np.concatenate([np.sort(cell[:half]), cell[half:]])
        truth = cell % classes
        person = np.arange(len(cell)) // images_of_person
        # Below `both` an image is right twice, up to `first` before only, and up to
        # `first + won` after only.
        uniform = generator.random(len(cell))[person]
        both = (self.right - self.lost).ravel()[cell]
        first = both + self.lost.ravel()[cell]
        second = both + self.won.ravel()[cell]
        right_before = uniform < first
        is_won = (uniform >= first) & (uniform < first + second - both)
        right_after = (uniform < both) | is_won
        wrong_before = self._draw_wrong(generator, truth)
        wrong_after = self._draw_wrong(generator, truth)
        # Images that are wrong twice mostly have the same answer.
        stays_wrong = ~right_before & ~right_after
        is_same = stays_wrong & (generator.random(len(cell)) < 0.8)
        wrong_after = np.where(is_same, wrong_before, wrong_after)
        answers_before = np.where(right_before, truth, wrong_before)
        answers_after = np.where(right_after, truth, wrong_after)
        rows = AnswerTable(
            tuple(range(classes)),
            {"group": tuple(range(groups))},
            truth,
            cell // classes,
            (answers_before, answers_after),
            clusters=person if images_of_person > 1 else None,
        )
        entropy_before = generator.beta(0.5, self.skew, len(cell))
        moves_far = generator.random(len(cell)) < 0.3
        moved = np.where(moves_far, generator.beta(1, 2, len(cell)), 0.02)
        return rows, entropy_before, entropy_before + moved * (1 - entropy_before)

    def _draw_wrong(self, generator: np.random.Generator, truth: Ints) -> Ints:
        classes = self.n.shape[1]
        steps = generator.integers(1, classes, len(truth))
        wrong: Ints = (truth + (1 if self.next_class else steps)) % classes
        return wrong


def upper_ends(differences: list[Floats]) -> Floats:
    """Return the upper end of the mean over classes of the largest form, for each draw.

    Forms are ``[forms, draws]``, one array for each class, and their variances are those of the
    draws. Of several classes the combination of forms is found class by class.
    """
    z = -float(ndtri((1 - LEVEL) / 2))
    classes = len(differences)
    if classes == 1:
        (only,) = differences
        first: Floats = (only + z * only.std(1, keepdims=True)).max(0)
        return first
    starts = np.cumsum([0, *map(len, differences)])
    all_differences = np.concatenate(differences) / classes
    covariance = np.cov(all_differences)
    upper_bounds = np.empty(all_differences.shape[1])
    for draw in range(all_differences.shape[1]):
        values = all_differences[:, draw]
        chosen = [
            start + int(values[start:stop].argmax()) for start, stop in pairwise(starts)
        ]
        for _ in range(3):
            for c, (start, stop) in enumerate(pairwise(starts)):
                fixed = [form for d, form in enumerate(chosen) if d != c]
                candidates = slice(start, stop)
                variance = covariance[np.ix_(fixed, fixed)].sum()
                variance = variance + covariance[candidates, candidates].diagonal()
                variance = variance + 2 * covariance[candidates, fixed].sum(1)
                deviation = np.sqrt(np.maximum(0, variance))
                ends = values[fixed].sum() + values[candidates] + z * deviation
                chosen[c] = start + int(ends.argmax())
                upper_bounds[draw] = ends.max()
    return upper_bounds


# fmt: off
MORE: list[tuple[Any, ...]] = [
    ("badge-like 3x3 of 220: gap 35 -> 8", np.full((3,3),220),
     [[.9,.62,.62],[.62,.9,.62],[.62,.62,.9]], [[.14,.02,.02],[.02,.14,.02],[.02,.02,.14]],
     [[.02,.18,.18],[.18,.02,.18],[.18,.18,.02]]),
    ("birds-like 2x2 of 500: gap 30 -> 6", np.full((2,2),500), [[.9,.62],[.6,.92]],
     [[.12,.02],[.02,.12]], [[.01,.14],[.15,.01]]),
    ("birds-like 2x2 of 100: gap 30 -> 6", np.full((2,2),100), [[.9,.62],[.6,.92]],
     [[.12,.02],[.02,.12]], [[.01,.14],[.15,.01]]),
    ("birds-like 2x2 of 100: gap 30 -> 18", np.full((2,2),100), [[.9,.62],[.6,.92]],
     [[.07,.02],[.02,.07]], [[.01,.08],[.09,.01]]),
    ("birds-like 2x2 of 500: gap 30 -> 24", np.full((2,2),500), [[.9,.62],[.6,.92]],
     [[.04,.02],[.02,.04]], [[.01,.05],[.06,.01]]),
    ("birds-like 2x2 of 20: gap 40 -> 5", np.full((2,2),20), [[.95,.6],[.55,.95]],
     [[.15,.02],[.02,.15]], [[.01,.2],[.25,.01]]),
    ("scenes-like 4x2 of 250: gap 25 -> 8", np.full((4,2),250),
     [[.95,.70],[.9,.8],[.8,.9],[.70,.95]], [[.12,.02],[.05,.02],[.02,.05],[.02,.12]],
     [[.02,.10],[.02,.06],[.06,.02],[.10,.02]]),
    ("scenes-like 4x2 of 50: gap 25 -> 8", np.full((4,2),50), [[.95,.70],[.9,.8],[.8,.9],[.70,.95]],
     [[.12,.02],[.05,.02],[.02,.05],[.02,.12]], [[.02,.10],[.02,.06],[.06,.02],[.10,.02]]),
    ("7x2 of 140: worst clear, lifted .1", np.full((7,2),140), [[.6,.85]]+[[.85,.85]]*6, .02,
     [[.12,.02]]+[[.02,.02]]*6),
    ("7x2 of 140: worst tied, all lifted .1", np.full((7,2),140), [[.6,.85]]*3+[[.85,.85]]*4, .02,
     [[.12,.02]]*3+[[.02,.02]]*4),
    ("5 classes x 2 of 100: gaps 30 -> 10", np.full((2,5),100), [[.9]*5,[.6]*5], .03,
     [[.03]*5,[.23]*5]),
    ("5 classes x 3 of 60: no effect, churn", np.full((3,5),60), .75, .08, .08),
    ("no effect: gap 30 stays, churn", np.full((2,2),150), [[.9,.62],[.6,.92]], .05, .05),
    ("no effect: gap 30 moves to another pair", np.full((3,2),150), [[.9,.8],[.6,.8],[.8,.8]],
     [[.02,.05],[.02,.05],[.22,.05]], [[.02,.05],[.22,.05],[.02,.05]]),
    ("ties, no churn", np.full((2,2),200), .8, .005, .005),
    ("gap 15 -> 0 (2x2 of 250), low churn", np.full((2,2),250), [[.85,.85],[.7,.85]], .01,
     [[.01,.01],[.16,.01]]),
    ("gap 10 -> 0 (2x2 of 500), low churn", np.full((2,2),500), [[.85,.85],[.75,.85]], .01,
     [[.01,.01],[.11,.01]]),
    ("worst overtaken: .6->.8, other .65 stays", np.full((2,2),150), [[.6,.65],[.85,.9]], .02,
     [[.22,.02],[.02,.02]]),
    ("unequal 20..500: rare worst lifted .25", [[500,300],[60,20]], [[.9,.85],[.8,.5]], .02,
     [[.02,.02],[.05,.27]]),
]
# fmt: on
OF_PERSONS = (
    "birds-like 2x2 of 100: gap 30 -> 18",
    "scenes-like 4x2 of 250: gap 25 -> 8",
    "no effect: gap 30 stays, churn",
    "four of 250, one drops .06",
)


def designs() -> Iterator[Design]:
    """Yield the populations that are tried."""

    def cells(shape: tuple[int, int], base: float, **exceptions: float) -> Floats:
        rates = np.full(shape, base)
        for cell_name, value in exceptions.items():
            g, c = map(int, cell_name[2:].split("_"))
            rates[g, c] = value
        return rates

    def design(
        name: str,
        n: object,
        right: object,
        lost: object,
        won: object,
        next_class: bool = False,
        skew: float = 1.0,
    ) -> Design:
        sizes = np.array(n, np.int64)
        parts = [
            np.broadcast_to(np.array(x, np.float64), sizes.shape)
            for x in (right, lost, won)
        ]
        assert (parts[1] <= parts[0] + 1e-9).all()
        assert (parts[2] <= 1 - parts[0] + 1e-9).all()
        return Design(name, sizes, *parts, next_class, skew)

    four, fourteen, nine = (2, 2), (7, 2), (3, 3)
    yield design("twenty of 5, nearly all right", np.full((10, 2), 5), 0.97, 0.02, 0.01)
    yield design(
        "twenty of 20, nearly all right", np.full((10, 2), 20), 0.96, 0.02, 0.02
    )
    yield design(
        "four of 60, one drops .12",
        np.full(four, 60),
        0.8,
        cells(four, 0.03, at0_0=0.15),
        0.03,
    )
    yield design(
        "four of 250, one drops .06",
        np.full(four, 250),
        0.8,
        cells(four, 0.03, at0_0=0.09),
        0.03,
    )
    yield design(
        "worst of 8, lifted",
        [[8, 100], [100, 100]],
        [[0.5, 0.8], [0.8, 0.8]],
        0.02,
        cells(four, 0.02, at0_0=0.2),
    )
    yield design(
        "one of 8 drops unseen",
        [[8, 60], [60, 60]],
        0.8,
        cells(four, 0.03, at0_0=0.15),
        0.03,
    )
    yield design(
        "one clear worst, lifted",
        np.full(four, 100),
        [[0.4, 0.8], [0.85, 0.9]],
        0.03,
        cells(four, 0.03, at0_0=0.12),
        skew=2,
    )
    yield design("all tied, no effect", np.full(four, 60), 0.8, 0.04, 0.04)
    yield design("nothing ever changes", np.full(four, 60), 0.8, 0, 0)
    yield design("cells of 5, no effect", np.full(four, 5), 0.7, 0.1, 0.1, skew=3)
    yield design(
        "cells of 5, one drops .25",
        np.full(four, 5),
        0.7,
        cells(four, 0.05, at0_0=0.3),
        0.05,
    )
    yield design(
        "worst changes identity",
        np.full(four, 80),
        [[0.6, 0.65], [0.8, 0.8]],
        [[0.02, 0.1], [0.02, 0.02]],
        [[0.15, 0.02], [0.02, 0.02]],
    )
    yield design(
        "two cells, one lifted", [[50, 50]], [[0.7, 0.8]], 0.05, [[0.12, 0.02]], skew=2
    )
    yield design(
        "class imbalance",
        [[500, 20], [480, 40]],
        [[0.95, 0.5], [0.9, 0.6]],
        0.02,
        [[0.01, 0.2], [0.02, 0.1]],
    )
    yield design(
        "four of 500",
        np.full(four, 500),
        [[0.7, 0.75], [0.8, 0.9]],
        0.03,
        [[0.08, 0.03], [0.03, 0.03]],
        skew=4,
    )
    yield design(
        "14 of 40, worst lifted",
        np.full(fourteen, 40),
        cells(fourteen, 0.8, at0_0=0.5),
        0.02,
        cells(fourteen, 0.02, at0_0=0.2),
    )
    yield design("14 of 40, all tied", np.full(fourteen, 40), 0.8, 0.04, 0.04)
    sizes = [[5, 500], [8, 200], [20, 60], [40, 40], [100, 30], [12, 300], [25, 25]]
    yield design(
        "14 of 5 to 500, one drops",
        sizes,
        0.75,
        cells(fourteen, 0.05, at0_1=0.15),
        0.05,
    )
    yield design(
        "everybody gains .1", np.full(four, 100), [[0.5, 0.6], [0.7, 0.8]], 0.03, 0.13
    )
    yield design("nearly always right", np.full(four, 60), 0.97, 0.02, 0.02, skew=8)
    yield design(
        "nearly always right, one drops",
        np.full(four, 40),
        0.98,
        cells(four, 0.01, at0_0=0.1),
        0.01,
    )
    yield design(
        "three groups drift apart",
        np.full((3, 2), 80),
        0.8,
        [[0.15, 0.15], [0.02, 0.02], [0.02, 0.02]],
        [[0.02, 0.02], [0.02, 0.02], [0.12, 0.12]],
    )
    yield design(
        "three classes, one drops",
        np.full(nine, 60),
        0.75,
        cells(nine, 0.03, at0_0=0.18),
        0.03,
    )
    yield design(
        "three classes, two confused",
        np.full((2, 3), 150),
        [[0.6, 0.6, 0.95], [0.8, 0.8, 0.95]],
        0.03,
        [[0.15, 0.15, 0.02], [0.03, 0.03, 0.02]],
        next_class=True,
    )
    yield design(
        "six classes, clear gaps close",
        np.full((2, 6), 100),
        [[0.6] * 6, [0.85] * 6],
        0.02,
        [[0.12] * 6, [0.03] * 6],
    )

    yield design(
        "worst catches up, gap closes",
        np.full(four, 100),
        [[0.3, 0.9], [0.9, 0.9]],
        0.01,
        cells(four, 0.01, at0_0=0.61),
    )
    yield design(
        "the same with cells of 1000",
        np.full(four, 1000),
        [[0.3, 0.9], [0.9, 0.9]],
        0.01,
        cells(four, 0.01, at0_0=0.61),
    )
    yield design(
        "a rare group of 4 pays for the others",
        [[400, 200], [300, 4]],
        [[0.7, 0.8], [0.8, 0.6]],
        [[0.01, 0.02], [0.02, 0.3]],
        [[0.12, 0.05], [0.04, 0.02]],
    )
    yield design(
        "ten classes, one group saved",
        [[10] * 10, [100] * 10],
        [[0.02] * 10, [0.9] * 10],
        [[0.01] * 10, [0.03] * 10],
        [[0.96] * 10, [0.03] * 10],
    )

    yield from (design(*arguments) for arguments in MORE)


@dataclass
class Tally:
    """The intervals of a figure in each audit.

    Attributes:
        truth: the figure that they should hold.
        better: 1 if larger is better, -1 if smaller is, 0 for a figure of one run.
        oracle: how often `Design.oracle` shows the change.
        fair_oracle: how often `Design.fair_oracle` shows it.
        ends: of each interval.
    """

    truth: float
    better: int = 0
    oracle: float = math.nan
    fair_oracle: float = math.nan
    ends: list[tuple[float, float]] = field(default_factory=list)

    def add(self, low: float | None, high: float | None, value: float) -> None:
        if low is None or high is None:
            return
        assert low <= value + 1e-12 <= high + 2e-12
        self.ends.append((low, high))

    @property
    def holds(self) -> float:
        """Share of the intervals that hold the truth."""
        low, high = np.array(self.ends).T
        return float(np.mean((low - 1e-9 <= self.truth) & (self.truth <= high + 1e-9)))

    @property
    def narrowest(self) -> float:
        return min(high - low for low, high in self.ends)

    def shows(self, side: int) -> float:
        """Return how often a change for the better (1) or for the worse (-1) is shown."""
        low, high = np.array(self.ends).T
        return float(np.mean(low > 0 if side * self.better > 0 else high < 0))

    def is_there(self, side: int) -> bool:
        """Return whether the figure truly changes for the better (1) or the worse (-1)."""
        return side * self.better * self.truth > 1e-9

    def __str__(self) -> str:
        text = f"{100 * self.holds:.1f}"
        if not self.better:
            return text
        text += f" +{100 * self.shows(1):.0f}/-{100 * self.shows(-1):.0f}"
        if abs(self.truth) > 1e-9 and not math.isnan(self.oracle):
            text += f" ({100 * self.oracle:.0f}, {100 * self.fair_oracle:.0f})"
        return text


def simulate(
    design: Design,
    images_of_person: int = 1,
    audits: int = 1000,
    seed: int = 0,
    figures: Mapping[str, MetricDefinition] = FIGURES,
) -> dict[str, Tally]:
    """Draw audits and tally the intervals of changes, and of single runs after ``run:``."""
    generator = np.random.default_rng(seed)
    bootstrap = Bootstrap(level=LEVEL)
    tallies: dict[str, Tally] = {}
    measures: dict[str, Callable[[AnswerTable, Floats, Floats], Estimate]] = {}
    for name, figure in figures.items():
        if not math.isnan(design.truth(figure)):
            oracle, fair_oracle = math.nan, math.nan
            if images_of_person == 1:
                oracle = design.oracle(figure)
                fair_oracle = design.fair_oracle(figure)
            tallies[name] = Tally(
                design.truth(figure), figure.better, oracle, fair_oracle
            )
            measures[name] = partial(_change, figure, bootstrap)
            tallies[f"run: {name}"] = Tally(value(figure, design.tables[0]))
            measures[f"run: {name}"] = partial(_figure_of_run, figure, bootstrap)
    if images_of_person == 1:
        confidence = 1 - 0.5 / (0.5 + design.skew)  # one minus the mean of the beta
        moved = 0.3 / 3 + 0.7 * 0.02
        tallies["ASI, ATC"] = Tally(moved * confidence)
        measures["ASI, ATC"] = lambda _, before, after: mean_estimate(
            after - before, LEVEL, least=-1.0
        )
        tallies["run: ATC"] = Tally(confidence)
        measures["run: ATC"] = lambda _, before, after: mean_estimate(1 - before, LEVEL)
    for _ in range(audits):
        rows, before, after = design.draw(generator, images_of_person)
        for name, measure in measures.items():
            estimate = measure(rows, before, after)
            tallies[name].add(estimate.low, estimate.high, float(estimate))
    return {name: tally for name, tally in tallies.items() if tally.ends}


def _change(
    figure: MetricDefinition, bootstrap: Bootstrap, rows: AnswerTable, *_: Floats
) -> Estimate:
    return figure.difference(rows, 0, 1, bootstrap)


def _figure_of_run(
    figure: MetricDefinition, bootstrap: Bootstrap, rows: AnswerTable, *_: Floats
) -> Estimate:
    return figure.estimate(rows, 0, bootstrap)


def simulate_once(
    design: Design, images_of_person: int, audits: int, kept: Path | None
) -> dict[str, Tally]:
    """Return the tallies of `simulate`, from a file of an earlier call if there is one."""
    if kept is None:
        return simulate(design, images_of_person, audits)
    title = f"{design.name} {images_of_person} {audits}"
    file = kept / f"{hashlib.sha256(title.encode()).hexdigest()[:16]}.json"
    if not file.exists():
        tallies = simulate(design, images_of_person, audits)
        plain = {name: asdict(tally) for name, tally in tallies.items()}
        write_atomically(file, json.dumps({"of": title, "tallies": plain}).encode())
    stored_tallies = json.loads(file.read_text())["tallies"]
    return {name: Tally(**tally) for name, tally in stored_tallies.items()}


def closed_forms(design: Design) -> dict[str, float]:
    """Return how often intervals of accuracy and balanced accuracy hold, in `MANY_AUDITS`."""
    n = design.n.ravel().astype(np.float64)
    total = float(design.n.sum())
    right = design.right.ravel()
    lost = design.lost.ravel()
    won = design.won.ravel()
    shares = np.maximum(0.0, np.stack([right - lost, lost, won, 1 - right - won], 1))
    drawn = np.random.default_rng(1).multinomial(
        design.n.ravel(), shares / shares.sum(1, keepdims=True), (MANY_AUDITS, len(n))
    )
    stay, loss, gain = (drawn[..., k].astype(np.float64) for k in range(3))
    hits = stay + loss
    pairs = zip(loss, gain, strict=True)
    intervals_of: dict[str, tuple[Any, float]] = {
        "run: accuracy": (wilson_bounds(hits.sum(1), total, LEVEL), n @ right / total),
        "accuracy": (
            paired_bounds(loss.sum(1), gain.sum(1), total, LEVEL),
            n @ (won - lost) / total,
        ),
        "run: balanced": (
            np.array(
                [mean_rate_bounds(right_answers, n, LEVEL) for right_answers in hits]
            ).T,
            right.mean(),
        ),
        "balanced": (
            np.array([mean_change_bounds(*pair, n, LEVEL) for pair in pairs]).T,
            (won - lost).mean(),
        ),
    }
    return {
        name: float(np.mean((low - 1e-9 <= truth) & (truth <= high + 1e-9)))
        for name, ((low, high), truth) in intervals_of.items()
    }


def lowest_coverage(n: int, most: float = 0.6) -> float:
    """Return how often Bonett and Price's interval holds one rate's change, at worst and exactly.

    The worst of all losses and gains of at most `most` together, in steps of 1/40.
    """
    pairs = np.array(
        [(lost, won) for lost in range(n + 1) for won in range(n + 1 - lost)]
    )
    lost, won = pairs.T.astype(np.float64)
    low, high = paired_bounds(lost, won, np.full(len(pairs), float(n)), LEVEL)
    log = np.array([math.lgamma(k + 1) for k in range(n + 1)])
    ways = log[n] - log[pairs[:, 0]] - log[pairs[:, 1]] - log[n - pairs.sum(1)]
    lowest = 1.0
    steps = np.arange(0, most + 1e-9, 1 / 40)
    for loss, gain in (
        (a, b) for a in steps for b in steps if 0 < a + b <= most + 1e-9
    ):
        logs = np.log(np.maximum([loss, gain, 1 - loss - gain], 1e-300))
        chance = np.exp(
            ways + lost * logs[0] + won * logs[1] + (n - lost - won) * logs[2]
        )
        covered = (low - 1e-9 <= gain - loss) & (gain - loss <= high + 1e-9)
        lowest = min(lowest, float(chance[covered].sum()))
    return lowest


def problems(all_tallies: Mapping[str, Mapping[str, Tally]]) -> Iterator[str]:
    """Print summaries over designs, and yield the bars that are missed."""
    coverages = defaultdict(list)
    false_shares = defaultdict(list)
    powers = defaultdict(list)
    for design, tallies in all_tallies.items():
        for name, tally in tallies.items():
            coverages[name].append((tally.holds, design))
            bar = MIN_COVERAGE
            if name.endswith(EXACT_FIGURES):
                audits = len(tally.ends)
                bar -= 2 * math.sqrt(MIN_COVERAGE * (1 - MIN_COVERAGE) / audits)
            if tally.holds < bar:
                yield f"{design}, {name}: holds in {100 * tally.holds:.1f} %"
            for side in (1, -1) if tally.better else ():
                share = tally.shows(side)
                if not tally.is_there(side):
                    false_shares[name, side].append(share)
                    if share > MAX_FALSE_IN_DESIGN:
                        yield f"{design}, {name}: {100 * share:.1f} % false claims"
                elif side == 1 and not math.isnan(tally.oracle):  # persons have none
                    powers[name].append((share, tally.oracle, tally.fair_oracle))
        if design in MIN_TYPICAL_GAP_SHOWN:
            share = tallies["typical gap"].shows(1)
            print(f"shown, typical gap, {design}: {100 * share:.0f} %")
            if share < MIN_TYPICAL_GAP_SHOWN[design]:
                yield f"{design}: typical gap shown in {100 * share:.0f} %"
    for name, design_coverages in coverages.items():
        share, design = min(design_coverages)
        print(f"holds, {name}: {100 * share:.1f} % or more, least in {design}")
    for (name, side), shares in false_shares.items():
        share = float(np.mean(shares))
        direction = "better" if side > 0 else "worse"
        print(
            f"falsely {direction}, {name}: {100 * share:.1f} % of {len(shares)} designs"
        )
        if share > MAX_FALSE:
            yield f"{name}: falsely {direction} in {100 * share:.1f} %"
    for name, design_powers in powers.items():
        power, oracle, fair_oracle = np.mean(design_powers, 0)
        print(
            f"shown, {name}: {100 * power:.0f} % in {len(design_powers)} designs, oracle "
            f"{100 * oracle:.0f}, fair oracle {100 * fair_oracle:.0f}"
        )
        if power < MIN_SHOWN.get(name, 0):
            yield f"{name}: shown in {100 * power:.0f} %"


def print_oracles() -> None:
    """Print both oracles of each design that improves a figure, and their means."""
    for name, figure in FIGURES.items():
        oracle_rows = []
        for design in designs():
            truth = design.truth(figure)
            if not math.isnan(truth) and truth * figure.better > 1e-9:
                oracles = 100 * design.oracle(figure), 100 * design.fair_oracle(figure)
                oracle_rows.append(oracles)
                print(
                    f"    {name}, {design.name}: {oracles[0]:.0f}, fair {oracles[1]:.0f}"
                )
        means = np.mean(oracle_rows, 0)
        print(
            f"{name}: {means[0]:.0f}, fair {means[1]:.0f}, in {len(oracle_rows)} designs",
            flush=True,
        )
    print(
        "one group named before looking, McNemar's exact test, none lost and so many won"
    )
    for n in (5, 6, 8, 12, 20, 50):
        powers = [
            f"{won}: {100 * named_group_shown(n, won):.0f}" for won in (0.2, 0.5, 0.8)
        ]
        print(f"    {n} images: {', '.join(powers)} %")


def named_group_shown(n: int, won: float) -> float:
    """Return how often McNemar's exact test at 5 % shows that answers of a group become right."""
    gains = range(n + 1)
    shown_gains = [gain for gain in gains if mcnemar(0, gain) < 1 - LEVEL]
    return sum(
        math.comb(n, gain) * won**gain * (1 - won) ** (n - gain) for gain in shown_gains
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=1000)
    parser.add_argument("--only", default="", help="designs whose name has this in it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--kept", type=Path, help="where designs that are done are kept"
    )
    parser.add_argument(
        "--oracles", action="store_true", help="print only what oracles show"
    )
    options = parser.parse_args()
    if options.oracles:
        print_oracles()
        return
    if options.kept is not None:
        options.kept.mkdir(parents=True, exist_ok=True)
    simulations = [(design, 1) for design in designs()]
    for design in designs():
        if design.name in OF_PERSONS:
            simulations += [(design, 4), (design, 8)]
    simulations = [
        (design, images)
        for design, images in simulations
        if options.only in design.name
    ]
    all_tallies = {}
    simulate_design = partial(simulate_once, audits=options.audits, kept=options.kept)
    with ProcessPoolExecutor(options.jobs) as pool:
        results = pool.map(simulate_design, *zip(*simulations, strict=True))
        for (design, images), tallies in zip(simulations, results, strict=True):
            name = design.name
            if images > 1:
                name += f", {images} images of each person"
            all_tallies[name] = tallies
            figures = ", ".join(
                f"{figure} {tally}" for figure, tally in tallies.items()
            )
            print(f"{name}\n    {figures}", flush=True)
    missed = []
    if not options.only:
        missed += [*problems(all_tallies), *closed_form_problems()]
    sys.exit("\n".join(missed) or None)


def closed_form_problems() -> Iterator[str]:
    """Print how often intervals of rates and means hold, and yield the bars that are missed."""
    print(f"accuracy and balanced accuracy in {MANY_AUDITS} audits")
    coverages = defaultdict(list)
    for design in designs():
        for name, coverage in closed_forms(design).items():
            coverages[name].append((coverage, design.name))
    for name, design_coverages in coverages.items():
        coverage, design_name = min(design_coverages)
        print(f"    {name}: {100 * coverage:.1f} % or more, least in {design_name}")
        if coverage < MIN_COVERAGE:
            yield (
                f"{design_name}, {name}: holds in {100 * coverage:.1f} % of {MANY_AUDITS}"
            )
    print("one rate alone, exactly and at worst, if at most 60 % of the answers change")
    lowest = [f"n = {n}: {lowest_coverage(n):.3f}" for n in (5, 10, 20, 30, 60)]
    print(f"    {', '.join(lowest)}")


if __name__ == "__main__":
    main()
