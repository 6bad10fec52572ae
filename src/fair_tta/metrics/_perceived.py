"""Figures without labels: gaps between perceived groups (pseudo-EOD), with intervals."""

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
from fair_tta.metrics.intervals._bootstrap import (
    Bootstrap,
    Interval,
    batch_sizes,
    quantile,
    quantile_bounds,
    read_interval,
)

# Probabilities that vary less than this from image to image vary by rounding in single precision.
_MIN_BASIS_SIZE = 1e-6

# Mean squared logits below this vary by rounding only.
_MIN_VARIANCE = 1e-20


def pseudo_rates(answers: Any, target: Any, sensitive: Any) -> tuple[Floats, Floats]:
    """True- and false-positive rates with perceived classes and values, ``[values, classes]`` each.

    ``TPR_s(y) = sum w_s q_y [answer = y] / sum w_s q_y`` over the images, and FPR with ``1 - q_y``
    instead of ``q_y``. NaN where nothing is perceived.

    Args:
        answers: ``[images]`` positions of the answered classes.
        target: ``[images, classes]`` zero-shot probabilities q.
        sensitive: ``[images, values]`` zero-shot probabilities w.

    Example:
        >>> hits, alarms = pseudo_rates([0, 1], [[0.9, 0.1], [0.2, 0.8]], [[1, 0], [0.5, 0.5]])
        >>> hits.round(2).tolist(), alarms.round(2).tolist()
        ([[0.9, 0.8], [0.0, 1.0]], [[0.2, 0.1], [0.0, 1.0]])
    """
    (codes,), q, w = _read_beliefs([answers], target, sensitive)
    hits, false_alarms = _weighted_rates(codes, q, w)(np.ones(len(q)))
    return hits, false_alarms


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
    rates = np.stack(pseudo_rates(answers, target, sensitive))
    return float(EQUALIZED_ODDS.combine(rates))


def r_squared(logits: Any, sensitive: Any) -> float:
    """Return the share of class-centred logits that is linear in perceived values, in [0, 1].

    Ordinary least squares with intercept, the squares of all classes together. NaN if the logits
    do not vary or there are no more images than coefficients.

    Args:
        logits: ``[images, classes]``, up to a constant for each image, such as log probabilities.
        sensitive: ``[images, values]`` probabilities.

    Example:
        >>> round(r_squared([[0, 2], [0, 0], [0, 1]], [[1, 0], [0, 1], [0.5, 0.5]]), 3)
        1.0
    """
    probabilities = read_probabilities("sensitive", sensitive)
    u = read_array("logits", logits, 2)
    n = len(probabilities)
    if len(u) != n or not np.isfinite(u).all():
        raise FairTTAError(
            f"`logits` should be finite numbers [images, classes] of {n} images.",
            argument="logits",
        )

    # Centre each image over classes, then each class over images.
    u = u - u.mean(1, keepdims=True)
    u = u - u.mean(0)
    total = float((u**2).sum())
    if n <= probabilities.shape[1] or total <= _MIN_VARIANCE * u.size:
        return float("nan")

    # Project on the span of the centred values; directions of rounding alone are left out.
    x = probabilities / probabilities.sum(1, keepdims=True)
    basis, sizes, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    basis = basis[:, sizes > _MIN_BASIS_SIZE * n**0.5]
    explained = float(((basis.T @ u) ** 2).sum())
    return min(1.0, explained / total)


def prompt_associations(sensitive: Any, target: Any, scale: float) -> Floats:
    """Return the leaning of classes to values, in logits, from prompts: ``[values, classes]``.

    ``scale <z_s - mean z, T_y - mean T>``: rows and columns sum to 0.

    Args:
        sensitive: ``[values, dim]`` unit features z of the prompts of the values.
        target: ``[classes, dim]`` unit features T of the prompts of the classes.
        scale: inverse temperature of the softmax.

    Example:
        >>> prompt_associations([[1, 0], [0, 1]], [[1, 0], [0, 1]], 10).tolist()
        [[5.0, -5.0], [-5.0, 5.0]]
    """
    z = read_array("sensitive", sensitive, 2)
    t = read_array("target", target, 2)
    if z.shape[1] != t.shape[1]:
        raise FairTTAError(
            "`sensitive` and `target` should be [values, dim] and [classes, dim] "
            f"(got {list(z.shape)} and {list(t.shape)}).",
            argument="sensitive",
        )
    associations: Floats = scale * (z - z.mean(0)) @ (t - t.mean(0)).T
    return associations


def _read_beliefs(
    runs: Sequence[Any], target: Any, sensitive: Any
) -> tuple[list[Ints], Floats, Floats]:
    """Return checked answers of each run, q and w."""
    q = read_probabilities("target", target)
    w = read_probabilities("sensitive", sensitive)
    n = len(q)
    if not n or n != len(w):
        raise FairTTAError(
            "`target` and `sensitive` should be of the same images, at least one "
            f"(got {n} and {len(w)}).",
            argument="target",
        )
    classes = q.shape[1]
    checked = []
    for answers in runs:
        codes = np.asarray(answers)
        is_integer = np.issubdtype(codes.dtype, np.integer)
        if (
            codes.shape != (n,)
            or not is_integer
            or codes.min() < 0
            or codes.max() >= classes
        ):
            raise FairTTAError(
                f"`answers` should be positions of classes, 0 to {classes - 1}, of {n} images.",
                argument="answers",
            )
        checked.append(codes.astype(np.int64))
    return checked, q, w


_RatesOfWeights = Callable[[Floats], Floats]
"""Weights of images ``[..., images]`` to TPR and FPR, ``[..., 2, values, classes]``."""


def _weighted_rates(codes: Ints, q: Floats, w: Floats) -> _RatesOfWeights:
    """Return the rates of answers to perceived classes and values, as a function of weights."""
    return _weighted_rates_of_shares(np.eye(q.shape[1])[codes], q, w)


def _weighted_rates_of_shares(
    answered: Floats, q: Floats, w: Floats
) -> _RatesOfWeights:
    """Return `_weighted_rates` of answers spread over classes, ``[images, classes]``."""
    # Images of a class count for its TPR by q, the others for its FPR by 1 - q.
    in_class_or_not = np.stack([q, np.maximum(1 - q, 0.0)], 1)
    shares = w[:, None, :, None] * in_class_or_not[:, :, None]
    shape = shares.shape[1:]  # 2, values, classes
    hits = (shares * answered[:, None, None]).reshape(len(q), -1)
    shares = shares.reshape(len(q), -1)

    def rates(weights: Floats) -> Floats:
        # Rounding may bring a rate of all images above 1.
        flat = np.minimum(ratio(weights @ hits, weights @ shares), 1.0)
        return flat.reshape(*weights.shape[:-1], *shape)

    return rates


_NOT_DEFINED = "no class is perceived with two values"

# Weight of each added image. `benchmarks/perceived_coverage.py` shows how often intervals hold.
_ADDED_WEIGHT = 0.25


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
    """Return pseudo-EOD of each run and its difference from that of the first, with intervals.

    Images get random weights of mean 1, each with q, w and all its answers (the Bayesian bootstrap,
    Rubin 1981), after a quarter of an image was added twice to each class of each value: once right
    in the first run and wrong in the others, and once the other way round. Without them a change
    that few images show would look certain, and one that none shows impossible. The noise of the
    rates, drawn minus expected, is added to the observed rates. As for other gaps the interval of a
    run reaches as far as the `level` quantile of the gap of the noise alone; that of a change has
    the quantiles of the resampled changes. ``benchmarks/perceived_coverage.py`` shows how often
    they hold.

    Args:
        runs: for each run ``[images]`` positions of the answered classes.
        target: ``[images, classes]`` zero-shot probabilities q.
        sensitive: ``[images, values]`` zero-shot probabilities w.
        interval: level, resamples and seed; its strata do not matter.
        clusters: the person or source of each image, if several images come from one: these get one
            weight. No interval is narrower than without.
    """
    bootstrap = read_interval(interval)
    answers, q, w = _read_beliefs(runs, target, sensitive)
    independent = _pseudo_odds(answers, q, w, bootstrap, np.arange(len(q)))
    units = None if clusters is None else read_clusters(clusters, len(q))
    if units is None:
        return independent
    clustered = _pseudo_odds(answers, q, w, bootstrap, units)
    return PseudoOdds(
        tuple(map(_with_wider_interval, independent.runs, clustered.runs)),
        tuple(map(_with_wider_interval, independent.changes, clustered.changes)),
    )


def _with_wider_interval(first: Estimate, second: Estimate) -> Estimate:
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
    answers: list[Ints], q: Floats, w: Floats, bootstrap: Bootstrap, units: Ints
) -> PseudoOdds:
    """Return `pseudo_odds` with a random weight for each of the `units`, ``[images]`` numbers."""
    n = len(q)
    observed = [_weighted_rates(codes, q, w)(np.ones(n)) for codes in answers]
    values = [float(EQUALIZED_ODDS.combine(rates)) for rates in observed]
    # All runs share the weights, so either all or none are defined.
    if np.isnan(values[0]):
        not_defined = undefined_estimate(_NOT_DEFINED, n)
        changes = len(values) - 1
        return PseudoOdds((not_defined,) * len(values), (not_defined,) * changes)

    # For each run, the gap of the noise alone and the gap of the observed rates with noise.
    noise_gaps: list[list[Floats]] = [[] for _ in answers]
    noisy_gaps: list[list[Floats]] = [[] for _ in answers]
    for noise_of_runs in _noise_batches(answers, q, w, bootstrap, units):
        for run, noise in enumerate(noise_of_runs):
            noise_gaps[run].append(EQUALIZED_ODDS.combine(noise))
            noisy_gaps[run].append(EQUALIZED_ODDS.combine(observed[run] + noise))

    estimates = []
    for value, gaps in zip(values, noise_gaps, strict=True):
        margin = float(quantile(gaps, bootstrap.level))
        low = max(0.0, value - margin)
        high = min(1.0, value + margin)
        estimates.append(Estimate(value, n, low, high))

    change_estimates = []
    for value, gaps_after in zip(values[1:], noisy_gaps[1:], strict=True):
        change = value - values[0]
        changes_of_batches = [
            after - before
            for before, after in zip(noisy_gaps[0], gaps_after, strict=True)
        ]
        bounds = quantile_bounds(np.asarray(change), changes_of_batches, bootstrap)
        low = max(-1.0, float(bounds[0]))
        high = min(1.0, float(bounds[1]))
        change_estimates.append(Estimate(change, n, low, high))
    return PseudoOdds(tuple(estimates), tuple(change_estimates))


def _noise_batches(
    answers: list[Ints], q: Floats, w: Floats, bootstrap: Bootstrap, units: Ints
) -> Iterator[list[Floats]]:
    """Yield for each run the noise of its rates on the same draws, ``[draws, 2, values, classes]``.

    An added image counts as much as an average unit.
    """
    n = len(q)
    values = w.shape[1]
    classes = q.shape[1]
    one_hot = np.eye(classes)

    # Two images are added to each cell, of one class and one value each. In the first run the
    # first of them is right and the second is wrong, spread over the wrong answers; in the other
    # runs it is the other way round.
    cell_q = np.tile(one_hot, (values, 1))
    cell_w = np.repeat(np.eye(values), classes, 0)
    right = cell_q
    wrong = np.tile((1 - one_hot) / max(1, classes - 1), (values, 1))
    all_q = np.concatenate([q, cell_q, cell_q])
    all_w = np.concatenate([w, cell_w, cell_w])
    rates_of_runs = []
    for run, codes in enumerate(answers):
        added = [right, wrong] if run == 0 else [wrong, right]
        answered = np.concatenate([one_hot[codes], *added])
        rates_of_runs.append(_weighted_rates_of_shares(answered, all_q, all_w))

    # A unit has one random weight, with mean 1; each added image has its own, with a small mean.
    unit_count = int(units.max()) + 1
    added_count = len(all_q) - n
    unit_of_image = np.concatenate([units, unit_count + np.arange(added_count)])
    images_per_unit = np.full(added_count, n / unit_count)
    size = np.concatenate([np.ones(n), images_per_unit])
    mean_weights = np.concatenate(
        [np.ones(unit_count), np.full(added_count, _ADDED_WEIGHT)]
    )
    expected = [rates(size * mean_weights[unit_of_image]) for rates in rates_of_runs]

    generator = np.random.default_rng(bootstrap.seed)
    for draws in batch_sizes(bootstrap.resamples, len(all_q)):
        shape = (draws, len(mean_weights))
        weights = generator.standard_gamma(mean_weights, shape)
        weights_of_images = size * weights[:, unit_of_image]
        yield [
            rates(weights_of_images) - expected_rates
            for rates, expected_rates in zip(rates_of_runs, expected, strict=True)
        ]
