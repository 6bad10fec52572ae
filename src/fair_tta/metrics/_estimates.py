"""A figure with what is needed to judge it: its n, its interval, and what it leaves out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Generic, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from fair_tta.errors import FairTTAError, SmallGroupWarning

SMALL_GROUP = 30
"""Groups with fewer images warn."""

_MAX_LISTED_NAMES = 8


class GroupBy(Enum):
    """The images that a group has in common."""

    TARGET_AND_SENSITIVE = "(y, s)"
    """Images of one class with one sensitive value, as in the paper's tables."""

    SENSITIVE = "s"
    """Images with one sensitive value, as in the paper's text."""


GroupByText: TypeAlias = Literal["target and sensitive", "sensitive"]
"""The words for `GroupBy` in arguments."""

_GROUP_BY_TEXTS = {
    "target and sensitive": GroupBy.TARGET_AND_SENSITIVE,
    "sensitive": GroupBy.SENSITIVE,
}


def parse_group_by(argument: str, text: GroupBy | GroupByText) -> GroupBy:
    """Return the `GroupBy` of a text, or raise if there is none."""
    if isinstance(text, GroupBy):
        return text
    if text not in _GROUP_BY_TEXTS:
        texts = " or ".join([repr(known) for known in _GROUP_BY_TEXTS])
        raise FairTTAError(
            f"`{argument}` should be {texts} (got {text!r}).", argument=argument
        )
    return _GROUP_BY_TEXTS[text]


if TYPE_CHECKING:
    # The default lets `Estimate` stand without brackets.
    from typing_extensions import TypeVar

    Bounded = TypeVar("Bounded", bound=float, default=float)
else:
    from typing import TypeVar

    Bounded = TypeVar("Bounded", bound=float)


class Estimate(Struct, Generic[Bounded], frozen=True, forbid_unknown_fields=True):
    """A figure with its n and its interval. NaN becomes None, as JSON has it.

    Attributes:
        value: the figure, None if it is not defined.
        n: the images that it rests on.
        low: lower end of its interval, None if it has none.
        high: upper end of its interval.
        reason: the reason why there is no value, or what a value does not cover.

    Example:
        >>> float(Estimate(0.8, n=50))
        0.8
    """

    value: Bounded | None
    n: Annotated[int, Meta(ge=0)]
    low: Bounded | None = None
    high: Bounded | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        # The one conversion between figures that are computed and those of a document: numbers of
        # numpy become plain ones, and NaN becomes None.
        for name in ("value", "low", "high"):
            number = getattr(self, name)
            if number is not None:
                force_setattr(self, name, None if math.isnan(number) else float(number))

    def __float__(self) -> float:
        return math.nan if self.value is None else self.value

    @property
    def is_withheld(self) -> bool:
        """True if the value must not be printed: it is None, or `reason` says why no interval."""
        return self.value is None or (self.low is None and self.reason is not None)

    def to_text(self, sign: str = "", unit: str = "%") -> str:
        """Return ``81.2% [77.1%, 84.6%]``, or the reason if the value is withheld.

        Args:
            sign: "+" writes the sign of positive numbers too.
            unit: what follows each number.
        """
        if self.is_withheld:
            return f"{self.reason}"
        value = _format_share(self.value, sign, unit)
        if self.low is None:
            return value
        low = _format_share(self.low, sign, unit)
        high = _format_share(self.high, sign, unit)
        return f"{value} [{low}, {high}]"


def _format_share(share: float | None, sign: str, unit: str) -> str:
    """Return a share in percent, with one digit after the point."""
    return f"{100 * (share or 0.0):{sign}.1f}{unit}"


def direction(low: float | None, high: float | None) -> int:
    """Return the direction that the interval of a change shows: 1 up, -1 down, 0 neither.

    Every mark "better" or "worse" in tables and reports follows this rule.
    """
    if low is None or high is None:
        return 0
    if low > 0:
        return 1
    return -1 if high < 0 else 0


def undefined_estimate(reason: str, n: int = 0) -> Estimate:
    """Return an estimate without a value, and the reason why it has none."""
    return Estimate(None, n, reason=reason)


def group_label(*names: Hashable) -> str:
    """Return the name of a group in messages: ``blond / man``."""
    return " / ".join([str(name) for name in names])


def list_names(names: Sequence[str]) -> str:
    """Return the first names for a message, and how many more there are."""
    text = ", ".join(names[:_MAX_LISTED_NAMES])
    hidden = len(names) - _MAX_LISTED_NAMES
    return f"{text} and {hidden} more" if hidden > 0 else text


def small_group_sentences(sizes: Mapping[str, int]) -> list[str]:
    """Return sentences on groups that have few images or none, from ``{name: images}``."""
    # Few images make a figure uncertain, none leave it out: two sentences.
    small = [f"{name} (n = {n})" for name, n in sizes.items() if 0 < n < SMALL_GROUP]
    empty = [name for name, n in sizes.items() if n == 0]
    sentences = []
    if small:
        sentences.append(
            f"Fewer than {SMALL_GROUP} images, so figures are uncertain: {list_names(small)}."
        )
    if empty:
        sentences.append(f"No images, so no figures: {list_names(empty)}.")
    return sentences


def warn_small_groups(sizes: Mapping[str, int], stacklevel: int = 3) -> None:
    """Warn if a group has few images. Empty ones do not warn: they are NaN with a reason."""
    present = {name: n for name, n in sizes.items() if n}
    for sentence in small_group_sentences(present):
        warnings.warn(sentence, SmallGroupWarning, stacklevel=stacklevel)


def missing_groups_note(sizes: Mapping[str, int]) -> str | None:
    """Return a note on the groups that a minimum or a gap leaves out; None if there are none."""
    empty = [name for name, n in sizes.items() if n == 0]
    return f"left out, no images: {list_names(empty)}" if empty else None
