"""Intervals for minima over groups and gaps between them, of one run and of changes.

A minimum and a gap are the largest of linear forms of rates: ``-r_k`` for the worst group, all
differences ``r_g - r_h`` for a gap. With t_i the forms before and t'_j those after, the change is

    D = max_j t'_j - max_i t_i = max_j min_i (t'_j - t_i)

Its upper end has to hold for one j only, the form that is truly the largest after; so no price is
paid for not knowing j, and the maximum over all j is taken. Which i was truly the largest before
is allowed for by ``M = max_i (z_i - slack_i)``, the noise of the largest one, where slack_i is by
how much t_i lies at least below it (with a tenth of the error; Romano, Shaikh and Wolf 2014). For
each j two bounds hold together, against the largest one before and against itself::

    D_j = t'_j - max_i t_i + E M      A_j = z'_j - M + E M
    P_j = t'_j - t_j                  B_j = z'_j - z_j + slack_j
    k_j = -q( min(A_j / a_j, B_j / b_j) )       U = max_j min(D_j + k_j a_j, P_j + k_j b_j)

with q the quantile at the error, b_j the deviation of B_j and a_j that of A_j, weighted by their
ratio. The lower end is the upper one with the runs exchanged. Of a mean over classes the quantile
of the mean noise is taken off, for those j_1 .. j_C that make the end largest.

Noise is that of `fair_tta.metrics.intervals._noise`. Simulated by `make coverage`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TypeAlias

import numpy as np
from scipy.special import ndtri

from fair_tta.metrics._answer_table import AnswerTable
from fair_tta.metrics._estimates import direction
from fair_tta.metrics._types import Floats, Mask
from fair_tta.metrics.intervals._closed_forms import Bounds, step_down
from fair_tta.metrics.intervals._noise import DRAWS, CellRates, Noise, rates_with_noise

_CHOICE = 0.1  # of the error, for which form was the largest
_WEIGHTS = (
    0.85,
    1.25,
)  # of the bound against the largest one, beside that against itself

LinearForms: TypeAlias = Callable[[CellRates], list[Floats]]
"""The linear forms of which the largest counts, for each class: ``[forms, draws]``."""


def accuracy_form(rates: CellRates) -> list[Floats]:
    """Accuracy: of one form the interval is that of the form."""
    return [rates.overall[None]]


def balanced_accuracy_form(rates: CellRates) -> list[Floats]:
    """Balanced accuracy."""
    return [rates.right[rates.n > 0].mean(0, keepdims=True)]


def negative_cell_accuracies(rates: CellRates) -> list[Floats]:
    """Worst-group accuracy, the sign turned."""
    return [-rates.right[rates.n > 0]]


def negative_group_accuracies(rates: CellRates) -> list[Floats]:
    """The same over groups of one sensitive value."""
    return [-rates.of_group[rates.n.sum(1) > 0]]


def cell_shortfalls(rates: CellRates) -> list[Floats]:
    """Accuracy minus worst-group accuracy."""
    return [rates.overall + form for form in negative_cell_accuracies(rates)]


def group_shortfalls(rates: CellRates) -> list[Floats]:
    """The same over groups of one sensitive value."""
    return [rates.overall + form for form in negative_group_accuracies(rates)]


def _true_positive(rates: CellRates) -> tuple[Floats, Mask]:
    """CellRates ``[groups, classes, draws]``, and which groups have them."""
    return rates.right, rates.n > 0


def _false_positive(rates: CellRates) -> tuple[Floats, Mask]:
    n, dtype = rates.n[..., None], rates.right.dtype
    all_of_group = n.sum(1, keepdims=True)
    others = np.maximum(1, all_of_group - n)
    given, right = ((part / others).astype(dtype) for part in (all_of_group, n))
    return rates.answered * given - rates.right * right, rates.n.sum(
        1, keepdims=True
    ) > rates.n


def _selected(rates: CellRates) -> tuple[Floats, Mask]:
    return rates.answered, np.broadcast_to(
        rates.n.sum(1, keepdims=True) > 0, rates.n.shape
    )


def _pairs(
    kinds: Sequence[Callable[[CellRates], tuple[Floats, Mask]]],
    rates: CellRates,
    distinct: bool = False,
) -> list[Floats]:
    """All ordered differences between the groups that have a rate, of each kind, class by class.

    None for a class that lacks two groups of one kind. With `distinct` of classes that have gaps of
    their own: those of two classes are equal.
    """
    found, every = [], [kind(rates) for kind in kinds]
    classes = rates.n.shape[1]
    for c in range(1 if distinct and classes == 2 else classes):
        of_class = [of[has[:, c], c] for of, has in every]
        kind = np.repeat(range(len(of_class)), [*map(len, of_class)])
        first, second = np.nonzero(
            (kind[:, None] == kind) & ~np.eye(len(kind), dtype=bool)
        )
        some = slice(None) if min(map(len, of_class)) > 1 else slice(0)
        together = np.concatenate(of_class)
        found.append(together[first[some]] - together[second[some]])
    return found


true_positive_differences: LinearForms = partial(_pairs, [_true_positive])
false_positive_differences: LinearForms = partial(_pairs, [_false_positive])
selection_differences: LinearForms = partial(_pairs, [_selected])
odds_differences: LinearForms = partial(
    _pairs, [_true_positive, _false_positive], distinct=True
)
parity_differences: LinearForms = partial(_pairs, [_selected], distinct=True)


@dataclass(frozen=True, eq=False)
class _Forms:
    """Linear forms of one class.

    Attributes:
        seen: as counted, ``[forms]``.
        t: smoothed, ``[forms]``.
        z: draws of their noise, ``[forms, draws]``.
    """

    seen: Floats
    t: Floats
    z: Floats

    @cached_property
    def _from_top(self) -> tuple[Floats, Floats, Floats]:
        """By how much each lies below the largest; the deviation and the most of that noise."""
        top = int(self.t.argmax())
        half = self.z[:, :DRAWS]  # the mirrored ones have the same deviation
        apart = half - half[top]
        farthest = np.maximum(apart.max(1), -apart.min(1))
        return self.t[top] - self.t, _deviation(apart), farthest

    @cached_property
    def deviation(self) -> Floats:
        """Of each form."""
        return _deviation(self.z[:, :DRAWS])


@lru_cache(maxsize=4)  # the first run is compared with all others
def _top(forms: _Forms, error: float) -> tuple[Floats, Floats]:
    """How far each lies at least below the one that is truly the largest, and the noise of that."""
    below, deviation, farthest = forms._from_top
    reach = -ndtri(error / max(1, len(below) - 1)) * deviation
    slack: Floats = np.maximum(0.0, below - reach).astype(forms.z.dtype)
    near = farthest >= slack  # others are never the largest
    return slack, (forms.z[near] - slack[near, None]).max(0)


def _deviation(z: Floats) -> Floats:
    """Of noise with mean 0: ``[..., draws] -> [...]``."""
    deviation: Floats = np.sqrt(np.einsum("...d,...d->...", z, z) / z.shape[-1])
    return np.maximum(1e-12, deviation)


@lru_cache(maxsize=3)  # the first run is compared with all others
def _forms(noise: Noise, kind: LinearForms, run: int) -> list[_Forms]:
    parts = zip(*map(kind, noise[run]), strict=True)
    return [_Forms(seen[:, 0], t[:, 0], z) for seen, t, z in parts]


def _largest(forms: Sequence[Floats]) -> float:
    """The largest of each class, mean over classes; NaN if there is none."""
    return float(np.mean([form.max() for form in forms])) if forms else np.nan


class ExtremeChange:
    """The change of the largest form, mean over classes, from one run to another.

    Attributes:
        value: as counted.
    """

    def __init__(self, before: Sequence[_Forms], after: Sequence[_Forms]) -> None:
        self._before = [forms for forms in before if len(forms.t)]
        self._after = [forms for forms in after if len(forms.t)]
        largest_before = _largest([forms.seen for forms in self._before])
        self.value = _largest([forms.seen for forms in self._after]) - largest_before

    @classmethod
    def of(cls, kind: LinearForms, noise: Noise, after: int) -> ExtremeChange:
        """Return the change from the first run of this noise to another."""
        return cls(_forms(noise, kind, 0), _forms(noise, kind, after))

    @classmethod
    def of_absolutes(cls, seen: Floats, noise: Floats) -> ExtremeChange:
        """Return the change of a mean of absolute values, each the larger of a number and minus it.

        Args:
            seen: the numbers before and after: ``[2, numbers]``.
            noise: draws of their noise, and then minus each draw: ``[2, numbers, 2 * DRAWS]``.
        """
        runs: list[list[_Forms]] = [[], []]
        for forms, numbers, draws in zip(runs, seen, noise, strict=True):
            for number, z in zip(numbers, draws, strict=True):
                signed = np.array([number, -number])
                forms.append(_Forms(signed, signed, np.stack([z, -z])))
        return cls(*runs)

    def ends(self, error: float) -> tuple[float, float]:
        """Each end fails with this error; the value lies inside."""
        if not self._before:
            return np.nan, np.nan
        (high, _), (low, _) = self._sides(error)
        return max(-1.0, min(-low, self.value)), min(1.0, max(high, self.value))

    def roots(self, error: float) -> list[Floats]:
        """For each end a figure of each draw: the smallest ones are those at which it fails."""
        return (
            [noise for _, noise in self._sides(error)]
            if self._before
            else [np.zeros(1)] * 2
        )

    def _sides(self, error: float) -> tuple[tuple[float, Floats], tuple[float, Floats]]:
        before, after = self._before, self._after
        return _upper_end(before, after, error), _upper_end(after, before, error)


def _upper_end(
    before: Sequence[_Forms], after: Sequence[_Forms], error: float
) -> tuple[float, Floats]:
    """The upper end of the change, and the noise that decides it."""
    classes, rest = len(before), error * (1 - _CHOICE)
    scale = classes**-0.5
    ends, noises = [], []
    for first, then in zip(before, after, strict=True):
        slack, most = _top(first, error * _CHOICE / classes)
        middle = most.mean()
        most = most - middle
        direct, paired = then.t - first.t.max() + middle, then.t - first.t
        # Forms that cannot decide are left out: the best of them is below the least of another.
        reach = -ndtri(rest)
        widest = 1.5 * reach * _WEIGHTS[1] * (then.deviation + _deviation(most))
        greatest = np.minimum(
            direct + widest, paired + 1.5 * reach * (then.deviation + first.deviation)
        )
        some = np.flatnonzero(greatest >= np.minimum(direct, paired).max())
        direct, paired = direct[some], paired[some]
        first_bound, second_bound = then.z[some] - most, then.z[some] - first.z[some]
        a, b = _deviation(first_bound), _deviation(second_bound[:, :DRAWS])
        a *= np.clip(a / b, *_WEIGHTS)
        second_bound += slack[some, None]
        ratio = np.minimum(first_bound / a[:, None], second_bound / b[:, None])
        k = -_quantile(ratio, rest) * scale
        ends.append(np.minimum(direct + k * a, paired + k * b))
        noises.append(
            np.minimum(first_bound + (k * a)[:, None], second_bound + (k * b)[:, None])
        )
    return _largest_sum(ends, noises, rest)


def _largest_sum(
    ends: Sequence[Floats], noises: Sequence[Floats], error: float
) -> tuple[float, Floats]:
    """``max over j_1 .. j_C of mean_c ends_cj - q(mean_c noises_cj)``, class by class."""
    classes = len(ends)
    chosen = [int(end.argmax()) for end in ends]
    best, noise = (
        -np.inf,
        np.mean([x[j] for x, j in zip(noises, chosen, strict=True)], 0),
    )
    for _ in range(4 if classes > 1 else 1):
        before = best
        for c in range(classes):
            others = noise - noises[c][chosen[c]] / classes
            total = sum(ends[d][chosen[d]] for d in range(classes) if d != c)
            value = (total + ends[c]) / classes - _quantile(
                others + noises[c] / classes, error
            )
            j = int(value.argmax())
            if value[j] > best:
                best, chosen[c] = float(value[j]), j
                noise = others + noises[c][j] / classes
        if best <= before + 1e-12:
            break
    return best, noise


def _quantile(draws: Floats, error: float) -> Floats:
    """Along the last axis; beyond what the draws show, by a normal tail."""
    size = draws.shape[-1]
    if error * size >= 5:
        k = int(error * size)
        found: Floats = np.partition(draws, k, -1)[..., k]
        return found
    k = max(1, size // 100)
    part = np.partition(draws, (k, size // 2), -1)
    low, middle = part[..., k], part[..., size // 2]
    tail: Floats = middle + (low - middle) * ndtri(error) / ndtri(k / size)
    return tail


def extreme_bounds(
    kind: LinearForms, columns: AnswerTable, run: int, level: float
) -> Bounds:
    """The interval of the largest form of one run, mean over classes."""
    return _run_ends(
        _forms(rates_with_noise(columns, (run,)), kind, 0), (1 - level) / 2
    )


def class_extreme_bounds(
    kind: LinearForms, columns: AnswerTable, run: int, level: float
) -> tuple[Floats, Floats]:
    """The same for each class by itself."""
    forms = _forms(rates_with_noise(columns, (run,)), kind, 0)
    low, high = np.array([_run_ends([one], (1 - level) / 2) for one in forms]).T
    return low, high


def _run_ends(forms: Sequence[_Forms], error: float) -> Bounds:
    """Upper: ``max_j t_j + k s_j``, where only the true j has to be right. Lower: the largest minus
    the quantile of its noise M. The added images are spread over the classes: all of them draw
    rates in one direction, while the noise of a mean is small.
    """
    forms = [form for form in forms if len(form.t)]
    if not forms:
        return np.nan, np.nan
    value, classes = _largest([form.seen for form in forms]), len(forms)
    most = [_top(form, _CHOICE * error / classes)[1] for form in forms]
    t = [form.seen + (form.t - form.seen) / classes for form in forms]
    low = _largest(t) + float(_quantile(-np.mean(most, 0), error * (1 - _CHOICE)))
    high, _ = _largest_sum(t, [form.z for form in forms], error)
    return max(0.0, min(low, value)), min(1.0, max(high, value))


@dataclass(frozen=True)
class MaxMinInterval:
    """Intervals of changes; `sign` is -1 if the largest form is minus the metric."""

    forms: LinearForms
    sign: int = 1

    def __call__(
        self, columns: AnswerTable, before: int, after: int, level: float
    ) -> Bounds:
        change = ExtremeChange.of(
            self.forms, rates_with_noise(columns, (before, after)), 1
        )
        return self._turned(change.ends((1 - level) / 2))

    def together(self, columns: AnswerTable, level: float) -> list[Bounds]:
        """Changes from the first run to each of the others, at levels at which all hold together:
        step-down max-T (Romano and Wolf 2005).
        """
        runs = range(len(columns.answers))
        noise = rates_with_noise(columns, tuple(runs))
        changes = [ExtremeChange.of(self.forms, noise, i) for i in runs[1:]]
        ranks = [_ranks(change.roots((1 - level) / len(changes))) for change in changes]
        found = step_down(
            len(changes),
            lambda left: _joint_error([ranks[i] for i in left], 1 - level),
            lambda i, error: changes[i].ends(error),
            lambda pair: direction(*pair),
        )
        return [self._turned(ends) for ends in found]

    def _turned(self, ends: Bounds) -> Bounds:
        return ends if self.sign > 0 else (-ends[1], -ends[0])


def _ranks(roots: list[Floats]) -> Floats:
    """The smallest rank of each draw among the ends of a change, each on its own scale.

    So all ends are equally likely to fail.
    """
    ranks = np.array(roots).argsort(1, kind="stable").argsort(1) + 1
    smallest: Floats = ranks.min(0) / (ranks.shape[1] + 1)
    return smallest


def _joint_error(ranks: Sequence[Floats], error: float) -> float:
    """The error of each end at which all of them hold together; at least Bonferroni's."""
    if len(ranks) == 1:
        return error / 2
    smallest = np.quantile(np.min(ranks, 0), error)
    return float(np.clip(smallest, error / 2 / len(ranks), error / 2))
