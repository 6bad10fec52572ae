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

_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_PROBLEMS = (
    (r"[-+]?\d+([.,]\d+)?", "a number"),
    (rf"(\d{{1,4}}[-. ]({_MONTHS})[a-z]*|({_MONTHS})[a-z]*[-. ]\d{{1,4}})", "a date"),
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
        for pattern, problem in _PROBLEMS:
            if re.fullmatch(pattern, phrase.strip(), re.IGNORECASE | re.DOTALL):
                problems.setdefault(phrase, problem)
    return problems


def targets_option(texts: Sequence[str]) -> dict[str, str]:
    r"""``{label: phrase}`` of all uses of an option.

    Example:
        >>> targets_option(["cat,dog", "bird=of a bird, flying"])
        {'cat': 'cat', 'dog': 'dog', 'bird': 'of a bird, flying'}
    """
    pairs = [pair for text in texts for pair in _pairs(text, text)]
    return parse_names("targets", _together("targets", pairs))


def sensitive_option(texts: Sequence[str], attribute: str) -> dict[str, dict[str, str]]:
    r"""``{attribute: {label: phrase}}`` of all uses of an option; `attribute` if none is written.

    Example:
        >>> sensitive_option(["time: day,night", "place: water=on water", "place: land"], "")
        {'time': {'day': 'day', 'night': 'night'}, 'place': {'water': 'on water', 'land': 'land'}}
    """
    groups, written = _by_name(texts, attribute, "an attribute", "place: water,land")
    phrases = {}
    for name, pairs in groups.items():
        argument = f"sensitive {name}:" if name in written else "sensitive"
        phrases[name] = parse_names(argument, _together("sensitive", pairs))
    return phrases


def attributes_option(
    texts: Sequence[str], columns: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return the same for columns of labels; if there is only one, it need not be written."""
    written = sensitive_option(texts, columns[0] if len(columns) == 1 else "")
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


def harmful_option(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    r"""``{set: {label: phrase}}`` of all uses of an option; a set without a name is "harmful".

    Example:
        >>> harmful_option(["crime: thief,criminal", "crime: suspect=suspicious person"])
        {'crime': {'thief': 'thief', 'criminal': 'criminal', 'suspect': 'suspicious person'}}
    """
    sets, _ = _by_name(texts, "harmful", "a set", "crime: thief,criminal")
    empty = [name for name, pairs in sets.items() if not pairs]
    if empty:
        raise FairTTAError(
            f"a set needs classes: 'crime: thief,criminal' (got {empty[0]!r})."
        )
    return {name: _together("harmful", pairs) for name, pairs in sets.items()}


def parse_renames(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """``{column: {value: label}}`` of ``"column: value=label"``.

    Example:
        >>> parse_renames(["place: 0=land", "place: 1=water"])
        {'place': {'0': 'land', '1': 'water'}}
    """
    renames: dict[str, dict[str, str]] = {}
    for text in texts:
        column, *rest = _split(":", text, 1)
        parts = _split("=", rest[0]) if rest else []
        if len(parts) != 2 or not all((column, *parts)) or len(_split("=", column)) > 1:
            raise FairTTAError(
                f"a renaming is written 'column: value=label' (got {text!r})."
            )
        column = _plain(column)
        value = _plain(parts[0])
        labels = renames.setdefault(column, {})
        if value in labels:
            raise FairTTAError(
                f"the value {value!r} of column {column!r} is renamed twice."
            )
        labels[value] = _plain(parts[1])
    return renames


def _by_name(
    texts: Sequence[str], unnamed: str, what: str, example: str
) -> tuple[dict[str, list[tuple[str, str]]], set[str]]:
    """Return names and phrases by what is written before a colon, and which of that was written."""
    groups: dict[str, list[tuple[str, str]]] = {}
    written = set()
    for text in texts:
        name, *rest = _split(":", text, 1)
        if not rest or len(_split("[,=]", name)) > 1:
            groups.setdefault(unnamed, []).extend(_pairs(text, text))
            continue
        name = _plain(name)
        if not name:
            raise FairTTAError(
                f"{what} is written before the colon: {example!r} (got {text!r})."
            )
        groups.setdefault(name, []).extend(_pairs(rest[0], text))
        written.add(name)
    return groups, written


def _pairs(text: str, written: str) -> list[tuple[str, str]]:
    """Return names with their phrases; without an equals sign a name is its own phrase."""
    label, *phrase = _split("=", text)
    names = _split(",", label)
    if not phrase:
        return [(name, name) for name in map(_plain, names) if name]
    if len(names) > 1 or len(phrase) > 1:
        raise FairTTAError(
            f"{written!r} looks like several names, some with phrases: repeat the option, once "
            "for each 'name=phrase'."
        )
    return [(_plain(label), _plain(phrase[0]))]


def _together(argument: str, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """Return phrases by their names, each of which should come once."""
    labels = [label for label, _ in pairs]
    twice = sorted({label for label in labels if labels.count(label) > 1})
    if twice:
        raise FairTTAError(
            f"`{argument}` should have distinct names ({twice} came twice).",
            argument=argument,
        )
    return dict(pairs)


def _split(sign: str, text: str, most: int = 0) -> list[str]:
    """Split at signs that have no backslash before them."""
    return re.split(rf"(?<!\\){sign}", text, maxsplit=most)


def _plain(text: str) -> str:
    """Return a name without backslashes before signs."""
    return re.sub(r"\\([,:=])", r"\1", text).strip()
