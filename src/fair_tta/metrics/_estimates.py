"""A figure with what is needed to judge it: its n, its interval, and what it leaves out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, TypeAlias

from fair_tta.errors import FairTTAError, SmallGroupWarning

SMALL = 30
"""Groups with fewer images warn."""

_LISTED = 8


class Over(Enum):
    """What a group is, for worst-group figures."""

    TARGET_AND_SENSITIVE = "(y, s)"
    """Images of one class with one sensitive value, as in the paper's tables."""

    SENSITIVE = "s"
    """Images with one sensitive value, as in the paper's text."""


GroupsOver: TypeAlias = Literal["target and sensitive", "sensitive"]
"""The same in the words of arguments."""

_OVER = {"target and sensitive": Over.TARGET_AND_SENSITIVE, "sensitive": Over.SENSITIVE}


def read_over(argument: str, over: Over | GroupsOver) -> Over:
    """Return what a group is; an error if the words say neither."""
    if isinstance(over, Over):
        return over
    if over not in _OVER:
        words = " or ".join(map(repr, _OVER))
        raise FairTTAError(f"`{argument}` should be {words} (got {over!r}).")
    return _OVER[over]


@dataclass(frozen=True)
class Estimate:
    """A figure with its n and its interval.

    Attributes:
        value: the figure, NaN if it is not defined.
        n: on how many images it rests.
        low: lower end of its interval, None if it has none.
        high: upper end of its interval.
        reason: why the value is NaN, or what a value does not cover.

    Example:
        >>> float(Estimate(0.8, n=50))
        0.8
    """

    value: float
    n: int
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    def __float__(self) -> float:
        return self.value

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: NaN is None."""
        ends = {"value": self.value, "low": self.low, "high": self.high}
        plain = {k: None if x is None or math.isnan(x) else float(x) for k, x in ends.items()}
        return {**plain, "n": self.n, "reason": self.reason}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Estimate:
        """The reverse of `to_dict`."""
        return cls(**{**fields, "value": math.nan if fields["value"] is None else fields["value"]})


def direction(low: float | None, high: float | None) -> int:
    """The direction that an interval of a change shows: 1 up, -1 down, 0 if neither.

    Every mark "better" or "worse" in tables and reports follows this rule.
    """
    if low is None or high is None:
        return 0
    return int(low > 0) - int(high < 0)


def undefined(reason: str, n: int = 0) -> Estimate:
    """A figure that could not be had."""
    return Estimate(math.nan, n, reason=reason)


def label(*names: Hashable) -> str:
    """How messages name a group: ``blond / man``."""
    return " / ".join(map(str, names))


def listed(names: Sequence[str]) -> str:
    """Names for a message, not too many."""
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


def small_groups(sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Sentences on groups that have few images or none."""
    few = [f"{name} (n = {n})" for name, n in sizes.items() if 0 < n < SMALL]
    empty = [name for name, n in sizes.items() if n == 0]
    return (
        *([f"Fewer than {SMALL} images, so figures are uncertain: {listed(few)}."] if few else []),
        *([f"No images, so no figures: {listed(empty)}."] if empty else []),
    )


def warn_small(sizes: Mapping[str, int], stacklevel: int = 3) -> None:
    """Warn if a group that is there has few images. (Empty ones are NaN with a reason.)"""
    for sentence in small_groups({name: n for name, n in sizes.items() if n}):
        warnings.warn(sentence, SmallGroupWarning, stacklevel=stacklevel)


def left_out(sizes: Mapping[str, int]) -> str | None:
    """What a minimum or a gap over groups does not cover."""
    empty = [name for name, n in sizes.items() if n == 0]
    return f"left out, no images: {listed(empty)}" if empty else None
