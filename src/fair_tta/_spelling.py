"""Names that read alike: other case, composed letters, invisible characters."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import Decimal

# Signs that Unicode lets no renderer show (Default_Ignorable_Code_Point) but whose category is a
# mark, a letter or none: joiners, vowel signs, variation selectors and reserved ones.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u17b4\u17b5\u180b-\u180f\u2065\ufe00-\ufe0f\ufff0-\ufff8\U000e0000-\U000e0fff]"
)

# Signs that are shown as a space, but are a letter or a symbol: Hangul fillers, empty Braille.
_BLANK = re.compile("[\u1160\u2800\u3164\uffa0]")


def _visible(name: str) -> str:
    """Return a name without invisible signs, with one space between words."""
    if name.isascii() and name.isprintable():
        return " ".join(name.split())
    with_spaces = _BLANK.sub(" ", _INVISIBLE.sub("", name))
    characters = []
    for char in with_spaces:
        is_control = unicodedata.category(char) in ("Cc", "Cf")
        # Among control characters, tabs and ends of lines are spaces.
        if char.isspace() or not is_control:
            characters.append(char)
    return " ".join("".join(characters).split())


def canonical_spelling(name: str) -> str:
    """Return the text that all spellings of a name have in common.

    Case, composed and compatible letters, invisible characters and repeated spaces do not count.

    Example:
        >>> canonical_spelling("CIRCLE") == canonical_spelling(" circle")
        True
    """
    composed = unicodedata.normalize("NFKC", name).casefold()
    # Folding may leave letters that are not composed.
    return _visible(unicodedata.normalize("NFKC", composed))


def lookalikes(names: Iterable[str]) -> list[list[str]]:
    """Return groups of two or more different names that no reader can tell apart.

    They differ in invisible characters, such as zero-width and bidirectional marks, control
    characters and variation selectors, in spaces or in composed letters only. Case is seen.

    Example:
        >>> lookalikes(["circle", "circle\u200b", "CIRCLE"])
        [['circle', 'circle\u200b']]
    """
    return _groups_of_equal(
        names, lambda name: unicodedata.normalize("NFC", _visible(name))
    )


def _groups_of_equal(
    names: Iterable[str], key: Callable[[str], Hashable]
) -> list[list[str]]:
    """Return groups of two or more different names with the same key."""
    by_key: defaultdict[Hashable, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        by_key[key(name)].append(name)
    return [group for group in by_key.values() if len(group) > 1]


def escape_invisible(name: str) -> str:
    """Return a name in ASCII if it has signs that cannot be seen or are not composed.

    Example:
        >>> print(escape_invisible("caf\\u00e9"), escape_invisible("cafe\\u0301"))
        caf\u00e9 cafe\\u0301
    """
    has_hidden = _INVISIBLE.search(name) or _BLANK.search(name)
    is_visible = name.isprintable() and not has_hidden
    if is_visible and unicodedata.is_normalized("NFC", name):
        return name
    return name.encode("unicode_escape").decode("ascii")


def guess_labels(answers: Sequence[str], labels: Sequence[str]) -> dict[str, str]:
    """Return ``{answer: label}`` of the answers that can only mean one of the labels.

    An answer means the label that reads alike or, if there is none, the longest label that it
    contains as whole words. A label that two answers contain is not guessed.

    Example:
        >>> guess_labels(["Cat", "a dog", "1"], ["cat", "dog"])
        {'Cat': 'cat', 'a dog': 'dog'}
    """
    by_words: dict[str, str] = {}
    for label in labels:
        words = _words(label)
        if words in by_words:  # two labels read alike, so no answer means only one
            return {}
        by_words[words] = label

    guesses: dict[str, str] = {}
    containing: defaultdict[str, list[str]] = defaultdict(list)
    for answer in answers:
        words = _words(answer)
        if words in by_words:
            guesses[answer] = by_words[words]
            continue
        contained = [label for label in by_words if f" {label} " in f" {words} "]
        if contained:
            longest = max(contained, key=len)
            containing[by_words[longest]].append(answer)

    # An answer that reads like a label takes it from those that contain it.
    guessed_labels = set(guesses.values())
    for label, candidates in containing.items():
        if len(candidates) == 1 and label not in guessed_labels:
            guesses[candidates[0]] = label
    return guesses


def _words(name: str) -> str:
    """Return the words of a name: marks between and around them do not count, but a minus does."""
    separated = re.sub(r"(?<=\w)[_-](?=\w)", " ", canonical_spelling(name))
    return re.sub(r"[^\w-]+", " ", separated).strip()


# Exponents of labels are short; the hash of a number with a long one would take long.
_NUMERAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?(e[+-]?[0-9]{1,3})?", re.ASCII)
_TRUTH_VALUES = {"true": Decimal(1), "false": Decimal(0)}


def cell_meaning(cell: str) -> str | Decimal:
    """Return the number in a cell, or its `canonical_spelling`: equal if cells mean the same.

    What is true or false is 1 or 0, as programs write it.

    Example:
        >>> cell_meaning("1") == cell_meaning("01.0") == cell_meaning("True")
        True
    """
    name = canonical_spelling(cell)
    if name in _TRUTH_VALUES:
        return _TRUTH_VALUES[name]
    return Decimal(name) if _NUMERAL.fullmatch(name) else name


def equal_cells(cells: Iterable[str]) -> list[list[str]]:
    """Return groups of two or more different cells that read alike or are the same number.

    Example:
        >>> equal_cells(["1", "1.0", "circle", "CIRCLE", "2"])
        [['1', '1.0'], ['circle', 'CIRCLE']]
    """
    return _groups_of_equal(cells, cell_meaning)
