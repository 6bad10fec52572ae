"""Columns of names that users pass, one name per image: labels, answers, sensitive values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from fair_tta._spelling import escape_invisible, lookalikes
from fair_tta.errors import FairTTAError
from fair_tta.metrics._types import Column, Ints, Sensitive

DEFAULT_ATTRIBUTE = "sensitive"
"""The name of an attribute whose values are passed without one."""

# What pandas and numpy write for a missing value where a column is turned into text.
_MISSING_TEXTS = frozenset({"nan", "NaN", "<NA>", "NaT"})


def read_column(
    argument: str, values: Column, length: int | None = None
) -> list[Hashable]:
    """Return a column as plain Python values, none of which may be missing."""
    _check_is_sequence(argument, values)
    plain = values.tolist() if hasattr(values, "tolist") else values
    column = [name.tolist() if hasattr(name, "tolist") else name for name in plain]

    # Few names differ in most columns, so the distinct ones are looked at first.
    try:
        has_missing = any(is_missing(name) for name in set(column))
    except TypeError:  # some are not hashable
        has_missing = True
    if has_missing:
        _raise_for_row(argument, column)
    if length is not None:
        check_length(argument, column, length)
    return column


def _check_is_sequence(argument: str, values: Any) -> None:
    """Raise unless the values are an ordered collection with a value per image."""
    # A table would be read as the names of its columns.
    if hasattr(values, "columns"):
        columns = list(getattr(values, "column_names", values.columns))
        example = f"frame[{columns[0]!r}]" if columns else "frame['label']"
        raise FairTTAError(
            f"`{argument}` should be one column (got a {type(values).__name__} of {len(columns)}): "
            f"pass a column of it, such as {example}.",
            argument=argument,
        )
    if isinstance(values, set | frozenset):
        raise FairTTAError(
            f"`{argument}` should be a sequence, in the order of the images (got a "
            f"{type(values).__name__}, which has no order): pass a list.",
            argument=argument,
        )
    plain = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(plain, str | bytes | Mapping) or not isinstance(plain, Iterable):
        raise FairTTAError(
            f"`{argument}` should be a sequence with a value per image.",
            argument=argument,
        )


def _raise_for_row(argument: str, column: list[Any]) -> None:
    """Raise for the first row that is nested or missing."""
    for row, name in enumerate(column):
        if not isinstance(name, Hashable):
            raise FairTTAError(
                f"`{argument}` should have one dimension (row {row} is a {type(name).__name__}).",
                argument=argument,
            )
        if is_missing(name):
            raise FairTTAError(
                f"`{argument}` should have no missing values (row {row}): replace them with a "
                "name such as 'unknown'.",
                argument=argument,
            )


def is_missing(name: Hashable) -> bool:
    """Return whether a value is None, NaN or the text that stands for it."""
    if name is None or (isinstance(name, str) and name in _MISSING_TEXTS):
        return True
    try:
        return bool(name != name)
    except TypeError:  # pandas.NA compares as neither true nor false
        return True


def check_length(argument: str, column: Sized, length: int) -> None:
    """Raise unless there is a value per image."""
    if len(column) != length:
        raise FairTTAError(
            f"`{argument}` should be as long as `y_true`, {length} (got {len(column)}).",
            argument=argument,
        )


def read_sensitive(
    sensitive: Sensitive | None, length: int
) -> dict[str, list[Hashable]]:
    """Return ``{attribute: column}``; empty, which is one group of all images, for None."""
    if sensitive is None:
        return {}
    if hasattr(sensitive, "columns"):  # a pandas DataFrame
        sensitive = _columns_of_frame(sensitive)
    if not isinstance(sensitive, Mapping):
        sensitive = {DEFAULT_ATTRIBUTE: sensitive}
    if not sensitive:
        raise FairTTAError(
            "`sensitive` should have at least one attribute (got {}).",
            argument="sensitive",
        )
    columns = {}
    for attribute, column in sensitive.items():
        if not isinstance(attribute, str):
            raise FairTTAError(
                f"attributes of `sensitive` should be strings (got {attribute!r}).",
                argument="sensitive",
            )
        columns[attribute] = read_column(sensitive_argument(attribute), column, length)
    return columns


def sensitive_argument(attribute: str) -> str:
    """Return the words for the column of an attribute in messages."""
    if attribute == DEFAULT_ATTRIBUTE:
        return "sensitive"
    return f"sensitive[{attribute!r}]"


def _columns_of_frame(frame: Any) -> dict[str, Any]:
    """Return the columns of a pandas DataFrame by their names as text."""
    columns: dict[str, Any] = {}
    for name in frame.columns:
        attribute = str(name)
        if attribute in columns:
            raise FairTTAError(
                "columns of `sensitive` should have distinct names as text (got several named "
                f"{attribute!r}): rename them.",
                argument="sensitive",
            )
        columns[attribute] = frame[name]
    return columns


def unique_names(
    argument: str, listed: Sequence[Hashable] | None, occurring: Iterable[Hashable]
) -> tuple[Hashable, ...]:
    """Return the names that are listed, or if None those that occur, sorted.

    Raises:
        FairTTAError: they are not distinct, or two of them look alike.
    """
    # Listed names keep their order, which is that of results.
    if listed is None:
        names = tuple(_sorted_names(set(occurring)))
    else:
        names = tuple(read_column(argument, listed))
        if not names or len(set(names)) < len(names):
            raise FairTTAError(
                f"`{argument}` should list distinct names (got {list(names)}).",
                argument=argument,
            )
    check_lookalikes(argument, names)
    return names


def _sorted_names(names: set[Hashable]) -> list[Hashable]:
    try:
        return sorted(names)  # type: ignore[type-var]
    except TypeError:  # names and numbers
        return sorted(names, key=lambda name: (type(name).__name__, str(name)))


def check_lookalikes(argument: str, names: Iterable[Hashable]) -> None:
    """Raise if two different names look alike: they would be two groups of one name."""
    # The number 1 and the text "1" are written alike.
    by_text: defaultdict[str, list[Hashable]] = defaultdict(list)
    for name in dict.fromkeys(names):
        by_text[str(name)].append(name)
    for same_text in by_text.values():
        if len(same_text) > 1:
            typed = [f"{name!r} ({type(name).__name__})" for name in same_text]
            raise FairTTAError(
                f"names of {argument} should differ visibly (got {' and '.join(typed)}): pass them "
                "all as text or all as numbers."
            )

    # Texts may differ in characters that no reader sees.
    texts = sorted(text for text, (name,) in by_text.items() if isinstance(name, str))
    invisible = lookalikes(texts)
    if invisible:
        quoted = [f"'{escape_invisible(name)}'" for name in invisible[0]]
        raise FairTTAError(
            f"names of {argument} should differ visibly (got {' and '.join(quoted)}, which look "
            "alike): use one spelling."
        )


def look_up_codes(
    argument: str, column: list[Hashable], listed_in: str, names: tuple[Hashable, ...]
) -> Ints:
    """Return the position of each value of a column in `names`.

    Args:
        argument: the argument with the column.
        column: ``[images]`` names.
        listed_in: the argument that lists the names.
        names: the names that it may hold.
    """
    position = {name: index for index, name in enumerate(names)}
    try:
        return np.array([position[name] for name in column], np.int64)
    except KeyError as error:
        raise FairTTAError(
            f"`{argument}` should hold only names of `{listed_in}`, {list(names)} (got "
            f"{error.args[0]!r}).",
            argument=argument,
        ) from None


def assign_codes(column: Iterable[Hashable]) -> Ints:
    """Return a number for each value; equal values share one, in the order they first occur."""
    numbers: dict[Hashable, int] = {}
    codes = [numbers.setdefault(value, len(numbers)) for value in column]
    return np.array(codes, np.int64)
