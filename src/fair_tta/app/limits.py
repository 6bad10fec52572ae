"""How much a visitor may ask of the app."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from fair_tta.errors import FairTTAError

MEGABYTE = 2**20


@dataclass(frozen=True)
class UploadLimits:
    """What may be uploaded, and how much may be asked.

    Args:
        file_bytes: of one file.
        files: pictures of one examination or audit.
        total_bytes: of all that lies on the disk for the app at one time.
        names: classes, and values of all attributes together.
        characters: of one field.
    """

    file_bytes: int = 20 * MEGABYTE
    files: int = 1000
    total_bytes: int = 2048 * MEGABYTE
    names: int = 100
    characters: int = 10_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or value < 1:
                raise FairTTAError(
                    f"`{field.name}` should be a whole number from 1 on (got {value!r})."
                )

    def check_files(self, paths: Sequence[object]) -> None:
        """Raise if there are none, or too many."""
        if not paths:
            raise FairTTAError("there are no pictures yet: drop some, or take the drawn ones.")
        if len(paths) > self.files:
            raise FairTTAError(
                f"at most {self.files:,} pictures at once (got {len(paths):,}): take a sample, or "
                "use `fair-tta examine` and `fair-tta audit`, which have no such limit."
            )

    def check_text(self, field: str, text: str) -> None:
        """Raise if a field holds more than anybody means."""
        if len(text) > self.characters:
            raise FairTTAError(
                f"`{field}` should have at most {self.characters:,} characters (got {len(text):,})."
            )

    def check_names(self, field: str, count: int) -> None:
        """Raise if there are more names than the app is made for."""
        if count > self.names:
            raise FairTTAError(f"`{field}` should have at most {self.names} names (got {count}).")
