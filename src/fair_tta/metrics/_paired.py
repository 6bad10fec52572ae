"""Intervals for what changes between two runs on the same images.

The change of one rate has Bonett and Price's interval. A minimum over groups or a gap between them
is not smooth: which group is the worst may change, and differs from the one that looks it. So the
change is enclosed between changes of single groups. With r the rates before and r' after, c the
group that is truly the lowest before and c' the one after::

    r'_c' - r_c'  <=  min r' - min r  <=  r'_c - r_c

and likewise for gaps, with the pair of groups that is truly farthest apart. c and c' are not known,
but they are fixed: it is enough to take the widest ends over all groups that may be c or c'. A
group may be the lowest unless Wilson's intervals, at a level at which they hold together, show
another below it. A tenth of the error goes to that choice, the rest to the change. The same
intervals also bound the rates themselves, and so their change, whichever groups are the worst.

Images are taken as drawn within each class of each group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from fair_tta.metrics._columns import Columns, Floats, Ints
from fair_tta.metrics._estimate import Over
from fair_tta.metrics._intervals import mean_change_ends, paired_ends, wilson_ends

Mask: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Shift:
    """Rates before and after on the same images; all arrays of one shape.

    Attributes:
        before: images counted before.
        after: images counted after.
        loss: counted before and no longer.
        gain: counted after and not before.
        n: images that could be counted.
    """

    before: Floats
    after: Floats
    loss: Floats
    gain: Floats
    n: Floats

    def of(self, choose: Callable[[Floats], Floats]) -> Shift:
        """Some of the rates, or rates added up."""
        parts = self.before, self.after, self.loss, self.gain, self.n
        return Shift(*map(choose, parts))

    @property
    def change(self) -> Floats:
        """Rates after minus rates before."""
        change: Floats = (self.gain - self.loss) / self.n
        return change

    def reach(self, level: float) -> tuple[Floats, Floats]:
        """How far the intervals of the changes reach down and up from them."""
        low, high = paired_ends(self.loss, self.gain, self.n, level)
        return self.change - low, high - self.change

    def bands(self, level: float) -> tuple[Band, Band]:
        """Intervals of the rates before and after."""
        before = wilson_ends(self.before, self.n, level)
        return Band(*before), Band(*wilson_ends(self.after, self.n, level))


@dataclass(frozen=True, eq=False)
class Band:
    """Intervals of rates that hold together, and what they leave open."""

    low: Floats
    high: Floats

    @property
    def may_be_lowest(self) -> Mask:
        """No other is shown to lie below."""
        return np.asarray(self.low <= self.high.min())

    @property
    def may_be_apart(self) -> Mask:
        """Pairs whose first may be the highest and whose second the lowest."""
        highest = self.high >= self.low.max()
        pairs: Mask = highest[:, None] & self.may_be_lowest
        return pairs & ~np.eye(len(highest), dtype=np.bool_)

    @property
    def largest_gap(self) -> float:
        """At most so far apart."""
        return float(self.high.max() - self.low.min())

    @property
    def least_gap(self) -> float:
        """At least so far apart."""
        return max(0.0, float(self.low.max() - self.high.min()))


Count: TypeAlias = Callable[[Columns, int, int], Shift]


def hits(columns: Columns, before: int, after: int) -> Shift:
    """Images of a class that are answered so: ``[groups, targets]``."""
    a, b = columns.answers[before], columns.answers[after]
    right = a == columns.truth, b == columns.truth
    return _shift(columns, (columns.truth, columns.truth), right, _sizes(columns))


def false_alarms(columns: Columns, before: int, after: int) -> Shift:
    """Images of other classes that are answered so: ``[groups, targets]``."""
    a, b = columns.answers[before], columns.answers[after]
    sizes = _sizes(columns)
    others = sizes.sum(1, keepdims=True) - sizes
    return _shift(columns, (a, b), (a != columns.truth, b != columns.truth), others)


def selections(columns: Columns, before: int, after: int) -> Shift:
    """Images that are answered so: ``[groups, targets]``."""
    answers = columns.answers[before], columns.answers[after]
    everybody = np.ones(len(columns.truth), np.bool_)
    sizes = _sizes(columns)
    all_of_group = sizes.sum(1, keepdims=True) + 0 * sizes
    return _shift(columns, answers, (everybody, everybody), all_of_group)


def _sizes(columns: Columns) -> Floats:
    """Images of each class in each group."""
    sizes: Floats = columns.counts().sum(2).astype(np.float64)
    return sizes


def _shift(
    columns: Columns, answers: tuple[Ints, Ints], counted: tuple[Mask, Mask], n: Floats
) -> Shift:
    """Count images by group and by the class under which they are counted, before and after."""
    (a, b), (was, now) = answers, counted
    stays = was & now & (a == b)

    def total(answer: Ints, some: Mask) -> Floats:
        place = columns.group * n.shape[1] + answer
        return np.bincount(place[some], minlength=n.size).reshape(n.shape).astype(np.float64)

    return Shift(total(a, was), total(b, now), total(a, was & ~stays), total(b, now & ~stays), n)


Ends: TypeAlias = tuple[float, float]
ChangeInterval: TypeAlias = Callable[[Columns, int, int, float], Ends]
"""Columns, the two runs and the level to the ends of the change; NaN where there is none."""

_CHOICE = 0.1  # of the error, for which groups may be the worst


def overall_change(columns: Columns, before: int, after: int, level: float) -> Ends:
    """The change of accuracy."""
    return _within(*_accuracy(columns, before, after, level))


def balanced_change(columns: Columns, before: int, after: int, level: float) -> Ends:
    """The change of the mean accuracy of groups."""
    groups = _groups(columns, before, after, Over.TARGET_AND_SENSITIVE)
    return _within(*mean_change_ends(groups.loss, groups.gain, groups.n, level))


def lowest_change(over: Over, columns: Columns, before: int, after: int, level: float) -> Ends:
    """The change of the lowest accuracy of a group."""
    groups = _groups(columns, before, after, over)
    down, up = groups.reach(_for_change(level))
    first, then = groups.bands(_for_choice(level, _CHOICE, len(groups.n)))
    low = (groups.change - down)[then.may_be_lowest].min()
    high = (groups.change + up)[first.may_be_lowest].max()
    least, most = _lowest_at_all(first, then)
    return _within(max(low, least), min(high, most))


def shortfall_change(over: Over, columns: Columns, before: int, after: int, level: float) -> Ends:
    """The change of accuracy minus that of the lowest accuracy of a group.

    Accuracy is the mean of the groups, so for each group this is a sum of independent changes with
    known weights. Distances to the ends of their intervals add up as standard deviations do.
    """
    groups = _groups(columns, before, after, over)
    down, up = groups.reach(_for_change(level))
    first, then = groups.bands(_for_choice(level, _CHOICE / 2, len(groups.n)))
    weight = groups.n / groups.n.sum()
    value = (weight * groups.change).sum() - groups.change
    lower = _others(weight * down) + ((1 - weight) * up) ** 2
    upper = _others(weight * up) + ((1 - weight) * down) ** 2
    low = (value - np.sqrt(lower))[first.may_be_lowest].min()
    high = (value + np.sqrt(upper))[then.may_be_lowest].max()
    least, most = _lowest_at_all(first, then)
    fall, rise = _accuracy(columns, before, after, 1 - _CHOICE / 2 * (1 - level))
    return _within(max(low, fall - most), min(high, rise - least))


def mean_gap_change(
    kinds: tuple[Count, ...], columns: Columns, before: int, after: int, level: float
) -> Ends:
    """The change of the mean over classes of the largest gap of several kinds of rates.

    Hits of different classes are on different images, so over classes the distances to the ends add
    up as standard deviations do; other kinds of rates share images, and there they are averaged,
    which is never too narrow.
    """
    shifts = [kind(columns, before, after) for kind in kinds]
    classes = [
        c
        for c in range(len(columns.targets))
        if all((shift.n[:, c] > 0).sum() > 1 for shift in shifts)
    ]
    if not classes:
        return np.nan, np.nan
    if len(columns.targets) == 2 and kinds != (hits,):
        classes = classes[:1]  # both classes have the same gaps
    rates = 2 * len(kinds) * len(classes) * len(columns.groups)
    separate = len(classes) > 1
    found = [
        _gap_of_class([_class(shift, c) for shift in shifts], kinds, level, rates, separate)
        for c in classes
    ]
    low, down, least, high, up, most = (np.array(part) for part in zip(*found, strict=True))
    lower = low.mean() - np.sqrt((down**2).sum()) / len(classes)
    upper = high.mean() + np.sqrt((up**2).sum()) / len(classes)
    return _within(max(lower, least.mean()), min(upper, most.mean()))


def _gap_of_class(
    shifts: Sequence[Shift], kinds: Sequence[Count], level: float, rates: int, separate: bool
) -> tuple[float, ...]:
    """Lower end of the change, what is still to be added as a deviation, and what it is at least;
    the same of the upper end.
    """
    bands = [shift.bands(1 - _CHOICE * (1 - level) / rates) for shift in shifts]
    least_before, least_after = (max(pair[i].least_gap for pair in bands) for i in range(2))
    most_before, most_after = (max(pair[i].largest_gap for pair in bands) for i in range(2))
    low, down, high, up = np.inf, 0.0, -np.inf, 0.0
    for shift, kind, (first, then) in zip(shifts, kinds, bands, strict=True):
        less, more = shift.reach(_for_change(level))
        change = shift.change[:, None] - shift.change
        lower, upper = np.hypot(less[:, None], more), np.hypot(more[:, None], less)
        add = separate and kind is hits
        if first.largest_gap >= least_before:
            some = first.may_be_apart
            low = min(low, (change - (0 if add else lower))[some].min())
            down = max(down, lower[some].max() if add else 0.0)
        if then.largest_gap >= least_after:
            some = then.may_be_apart
            high = max(high, (change + (0 if add else upper))[some].max())
            up = max(up, upper[some].max() if add else 0.0)
    return low, down, least_after - most_before, high, up, most_after - least_before


def _for_change(level: float) -> float:
    return 1 - (1 - _CHOICE) * (1 - level)


def _for_choice(level: float, share: float, groups: int) -> float:
    """The level of intervals that are to hold together, before and after, with this share.

    Of the lowest group both ends must hold, of the others the upper end.
    """
    return 1 - share * (1 - level) / (groups + 1)


def _lowest_at_all(first: Band, then: Band) -> Ends:
    """What the intervals of the rates say of the change of the lowest one."""
    least = float(then.low.min() - first.high.min())
    return least, float(then.high.min() - first.low.min())


def _accuracy(columns: Columns, before: int, after: int, level: float) -> Ends:
    everybody = hits(columns, before, after).of(lambda part: part.sum(keepdims=True).ravel())
    low, high = paired_ends(everybody.loss, everybody.gain, everybody.n, level)
    return float(low[0]), float(high[0])


def _within(low: float, high: float) -> Ends:
    return max(-1.0, float(low)), min(1.0, float(high))


def _groups(columns: Columns, before: int, after: int, over: Over) -> Shift:
    """Accuracy of each group that has images: ``[groups]``."""
    cells = hits(columns, before, after)
    if over is Over.SENSITIVE:
        cells = cells.of(lambda part: part.sum(1))
    present = cells.n.ravel() > 0
    return cells.of(lambda part: part.ravel()[present])


def _class(shift: Shift, c: int) -> Shift:
    """The rates of a class in the groups that have one: ``[groups]``."""
    present = shift.n[:, c] > 0
    return shift.of(lambda part: part[present, c])


def _others(distances: Floats) -> Floats:
    """For each the sum of the squares of the others."""
    squares = distances**2
    others: Floats = squares.sum() - squares
    return others
