"""Names that read alike, and the labels that answers in other words can only mean."""

from __future__ import annotations

import pytest
from internals import canonical_spelling, escape_invisible, guess_labels


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("circle", "CIRCLE"),
        ("caf\u00e9", "cafe\u0301"),
        ("stra\u00dfe", "STRASSE"),
        ("land", "land\u200b"),
        ("land", "\u202eland"),
        ("East Asian", "East\u00a0Asian "),
    ],
)
def test_two_spellings_of_one_name(name: str, other: str) -> None:
    assert canonical_spelling(name) == canonical_spelling(other)
    assert escape_invisible(name) != escape_invisible(other)


@pytest.mark.parametrize(
    ("name", "other"), [("-1", "1"), ("US", "UK"), ("a b", "ab"), ("i", "l")]
)
def test_different_names(name: str, other: str) -> None:
    assert canonical_spelling(name) != canonical_spelling(other)


@pytest.mark.parametrize(
    ("answers", "labels", "meant"),
    [
        (["Cat", "Dog"], ["cat", "dog"], {"Cat": "cat", "Dog": "dog"}),
        (["A photo of a cat."], ["cat", "dog"], {"A photo of a cat.": "cat"}),
        (["water_bird"], ["bird", "water bird"], {"water_bird": "water bird"}),
        (["a water bird"], ["bird", "water bird"], {"a water bird": "water bird"}),
        (["1", "0"], ["cat", "dog"], {}),
        (["male"], ["female", "man"], {}),
        # two answers for one label: at most one of them can mean it
        (["no smile, smiling", "so smiling"], ["smiling", "serious"], {}),
        (["Smiling", "not smiling"], ["smiling", "serious"], {"Smiling": "smiling"}),
        # two labels for one answer
        (["a b"], ["a_b", "a b"], {}),
        (["-1", "1"], ["1", "0"], {"1": "1"}),
    ],
)
def test_guessed_labels(
    answers: list[str], labels: list[str], meant: dict[str, str]
) -> None:
    assert guess_labels(answers, labels) == meant
