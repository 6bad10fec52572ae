"""Numbers and names as text: rates in percent, differences of rates in points."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from fair_tta.auditing._document import Provenance
from fair_tta.metrics._estimates import Estimate

MINUS = "\N{MINUS SIGN}"
ARROW = "\N{RIGHTWARDS ARROW}"
NO_BREAK_SPACE = "\N{NO-BREAK SPACE}"
NOT_AVAILABLE = "n/a"

# A p-value is never printed as 0: below this it is only said to be smaller
_SMALLEST_P = 1e-4


def percent(share: float | None, signed: bool = False) -> str:
    """Return ``0.8125`` as ``81.2``; what rounds to 0 keeps one digit: ``0.0003`` is ``0.03``."""
    if share is None:
        return NOT_AVAILABLE
    points = 100 * share
    # Rounding errors of a difference are 0, not 0.000001
    if abs(points) < 1e-4:
        return "0.0"
    text = f"{abs(points):.1f}"
    if text == "0.0":
        text = f"{float(f'{abs(points):.1g}'):.4f}".rstrip("0")
    if points < 0:
        return MINUS + text
    return f"+{text}" if signed else text


def shown_value(figure: Estimate) -> float | None:
    """Return the value of a figure, None if it is withheld."""
    return None if figure.is_withheld else figure.value


def interval(figure: Estimate, signed: bool = False, in_words: bool = False) -> str:
    """Return ``[77.1, 84.6]``, in words ``77.1 to 84.6``, empty if there is none."""
    if figure.low is None or figure.high is None:
        return ""
    low = percent(figure.low, signed)
    high = percent(figure.high, signed)
    return f"{low} to {high}" if in_words else f"[{low}, {high}]"


class TableCell(NamedTuple):
    """A figure in a table: value, interval, and a note such as why there is no value."""

    value: str
    interval: str
    note: str


def table_cell(figure: Estimate, signed: bool = False) -> TableCell:
    """Return the texts of a figure in a table.

    A figure that is withheld, as an undefined one always is, has "n/a" and the reason.
    """
    note = figure.reason or ""
    if figure.is_withheld:
        return TableCell(NOT_AVAILABLE, "", note)
    return TableCell(percent(figure.value, signed), interval(figure, signed), note)


def figure_text(figure: Estimate, signed: bool = False, unit: str = "") -> str:
    """Return ``81.2 [77.1, 84.6]``; a `unit` follows the value and begins with its space."""
    if figure.is_withheld:
        return NOT_AVAILABLE
    return f"{percent(figure.value, signed)}{unit} {interval(figure, signed)}".rstrip()


def points_text(figure: Estimate, signed: bool = False) -> str:
    """Return ``3.2 points [1.0, 5.4]``."""
    return figure_text(figure, signed, " points")


def figure_in_words(
    figure: Estimate, unit: str, signed: bool = False, label: str = ""
) -> str:
    """Return ``3.2 points (1.0 to 5.4)``, or the reason; `unit` begins with its space."""
    if figure.is_withheld:
        return f"{NOT_AVAILABLE} ({figure.reason})"
    text = f"{percent(figure.value, signed)}{unit}"
    bounds = interval(figure, signed, in_words=True)
    return f"{text} ({label}{bounds})" if bounds else text


def rounded_percent(share: float | None) -> str:
    """Return ``72``; only 0 and 1 become ``0`` and ``100``: 0.996 is ``99.6``."""
    if share is None:
        return NOT_AVAILABLE
    # 99.96 of 100 is not all of them: it gets digits until it differs from 100
    for digits in range(4):
        text = f"{100 * share:.{digits}f}"
        if 0 < float(text) < 100:
            return text
    return f"{100 * share:.0f}"


def percent_with_sign(share: float | None) -> str:
    """Return ``71 %``, rounded."""
    return f"{rounded_percent(share)}{NO_BREAK_SPACE}%"


def of_hundred(share: float | None) -> str:
    """Return ``73 of 100``."""
    return f"{rounded_percent(share)} of 100"


def plain_number(value: float, digits: int = 3) -> str:
    """Return a number with so many significant digits, or as an integer, without an exponent.

    Example:
        >>> [plain_number(x) for x in (0.00123456, 0.5, 1.23456, 123.456, 1234567.8)]
        ['0.00123', '0.5', '1.23', '123', '1234568']
    """
    if not math.isfinite(value):
        return NOT_AVAILABLE
    # The exponent after rounding: 9.996 has that of 10
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    text = f"{value:.{max(0, digits - 1 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def p_value(p: float | None) -> str:
    """Return two digits, or that it is smaller than 0.0001."""
    if p is None:
        return NOT_AVAILABLE
    if p < _SMALLEST_P:
        return f"<{NO_BREAK_SPACE}0.0001"
    return f"{p:.2f}" if p >= 0.1 else f"{p:.2g}"


def p_equals(p: float | None) -> str:
    """Return ``p = 0.008``, or ``p < 0.0001``."""
    text = p_value(p)
    sign = "" if text.startswith("<") else f"={NO_BREAK_SPACE}"
    return f"p{NO_BREAK_SPACE}{sign}{text}"


def duration(seconds: float) -> str:
    """Return ``24.6 ms``, ``1.23 s`` or ``12,346 s``."""
    if seconds < 1:
        return f"{plain_number(1000 * seconds)}{NO_BREAK_SPACE}ms"
    # Long times are integers with separators
    number = plain_number(seconds) if seconds < 999.5 else f"{seconds:,.0f}"
    return f"{number}{NO_BREAK_SPACE}s"


def times(multiple: float | None) -> str:
    """Return a cost as a multiple of plain zero-shot: ``1.0`` or ``27``, and the sign for times."""
    if multiple is None:
        return NOT_AVAILABLE
    return f"{number_of_times(multiple)}{NO_BREAK_SPACE}\N{MULTIPLICATION SIGN}"


def number_of_times(multiple: float) -> str:
    """Return ``1.0``, ``27``: two significant digits."""
    return f"{multiple:.1f}" if 0.095 <= multiple < 9.95 else plain_number(multiple, 2)


def count(number: int | None) -> str:
    """Return ``12,345``."""
    return NOT_AVAILABLE if number is None else f"{number:,}"


def image_count(n: int) -> str:
    """Return ``1 image``, ``300 images``."""
    return f"{count(n)} image{'' if n == 1 else 's'}"


def logit_text(logit: float) -> str:
    """Return ``+0.54``."""
    text = f"{abs(logit):.2f}"
    if text == "0.00":
        return text
    return f"{MINUS if logit < 0 else '+'}{text}"


def group_name(sensitive: Mapping[str, str], target: str | None = None) -> str:
    """Return ``blond / man``; a group without values holds all images."""
    names = list(sensitive.values())
    # The class comes first, as in the tables
    if target is not None:
        names.insert(0, target)
    return " / ".join(names) or "everybody"


def task_name(targets: Collection[str], attributes: Iterable[str]) -> str:
    """Return ``cat or dog, by place``."""
    task = " or ".join(targets) if len(targets) <= 3 else f"{len(targets)} classes"
    return f"{task}, by {' and '.join(attributes)}"


def recorded_model(origin: Provenance) -> str:
    """Return the name of the model, empty if it was not recorded."""
    return (origin.model.name if origin.model else "") or ""


def subtitle(origin: Provenance, *sizes: str) -> str:
    """Return the model with the beginning of the hash of its weights, sizes, and the day."""
    model = recorded_model(origin) or "answers of a model that was not recorded"
    if origin.model and origin.model.weights_sha256:
        model += f", weights {origin.model.weights_sha256[:12]}"
    return " \N{MIDDLE DOT} ".join([model, *sizes, origin.time[:10]])
