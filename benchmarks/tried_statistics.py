"""What was tried and left out of the statistics, and why.

    python benchmarks/tried_statistics.py slack [--audits 1000] [--only NAME]
    python benchmarks/tried_statistics.py images [--audits 200]

slack: intervals of the change of EOD if forms that may be the largest are dropped beyond one
standard error, beside those of the library: how many hold, and how many show a change for the
better and for the worse. Five minutes.

images: how many images would show the change that was seen, by ``n (2.8 sd / change)^2`` from an
audit that did not show it, and in how many audits of so many images, whose rates are those seen, it
is shown; 80 % would be right. For the worst group and EOD, ``sd / change`` is the largest over the
forms after. Five minutes with 100 audits.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from coverage import Design, Tally, designs
from scipy.special import ndtri

from fair_tta.metrics import Bootstrap, definitions
from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._metric import MetricDefinition, RateMetric
from fair_tta.metrics._types import Floats
from fair_tta.metrics.intervals import _extremes as extremes
from fair_tta.metrics.intervals._noise import rates_with_noise
from fair_tta.metrics.intervals._typical_gap import (
    measure_typical_gap_change,
    why_no_interval,
)

HOW = Bootstrap()
REACH = float(
    ndtri(0.975) + ndtri(0.8)
)  # standard errors of a change shown in 8 of 10 audits
MOST_IMAGES = {"typical gap": 40_000, "WGA": 12_000, "EOD": 12_000}
HOSTILE = [
    ("12 cells of 50, worst lifted", np.full((6, 2), 50), [[0.55, 0.8]] + [[0.75, 0.8]] * 5, 0.03,
     [[0.15, 0.03]] + [[0.03, 0.03]] * 5),
    ("12 cells of 50, no effect, churn", np.full((6, 2), 50), [[0.55, 0.8]] + [[0.75, 0.8]] * 5,
     0.06, 0.06),
    ("5x2 of 24 to 300, gap closes", [[24, 300], [60, 200], [120, 150], [40, 300], [300, 24]],
     [[0.55, 0.9], [0.8, 0.85], [0.85, 0.8], [0.6, 0.9], [0.9, 0.65]], 0.02,
     [[0.25, 0.02], [0.06, 0.02], [0.03, 0.04], [0.22, 0.02], [0.02, 0.2]]),
    ("5x2 of 24 to 300, no effect", [[24, 300], [60, 200], [120, 150], [40, 300], [300, 24]],
     [[0.6, 0.9], [0.8, 0.85], [0.85, 0.8], [0.65, 0.9], [0.9, 0.65]], 0.05, 0.05),
    ("3 classes, 1,200 images, gap closes", np.full((2, 3), 200),
     [[0.9, 0.7, 0.8], [0.65, 0.9, 0.8]], 0.03, [[0.03, 0.15, 0.03], [0.2, 0.03, 0.03]]),
    ("a cell of 5 beside 2,900", [[5, 900], [1000, 1000]], [[0.2, 0.9], [0.85, 0.9]], 0.02,
     [[0.6, 0.02], [0.02, 0.02]]),
    ("a cell of 5 beside 2,900, no effect", [[5, 900], [1000, 1000]], [[0.4, 0.9], [0.85, 0.9]],
     0.1, 0.1),
    ("4x2 of 60, near ties, another pair takes over", np.full((4, 2), 60),
     [[0.8, 0.8], [0.78, 0.8], [0.76, 0.8], [0.9, 0.8]],
     [[0.02, 0.02]] * 3 + [[0.12, 0.02]], 0.02),
    ("3x2 of 80, a pair 1 error below takes over", np.full((3, 2), 80),
     [[0.9, 0.8], [0.66, 0.8], [0.72, 0.8]], [[0.02, 0.02], [0.02, 0.02], [0.08, 0.02]],
     [[0.02, 0.02], [0.08, 0.02], [0.02, 0.02]]),
    ("3x2 of 80, a pair 1.5 errors below", np.full((3, 2), 80),
     [[0.9, 0.8], [0.62, 0.8], [0.71, 0.8]], [[0.02, 0.02], [0.02, 0.02], [0.11, 0.02]],
     [[0.02, 0.02], [0.11, 0.02], [0.02, 0.02]]),
    ("3x2 of 80, a pair 2 errors below", np.full((3, 2), 80),
     [[0.9, 0.8], [0.6, 0.8], [0.74, 0.8]], [[0.02, 0.02], [0.02, 0.02], [0.16, 0.02]],
     [[0.02, 0.02], [0.16, 0.02], [0.02, 0.02]]),
    ("7x2 of 40, all .15 apart, they swap", np.full((7, 2), 40),
     [[0.9, 0.8]] + [[0.75, 0.8]] * 3 + [[0.8, 0.8]] * 3, [[0.02, 0.02]] * 4 + [[0.07, 0.02]] * 3,
     [[0.02, 0.02]] + [[0.07, 0.02]] * 3 + [[0.02, 0.02]] * 3),
    ("2x2 of 80, rates of two kinds swap", np.full((2, 2), 80), [[0.9, 0.85], [0.7, 0.72]],
     [[0.02, 0.02], [0.02, 0.09]], [[0.02, 0.02], [0.09, 0.02]]),
    ("6x2 of 30, several within 1 error shift", np.full((6, 2), 30),
     [[0.92, 0.8], [0.7, 0.8], [0.74, 0.8], [0.76, 0.8], [0.78, 0.8], [0.8, 0.8]],
     [[0.02, 0.02], [0.02, 0.02], [0.06, 0.02], [0.06, 0.02], [0.08, 0.02], [0.1, 0.02]],
     [[0.02, 0.02], [0.08, 0.02]] + [[0.02, 0.02]] * 4),
]  # fmt: skip
"""Cells of 5 to 1,000 images, and gaps that move between pairs which are nearly tied."""


def hostile() -> Iterator[Design]:
    """Yield the designs that `coverage.designs` does not have."""
    for name, n, *rates in HOSTILE:
        sizes = np.array(n, np.int64)
        parts = [np.broadcast_to(np.array(x, np.float64), sizes.shape) for x in rates]
        yield Design(str(name), sizes, *parts)


def milder_noise_of_largest(
    forms: extremes._ClassForms, error: float
) -> tuple[Floats, Floats]:
    """Do what `extremes._noise_of_largest` does, within one standard error at most."""
    distance, deviation, largest_noise = forms.below_largest
    margin = min(1.0, -ndtri(error / max(1, len(distance) - 1))) * deviation
    slack = np.maximum(0.0, distance - margin).astype(forms.z.dtype)
    candidates = largest_noise >= slack
    return slack, (forms.z[candidates] - slack[candidates, None]).max(0)


def slack(audits: int, only: str) -> None:
    """Print what intervals of EOD hold and show, with the library's slack and with the milder."""
    tops = {"library": extremes._noise_of_largest, "milder": milder_noise_of_largest}
    for design in (*designs(), *hostile()):
        truth = design.truth(definitions.EQUALIZED_ODDS)
        if math.isnan(truth) or only not in design.name:
            continue
        generator = np.random.default_rng(0)
        tallies = {name: Tally(truth, better=-1) for name in tops}
        for _ in range(audits):
            rows, _, _ = design.draw(generator)
            for name, top in tops.items():
                extremes._noise_of_largest = top  # type: ignore[assignment]
                change = definitions.EQUALIZED_ODDS.difference(rows, 0, 1, HOW)
                tallies[name].add(change.low, change.high, float(change))
        parts = [
            f"{name} holds {100 * tally.holds:.1f} better {100 * tally.shows(1):.1f} "
            f"worse {100 * tally.shows(-1):.1f}"
            for name, tally in tallies.items()
            if tally.ends
        ]
        print(f"{design.name}, truth {truth:+.3f}: {'; '.join(parts)}", flush=True)


def gap_images(rows: AnswerTable) -> float:
    """Return how many images would show the change of the typical gap that was seen."""
    change = measure_typical_gap_change(rows, before=0, after=1)
    if why_no_interval(rows, 0, 1) or abs(change.value) < 5e-3:
        return math.inf
    return rows.n * (REACH * change.deviation / change.square) ** 2


def extreme_images(metric: RateMetric, rows: AnswerTable) -> float:
    """Return how many images would show the fall of the largest form, by the form that needs most.

    Forms of the other classes are those that are the largest.
    """
    assert metric.intervals is not None
    change = metric.intervals.change
    assert isinstance(change, extremes.MaxMinInterval)
    before, after = (
        extremes._class_forms(rates, change.forms)
        for rates in rates_with_noise(rows, (0, 1))
    )
    tops = [int(forms.t.argmax()) for forms in before]
    best = [int(forms.t.argmax()) for forms in after]
    classes, worst = range(len(before)), 0.0
    forms_after = [(c, j) for c in classes for j in range(len(after[c].t))]
    for c, j in forms_after:
        chosen = [j if k == c else best[k] for k in classes]
        pairs = [(before[k], tops[k], after[k], chosen[k]) for k in classes]
        fall = float(np.mean([b.t[i] - a.t[k] for b, i, a, k in pairs]))
        noise = np.mean([a.z[k] - b.z[i] for b, i, a, k in pairs], 0)
        if fall <= 1e-3:
            return math.inf
        worst = max(worst, (REACH * float(noise.std()) / fall) ** 2)
    return rows.n * worst


def seen_as_truth(rows: AnswerTable, factor: float) -> Design:
    """Return the population whose rates are those of an audit, with so many times the images."""
    groups, classes = len(rows.groups), len(rows.targets)
    right_before, right_after = (rows.answers[run] == rows.truth for run in (0, 1))
    n = np.bincount(rows.cell_codes, minlength=groups * classes)

    def share(some: Floats) -> Floats:
        counted = np.bincount(rows.cell_codes, some, minlength=groups * classes)
        shares: Floats = (counted / np.maximum(1, n)).reshape(groups, classes)
        return shares

    parts = [
        share(some.astype(np.float64))
        for some in (
            right_before,
            right_before & ~right_after,
            ~right_before & right_after,
        )
    ]
    sizes = np.round(n * factor).astype(np.int64).reshape(groups, classes)
    return Design("as seen", sizes, *parts)


def shown_share(figure: MetricDefinition, population: Design, audits: int) -> float:
    """Return the share of audits that show the change of a population, in its direction."""
    generator, shown_count = np.random.default_rng(5), 0
    falls = population.truth(figure) < 0
    for _ in range(audits):
        change = figure.difference(population.draw(generator)[0], 0, 1, HOW)
        if change.low is not None and change.high is not None:
            shown_count += change.high < 0 if falls else change.low > 0
    return shown_count / audits


def images(audits: int) -> None:
    """Print how often as many images as are named show the change."""
    plans: dict[str, tuple[MetricDefinition, Callable[[AnswerTable], float]]] = {
        "typical gap": (definitions.TYPICAL_GAP, gap_images),
        "WGA": (
            definitions.WORST_GROUP_ACCURACY,
            lambda rows: extreme_images(definitions.WORST_GROUP_ACCURACY, rows),
        ),
        "EOD": (
            definitions.EQUALIZED_ODDS,
            lambda rows: extreme_images(definitions.EQUALIZED_ODDS, rows),
        ),
    }
    some = [
        d for d in designs() if d.n.sum() < 1500 and d.n.min() >= 5 and d.n.shape[0] > 1
    ]
    for name, (figure, plan) in plans.items():
        generator, powers = np.random.default_rng(1), list[float]()
        for design, _ in product(some, range(2)):
            if name != "typical gap" and design.truth(figure) * figure.better <= 1e-9:
                continue  # the proposal is about improvements
            rows = not_shown(figure, design, generator)
            needed = math.inf if rows is None else plan(rows)
            if rows is not None and needed < MOST_IMAGES[name]:
                powers.append(
                    shown_share(figure, seen_as_truth(rows, needed / rows.n), audits)
                )
        quantiles = np.quantile(powers, [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1])
        right = np.mean([0.7 <= power <= 0.9 for power in powers])
        print(
            f"{name}: shown with the images named, quantiles over {len(powers)} audits "
            f"{[round(100 * q) for q in quantiles]} %; 70 to 90 % in {100 * right:.0f} %",
            flush=True,
        )


def not_shown(
    figure: MetricDefinition, design: Design, generator: np.random.Generator
) -> AnswerTable | None:
    """Return an audit that does not show the change, None if 20 do."""
    for _ in range(20):
        rows = design.draw(generator)[0]
        change = figure.difference(rows, 0, 1, HOW)
        if (
            change.low is not None
            and change.high is not None
            and change.low <= 0 <= change.high
        ):
            return rows
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("slack", "images"))
    parser.add_argument("--audits", type=int)
    parser.add_argument("--only", default="", help="designs whose name has this in it")
    options = parser.parse_args()
    if options.part == "slack":
        slack(options.audits or 1000, options.only)
    else:
        images(options.audits or 200)


if __name__ == "__main__":
    main()
