"""Young or old: the paper does not say where it cuts, so the cut is a recorded parameter."""

from __future__ import annotations

from dataclasses import dataclass

from fair_tta.errors import FairTTAError


@dataclass(frozen=True)
class AgeCut:
    """Who is young and who is old; anyone in between is left out and counted.

    The paper does not tell its cut, and public code has no common rule: some take 20 and over
    against 10 and under, some make three groups with cuts at 20 and 40.

    Args:
        young_below: the young are younger than this, in years.
        old_from: the old are at least so old; the same age if None, so that nobody is left out.
    """

    young_below: int = 40
    old_from: int | None = None

    def __post_init__(self) -> None:
        if self.young_below < 1:
            raise FairTTAError(f"`young_below` should be at least 1 (got {self.young_below!r}).")
        if self.old_from is not None and self.old_from < self.young_below:
            raise FairTTAError(
                f"`old_from` should be at least `young_below`, {self.young_below} "
                f"(got {self.old_from!r})."
            )

    @property
    def limits(self) -> dict[str, int]:
        """Both limits, to be recorded."""
        old_from = self.young_below if self.old_from is None else self.old_from
        return {"young_below": self.young_below, "old_from": old_from}

    def splits(self, youngest: int, oldest: float) -> bool:
        """Whether a limit falls inside an age bracket, both ends of which belong to it."""
        return any(youngest < limit <= oldest for limit in self.limits.values())

    def label(self, age: int) -> str | None:
        """`"young"`, `"old"`, or None in between."""
        if age < self.limits["young_below"]:
            return "young"
        return "old" if age >= self.limits["old_from"] else None


DEFAULT_AGES = AgeCut()
"""Young is below 40: an edge of FairFace's brackets, and one cut for both datasets with ages."""
