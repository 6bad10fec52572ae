"""Intervals of pseudo-EOD and of its change: images are weighted anew, with all their answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fair_tta.metrics.bootstrap import DEFAULT, Bootstrap, around, check_interval, parts, quantile
from fair_tta.metrics.definitions import EQUALIZED_ODDS
from fair_tta.metrics.estimate import Estimate, undefined
from fair_tta.metrics.perceived import WeightedOdds, combined, read_perceived
from fair_tta.metrics.rows import Floats, Ints

_NOTHING = "no class is perceived with two values"
_ADDED = 0.25  # of an image


@dataclass(frozen=True)
class PseudoOdds:
    """Pseudo-EOD of several runs on the same images.

    Attributes:
        runs: of each run.
        changes: of each run but the first, minus that of the first.
    """

    runs: tuple[Estimate, ...]
    changes: tuple[Estimate, ...]


def pseudo_odds(
    runs: Sequence[Any], target: Any, sensitive: Any, interval: Bootstrap = DEFAULT
) -> PseudoOdds:
    """Pseudo-EOD of each run and how it differs from that of the first, with intervals.

    Images get random weights of mean 1, each with q, w and all its answers (the Bayesian bootstrap,
    Rubin 1981), after a quarter of an image was added twice to each class of each value: once right
    in the first run and wrong in the others, and once the other way round. Without them a change
    that few images show would look certain, and one that none shows impossible. The noise of the
    rates, drawn minus expected, is added to the rates that were seen. As for other gaps the
    interval of a run reaches as far as the `level` quantile of the gap of the noise alone; that of
    a change has the quantiles of the resampled changes. ``benchmarks/perceived_coverage.py`` shows
    how often they hold.

    Args:
        runs: for each run ``[images]`` positions of the classes that were answered.
        target: ``[images, classes]`` zero-shot probabilities q.
        sensitive: ``[images, values]`` zero-shot probabilities w.
        interval: level, resamples and seed; its strata do not matter.
    """
    check_interval(interval)
    chosen, q, w = read_perceived(list(runs), target, sensitive)
    n, one_hot = len(q), np.eye(q.shape[1])
    seen = [WeightedOdds(one_hot[answers], q, w).rates(np.ones(n)) for answers in chosen]
    values = [combined(rates) for rates in seen]
    if np.isnan(values[0]):  # of all, as they share the weights
        nothing = undefined(_NOTHING, n)
        return PseudoOdds((nothing,) * len(values), (nothing,) * (len(values) - 1))
    resampled: list[list[Floats]] = [[] for _ in chosen]
    noises: list[list[Floats]] = [[] for _ in chosen]
    for part in _noise(chosen, q, w, interval):
        for rates, noise, figures, gaps in zip(seen, part, resampled, noises, strict=True):
            figures.append(EQUALIZED_ODDS.combine(rates + noise))
            gaps.append(EQUALIZED_ODDS.combine(noise))
    reaches = [float(quantile(gaps, interval.level)) for gaps in noises]
    alone = [
        Estimate(value, n, max(0.0, value - reach), min(1.0, value + reach))
        for value, reach in zip(values, reaches, strict=True)
    ]
    changes = []
    for value, figures in zip(values[1:], resampled[1:], strict=True):
        moved = [after - before for before, after in zip(resampled[0], figures, strict=True)]
        low, high = around(np.float64(value - values[0]), moved, interval)
        changes.append(Estimate(value - values[0], n, max(-1.0, float(low)), min(1.0, float(high))))
    return PseudoOdds(tuple(alone), tuple(changes))


def _noise(chosen: list[Ints], q: Floats, w: Floats, how: Bootstrap) -> Iterator[list[Floats]]:
    """For each run the noise of its rates on the same draws, ``[some, 2, values, classes]``."""
    n, values, classes = len(q), w.shape[1], q.shape[1]
    one_hot = np.eye(classes)
    wrong = (1 - one_hot) / max(1, classes - 1)
    cell_w = np.repeat(np.eye(values), classes, 0)
    cell_q = np.tile(one_hot, (values, 1))
    q, w = np.concatenate([q, cell_q, cell_q]), np.concatenate([w, cell_w, cell_w])
    added = np.tile(one_hot, (values, 1)), np.tile(wrong, (values, 1))
    odds = [
        WeightedOdds(np.concatenate([one_hot[answers], *(added if k == 0 else added[::-1])]), q, w)
        for k, answers in enumerate(chosen)
    ]
    worth = np.where(np.arange(len(q)) < n, 1.0, _ADDED)
    expected = [of.rates(worth) for of in odds]
    generator = np.random.default_rng(how.seed)
    for some in parts(how.resamples, len(q)):
        drawn = generator.standard_gamma(worth, (some, len(q)))
        yield [of.rates(drawn) - rates for of, rates in zip(odds, expected, strict=True)]
