"""How often the intervals of pseudo-EOD and of its change hold the truth.

    python benchmarks/perceived_coverage.py [--trials 1000]

Images are drawn from large made-up populations in which the logits lean on the attribute and a
correction takes away a share of that. The truth is pseudo-EOD of the whole population. Ends with an
error if intervals of level 95 % hold in fewer than 93 of 100 or one has no width.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

from fair_tta.metrics import Bootstrap, Estimate
from fair_tta.metrics._perceived import pseudo_equalized_odds_difference, pseudo_odds
from fair_tta.metrics._types import Floats, Ints

LEAST = 0.93
POPULATION = 200_000
DESIGNS = {  # classes, values, how far logits lean, what is corrected of that, images
    "half corrected, 100": (2, 2, 1.5, 0.5, 100),
    "half corrected, 1000": (2, 2, 1.5, 0.5, 1000),
    "hardly corrected, 100": (2, 2, 1.5, 0.02, 100),
    "hardly corrected, 300": (2, 2, 1.5, 0.02, 300),
    "nothing changes": (2, 2, 1.5, 0.0, 100),
    "no lean, nothing changes": (2, 2, 0.0, 0.0, 100),
    "all corrected": (2, 2, 1.5, 1.0, 200),
    "corrected twice over": (2, 2, 1.0, 2.0, 200),
    "three by three": (3, 3, 1.5, 1.0, 400),
    "six classes": (6, 2, 1.0, 0.5, 200),
    "five values": (2, 5, 1.0, 0.7, 200),
    "30 images": (2, 2, 1.0, 0.5, 30),
}


def population(
    generator: np.random.Generator,
    classes: int,
    values: int,
    lean: float,
    corrected: float,
) -> tuple[Floats, Floats, Ints, Ints]:
    """q, w, and answers before and after."""
    y, s = (generator.integers(0, k, POPULATION) for k in (classes, values))
    w = _softmax(2 * np.eye(values)[s] + generator.normal(size=(POPULATION, values)))
    leaning = lean * np.eye(classes)[np.arange(values) % classes]
    noise = 1.5 * generator.normal(size=(POPULATION, classes))
    logits = 2 * np.eye(classes)[y] + leaning[s] + noise
    return (
        _softmax(logits),
        w,
        logits.argmax(1),
        (logits - corrected * w @ leaning).argmax(1),
    )


def _softmax(logits: Floats) -> Floats:
    e: Floats = np.exp(logits - logits.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    trials = parser.parse_args().trials
    generator, failed = np.random.default_rng(0), []
    for name, (classes, values, lean, corrected, n) in DESIGNS.items():
        q, w, before, after = population(generator, classes, values, lean, corrected)
        first, second = (
            pseudo_equalized_odds_difference(a, q, w) for a in (before, after)
        )
        covered, widths = np.zeros(3), []
        for trial in range(trials):
            sample = generator.integers(0, POPULATION, n)
            estimate = pseudo_odds(
                [before[sample], after[sample]],
                q[sample],
                w[sample],
                Bootstrap(500, seed=trial),
            )
            figures = [*estimate.runs, *estimate.changes]
            covered += [
                _holds(f, t)
                for f, t in zip(figures, (first, second, second - first), strict=True)
            ]
            widths.append(
                (estimate.changes[0].high or 0.0) - (estimate.changes[0].low or 0.0)
            )
        rates = covered / trials
        print(
            f"{name}: {100 * first:.1f} -> {100 * second:.1f}; held before {100 * rates[0]:.1f}, "
            f"after {100 * rates[1]:.1f}, change {100 * rates[2]:.1f}; mean width of the change "
            f"{100 * np.mean(widths):.1f} points",
            flush=True,
        )
        if rates.min() < LEAST or min(widths) <= 0:
            failed.append(name)
    if failed:
        sys.exit(f"too narrow: {', '.join(failed)}")


def _holds(figure: Estimate, truth: float) -> bool:
    assert figure.low is not None
    assert figure.high is not None
    return figure.low - 1e-9 <= truth <= figure.high + 1e-9


if __name__ == "__main__":
    main()
