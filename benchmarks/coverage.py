"""How often intervals hold the truth, with effects and without, and how wide they are.

    python benchmarks/coverage.py [--audits 1000] [--only NAME]

Audits are simulated: pictures of every class and group, right or wrong before and after with known
probabilities. Of each figure it shows how many of 100 intervals of level 95 % hold the true
value, and in brackets how many times as wide they are as those of an oracle, on average. The oracle
knows which groups are truly the worst (or the farthest apart) before and after and needs Bonett and
Price's interval for these alone; for means it knows the true standard deviation.

Ends with an error if a figure holds in fewer than 93 of 100 or an interval has no width.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import NormalDist

import numpy as np

from fair_tta.metrics import Bootstrap, Estimate, Over
from fair_tta.metrics import _definitions as definitions
from fair_tta.metrics._calibration import mean
from fair_tta.metrics._columns import Columns, Floats, Ints
from fair_tta.metrics._intervals import paired_ends
from fair_tta.metrics._metric import Metric, estimates

LEVEL = 0.95
LEAST = 0.93
_PAIRS = Over.TARGET_AND_SENSITIVE
CHANGES = {
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
        made = []
        for right in (self.right, self.right - self.lost + self.won):
            wrong = self._wrong()
            table = (1 - right)[..., None] * wrong
            classes = np.arange(self.n.shape[1])
            table[:, classes, classes] = right
            made.append(table * self.n[..., None])
        return made[0], made[1]

    def _wrong(self) -> Floats:
        """Shares of wrong answers: ``[true, predicted]``."""
        classes = self.n.shape[1]
        if self.next_class:
            return np.roll(np.eye(classes), 1, axis=1)
        return (1 - np.eye(classes)) / max(1, classes - 1)

    def truth(self, metric: Metric) -> float:
        """The true change."""
        before, after = self.tables
        return float(metric(after) - metric(before))

    def draw(self, generator: np.random.Generator) -> tuple[Columns, Floats, Floats]:
        """An audit of two runs, and entropies before and after."""
        groups, classes = self.n.shape
        cell = np.repeat(np.arange(self.n.size), self.n.ravel())
        truth = cell % classes
        luck = generator.random(len(cell))
        kept = (self.right - self.lost).ravel()[cell]
        first, second = kept + self.lost.ravel()[cell], kept + self.won.ravel()[cell]
        # [0, kept): right twice; [kept, kept + lost): before only; then: after only
        was = luck < first
        now = (luck < kept) | ((luck >= first) & (luck < first + second - kept))
        steps = [generator.integers(1, classes, len(cell)) for _ in range(2)]
        other, again = ((truth + (1 if self.next_class else step)) % classes for step in steps)
        keep = ~was & ~now & (generator.random(len(cell)) < 0.8)  # wrong twice, mostly the same
        again = np.where(keep, other, again)
        rows = Columns(
            tuple(range(classes)),
            {"group": tuple(range(groups))},
            truth,
            cell // classes,
            (np.where(was, truth, other), np.where(now, truth, again)),
        )
        before = generator.beta(0.5, self.skew, len(cell))
        moved = np.where(generator.random(len(cell)) < 0.3, generator.beta(1, 2, len(cell)), 0.02)
        return rows, before, before + moved * (1 - before)


def designs() -> Iterator[Design]:
    """The populations that are tried."""

    def cells(shape: tuple[int, int], base: float, **other: float) -> Floats:
        made = np.full(shape, base)
        for place, value in other.items():
            g, c = map(int, place[2:].split("_"))
            made[g, c] = value
        return made

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
        parts = [np.broadcast_to(np.array(x, np.float64), sizes.shape) for x in (right, lost, won)]
        assert (parts[1] <= parts[0] + 1e-9).all()
        assert (parts[2] <= 1 - parts[0] + 1e-9).all()
        return Design(name, sizes, *parts, next_class, skew)

    four, fourteen, nine = (2, 2), (7, 2), (3, 3)
    yield design("twenty of 5, nearly all right", np.full((10, 2), 5), 0.97, 0.02, 0.01)
    yield design("twenty of 20, nearly all right", np.full((10, 2), 20), 0.96, 0.02, 0.02)
    yield design(
        "four of 60, one drops .12", np.full(four, 60), 0.8, cells(four, 0.03, at0_0=0.15), 0.03
    )
    yield design(
        "four of 250, one drops .06", np.full(four, 250), 0.8, cells(four, 0.03, at0_0=0.09), 0.03
    )
    yield design(
        "worst of 8, lifted",
        [[8, 100], [100, 100]],
        [[0.5, 0.8], [0.8, 0.8]],
        0.02,
        cells(four, 0.02, at0_0=0.2),
    )
    yield design(
        "one of 8 drops unseen", [[8, 60], [60, 60]], 0.8, cells(four, 0.03, at0_0=0.15), 0.03
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
        "cells of 5, one drops .25", np.full(four, 5), 0.7, cells(four, 0.05, at0_0=0.3), 0.05
    )
    yield design(
        "worst changes identity",
        np.full(four, 80),
        [[0.6, 0.65], [0.8, 0.8]],
        [[0.02, 0.1], [0.02, 0.02]],
        [[0.15, 0.02], [0.02, 0.02]],
    )
    yield design("two cells, one lifted", [[50, 50]], [[0.7, 0.8]], 0.05, [[0.12, 0.02]], skew=2)
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
    yield design("14 of 5 to 500, one drops", sizes, 0.75, cells(fourteen, 0.05, at0_1=0.15), 0.05)
    yield design("everybody gains .1", np.full(four, 100), [[0.5, 0.6], [0.7, 0.8]], 0.03, 0.13)
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
        "three classes, one drops", np.full(nine, 60), 0.75, cells(nine, 0.03, at0_0=0.18), 0.03
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


class Tally:
    """Coverage and widths of a figure."""

    def __init__(self) -> None:
        self.held: list[bool] = []
        self.widths: list[float] = []
        self.oracle: list[float] = []

    def add(self, figure: Estimate, truth: float, oracle: float) -> None:
        assert figure.low is not None
        assert figure.high is not None
        assert figure.low <= figure.value + 1e-12 <= figure.high + 2e-12
        self.held.append(figure.low - 1e-9 <= truth <= figure.high + 1e-9)
        self.widths.append(figure.high - figure.low)
        self.oracle.append(oracle)

    @property
    def coverage(self) -> float:
        return float(np.mean(self.held))

    @property
    def narrowest(self) -> float:
        return min(self.widths)

    def __str__(self) -> str:
        ratio = np.mean(self.widths) / np.mean(self.oracle) if np.mean(self.oracle) > 0 else np.nan
        text = f"{100 * self.coverage:.0f}"
        return text if np.isnan(ratio) else f"{text} ({ratio:.1f})"


def simulate(design: Design, audits: int, seed: int = 0) -> dict[str, Tally]:
    """Draw audits and tally the intervals of changes, and of single runs after ``run:``."""
    generator = np.random.default_rng(seed)
    found: dict[str, Tally] = {}
    changes = {name: m for name, m in CHANGES.items() if not np.isnan(design.truth(m))}
    atc = 1 - 0.5 / (0.5 + design.skew)  # of the beta distribution
    asi = (0.3 / 3 + 0.7 * 0.02) * atc
    # spreads from a large population
    rows, a, b = replace(design, n=design.n * (200_000 // design.n.sum() + 1)).draw(generator)
    spread, single = float(np.std(b - a)), float(np.std(a))
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    true = design.tables[0]
    for _ in range(audits):
        rows, a, b = design.draw(generator)
        n = len(rows.truth)
        for name, metric in changes.items():
            figure, width = metric.difference(rows, 0, 1, Bootstrap()), oracle(design, name, rows)
            found.setdefault(name, Tally()).add(figure, design.truth(metric), width)
        figure = mean(b - a, LEVEL, least=-1.0)
        found.setdefault("ASI, ATC", Tally()).add(figure, asi, 2 * z * spread / n**0.5)
        figure = mean(1 - a, LEVEL)
        found.setdefault("run: ATC", Tally()).add(figure, atc, 2 * z * single / n**0.5)
        names = ("accuracy", "EOD", "balanced", "WGA", "bias")
        how = Bootstrap(1000, level=LEVEL)
        figures = estimates([CHANGES[name] for name in names], rows, 0, how)
        for name, figure in zip(names, figures, strict=True):
            value = float(CHANGES[name](true))
            if not np.isnan(value):
                found.setdefault(f"run: {name}", Tally()).add(figure, value, 0.0)
    return found


def oracle(design: Design, name: str, rows: Columns) -> float:
    """The width of the interval of somebody who knows which groups are the worst."""
    if name == "accuracy":
        return _width(rows, np.ones(len(rows.truth), np.bool_))
    before, after = (definitions.true_positive(table) for table in design.tables)
    if name == "balanced":
        return _mean_width(design)
    if name == "WGA":
        first, then = (np.unravel_index(r.argmin(), r.shape) for r in (before, after))
        masks = [(rows.group == g) & (rows.truth == c) for g, c in (first, then)]
        return float(np.mean([_width(rows, mask) for mask in masks]))
    if name == "EOD" and len(rows.targets) == 2:
        widths = []
        for rates in (before, after):
            c = int(definitions.gap(rates).argmax())
            pair = rates[:, c].argmax(), rates[:, c].argmin()
            pair = pair if pair[0] != pair[1] else (0, 1)
            masks = [(rows.group == g) & (rows.truth == c) for g in pair]
            widths.append(float(np.hypot(*(_width(rows, mask) for mask in masks))))
        return float(np.mean(widths))
    return 0.0


def _mean_width(design: Design) -> float:
    """Of the mean change over cells, for somebody who knows the true variances."""
    net = design.won - design.lost
    variance = (design.won + design.lost - net**2) / design.n
    z = NormalDist().inv_cdf((1 + LEVEL) / 2)
    return float(2 * z * np.sqrt(variance.sum()) / design.n.size)


def _width(rows: Columns, some: object) -> float:
    was, now = (answers[some] == rows.truth[some] for answers in rows.answers)
    counts = [np.float64(x) for x in ((was & ~now).sum(), (~was & now).sum(), len(was))]
    low, high = paired_ends(*counts, LEVEL)
    return float(high - low)


def lowest_coverage(n: int, most: float = 0.6) -> float:
    """How often Bonett and Price's interval holds one rate's change, at worst and exactly.

    Over losses and gains of 0 to `most` in all, in steps of 1/40.
    """
    pairs = np.array([(lost, won) for lost in range(n + 1) for won in range(n + 1 - lost)])
    lost, won = pairs.T.astype(np.float64)
    low, high = paired_ends(lost, won, np.full(len(pairs), float(n)), LEVEL)
    log = np.array([math.lgamma(k + 1) for k in range(n + 1)])
    ways = log[n] - log[pairs[:, 0]] - log[pairs[:, 1]] - log[n - pairs.sum(1)]
    worst_of = 1.0
    steps = np.arange(0, most + 1e-9, 1 / 40)
    for loss, gain in ((a, b) for a in steps for b in steps if 0 < a + b <= most + 1e-9):
        logs = np.log(np.maximum([loss, gain, 1 - loss - gain], 1e-300))
        chance = np.exp(ways + lost * logs[0] + won * logs[1] + (n - lost - won) * logs[2])
        held = (low - 1e-9 <= gain - loss) & (gain - loss <= high + 1e-9)
        worst_of = min(worst_of, float(chance[held].sum()))
    return worst_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--audits", type=int, default=1000)
    parser.add_argument("--only", default="", help="designs whose name has this in it")
    options = parser.parse_args()
    failed = []
    for design in designs():
        if options.only not in design.name:
            continue
        found = simulate(design, options.audits)
        print(
            f"{design.name}\n    " + ", ".join(f"{name} {tally}" for name, tally in found.items())
        )
        for name, tally in found.items():
            varies = not (name.endswith("(s)") and len(design.n) == 1)  # one group has no gap
            if tally.coverage < LEAST or (varies and tally.narrowest <= 0):
                failed.append(f"{design.name}, {name}: {tally}, narrowest {tally.narrowest:.3g}")
    if not options.only:
        print("one rate alone, exactly and at worst, if at most 60 % of the answers change")
        print("    " + ", ".join(f"n = {n}: {lowest_coverage(n):.3f}" for n in (5, 10, 20, 30, 60)))
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
