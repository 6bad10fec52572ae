"""Names as options of the command line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from internals import parse_renames, parse_sensitive_texts, parse_target_texts

from fair_tta import FairTTAError


def test_targets() -> None:
    assert parse_target_texts(["cat, dog"]) == {"cat": "cat", "dog": "dog"}
    assert parse_target_texts(["cat=of a cat, asleep", "dog"]) == {
        "cat": "of a cat, asleep",
        "dog": "dog",
    }
    assert parse_target_texts([r"a\,b,c\=d"]) == {"a,b": "a,b", "c=d": "c=d"}
    assert parse_target_texts([r"a\,b=x\=y", "c"]) == {"a,b": "x=y", "c": "c"}


words = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Co", "Zs"]), min_size=1, max_size=8
)


@given(st.dictionaries(words, words, min_size=2, max_size=4))
def test_any_names_can_be_written(names: dict[str, str]) -> None:
    if len(set(names.values())) < len(names) or any(
        "\\" in w for p in names.items() for w in p
    ):
        return

    def escaped(text: str) -> str:
        return text.replace(",", r"\,").replace("=", r"\=").replace(":", r"\:")

    written = [f"{escaped(label)}={escaped(phrase)}" for label, phrase in names.items()]
    assert parse_target_texts(written) == names
    assert parse_sensitive_texts(written, "s") == {"s": names}
    assert parse_sensitive_texts([f"a b:{text}" for text in written], "s") == {
        "a b": names
    }


def test_sensitive() -> None:
    assert parse_sensitive_texts([], "s") == {}
    assert parse_sensitive_texts(["on water,on land"], "place") == {
        "place": {"on water": "on water", "on land": "on land"}
    }
    two = parse_sensitive_texts(
        ["age: young,old", "gender: f=woman", "gender: m=man"], "s"
    )
    assert two == {
        "age": {"young": "young", "old": "old"},
        "gender": {"f": "woman", "m": "man"},
    }
    with pytest.raises(
        FairTTAError, match=r"`sensitive age:` should name at least two values"
    ):
        parse_sensitive_texts(["age: young"], "s")
    for nameless in (": young,old", " :young=of age"):
        with pytest.raises(
            FairTTAError, match="an attribute is written before the colon"
        ):
            parse_sensitive_texts([nameless], "s")


def test_renames() -> None:
    assert parse_renames(
        ["place: 0=land", "place:1=water, deep", r"a b: x\:y\=z=w"]
    ) == {
        "place": {"0": "land", "1": "water, deep"},
        "a b": {"x:y=z": "w"},
    }
    for text in ("0=land", "place: 0", "place: 0=", "place:=x", "place: a=b=c"):
        with pytest.raises(
            FairTTAError, match="a renaming is written 'column: value=label'"
        ):
            parse_renames([text])
    with pytest.raises(
        FairTTAError, match="the value '0' of column 'place' is renamed twice"
    ):
        parse_renames(["place: 0=land", "place: 0=water"])
