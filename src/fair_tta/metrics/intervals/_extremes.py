"""Intervals for minima over groups and gaps between them, of one run and of changes.

A minimum or a gap is the largest of several linear forms of rates, such as all differences between
two groups. The names ``t``, ``z``, ``slack``, ``a``, ``b`` and ``k`` are those of
docs/statistics.md, sections "Minima and gaps of one run", "Changes of minima and gaps" and "Several
methods together". `make coverage` simulates how often the intervals hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np
from scipy.special import ndtri

from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import direction
from fair_tta.metrics._types import Floats, Mask
from fair_tta.metrics.intervals._closed_forms import Bounds, step_down
from fair_tta.metrics.intervals._noise import (
    DRAWS,
    CellRates,
    RunRates,
    rates_with_noise,
)

SELECTION_SHARE = 0.1
"""Share of the error that is spent on which forms may be the largest.

A tenth costs little: an interval at nine tenths of 5 % is 2 % wider.
"""

# Limits of `a / b` as a factor of `a`: the less sharp of the two upper bounds gets less of the
# error. Intervals hold with any limits, as `k` is simulated with the units that result.
_MIN_UNIT_RATIO = 0.85
_MAX_UNIT_RATIO = 1.25

# Forms are candidates within this times the normal quantile. By Bonferroni `k` is about that of
# half the error at most, which is less than 1.5 times as large for levels of 60 % and more.
_CANDIDATE_MARGIN = 1.5

# Limit of the coordinate ascent over classes. In the simulated designs later rounds change an end
# by less than 1e-6, the rounding of single precision.
_ASCENT_ROUNDS = 4

# Draws that an empirical quantile needs below it. With fewer, a normal tail from the quantile of
# 1 / _TAIL_START replaces it.
_MIN_TAIL_DRAWS = 5
_TAIL_START = 100

LinearForms: TypeAlias = Callable[[CellRates], list[Floats]]
"""Return the forms of which the largest counts, for each class: ``[forms, draws]``."""

_GroupRates: TypeAlias = Callable[[CellRates], tuple[Floats, Mask]]
"""Return a rate ``[groups, classes, draws]``, and which groups have it."""


def accuracy_form(rates: CellRates) -> list[Floats]:
    """Return accuracy. The interval of a single form is that of the form."""
    return [rates.accuracy[None]]


def balanced_accuracy_form(rates: CellRates) -> list[Floats]:
    """Return balanced accuracy."""
    return [rates.cell_accuracy[rates.n > 0].mean(0, keepdims=True)]


def negative_cell_accuracies(rates: CellRates) -> list[Floats]:
    """Return minus the accuracy of each class in each group: the largest is the worst."""
    return [-rates.cell_accuracy[rates.n > 0]]


def negative_group_accuracies(rates: CellRates) -> list[Floats]:
    """Return minus the accuracy of each group."""
    return [-rates.group_accuracy[rates.n.sum(1) > 0]]


def cell_shortfalls(rates: CellRates) -> list[Floats]:
    """Return accuracy minus that of each class in each group."""
    return [rates.accuracy + form for form in negative_cell_accuracies(rates)]


def group_shortfalls(rates: CellRates) -> list[Floats]:
    """Return accuracy minus that of each group."""
    return [rates.accuracy + form for form in negative_group_accuracies(rates)]


def _true_positive_rates(rates: CellRates) -> tuple[Floats, Mask]:
    return rates.cell_accuracy, rates.n > 0


def _false_positive_rates(rates: CellRates) -> tuple[Floats, Mask]:
    n = rates.n[..., None]
    n_of_group = n.sum(1, keepdims=True)
    n_of_other_classes = np.maximum(1, n_of_group - n)
    # Noise stays in single precision.
    dtype = rates.cell_accuracy.dtype
    answered = rates.answer_share * (n_of_group / n_of_other_classes).astype(dtype)
    true_positive = rates.cell_accuracy * (n / n_of_other_classes).astype(dtype)
    has_other_classes = rates.n.sum(1, keepdims=True) > rates.n
    return answered - true_positive, has_other_classes


def _selection_rates(rates: CellRates) -> tuple[Floats, Mask]:
    has_images = rates.n.sum(1, keepdims=True) > 0
    return rates.answer_share, np.broadcast_to(has_images, rates.n.shape)


def _group_differences(
    rate_kinds: Sequence[_GroupRates],
    rates: CellRates,
    are_equal_of_two_classes: bool = False,
) -> list[Floats]:
    """Return all ordered differences between groups, of each kind of rate, class by class.

    A class in which fewer than two groups have some kind of rate has no forms.

    Args:
        are_equal_of_two_classes: the gaps of two classes are equal, so the first one is enough.
    """
    rates_of_kinds = [rate_kind(rates) for rate_kind in rate_kinds]
    classes = rates.n.shape[1]
    if are_equal_of_two_classes and classes == 2:
        classes = 1
    forms = []
    for c in range(classes):
        differences = []
        fewest_groups = len(rates.n)
        for rate, has_rate in rates_of_kinds:
            group_rates = rate[has_rate[:, c], c]
            fewest_groups = min(fewest_groups, len(group_rates))
            # All pairs of different groups, in both orders.
            first, second = np.nonzero(~np.eye(len(group_rates), dtype=bool))
            differences.append(group_rates[first] - group_rates[second])
        class_forms = np.concatenate(differences)
        forms.append(class_forms if fewest_groups > 1 else class_forms[:0])
    return forms


true_positive_differences: LinearForms = partial(
    _group_differences, [_true_positive_rates]
)
false_positive_differences: LinearForms = partial(
    _group_differences, [_false_positive_rates]
)
selection_differences: LinearForms = partial(_group_differences, [_selection_rates])
odds_differences: LinearForms = partial(
    _group_differences,
    [_true_positive_rates, _false_positive_rates],
    are_equal_of_two_classes=True,
)
parity_differences: LinearForms = partial(
    _group_differences, [_selection_rates], are_equal_of_two_classes=True
)


@dataclass(frozen=True, eq=False)
class _ClassForms:
    """The linear forms of one class in one run.

    Attributes:
        counted: as counted, ``[forms]``.
        t: smoothed, ``[forms]``.
        z: draws of their noise and then minus each draw, ``[forms, 2 * DRAWS]``.
    """

    counted: Floats
    t: Floats
    z: Floats

    @cached_property
    def below_largest(self) -> tuple[Floats, Floats, Floats]:
        """Distance of each form below the largest, and the noise of that distance.

        Three arrays ``[forms]``: distance, deviation of its noise, and largest noise.
        """
        top = int(self.t.argmax())
        half = self.z[:, :DRAWS]  # mirror images have the same deviation
        distance_noise = half - half[top]
        largest_noise = np.maximum(distance_noise.max(1), -distance_noise.min(1))
        return self.t[top] - self.t, _deviation(distance_noise), largest_noise

    @cached_property
    def deviation(self) -> Floats:
        """Deviation of the noise of each form, ``[forms]``."""
        return _deviation(self.z[:, :DRAWS])


class _UpperBound(NamedTuple):
    """An upper bound of the change, for each form that may be the largest after.

    Attributes:
        estimate: ``[forms]``.
        noise: ``[forms, draws]``.
        unit: deviation of the noise, of which the bound is widened by a multiple, ``[forms]``.
    """

    estimate: Floats
    noise: Floats
    unit: Floats


@lru_cache(maxsize=3)  # the first run is compared with all others
def _class_forms(rates: RunRates, forms: LinearForms) -> list[_ClassForms]:
    """Return the forms of each class."""
    classes = zip(
        forms(rates.counted), forms(rates.smoothed), forms(rates.noise), strict=True
    )
    return [
        _ClassForms(counted[:, 0], smoothed[:, 0], noise)
        for counted, smoothed, noise in classes
    ]


@lru_cache(maxsize=4)  # the first run is compared with all others
def _noise_of_largest(forms: _ClassForms, error: float) -> tuple[Floats, Floats]:
    """Return ``slack`` and ``M``: the noise of the form that is truly the largest.

    ``slack[i]`` is how far form i lies at least below the largest form, with this error.
    """
    distance, deviation, largest_noise = forms.below_largest
    margin = -ndtri(error / max(1, len(distance) - 1)) * deviation
    slack: Floats = np.maximum(0.0, distance - margin).astype(forms.z.dtype)
    # The other forms are the largest in no draw.
    candidates = largest_noise >= slack
    return slack, (forms.z[candidates] - slack[candidates, None]).max(0)


def _deviation(noise: Floats) -> Floats:
    """Return the standard deviation of noise with mean 0: ``[..., draws] -> [...]``."""
    variance = np.einsum("...d,...d->...", noise, noise) / noise.shape[-1]
    deviation: Floats = np.maximum(1e-12, np.sqrt(variance))  # it is divided by
    return deviation


def _mean_of_largest(forms: Sequence[Floats]) -> float:
    """Return the largest form of each class, mean over classes; NaN without classes."""
    return float(np.mean([form.max() for form in forms])) if forms else np.nan


class ExtremeChange:
    """The change of the largest form, mean over classes, from one run to another.

    Attributes:
        value: as counted.
    """

    def __init__(
        self, before: Sequence[_ClassForms], after: Sequence[_ClassForms]
    ) -> None:
        # Classes without forms do not count.
        self._before = [forms for forms in before if len(forms.t)]
        self._after = [forms for forms in after if len(forms.t)]
        largest_before = _mean_of_largest([forms.counted for forms in self._before])
        largest_after = _mean_of_largest([forms.counted for forms in self._after])
        self.value = largest_after - largest_before

    @classmethod
    def of_rates(
        cls, forms: LinearForms, before: RunRates, after: RunRates
    ) -> ExtremeChange:
        """Return the change from one run to another."""
        return cls(_class_forms(before, forms), _class_forms(after, forms))

    @classmethod
    def of_absolutes(cls, counted: Floats, noise: Floats) -> ExtremeChange:
        """Return the change of a mean of absolute values, each the larger of a number and minus it.

        Args:
            counted: the numbers before and after: ``[2, numbers]``.
            noise: draws of their noise, and then minus each draw: ``[2, numbers, 2 * DRAWS]``.
        """
        runs = []
        for run_numbers, run_noise in zip(counted, noise, strict=True):
            forms = []
            for number, z in zip(run_numbers, run_noise, strict=True):
                signed = np.array([number, -number])
                forms.append(_ClassForms(signed, signed, np.stack([z, -z])))
            runs.append(forms)
        before, after = runs
        return cls(before, after)

    def bounds(self, error: float) -> Bounds:
        """Return an interval whose ends each fail with this error; the value lies inside."""
        if not self._before:
            return np.nan, np.nan
        high, _ = _upper_end(self._before, self._after, error)
        # The lower end is minus the upper one of the reverse change.
        minus_low, _ = _upper_end(self._after, self._before, error)
        return max(-1.0, min(-minus_low, self.value)), min(1.0, max(high, self.value))

    def noise_of_ends(self, error: float) -> list[Floats]:
        """Return the noise of each end, ``[draws]``: an end fails in its smallest draws."""
        if not self._before:
            return [np.zeros(1)] * 2
        _, noise_of_high = _upper_end(self._before, self._after, error)
        _, noise_of_low = _upper_end(self._after, self._before, error)
        return [noise_of_high, noise_of_low]


def _upper_end(
    before: Sequence[_ClassForms], after: Sequence[_ClassForms], error: float
) -> tuple[float, Floats]:
    """Return the upper end of the change, and the noise of the forms that decide it."""
    classes = len(before)
    selection_error = error * SELECTION_SHARE / classes
    end_error = error * (1 - SELECTION_SHARE)
    form_ends = []
    form_noises = []
    for class_before, class_after in zip(before, after, strict=True):
        from_largest, from_itself = _upper_bounds(
            class_before, class_after, selection_error, end_error
        )
        # Both bounds of a class hold together if they are widened by k units. In a mean over
        # classes widths shrink, as deviations of independent numbers do. The end is right for any
        # k, as `_largest_mean_end` subtracts the quantile of the noise that remains; this one
        # keeps it short (docs/statistics.md).
        k = _joint_width(from_largest, from_itself, end_error) * classes**-0.5
        a = k * from_largest.unit
        b = k * from_itself.unit
        form_ends.append(
            np.minimum(from_largest.estimate + a, from_itself.estimate + b)
        )
        form_noises.append(
            np.minimum(from_largest.noise + a[:, None], from_itself.noise + b[:, None])
        )
    return _largest_mean_end(form_ends, form_noises, end_error)


def _upper_bounds(
    before: _ClassForms, after: _ClassForms, selection_error: float, end_error: float
) -> tuple[_UpperBound, _UpperBound]:
    """Return the bounds ``(D, A, a)`` from the largest form before and ``(P, B, b)`` from itself.

    They are those of the forms that may decide the end.
    """
    slack, largest_noise = _noise_of_largest(before, selection_error)
    mean_largest = largest_noise.mean()
    largest_noise = largest_noise - mean_largest
    estimate_from_largest = after.t - before.t.max() + mean_largest
    estimate_from_itself = after.t - before.t

    # Leave out forms whose highest possible end is below the estimate of another.
    margin = _CANDIDATE_MARGIN * -ndtri(end_error)
    deviation_from_largest = after.deviation + _deviation(largest_noise)
    deviation_from_itself = after.deviation + before.deviation
    highest = np.minimum(
        estimate_from_largest + margin * _MAX_UNIT_RATIO * deviation_from_largest,
        estimate_from_itself + margin * deviation_from_itself,
    )
    lowest = np.minimum(estimate_from_largest, estimate_from_itself)
    candidates = np.flatnonzero(highest >= lowest.max())

    noise_from_largest = after.z[candidates] - largest_noise
    noise_from_itself = after.z[candidates] - before.z[candidates]
    b = _deviation(noise_from_itself[:, :DRAWS])
    a = _deviation(noise_from_largest)  # of all draws: M has no mirror images
    a *= np.clip(a / b, _MIN_UNIT_RATIO, _MAX_UNIT_RATIO)
    noise_from_itself += slack[candidates, None]
    return (
        _UpperBound(estimate_from_largest[candidates], noise_from_largest, a),
        _UpperBound(estimate_from_itself[candidates], noise_from_itself, b),
    )


def _joint_width(first: _UpperBound, second: _UpperBound, error: float) -> Floats:
    """Return ``k``: both bounds, widened by k units, fail together with this error."""
    smaller = np.minimum(
        first.noise / first.unit[:, None], second.noise / second.unit[:, None]
    )
    return -_quantile(smaller, error)


def _largest_mean_end(
    form_ends: Sequence[Floats], form_noises: Sequence[Floats], error: float
) -> tuple[float, Floats]:
    """Return the largest end of the mean over classes, over the forms of each class.

    The largest ``mean_c end[c][j_c] - quantile of mean_c noise[c][j_c]`` over ``j_1 .. j_C``, found
    by coordinate ascent; and the mean noise of these forms.
    """
    classes = len(form_ends)
    chosen = [int(class_ends.argmax()) for class_ends in form_ends]
    noise = np.mean([form_noises[c][chosen[c]] for c in range(classes)], 0)
    largest = -np.inf
    for _ in range(_ASCENT_ROUNDS if classes > 1 else 1):
        largest_before = largest
        for c in range(classes):
            # Exchange the form of this class while those of the other classes are fixed.
            fixed_ends = sum(form_ends[d][chosen[d]] for d in range(classes) if d != c)
            fixed_noise = noise - form_noises[c][chosen[c]] / classes
            noise_quantile = _quantile(fixed_noise + form_noises[c] / classes, error)
            mean_ends = (fixed_ends + form_ends[c]) / classes - noise_quantile
            j = int(mean_ends.argmax())
            if mean_ends[j] > largest:
                largest = float(mean_ends[j])
                chosen[c] = j
                noise = fixed_noise + form_noises[c][j] / classes
        if largest <= largest_before + 1e-12:  # only rounding is gained
            break
    return largest, noise


def _quantile(noise: Floats, error: float) -> Floats:
    """Return the quantile of draws at a small error: ``[..., draws] -> [...]``."""
    draws = noise.shape[-1]
    if error * draws >= _MIN_TAIL_DRAWS:
        k = int(error * draws)
        quantile: Floats = np.partition(noise, k, -1)[..., k]
        return quantile
    # So far out there are too few draws: continue from the median and a quantile as a normal does.
    k = max(1, draws // _TAIL_START)
    part = np.partition(noise, (k, draws // 2), -1)
    low = part[..., k]
    median = part[..., draws // 2]
    tail: Floats = median + (low - median) * ndtri(error) / ndtri(k / draws)
    return tail


def extreme_bounds(
    forms: LinearForms, table: AnswerTable, run: int, level: float
) -> Bounds:
    """Return the interval of the largest form of one run, mean over classes."""
    (rates,) = rates_with_noise(table, (run,))
    return _extreme_bounds_of_forms(_class_forms(rates, forms), (1 - level) / 2)


def class_extreme_bounds(
    forms: LinearForms, table: AnswerTable, run: int, level: float
) -> tuple[Floats, Floats]:
    """Return the interval of the largest form of each class: ``[classes]``, ``[classes]``."""
    (rates,) = rates_with_noise(table, (run,))
    error = (1 - level) / 2
    bounds = [
        _extreme_bounds_of_forms([forms], error) for forms in _class_forms(rates, forms)
    ]
    low, high = np.array(bounds).T
    return low, high


def _extreme_bounds_of_forms(forms: Sequence[_ClassForms], error: float) -> Bounds:
    """Return the interval of the largest form of one run, mean over classes.

    The upper end has to hold for the one form that is truly the largest. The lower end is the
    largest form minus the quantile of its noise M.
    """
    forms = [form for form in forms if len(form.t)]
    if not forms:
        return np.nan, np.nan
    classes = len(forms)
    value = _mean_of_largest([form.counted for form in forms])
    # The added images draw the rates of all classes in one direction, while the noise of the mean
    # is small: so they are spread over the classes.
    t = [form.counted + (form.t - form.counted) / classes for form in forms]
    selection_error = SELECTION_SHARE * error / classes
    largest_noise = [_noise_of_largest(form, selection_error)[1] for form in forms]
    end_error = error * (1 - SELECTION_SHARE)
    low = _mean_of_largest(t) + float(_quantile(-np.mean(largest_noise, 0), end_error))
    high, _ = _largest_mean_end(t, [form.z for form in forms], error)
    return max(0.0, min(low, value)), min(1.0, max(high, value))


@dataclass(frozen=True)
class MaxMinInterval:
    """Intervals of changes of a minimum or a gap.

    Attributes:
        sign: -1 if the largest form is minus the metric.
    """

    forms: LinearForms
    sign: int = 1

    def __call__(
        self, table: AnswerTable, before: int, after: int, level: float
    ) -> Bounds:
        rates = rates_with_noise(table, (before, after))
        change = ExtremeChange.of_rates(self.forms, *rates)
        return self._with_sign(change.bounds((1 - level) / 2))

    def joint_bounds(self, table: AnswerTable, level: float) -> list[Bounds]:
        """Return intervals of the changes from the first run that all hold together.

        Step-down max-T (Romano and Wolf 2005).
        """
        runs = range(len(table.answers))
        first_rates, *rates_of_others = rates_with_noise(table, tuple(runs))
        changes = []
        ranks = []
        for rates in rates_of_others:
            change = ExtremeChange.of_rates(self.forms, first_rates, rates)
            # At an error between Bonferroni's and that of a single change.
            noise = change.noise_of_ends((1 - level) / len(rates_of_others))
            changes.append(change)
            ranks.append(_smaller_ranks(noise))
        bounds = step_down(
            len(changes),
            lambda remaining: _joint_error([ranks[i] for i in remaining], 1 - level),
            lambda i, error: changes[i].bounds(error),
            lambda pair: direction(*pair),
        )
        return [self._with_sign(pair) for pair in bounds]

    def _with_sign(self, bounds: Bounds) -> Bounds:
        low, high = bounds
        return bounds if self.sign > 0 else (-high, -low)


def _smaller_ranks(noise_of_ends: list[Floats]) -> Floats:
    """Return the smaller rank of each draw among the noise of both ends, as a share.

    Ranks put all ends on one scale, so that each is equally likely to fail.
    """
    ranks = np.array(noise_of_ends).argsort(1, kind="stable").argsort(1) + 1
    smallest: Floats = ranks.min(0) / (ranks.shape[1] + 1)
    return smallest


def _joint_error(ranks: Sequence[Floats], error: float) -> float:
    """Return the error of each end at which all of them hold together.

    It is at least Bonferroni's, and at most that of a single change.
    """
    if len(ranks) == 1:
        return error / 2
    smallest = np.quantile(np.min(ranks, 0), error)
    return float(np.clip(smallest, error / 2 / len(ranks), error / 2))
