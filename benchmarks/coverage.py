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
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from fair_tta._io import write_atomically
from fair_tta.metrics import Bootstrap, definitions
from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._calibration import mean_estimate
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
HOLDS = 0.94  # at least, in every design
# These hold in just 95 %: of 1,000 audits fewer than 94 of 100 may be chance. The first two are
# counted on MANY audits too, where that is not.
CALIBRATED = ("accuracy", "balanced", "ATC")
MANY = 10_000
FALSE, FALSE_ANYWHERE = (
    0.03,
    0.04,
)  # at most, over all designs without the effect, and in any
SHOWN = {
    "WGA": 0.50,
    "bias": 0.40,
    "EOD": 0.52,
}  # at least, mean over designs with the effect
TYPICAL_GAP_SHOWN = {
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
    """The mean squared difference between two groups of a class, pair by pair; NaN if none."""
    n, rates = table.sum(-1), true_positive_rates(table)
    squared_gaps = []
    for c in range(n.shape[1]):
        class_rates = rates[n[:, c] > 0, c]
        if len(class_rates) > 1:
            pairs = [
                (a - b) ** 2 for i, a in enumerate(class_rates) for b in class_rates[:i]
            ]
            squared_gaps.append(float(np.mean(pairs)))
    return float(np.mean(squared_gaps)) if squared_gaps else math.nan


def value(figure: MetricDefinition, table: Floats) -> float:
    """The true figure of expected confusion counts."""
    return (
        float(figure(table))
        if isinstance(figure, RateMetric)
        else math.sqrt(square_gap(table))
    )


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
        tables = []
        for right in (self.right, self.right - self.lost + self.won):
            wrong = self._wrong()
            table = (1 - right)[..., None] * wrong
            classes = np.arange(self.n.shape[1])
            table[:, classes, classes] = right
            tables.append(table * self.n[..., None])
        return tables[0], tables[1]

    def _wrong(self) -> Floats:
        """Shares of wrong answers: ``[true, predicted]``."""
        classes = self.n.shape[1]
        if self.next_class:
            return np.roll(np.eye(classes), 1, axis=1)
        return (1 - np.eye(classes)) / max(1, classes - 1)

    def truth(self, figure: MetricDefinition) -> float:
        """The true change."""
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
        """How often somebody shows the change who knows the variance and which groups matter."""
        function = figure if isinstance(figure, RateMetric) else square_gap
        # of equal groups one is the worst
        luck = np.random.default_rng(0).uniform(
            0.999999, 1.000001, self.tables[0].shape
        )
        slopes = []
        for table in self.tables:
            shares, gradient = table * luck, np.zeros_like(table)
            for cell in np.ndindex(table.shape):
                moved = shares.copy()
                moved[cell] += 1e-7 * self.n[cell[:2]]
                gradient[cell] = (
                    float(function(moved)) - float(function(shares))
                ) / 1e-7
            slopes.append(gradient)
        weight = (
            slopes[1][:, :, None, :] - slopes[0][:, :, :, None]
        )  # of an image with such answers
        middle = (self.pairs * weight).sum((2, 3), keepdims=True)
        variance = (
            (self.pairs * (weight - middle) ** 2).sum((2, 3)) / np.maximum(1, self.n)
        ).sum()
        change = float(function(self.tables[1])) - float(function(self.tables[0]))
        if variance < 1e-15:
            return float(abs(change) > 1e-9)
        return float(ndtr(abs(change) / math.sqrt(variance) + ndtri((1 - LEVEL) / 2)))

    def fair_oracle(self, figure: MetricDefinition, draws: int = 2000) -> float:
        """How often somebody shows the change who knows the variance and the extreme before.

        Which form is the extreme after is not known, so each has to lie on the same side: the upper
        end is the largest over all forms after. For a figure that rises runs are exchanged. Figures
        without extremes have one oracle.
        """
        change = (
            figure.intervals.change
            if isinstance(figure, RateMetric) and figure.intervals
            else None
        )
        if not isinstance(change, MaxMinInterval):
            return self.oracle(figure)
        runs = [self._rates(draws), self._rates(None)]
        forms, true_forms = ([change.forms(run) for run in of] for of in runs)
        largest = [np.mean([form.max() for form in run]) for run in true_forms]
        known, guarded = (0, 1) if largest[1] < largest[0] else (1, 0)
        remainders = []
        for c, true_form in enumerate(true_forms[known]):
            extreme = int(true_form[:, 0].argmax())
            remainders.append(forms[guarded][c] - forms[known][c][extreme])
        return float(np.mean(upper_ends(remainders) < 0))

    def _rates(self, draws: int | None) -> list[CellRates]:
        """Rates before and after: the expected ones, or those of so many drawn audits."""
        groups, classes = self.n.shape
        counts = self.pairs[None] * self.n[..., None, None]
        if draws is not None:
            generator = np.random.default_rng(0)
            shape = (draws, classes, classes)
            drawn = [
                generator.multinomial(self.n[g, c], self._shares(g, c), draws).reshape(
                    shape
                )
                for g, c in np.ndindex(groups, classes)
            ]
            counts = np.stack(drawn, 1).reshape(draws, groups, *shape[1:], classes)
        cell_rates = []
        for of_after in (4, 3):
            table = np.moveaxis(
                counts.sum(of_after), 0, -1
            )  # [groups, true, predicted, draws]
            n = self.n.astype(np.float64)
            of_group = np.maximum(1, n.sum(1))[:, None]
            right = np.einsum("gccd->gcd", table)
            rates = (
                right / np.maximum(1, n)[..., None],
                table.sum(1) / of_group[..., None],
            )
            cell_rates.append(CellRates(*rates, right.sum(1) / of_group, n))
        return cell_rates

    def _shares(self, group: int, target: int) -> Floats:
        """Probabilities of both answers of an image, which add up to 1."""
        shares = np.maximum(0.0, self.pairs[group, target].ravel())
        total: Floats = shares / shares.sum()
        return total

    def draw(
        self, generator: np.random.Generator, images_of_person: int = 1
    ) -> tuple[AnswerTable, Floats, Floats]:
        """An audit of two runs, and entropies before and after.

        Images of a person share their luck, so answers agree; half of the persons are in several
        groups.
        """
        groups, classes = self.n.shape
        cell = np.repeat(np.arange(self.n.size), self.n.ravel())
        if images_of_person > 1:
            half = len(cell) // 2
            cell = generator.permutation(cell)
            cell = np.concatenate([np.sort(cell[:half]), cell[half:]])
        truth = cell % classes
        person = np.arange(len(cell)) // images_of_person
        luck = generator.random(len(cell))[person]
        kept = (self.right - self.lost).ravel()[cell]
        first, second = kept + self.lost.ravel()[cell], kept + self.won.ravel()[cell]
        # [0, kept): right twice; [kept, kept + lost): before only; then: after only
        right_before = luck < first
        right_after = (luck < kept) | ((luck >= first) & (luck < first + second - kept))
        steps = [generator.integers(1, classes, len(cell)) for _ in range(2)]
        other, again = (
            (truth + (1 if self.next_class else step)) % classes for step in steps
        )
        keep = (
            ~right_before & ~right_after & (generator.random(len(cell)) < 0.8)
        )  # wrong twice, mostly the same
        again = np.where(keep, other, again)
        rows = AnswerTable(
            tuple(range(classes)),
            {"group": tuple(range(groups))},
            truth,
            cell // classes,
            (np.where(right_before, truth, other), np.where(right_after, truth, again)),
            clusters=person if images_of_person > 1 else None,
        )
        before = generator.beta(0.5, self.skew, len(cell))
        moved = np.where(
            generator.random(len(cell)) < 0.3, generator.beta(1, 2, len(cell)), 0.02
        )
        return rows, before, before + moved * (1 - before)


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
        chosen = [a + int(values[a:b].argmax()) for a, b in pairwise(starts)]
        for _ in range(3):
            for c, (a, b) in enumerate(pairwise(starts)):
                other_cells = [cell for k, cell in enumerate(chosen) if k != c]
                fixed = covariance[np.ix_(other_cells, other_cells)].sum()
                variance = fixed + covariance[a:b, a:b].diagonal()
                variance = variance + 2 * covariance[a:b, other_cells].sum(1)
                end = (
                    values[other_cells].sum()
                    + values[a:b]
                    + z * np.sqrt(np.maximum(0, variance))
                )
                chosen[c] = a + int(end.argmax())
                upper_bounds[draw] = end.max()
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
    """The populations that are tried."""

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
    """What became of an interval in each audit; `truth` is what it should hold."""

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
        low, high = np.array(self.ends).T
        return float(np.mean((low - 1e-9 <= self.truth) & (self.truth <= high + 1e-9)))

    @property
    def narrowest(self) -> float:
        return min(high - low for low, high in self.ends)

    def shows(self, side: int) -> float:
        """How often a change for the better (1) or for the worse (-1) is shown."""
        low, high = np.array(self.ends).T
        return float(np.mean(low > 0 if side * self.better > 0 else high < 0))

    def is_there(self, side: int) -> bool:
        return side * self.better * self.truth > 1e-9

    def __str__(self) -> str:
        text = f"{100 * self.holds:.1f}"
        if not self.better:
            return text
        parts = [
            f"{sign}{100 * self.shows(side):.0f}"
            for sign, side in (("+", 1), ("-", -1))
        ]
        oracles = f" ({100 * self.oracle:.0f}, {100 * self.fair_oracle:.0f})"
        oracle_text = (
            oracles if abs(self.truth) > 1e-9 and not math.isnan(self.oracle) else ""
        )
        return f"{text} {'/'.join(parts)}{oracle_text}"


def simulate(
    design: Design,
    images_of_person: int = 1,
    audits: int = 1000,
    seed: int = 0,
    figures: Mapping[str, MetricDefinition] = FIGURES,
) -> dict[str, Tally]:
    """Draw audits and tally the intervals of changes, and of single runs after ``run:``."""
    generator = np.random.default_rng(seed)
    tallies: dict[str, Tally] = {}
    for name, figure in figures.items():
        if not math.isnan(design.truth(figure)):
            oracles = math.nan, math.nan
            if images_of_person == 1:
                oracles = design.oracle(figure), design.fair_oracle(figure)
            tallies[name] = Tally(design.truth(figure), figure.better, *oracles)
            tallies[f"run: {name}"] = Tally(value(figure, design.tables[0]))
    atc = 1 - 0.5 / (0.5 + design.skew)  # of the beta distribution
    if images_of_person == 1:
        tallies["ASI, ATC"] = Tally((0.3 / 3 + 0.7 * 0.02) * atc)
        tallies["run: ATC"] = Tally(atc)
    bootstrap = Bootstrap(level=LEVEL)
    for _ in range(audits):
        rows, a, b = design.draw(generator, images_of_person)
        for name, tally in tallies.items():
            if name == "ASI, ATC":
                estimate = mean_estimate(b - a, LEVEL, least=-1.0)
            elif name == "run: ATC":
                estimate = mean_estimate(1 - a, LEVEL)
            elif name.startswith("run: "):
                estimate = figures[name.removeprefix("run: ")].estimate(
                    rows, 0, bootstrap
                )
            else:
                estimate = figures[name].difference(rows, 0, 1, bootstrap)
            tally.add(estimate.low, estimate.high, float(estimate))
    return {name: tally for name, tally in tallies.items() if tally.ends}


def simulate_once(
    design: Design, images_of_person: int, audits: int, kept: Path | None
) -> dict[str, Tally]:
    """`simulate`, unless a file of this folder has it from an earlier call."""
    if kept is None:
        return simulate(design, images_of_person, audits)
    called = f"{design.name} {images_of_person} {audits}"
    file = kept / f"{hashlib.sha256(called.encode()).hexdigest()[:16]}.json"
    if not file.exists():
        tallies = simulate(design, images_of_person, audits)
        plain = {name: asdict(tally) for name, tally in tallies.items()}
        write_atomically(file, json.dumps({"of": called, "tallies": plain}).encode())
    stored_tallies = json.loads(file.read_text())["tallies"]
    return {name: Tally(**tally) for name, tally in stored_tallies.items()}


def closed_forms(design: Design) -> dict[str, float]:
    """How often the intervals of accuracy and balanced accuracy hold, in `MANY` audits."""
    n, total = design.n.ravel().astype(np.float64), float(design.n.sum())
    right, lost, won = (of.ravel() for of in (design.right, design.lost, design.won))
    shares = np.maximum(0.0, np.stack([right - lost, lost, won, 1 - right - won], 1))
    drawn = np.random.default_rng(1).multinomial(
        design.n.ravel(), shares / shares.sum(1, keepdims=True), (MANY, len(n))
    )
    stay, loss, gain = (drawn[..., k].astype(np.float64) for k in range(3))
    hits, pairs = stay + loss, zip(loss, gain, strict=True)
    intervals_of: dict[str, tuple[Any, float]] = {
        "run: accuracy": (wilson_bounds(hits.sum(1), total, LEVEL), n @ right / total),
        "accuracy": (
            paired_bounds(loss.sum(1), gain.sum(1), total, LEVEL),
            n @ (won - lost) / total,
        ),
        "run: balanced": (
            np.array([mean_rate_bounds(of, n, LEVEL) for of in hits]).T,
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
    """How often Bonett and Price's interval holds one rate's change, at worst and exactly.

    Over losses and gains of 0 to `most` in all, in steps of 1/40.
    """
    pairs = np.array(
        [(lost, won) for lost in range(n + 1) for won in range(n + 1 - lost)]
    )
    lost, won = pairs.T.astype(np.float64)
    low, high = paired_bounds(lost, won, np.full(len(pairs), float(n)), LEVEL)
    log = np.array([math.lgamma(k + 1) for k in range(n + 1)])
    ways = log[n] - log[pairs[:, 0]] - log[pairs[:, 1]] - log[n - pairs.sum(1)]
    worst_of = 1.0
    steps = np.arange(0, most + 1e-9, 1 / 40)
    for loss, gain in (
        (a, b) for a in steps for b in steps if 0 < a + b <= most + 1e-9
    ):
        logs = np.log(np.maximum([loss, gain, 1 - loss - gain], 1e-300))
        chance = np.exp(
            ways + lost * logs[0] + won * logs[1] + (n - lost - won) * logs[2]
        )
        covered = (low - 1e-9 <= gain - loss) & (gain - loss <= high + 1e-9)
        worst_of = min(worst_of, float(chance[covered].sum()))
    return worst_of


def problems(all_tallies: Mapping[str, Mapping[str, Tally]]) -> Iterator[str]:
    """Bars that are missed."""
    claims, shown, covered = defaultdict(list), defaultdict(list), defaultdict(list)
    for design, tallies in all_tallies.items():
        for name, tally in tallies.items():
            covered[name].append((tally.holds, design))
            chance = 2 * math.sqrt(HOLDS * (1 - HOLDS) / len(tally.ends))
            if tally.holds < HOLDS - chance * name.endswith(CALIBRATED):
                yield f"{design}, {name}: holds in {100 * tally.holds:.1f} %"
            for side in (1, -1) if tally.better else ():
                if not tally.is_there(side):
                    claims[name, side].append(tally.shows(side))
                    if tally.shows(side) > FALSE_ANYWHERE:
                        yield f"{design}, {name}: {100 * tally.shows(side):.1f} % false claims"
                elif side == 1 and not math.isnan(tally.oracle):  # persons have none
                    shown[name].append(
                        (tally.shows(1), tally.oracle, tally.fair_oracle)
                    )
        if design in TYPICAL_GAP_SHOWN:
            share = tallies["typical gap"].shows(1)
            print(f"shown, typical gap, {design}: {100 * share:.0f} %")
            if share < TYPICAL_GAP_SHOWN[design]:
                yield f"{design}: typical gap shown in {100 * share:.0f} %"
    for name, of_designs in covered.items():
        share, design = min(of_designs)
        print(f"holds, {name}: {100 * share:.1f} % or more, least in {design}")
    for (name, side), shares in claims.items():
        share, direction = float(np.mean(shares)), "better" if side > 0 else "worse"
        print(
            f"falsely {direction}, {name}: {100 * share:.1f} % of {len(shares)} designs"
        )
        if share > FALSE:
            yield f"{name}: falsely {direction} in {100 * share:.1f} %"
    for name, tallied in shown.items():
        power, oracle, fair = np.mean(tallied, 0)
        print(
            f"shown, {name}: {100 * power:.0f} % in {len(tallied)} designs, oracle "
            f"{100 * oracle:.0f}, fair oracle {100 * fair:.0f}"
        )
        if power < SHOWN.get(name, 0):
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
    """How often McNemar's exact test at 5 % shows that answers of a group become right."""
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
    simulations = [(design, 1) for design in designs()]
    simulations += [
        (d, images) for d in designs() if d.name in OF_PERSONS for images in (4, 8)
    ]
    simulations = [
        simulation for simulation in simulations if options.only in simulation[0].name
    ]
    all_tallies = {}
    if options.kept is not None:
        options.kept.mkdir(parents=True, exist_ok=True)
    simulate_design = partial(simulate_once, audits=options.audits, kept=options.kept)
    with ProcessPoolExecutor(options.jobs) as pool:
        jobs = pool.map(simulate_design, *zip(*simulations, strict=True))
        for (design, images), tallies in zip(simulations, jobs, strict=True):
            name = design.name + f", {images} images of each person" * (images > 1)
            all_tallies[name] = tallies
            print(
                f"{name}\n    {', '.join(f'{k} {v}' for k, v in tallies.items())}",
                flush=True,
            )
    missed = []
    if not options.only:
        missed += problems(all_tallies)
        print(f"accuracy and balanced accuracy in {MANY} audits")
        lowest_of_forms = [(coverage, name, design.name) for design in designs()
                for name, coverage in closed_forms(design).items()]  # fmt: skip
        for name in dict.fromkeys(name for _, name, _ in lowest_of_forms):
            coverage, _, design = min(row for row in lowest_of_forms if row[1] == name)
            print(f"    {name}: {100 * coverage:.1f} % or more, least in {design}")
            if coverage < HOLDS:
                missed.append(
                    f"{design}, {name}: holds in {100 * coverage:.1f} % of {MANY}"
                )
        print(
            "one rate alone, exactly and at worst, if at most 60 % of the answers change"
        )
        print(
            "    "
            + ", ".join(
                f"n = {n}: {lowest_coverage(n):.3f}" for n in (5, 10, 20, 30, 60)
            )
        )
    sys.exit("\n".join(missed) or None)


if __name__ == "__main__":
    main()
