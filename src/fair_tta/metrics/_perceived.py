"""Intervals of pseudo-EOD and of its change: images are weighted anew, with all their answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fair_tta.errors import FairTTAError
from fair_tta.metrics._arrays import read_array, read_probabilities
from fair_tta.metrics._clusters import read_clusters
from fair_tta.metrics._estimates import Estimate, undefined_estimate
from fair_tta.metrics._rates import ratio
from fair_tta.metrics._types import Column, Floats, Ints
from fair_tta.metrics.definitions import EQUALIZED_ODDS
from fair_tta.metrics.intervals import _bootstrap
from fair_tta.metrics.intervals._bootstrap import Bootstrap, Interval

_NO_CHANGE = (
    1e-6  # of a probability from image to image: the rounding of single precision
)


def pseudo_rates(answers: Any, target: Any, sensitive: Any) -> tuple[Floats, Floats]:
    """True- and false-positive rates with perceived classes and values, ``[values, classes]`` each.

    ``TPR_s(y) = sum w_s q_y [answer = y] / sum w_s q_y`` over the images, and FPR with ``1 - q_y``
    in place of ``q_y``. NaN where nothing is perceived.

    Args:
        answers: ``[images]`` positions of the classes that were answered.
        target: ``[images, classes]`` zero-shot probabilities q.
        sensitive: ``[images, values]`` zero-shot probabilities w.

    Example:
        >>> hits, alarms = pseudo_rates([0, 1], [[0.9, 0.1], [0.2, 0.8]], [[1, 0], [0.5, 0.5]])
        >>> hits.round(2).tolist(), alarms.round(2).tolist()
        ([[0.9, 0.8], [0.0, 1.0]], [[0.2, 0.1], [0.0, 1.0]])
    """
    chosen, q, w = _read([answers], target, sensitive)
    hits, alarms = _odds(np.eye(q.shape[1])[chosen[0]], q, w)(np.ones(len(q)))
    return hits, alarms


def pseudo_equalized_odds_difference(
    answers: Any, target: Any, sensitive: Any
) -> float:
    """Pseudo-EOD: mean over classes of the larger gap between values of `pseudo_rates`.

    It lies between 0 and 1, and is NaN if no class has two values with rates. Where q and w are
    certain and right it is `equalized_odds_difference`. `pseudo_odds` has intervals. The arguments
    are those of `pseudo_rates`.

    Example:
        >>> values = [[1, 0], [1, 0], [0, 1], [0, 1]]
        >>> classes = [[1, 0], [0, 1], [1, 0], [0, 1]]
        >>> pseudo_equalized_odds_difference([0, 1, 0, 0], classes, values)
        1.0
    """
    return float(
        EQUALIZED_ODDS.combine(np.stack(pseudo_rates(answers, target, sensitive)))
    )


def r_squared(logits: Any, sensitive: Any) -> float:
    """How much of the class-centred logits is a linear function of what is perceived, 0 to 1.

    Ordinary least squares with intercept, the squares of all classes together. NaN if the logits
    do not vary or there are no more images than coefficients.

    Args:
        logits: ``[images, classes]``, up to a constant for each image, such as log probabilities.
        sensitive: ``[images, values]`` probabilities.

    Example:
        >>> round(r_squared([[0, 2], [0, 0], [0, 1]], [[1, 0], [0, 1], [0.5, 0.5]]), 3)
        1.0
    """
    w, u = read_probabilities("sensitive", sensitive), read_array("logits", logits, 2)
    if len(u) != len(w) or not np.isfinite(u).all():
        raise FairTTAError(
            f"`logits` should be finite numbers [images, classes] of {len(w)} images.",
            argument="logits",
        )
    u = u - u.mean(1, keepdims=True)
    u = u - u.mean(0)
    total = float((u**2).sum())
    if len(u) <= w.shape[1] or total <= 1e-20 * u.size:
        return float("nan")
    x = w / w.sum(1, keepdims=True)
    basis, sizes, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    basis = basis[:, sizes > _NO_CHANGE * len(x) ** 0.5]
    return min(1.0, float(((basis.T @ u) ** 2).sum()) / total)


def prompt_associations(sensitive: Any, target: Any, scale: float) -> Floats:
    """Which class leans to which value, in logits, from prompts alone: ``[values, classes]``.

    ``scale <z_s - mean z, T_y - mean T>``: rows and columns sum to 0.

    Args:
        sensitive: ``[values, dim]`` unit features z of the prompts of the values.
        target: ``[classes, dim]`` unit features T of the prompts of the classes.
        scale: inverse temperature of the softmax.

    Example:
        >>> prompt_associations([[1, 0], [0, 1]], [[1, 0], [0, 1]], 10).tolist()
        [[5.0, -5.0], [-5.0, 5.0]]
    """
    z, t = read_array("sensitive", sensitive, 2), read_array("target", target, 2)
    if z.shape[1] != t.shape[1]:
        raise FairTTAError(
            "`sensitive` and `target` should be [values, dim] and [classes, dim] "
            f"(got {list(z.shape)} and {list(t.shape)}).",
            argument="sensitive",
        )
    table: Floats = scale * (z - z.mean(0)) @ (t - t.mean(0)).T
    return table


def _read(
    runs: Sequence[Any], target: Any, sensitive: Any
) -> tuple[list[Ints], Floats, Floats]:
    """Checked answers of each run, q and w."""
    q, w = (
        read_probabilities("target", target),
        read_probabilities("sensitive", sensitive),
    )
    if not len(q) or len(q) != len(w):
        raise FairTTAError(
            "`target` and `sensitive` should be of the same images, at least one "
            f"(got {len(q)} and {len(w)}).",
            argument="target",
        )
    chosen = []
    for answers in runs:
        positions = np.asarray(answers)
        is_whole = positions.shape == (len(q),) and np.issubdtype(
            positions.dtype, np.integer
        )
        if not is_whole or positions.min() < 0 or positions.max() >= q.shape[1]:
            raise FairTTAError(
                f"`answers` should be positions of classes, 0 to {q.shape[1] - 1}, of {len(q)} "
                "images.",
                argument="answers",
            )
        chosen.append(positions.astype(np.int64))
    return chosen, q, w


def _odds(answered: Floats, q: Floats, w: Floats) -> Callable[[Floats], Floats]:
    """From weights ``[..., images]`` of images to TPR and FPR, ``[..., 2, values, classes]``.

    The answer is ``[images, classes]``, zeros and a one.
    """
    kinds = np.stack([q, np.maximum(1 - q, 0.0)], 1)[
        :, :, None
    ]  # [images, 2, 1, classes]
    all_of = w[:, None, :, None] * kinds
    hit = (all_of * answered[:, None, None]).reshape(len(q), -1)
    every = all_of.reshape(len(q), -1)

    def rates(weights: Floats) -> Floats:
        found = np.minimum(ratio(weights @ hit, weights @ every), 1.0)
        return found.reshape(*weights.shape[:-1], *all_of.shape[1:])

    return rates


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
    runs: Sequence[Any],
    target: Any,
    sensitive: Any,
    interval: Interval = 0.95,
    *,
    clusters: Column | None = None,
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
        clusters: the person or source of each image, if several images come from one: these get one
            weight. No interval is narrower than without.
    """
    how = _bootstrap.read_interval(interval)
    chosen, q, w = _read(runs, target, sensitive)
    independent = _pseudo_odds(chosen, q, w, how, None)
    units = None if clusters is None else read_clusters(clusters, len(q))
    if units is None:
        return independent
    clustered = _pseudo_odds(chosen, q, w, how, units)
    return PseudoOdds(
        tuple(map(_widest, independent.runs, clustered.runs)),
        tuple(map(_widest, independent.changes, clustered.changes)),
    )


def _widest(first: Estimate, second: Estimate) -> Estimate:
    """Return the same figure with the interval that spans those of both."""
    if (
        first.low is None
        or second.low is None
        or first.high is None
        or second.high is None
    ):
        return first
    low = min(first.low, second.low)
    high = max(first.high, second.high)
    return Estimate(first.value, first.n, low, high, first.reason)


def _pseudo_odds(
    chosen: list[Ints], q: Floats, w: Floats, how: Bootstrap, units: Ints | None
) -> PseudoOdds:
    n, one_hot = len(q), np.eye(q.shape[1])
    seen = [_odds(one_hot[answers], q, w)(np.ones(n)) for answers in chosen]
    values = [float(EQUALIZED_ODDS.combine(rates)) for rates in seen]
    if np.isnan(values[0]):  # of all, as they share the weights
        nothing = undefined_estimate(_NOTHING, n)
        return PseudoOdds((nothing,) * len(values), (nothing,) * (len(values) - 1))
    resampled: list[list[Floats]] = [[] for _ in chosen]
    noises: list[list[Floats]] = [[] for _ in chosen]
    for part in _noise(chosen, q, w, how, units):
        for rates, noise, figures, gaps in zip(
            seen, part, resampled, noises, strict=True
        ):
            figures.append(EQUALIZED_ODDS.combine(rates + noise))
            gaps.append(EQUALIZED_ODDS.combine(noise))
    reaches = [float(_bootstrap.quantile(gaps, how.level)) for gaps in noises]
    alone = [
        Estimate(value, n, max(0.0, value - reach), min(1.0, value + reach))
        for value, reach in zip(values, reaches, strict=True)
    ]
    changes = []
    for value, figures in zip(values[1:], resampled[1:], strict=True):
        moved = [
            after - before for before, after in zip(resampled[0], figures, strict=True)
        ]
        low, high = _bootstrap.quantile_bounds(
            np.asarray(value - values[0]), moved, how
        )
        changes.append(
            Estimate(value - values[0], n, max(-1.0, float(low)), min(1.0, float(high)))
        )
    return PseudoOdds(tuple(alone), tuple(changes))


def _noise(
    chosen: list[Ints], q: Floats, w: Floats, how: Bootstrap, units: Ints | None
) -> Iterator[list[Floats]]:
    """For each run the noise of its rates on the same draws, ``[some, 2, values, classes]``.

    What is added counts as much as an average cluster.
    """
    n, values, classes = len(q), w.shape[1], q.shape[1]
    one_hot = np.eye(classes)
    wrong = (1 - one_hot) / max(1, classes - 1)
    cell_w = np.repeat(np.eye(values), classes, 0)
    cell_q = np.tile(one_hot, (values, 1))
    q, w = np.concatenate([q, cell_q, cell_q]), np.concatenate([w, cell_w, cell_w])
    added = np.tile(one_hot, (values, 1)), np.tile(wrong, (values, 1))
    odds = [
        _odds(
            np.concatenate([one_hot[answers], *(added if k == 0 else added[::-1])]),
            q,
            w,
        )
        for k, answers in enumerate(chosen)
    ]
    added_images = np.full(len(q) - n, _ADDED)
    unit = np.arange(n) if units is None else units
    clusters = int(unit.max()) + 1
    row_of = np.concatenate([unit, clusters + np.arange(len(added_images))])
    size = np.where(np.arange(len(q)) < n, 1.0, n / clusters)
    worth = np.concatenate([np.ones(clusters), added_images])
    expected = [of(size * worth[row_of]) for of in odds]
    generator = np.random.default_rng(how.seed)
    for some in _bootstrap.batch_sizes(how.resamples, len(q)):
        drawn = size * generator.standard_gamma(worth, (some, len(worth)))[:, row_of]
        yield [of(drawn) - rates for of, rates in zip(odds, expected, strict=True)]
