"""How often the verdict of a report is green, and how often it is lost though nothing falls.

    python benchmarks/verdict_rule.py [--audits 1000] [--only NAME]

Audits are simulated in which a method truly narrows the typical gap and no class in no group truly
falls: answers of most groups change as often for the better as for the worse. Green needs more than
a gap that is shown to fall: neither accuracy nor any group may be shown to fall. For each design it
prints in how many of 100 audits the gap is shown to fall, in how many the verdict is green, and in
how many it is not because something seems to fall. Ends with an error if the last is above 5.

Then designs with groups of fewer than 30 images: in how many audits the gap looks smaller, and how
many of those are green after the images that the sentence names were added.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from coverage import Design

from fair_tta.auditing._judge import Verdict, verdict_on
from fair_tta.auditing._run import _compared_groups
from fair_tta.metrics import Bootstrap, definitions
from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import SMALL_GROUP, Estimate

HOW = Bootstrap()
NEEDED = (
    definitions.TYPICAL_GAP,
    definitions.BALANCED_ACCURACY,
    definitions.ACCURACY,
    definitions.WORST_GROUP_ACCURACY,
)
MOST_LOST = 0.05


@dataclass
class Counts:
    """Audits in which the gap is shown to fall, in which it is green, in which something falls."""

    narrows: int = 0
    green: int = 0
    lost: int = 0


def churning(name: str, n: Any, at: float, by: float, churn: float) -> Design:
    """Return a population in which one class in one group is low and gains; others only churn.

    Churn is the share of answers that turn wrong, and the same share turns right.
    """
    sizes = np.array(n, np.int64)
    right = np.full(sizes.shape, 0.85)
    right[0, 0] = at
    lost = np.full(sizes.shape, churn)
    won = lost.copy()
    won[0, 0] += by
    return Design(name, sizes, right, lost, won)


FULL = [
    churning(
        "2x2 of 100, one lifted .25, 3 % churn", np.full((2, 2), 100), 0.5, 0.25, 0.03
    ),
    churning(
        "2x2 of 100, one lifted .25, 10 % churn", np.full((2, 2), 100), 0.5, 0.25, 0.1
    ),
    churning(
        "2x2 of 500, one lifted .1, 10 % churn", np.full((2, 2), 500), 0.6, 0.1, 0.1
    ),
    churning(
        "7x2 of 140, one lifted .25, 5 % churn", np.full((7, 2), 140), 0.5, 0.25, 0.05
    ),
    churning(
        "7x2 of 40, one lifted .4, 10 % churn", np.full((7, 2), 40), 0.4, 0.4, 0.1
    ),
    churning(
        "3x3 of 220, one lifted .25, 10 % churn", np.full((3, 3), 220), 0.5, 0.25, 0.1
    ),
    churning("2x2, one of 30 lifted .4", [[30, 1000], [1000, 1000]], 0.4, 0.4, 0.1),
]
SMALL_GROUPS = [
    churning("2x2, one of 12 lifted .5", [[12, 100], [100, 100]], 0.3, 0.5, 0.02),
    churning(
        "2x2, one of 200 lifted .3, another of 20",
        [[200, 200], [20, 200]],
        0.5,
        0.3,
        0.02,
    ),
    churning("3x2 of 25, one lifted .6", np.full((3, 2), 25), 0.2, 0.6, 0.02),
]


def judged(columns: AnswerTable) -> Verdict:
    """Return the verdict of the rule on two runs: what it reads of an audit, and nothing else."""
    differences = {
        figure.name: figure.difference(columns, 0, 1, HOW) for figure in NEEDED
    }
    balanced = definitions.BALANCED_ACCURACY.estimate(columns, 1, HOW)
    after = SimpleNamespace(
        name="after", metrics=_named({"balanced_accuracy": balanced})
    )
    sizes = columns.sum_by_cell().reshape(len(columns.groups), -1).tolist()
    groups = [
        SimpleNamespace(sensitive={"group": str(g)}, classes=_cells(columns, of_group))
        for g, of_group in enumerate(sizes)
    ]
    before = SimpleNamespace(name="before", metrics=_named({}), groups=groups)
    document: Any = SimpleNamespace(
        runs=(before, after),
        data=SimpleNamespace(targets=columns.targets),
        settings=SimpleNamespace(small=SMALL_GROUP),
    )
    comparison: Any = SimpleNamespace(
        run="after",
        adjusted=_named(differences),
        groups=tuple(_compared_groups(columns, 1, HOW)),
    )
    return verdict_on(document, comparison)


def _cells(columns: AnswerTable, sizes: Sequence[float]) -> list[SimpleNamespace]:
    """Return each class of a group with its images."""
    pairs = zip(columns.targets, sizes, strict=True)
    return [SimpleNamespace(target=str(target), images=int(n)) for target, n in pairs]


def _named(figures: Mapping[str, Estimate]) -> SimpleNamespace:
    """Return figures as a document has them."""
    return SimpleNamespace(by_name=lambda: figures)


def tally(population: Design, audits: int) -> Counts:
    """Judge so many audits of a population."""
    generator, counts = np.random.default_rng(0), Counts()
    for _ in range(audits):
        verdict = judged(population.draw(generator)[0])
        counts.narrows += verdict.typical_gap < 0
        counts.green += verdict.is_shown
        counts.lost += verdict.typical_gap < 0 and bool(verdict.costs)
    return counts


def filled(
    population: Design, columns: AnswerTable, generator: np.random.Generator
) -> AnswerTable:
    """Return an audit with more images of each small group, until it has as many as are needed."""
    missing = np.maximum(0, SMALL_GROUP - population.n) * (population.n > 0)
    added_rows = replace(population, n=missing).draw(generator)[0]
    return replace(
        columns,
        truth=np.concatenate([columns.truth, added_rows.truth]),
        group_codes=np.concatenate([columns.group_codes, added_rows.group_codes]),
        answers=tuple(
            map(np.concatenate, zip(columns.answers, added_rows.answers, strict=True))
        ),
    )


def after_filling(population: Design, audits: int) -> tuple[int, int]:
    """Count audits in which the gap looks smaller, and those that are green once filled."""
    generator, looks_smaller, green = np.random.default_rng(0), 0, 0
    for _ in range(audits):
        columns = population.draw(generator)[0]
        if judged(columns).looks_smaller:
            looks_smaller += 1
            green += judged(filled(population, columns, generator)).is_shown
    return looks_smaller, green


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=1000)
    parser.add_argument("--only", default="", help="designs whose name has this in it")
    options = parser.parse_args()
    missed = []
    for population in (
        candidate for candidate in FULL if options.only in candidate.name
    ):
        counts = tally(population, options.audits)
        shares = [
            100 * n / options.audits
            for n in (counts.narrows, counts.green, counts.lost)
        ]
        narrows, green, lost = (f"{share:.1f}" for share in shares)
        print(
            f"{population.name}: gap falls {narrows}, green {green}, lost {lost}",
            flush=True,
        )
        if shares[-1] > 100 * MOST_LOST:
            missed.append(f"{population.name}: green is lost in {lost} %")
    for population in (
        candidate for candidate in SMALL_GROUPS if options.only in candidate.name
    ):
        looks_smaller, green = after_filling(population, options.audits)
        print(f"{population.name}: looks smaller in {looks_smaller} of "
              f"{options.audits}, {green} of these "
              "green with the images named", flush=True)  # fmt: skip
    sys.exit("\n".join(missed) or None)


if __name__ == "__main__":
    main()
