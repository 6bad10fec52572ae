"""How figures are written. Rates are shown in percent, differences of rates in points."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from fair_tta.auditing._document import Provenance
from fair_tta.metrics._estimates import Estimate

MINUS = "\N{MINUS SIGN}"
ARROW = "\N{RIGHTWARDS ARROW}"
SPACE = "\N{NO-BREAK SPACE}"
NONE = "n/a"


def percent(share: float | None, signed: bool = False) -> str:
    """``0.8125`` as ``81.2``. What rounds to 0 keeps one digit: ``0.0003`` is ``0.03``."""
    if share is None:
        return NONE
    points = 100 * share
    if abs(points) < 1e-4:
        return "0.0"
    text = f"{abs(points):.1f}"
    if text == "0.0":
        text = f"{float(f'{abs(points):.1g}'):.4f}".rstrip("0")
    sign = MINUS if points < 0 else "+" if signed else ""
    return sign + text


def shown(figure: Estimate | None) -> float | None:
    """Return the value of a figure, None if it is withheld."""
    return None if figure is None or figure.is_withheld else figure.value


def interval(figure: Estimate, signed: bool = False, words: bool = False) -> str:
    """``[77.1, 84.6]``, in words ``77.1 to 84.6``, empty if there is none."""
    if figure.low is None or figure.high is None:
        return ""
    low, high = percent(figure.low, signed), percent(figure.high, signed)
    return f"{low} to {high}" if words else f"[{low}, {high}]"


def figure_text(figure: Estimate, signed: bool = False, unit: str = "") -> str:
    """``81.2 [77.1, 84.6]``."""
    if figure.is_withheld:
        return NONE
    return f"{percent(figure.value, signed)}{unit} {interval(figure, signed)}".rstrip()


def points(figure: Estimate, signed: bool = False) -> str:
    """``3.2 points [1.0, 5.4]``."""
    return figure_text(figure, signed, " points")


def in_words(figure: Estimate, unit: str, signed: bool = False, label: str = "") -> str:
    """``3.2 points (1.0 to 5.4)``, or the reason; `unit` begins with its space."""
    if figure.is_withheld:
        return f"{NONE} ({figure.reason})"
    ends = interval(figure, signed, words=True)
    return f"{percent(figure.value, signed)}{unit}" + (
        f" ({label}{ends})" if ends else ""
    )


def whole(share: float | None) -> str:
    """Percent without digits that nobody needs; what is not 0 or 100 becomes neither."""
    if share is None:
        return NONE
    for digits in range(4):
        text = f"{100 * share:.{digits}f}"
        if 0 < float(text) < 100:
            return text
    return f"{100 * share:.0f}"


def plain_number(value: float, digits: int = 3) -> str:
    """A number rounded to so many digits, or to a whole number, and never with an exponent.

    Example:
        >>> [plain_number(x) for x in (0.00123456, 0.5, 1.23456, 123.456, 1234567.8)]
        ['0.00123', '0.5', '1.23', '123', '1234568']
    """
    if not math.isfinite(value):
        return NONE
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    text = f"{value:.{max(0, digits - 1 - exponent)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def p_value(p: float | None) -> str:
    """Two digits, or that it is smaller than 0.0001."""
    if p is None:
        return NONE
    if p < 1e-4:
        return f"<{SPACE}0.0001"
    return f"{p:.2f}" if p >= 0.1 else f"{p:.2g}"


def duration(seconds: float | None) -> str:
    """``24.6 ms``, ``1.23 s``."""
    if seconds is None:
        return NONE
    if seconds < 1:
        return f"{plain_number(1000 * seconds)}{SPACE}ms"
    return (
        f"{plain_number(seconds)}{SPACE}s"
        if seconds < 999.5
        else f"{seconds:,.0f}{SPACE}s"
    )


def times(multiple: float | None) -> str:
    """``1.0`` or ``27`` times: a cost as a multiple of plain zero-shot."""
    sign = f"{SPACE}\N{MULTIPLICATION SIGN}"
    return NONE if multiple is None else number_of_times(multiple) + sign


def number_of_times(multiple: float) -> str:
    """``1.0``, ``27``: two digits of what is not tiny."""
    return f"{multiple:.1f}" if 0.095 <= multiple < 9.95 else plain_number(multiple, 2)


def count(number: int | None) -> str:
    """``12,345``."""
    return NONE if number is None else f"{number:,}"


def group_name(sensitive: Mapping[str, str], target: str | None = None) -> str:
    """``blond / man``."""
    return " / ".join([*([] if target is None else [target]), *sensitive.values()])


def images(n: int) -> str:
    """``1 image``, ``300 images``."""
    return f"{count(n)} image{'' if n == 1 else 's'}"


def model_name(origin: Provenance) -> str:
    """What the model is called, empty if that is not known."""
    return (origin.model.name if origin.model else "") or ""


def below_title(origin: Provenance, *facts: str) -> str:
    """Model and the beginning of the hash of its weights, facts, and the day."""
    name = model_name(origin) or "answers of a model that was not recorded"
    if origin.model and origin.model.weights_sha256:
        name += f", weights {origin.model.weights_sha256[:12]}"
    return " \N{MIDDLE DOT} ".join([name, *facts, origin.time[:10]])


def logits(x: float) -> str:
    """``+0.54``."""
    text = f"{abs(x):.2f}"
    return text if text == "0.00" else (MINUS if x < 0 else "+") + text


def task_name(targets: Collection[str], by: Iterable[str]) -> str:
    """``cat or dog, by place``."""
    task = " or ".join(targets) if len(targets) <= 3 else f"{len(targets)} classes"
    return f"{task}, by {' and '.join(by)}"


def of_hundred(share: float | None) -> str:
    """``73 of 100``."""
    return f"{whole(share)} of 100"


def whole_percent(share: float) -> str:
    """``71 %``, without digits that nobody needs."""
    return f"{whole(share)}{SPACE}%"
