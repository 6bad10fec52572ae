"""Names that read alike: other case, composed letters, invisible characters."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal

_UNSEEN = re.compile(
    # Signs that Unicode lets no renderer show (Default_Ignorable_Code_Point) but whose category is
    # a mark, a letter or none: joiners, vowel signs, variation selectors and what is reserved.
    "[\u034f\u115f\u17b4\u17b5\u180b-\u180f\u2065\ufe00-\ufe0f\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_BLANK = re.compile("[\u1160\u2800\u3164\uffa0]")
"""Signs that are shown as a space, but are a letter or a symbol: Hangul fillers, empty Braille."""


def _visible(name: str) -> str:
    """Return a name without invisible signs, with one space between words."""
    if name.isascii() and name.isprintable():
        return " ".join(name.split())
    spaced = _BLANK.sub(" ", _UNSEEN.sub("", name))
    # Of control characters, tabs and ends of lines are spaces.
    hidden = {
        sign for sign in set(spaced) if unicodedata.category(sign) in ("Cc", "Cf")
    }
    kept = (sign for sign in spaced if sign.isspace() or sign not in hidden)
    return " ".join("".join(kept).split())


def canonical_spelling(name: str) -> str:
    """Return what two spellings of one name share.

    Case, composed and compatible letters, invisible characters and repeated spaces do not count.

    Example:
        >>> canonical_spelling("CIRCLE") == canonical_spelling(" circle")
        True
    """
    composed = unicodedata.normalize(
        "NFKC", unicodedata.normalize("NFKC", name).casefold()
    )
    return _visible(composed)


def lookalikes(names: Iterable[str]) -> list[list[str]]:
    """Return groups of two or more different names that no reader can tell apart.

    They differ in invisible characters, such as zero-width and bidirectional marks, control
    characters and variation selectors, in spaces or in composed letters only. Case is seen.

    Example:
        >>> lookalikes(["circle", "circle\u200b", "CIRCLE"])
        [['circle', 'circle\u200b']]
    """
    spellings: defaultdict[str, list[str]] = defaultdict(list)
    for name in dict.fromkeys(names):
        spellings[unicodedata.normalize("NFC", _visible(name))].append(name)
    return [group for group in spellings.values() if len(group) > 1]


def escape_invisible(name: str) -> str:
    """Return a name in ASCII if it has signs that cannot be seen or are not composed.

    Example:
        >>> print(escape_invisible("caf\\u00e9"), escape_invisible("cafe\\u0301"))
        caf\u00e9 cafe\\u0301
    """
    is_seen = (
        name.isprintable() and not _UNSEEN.search(name) and not _BLANK.search(name)
    )
    if is_seen and unicodedata.is_normalized("NFC", name):
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
        if (
            _words(label) in by_words
        ):  # two labels that read alike: which is meant is not known
            return {}
        by_words[_words(label)] = label
    meant = {
        answer: by_words[_words(answer)]
        for answer in answers
        if _words(answer) in by_words
    }
    contained: defaultdict[str, list[str]] = defaultdict(list)
    for answer in answers:
        inside = [words for words in by_words if f" {words} " in f" {_words(answer)} "]
        if answer not in meant and inside:
            contained[by_words[max(inside, key=len)]].append(answer)
    taken = set(meant.values())
    for label, candidates in contained.items():
        if len(candidates) == 1 and label not in taken:
            meant[candidates[0]] = label
    return meant


def _words(name: str) -> str:
    """Return the words of a name: marks between and around them do not count, but a minus does."""
    without_joints = re.sub(r"(?<=\w)[_-](?=\w)", " ", canonical_spelling(name))
    return re.sub(r"[^\w-]+", " ", without_joints).strip()


# The exponent is short, for labels are no larger and no hash may take long
_NUMERAL = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?(e[+-]?[0-9]{1,3})?", re.ASCII)
_TRUTH = {"true": Decimal(1), "false": Decimal(0)}


def cell_meaning(cell: str) -> str | Decimal:
    """Return the number in a cell, or its `canonical_spelling`: equal if cells mean the same.

    What is true or false is 1 or 0, as programs write it.

    Example:
        >>> cell_meaning("1") == cell_meaning("01.0") == cell_meaning("True")
        True
    """
    name = canonical_spelling(cell)
    if name in _TRUTH:
        return _TRUTH[name]
    return Decimal(name) if _NUMERAL.fullmatch(name) else name


def equal_cells(cells: Iterable[str]) -> list[list[str]]:
    """Return groups of two or more different cells that read alike or are the same number.

    Example:
        >>> equal_cells(["1", "1.0", "circle", "CIRCLE", "2"])
        [['1', '1.0'], ['circle', 'CIRCLE']]
    """
    spellings: defaultdict[str | Decimal, list[str]] = defaultdict(list)
    for cell in dict.fromkeys(cells):
        spellings[cell_meaning(cell)].append(cell)
    return [group for group in spellings.values() if len(group) > 1]
