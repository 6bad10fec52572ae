"""Names as people write them on a command line and in the fields of the app.

``"cat,dog"`` is a list of names. ``"cat=of a cat"`` is one name with its phrase, which may hold
commas; the option is repeated for others. ``"place: water,land"`` puts an attribute first. A
backslash before a comma, a colon or an equals sign makes it part of a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fair_tta.errors import FairTTAError
from fair_tta.prompts._templates import parse_names

if TYPE_CHECKING:
    from fair_tta.datasets._label_values import LabelValues

_MONTH_PATTERN = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_PROBLEM_PATTERNS = (
    (r"[-+]?\d+([.,]\d+)?", "a number"),
    (
        rf"(\d{{1,4}}[-. ]({_MONTH_PATTERN})[a-z]*|({_MONTH_PATTERN})[a-z]*[-. ]\d{{1,4}})",
        "a date",
    ),
    (r"\d{4}-\d\d?-\d\d?.*", "a date"),
    (
        r"(true|false|yes|no|y|n|none|null|nan|unknown|other)",
        "an answer to another question",
    ),
    (r".*\w_\w.*", "a name with an underscore"),
    (r"[a-z]", "a single letter"),
)


def prompt_problems(phrases: Iterable[str]) -> dict[str, str]:
    """``{phrase: why}`` of those that are unlikely to describe what is in an image.

    Example:
        >>> prompt_problems(["-1", "03-Sep", "Latino_Hispanic", "old"])
        {'-1': 'a number', '03-Sep': 'a date', 'Latino_Hispanic': 'a name with an underscore'}
    """
    problems: dict[str, str] = {}
    for phrase in phrases:
        for pattern, problem in _PROBLEM_PATTERNS:
            if re.fullmatch(pattern, phrase.strip(), re.IGNORECASE | re.DOTALL):
                problems.setdefault(phrase, problem)
    return problems


def parse_target_texts(texts: Sequence[str]) -> dict[str, str]:
    r"""``{label: phrase}`` of all uses of an option.

    Example:
        >>> parse_target_texts(["cat,dog", "bird=of a bird, flying"])
        {'cat': 'cat', 'dog': 'dog', 'bird': 'of a bird, flying'}
    """
    pairs = [pair for text in texts for pair in _split_name_pairs(text, text)]
    return parse_names("targets", _join_pairs("targets", pairs))


def parse_sensitive_texts(
    texts: Sequence[str], attribute: str
) -> dict[str, dict[str, str]]:
    r"""``{attribute: {label: phrase}}`` of all uses of an option; `attribute` if none is written.

    Example:
        >>> parse_sensitive_texts(["time: day,night", "place: water=on water", "place: land"], "")
        {'time': {'day': 'day', 'night': 'night'}, 'place': {'water': 'on water', 'land': 'land'}}
    """
    groups, written = _group_by_prefix(
        texts, attribute, "an attribute", "place: water,land"
    )
    phrases = {}
    for name, pairs in groups.items():
        argument = f"sensitive {name}:" if name in written else "sensitive"
        phrases[name] = parse_names(argument, _join_pairs("sensitive", pairs))
    return phrases


def parse_column_attributes(
    texts: Sequence[str], columns: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return the same for columns of labels; if there is only one, it need not be written."""
    written = parse_sensitive_texts(texts, columns[0] if len(columns) == 1 else "")
    unknown = [name for name in written if name not in columns]
    if unknown:
        raise FairTTAError(
            f"attributes are the sensitive columns, {list(columns)} (got {unknown}): write "
            f"'{columns[0]}: name,name'."
        )
    return written


def column_names(values: LabelValues, column: str) -> dict[str, str]:
    """Return the values of a column as names."""
    names = values.labels_in(column)
    if len(names) < 2:
        raise FairTTAError(
            f"column {column!r} should hold at least two different values (it holds {names}), or "
            "name all of them with `targets` or `sensitive`."
        )
    return {name: name for name in names}


def parse_harmful_sets(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    r"""``{set: {label: phrase}}`` of all uses of an option; a set without a name is "harmful".

    Example:
        >>> parse_harmful_sets(["crime: thief,criminal", "crime: suspect=suspicious person"])
        {'crime': {'thief': 'thief', 'criminal': 'criminal', 'suspect': 'suspicious person'}}
    """
    sets, _ = _group_by_prefix(texts, "harmful", "a set", "crime: thief,criminal")
    empty = [name for name, pairs in sets.items() if not pairs]
    if empty:
        raise FairTTAError(
            f"a set needs classes: 'crime: thief,criminal' (got {empty[0]!r})."
        )
    return {name: _join_pairs("harmful", pairs) for name, pairs in sets.items()}


def parse_renames(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """``{column: {value: label}}`` of ``"column: value=label"``.

    Example:
        >>> parse_renames(["place: 0=land", "place: 1=water"])
        {'place': {'0': 'land', '1': 'water'}}
    """
    renames: dict[str, dict[str, str]] = {}
    for text in texts:
        column, *rest = _split_unescaped(":", text, 1)
        parts = _split_unescaped("=", rest[0]) if rest else []
        if (
            len(parts) != 2
            or not all((column, *parts))
            or len(_split_unescaped("=", column)) > 1
        ):
            raise FairTTAError(
                f"a renaming is written 'column: value=label' (got {text!r})."
            )
        column = _unescape(column)
        value = _unescape(parts[0])
        labels = renames.setdefault(column, {})
        if value in labels:
            raise FairTTAError(
                f"the value {value!r} of column {column!r} is renamed twice."
            )
        labels[value] = _unescape(parts[1])
    return renames


def _group_by_prefix(
    texts: Sequence[str], unnamed: str, what: str, example: str
) -> tuple[dict[str, list[tuple[str, str]]], set[str]]:
    """Return names and phrases by what is written before a colon, and which of that was written."""
    groups: dict[str, list[tuple[str, str]]] = {}
    written = set()
    for text in texts:
        name, *rest = _split_unescaped(":", text, 1)
        if not rest or len(_split_unescaped("[,=]", name)) > 1:
            groups.setdefault(unnamed, []).extend(_split_name_pairs(text, text))
            continue
        name = _unescape(name)
        if not name:
            raise FairTTAError(
                f"{what} is written before the colon: {example!r} (got {text!r})."
            )
        groups.setdefault(name, []).extend(_split_name_pairs(rest[0], text))
        written.add(name)
    return groups, written


def _split_name_pairs(text: str, written: str) -> list[tuple[str, str]]:
    """Return names with their phrases; without an equals sign a name is its own phrase."""
    label, *phrase = _split_unescaped("=", text)
    names = _split_unescaped(",", label)
    if not phrase:
        return [(name, name) for name in map(_unescape, names) if name]
    if len(names) > 1 or len(phrase) > 1:
        raise FairTTAError(
            f"{written!r} looks like several names, some with phrases: repeat the option, once "
            "for each 'name=phrase'."
        )
    return [(_unescape(label), _unescape(phrase[0]))]


def _join_pairs(argument: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return phrases by their names, each of which should come once."""
    labels = [label for label, _ in pairs]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise FairTTAError(
            f"`{argument}` should have distinct names ({twice} came twice).",
            argument=argument,
        )
    return dict(pairs)


def _split_unescaped(sign: str, text: str, most: int = 0) -> list[str]:
    """Split at signs that have no backslash before them."""
    return re.split(rf"(?<!\\){sign}", text, maxsplit=most)


def _unescape(text: str) -> str:
    """Return a name without backslashes before signs."""
    return re.sub(r"\\([,:=])", r"\1", text).strip()
