"""Parsing of names as people write them on a command line and in the fields of the app.

``"cat,dog"`` is a list of names. ``"cat=of a cat"`` is one name with its phrase, which may contain
commas; the option is repeated for other names. ``"place: water,land"`` puts an attribute first. A
backslash before a comma, a colon or an equals sign makes it part of a name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fair_tta.errors import FairTTAError
from fair_tta.prompts._templates import parse_names

if TYPE_CHECKING:
    from fair_tta.datasets._label_values import LabelValues

_MONTH_PATTERN = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
# The first pattern that fits names the problem. Spreadsheets turn names such as 3-9 into dates.
_PROBLEM_PATTERNS = (
    (r"[-+]?\d+([.,]\d+)?", "a number"),
    (rf"\d{{1,4}}[-. ]{_MONTH_PATTERN}|{_MONTH_PATTERN}[-. ]\d{{1,4}}", "a date"),
    (r"\d{4}-\d\d?-\d\d?.*", "a date"),
    (
        r"true|false|yes|no|y|n|none|null|nan|unknown|other",
        "an answer to another question",
    ),
    (r".*\w_\w.*", "a name with an underscore"),
    (r"[a-z]", "a single letter"),
)


def prompt_problems(phrases: Iterable[str]) -> dict[str, str]:
    """Return ``{phrase: problem}`` for phrases that hardly describe an image.

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
    r"""Return ``{label: phrase}`` from all uses of an option.

    Example:
        >>> parse_target_texts(["cat,dog", "bird=of a bird, flying"])
        {'cat': 'cat', 'dog': 'dog', 'bird': 'of a bird, flying'}
    """
    pairs = []
    for text in texts:
        pairs += _split_name_pairs(text, text)
    return parse_names("targets", _join_pairs("targets", pairs))


def parse_sensitive_texts(
    texts: Sequence[str], attribute: str
) -> dict[str, dict[str, str]]:
    r"""Return ``{attribute: {label: phrase}}`` from all uses of an option.

    Args:
        texts: the uses.
        attribute: the attribute of names without one.

    Example:
        >>> parse_sensitive_texts(["time: day,night", "place: water=on water", "place: land"], "")
        {'time': {'day': 'day', 'night': 'night'}, 'place': {'water': 'on water', 'land': 'land'}}
    """
    groups, prefixes = _group_by_prefix(
        texts, attribute, "an attribute", "place: water,land"
    )
    phrases = {}
    for name, pairs in groups.items():
        argument = f"sensitive {name}:" if name in prefixes else "sensitive"
        phrases[name] = parse_names(argument, _join_pairs("sensitive", pairs))
    return phrases


def parse_column_attributes(
    texts: Sequence[str], columns: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return ``{column: {label: phrase}}`` of texts ``"column: label=phrase"``.

    A text has one label with a phrase, or labels alone, ``"column: label,label"``. The column may
    be left out if there is only one.
    """
    default = columns[0] if len(columns) == 1 else ""
    names = parse_sensitive_texts(texts, default)
    unknown = [column for column in names if column not in columns]
    if unknown:
        raise FairTTAError(
            f"attributes should be sensitive columns, {list(columns)} (got {unknown}): write "
            f"'{columns[0]}: name,name' or '{columns[0]}: name=phrase'."
        )
    return names


def column_names(values: LabelValues, column: str) -> dict[str, str]:
    """Return the values of a column as names, each of which is its own phrase."""
    names = values.labels_in(column)
    if len(names) < 2:
        raise FairTTAError(
            f"column {column!r} should contain at least two different values (got {names}): if it "
            "is right, name all of them with `targets` or `sensitive`."
        )
    return {name: name for name in names}


def parse_harmful_sets(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    r"""Return ``{set: {label: phrase}}`` from all uses of an option.

    A set without a name is called "harmful".

    Example:
        >>> parse_harmful_sets(["crime: thief,criminal", "crime: suspect=suspicious person"])
        {'crime': {'thief': 'thief', 'criminal': 'criminal', 'suspect': 'suspicious person'}}
    """
    groups, _ = _group_by_prefix(texts, "harmful", "a set", "crime: thief,criminal")
    sets = {}
    for name, pairs in groups.items():
        if not pairs:
            raise FairTTAError(
                f"a set needs classes: 'crime: thief,criminal' (got {name!r})."
            )
        sets[name] = _join_pairs("harmful", pairs)
    return sets


def parse_renames(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return ``{column: {value: label}}`` from texts such as ``"column: value=label"``.

    Example:
        >>> parse_renames(["place: 0=land", "place: 1=water"])
        {'place': {'0': 'land', '1': 'water'}}
    """
    renames: dict[str, dict[str, str]] = {}
    for text in texts:
        prefix, renaming = _split_prefix(text, "=")
        sides = _split_unescaped("=", renaming)
        if not prefix or len(sides) != 2 or not all(sides):
            raise FairTTAError(
                f"a renaming is written 'column: value=label' (got {text!r})."
            )
        column = _unescape(prefix)
        value, label = map(_unescape, sides)
        labels = renames.setdefault(column, {})
        if value in labels:
            raise FairTTAError(
                f"the value {value!r} of column {column!r} is renamed twice."
            )
        labels[value] = label
    return renames


def _group_by_prefix(
    texts: Sequence[str], default: str, subject: str, example: str
) -> tuple[dict[str, list[tuple[str, str]]], set[str]]:
    """Return pairs of names and phrases by the text before a colon.

    Args:
        texts: all uses of an option.
        default: the group of names without a colon before them.
        subject: what a group is, for the error message.
        example: a correct text, for the error message.

    Returns:
        the groups, and those of their names that were written.
    """
    groups: dict[str, list[tuple[str, str]]] = {}
    prefixes = set()
    for text in texts:
        prefix, names = _split_prefix(text, "[,=]")
        if prefix is None:
            group = default
        else:
            group = _unescape(prefix)
            if not group:
                raise FairTTAError(
                    f"{subject} is written before the colon: {example!r} (got {text!r})."
                )
            prefixes.add(group)
        groups.setdefault(group, []).extend(_split_name_pairs(names, text))
    return groups, prefixes


def _split_prefix(text: str, signs: str) -> tuple[str | None, str]:
    """Return the text before the first colon, if any, and the remaining text.

    A colon after one of the `signs`, a regular expression, belongs to a phrase.
    """
    parts = _split_unescaped(":", text, 1)
    if len(parts) == 1 or len(_split_unescaped(signs, parts[0])) > 1:
        return None, text
    return parts[0], parts[1]


def _split_name_pairs(text: str, written: str) -> list[tuple[str, str]]:
    """Return names with their phrases; without an equals sign a name is its own phrase.

    Args:
        text: names, or one name with its phrase.
        written: the use of the option that contains them, for the error message.
    """
    label, *phrases = _split_unescaped("=", text)
    names = _split_unescaped(",", label)
    if not phrases:
        return [(name, name) for name in map(_unescape, names) if name]
    if len(names) > 1 or len(phrases) > 1:
        raise FairTTAError(
            f"{written!r} looks like several names, some with phrases: repeat the option, once "
            "for each 'name=phrase'."
        )
    return [(_unescape(label), _unescape(phrases[0]))]


def _join_pairs(argument: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return phrases by their names, or raise if a name is repeated."""
    # A dictionary would silently keep the last phrase
    counts = Counter(name for name, _ in pairs)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise FairTTAError(
            f"`{argument}` should have distinct names ({repeated} came twice).",
            argument=argument,
        )
    return dict(pairs)


def _split_unescaped(signs: str, text: str, max_splits: int = 0) -> list[str]:
    """Split a text at signs, a regular expression, that have no backslash before them."""
    return re.split(rf"(?<!\\){signs}", text, maxsplit=max_splits)


def _unescape(text: str) -> str:
    """Return a name without the backslashes before signs."""
    return re.sub(r"\\([,:=])", r"\1", text).strip()
