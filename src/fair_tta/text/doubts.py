"""Prompts that can hardly be meant: values of a file that nobody would say."""

from __future__ import annotations

import re
from collections.abc import Mapping

_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_DOUBTS = (
    (r"[-+]?\d+([.,]\d+)?", "a number"),
    (rf"(\d{{1,4}}[-. ]({_MONTHS})[a-z]*|({_MONTHS})[a-z]*[-. ]\d{{1,4}})", "a date"),
    (r"\d{4}-\d\d?-\d\d?.*", "a date"),
    (r"(true|false|yes|no|y|n|none|null|nan|unknown|other)", "an answer to another question"),
    (r".*\w_\w.*", "a name with an underscore"),
    (r"[a-z]", "a single letter"),
)


def doubt(phrase: str) -> str | None:
    """Why a phrase is no word for what is in a picture, None if it may be one.

    Example:
        >>> doubt("-1"), doubt("03-Sep"), doubt("Latino_Hispanic"), doubt("old")
        ('a number', 'a date', 'a name with an underscore', None)
    """
    for pattern, what in _DOUBTS:
        if re.fullmatch(pattern, phrase.strip(), re.IGNORECASE | re.DOTALL):
            return what
    return None


def doubts(names: Mapping[str, str]) -> dict[str, str]:
    """``{phrase: why}`` of those that can hardly be meant."""
    found = {phrase: doubt(phrase) for phrase in names.values()}
    return {phrase: why for phrase, why in found.items() if why is not None}
