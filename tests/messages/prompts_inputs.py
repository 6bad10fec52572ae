"""Templates and names that no prompt can be made of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from internals import parse_names, parse_sensitive

from fair_tta import FairTPTClassifier, Templates

Case = Callable[[Path], object]


def template(sentence: str) -> Case:
    return lambda _: Templates.from_sentence(sentence)


def names(argument: Any) -> Case:
    return lambda _: parse_names("targets", argument)


def classifier(**prompts: Any) -> Case:
    settings: dict[str, Any] = {
        "targets": ["cat", "dog"],
        "sensitive": ["male", "female"],
        "adapter": "zero-shot",
    }
    return lambda _: FairTPTClassifier("miniature", **(settings | prompts))


CASES: dict[str, Case] = {
    "no slot": template("a photo"),
    "an unknown slot": template("a {breed} photo"),
    "an unmatched brace": template("a {target} {photo"),
    "text that is not Unicode": template("\udce9 {target}"),
    "the wrong slot": lambda _: Templates(target="a {sensitive}"),
    "a joint sentence with one slot": lambda _: Templates("a {target}", joint="{}"),
    "a number instead of a sentence": lambda _: Templates(target=3),  # type: ignore[arg-type]
    "no slot for attribute values": classifier(template="a {}."),
    "no slot in one of two templates": classifier(
        template=["a {sensitive} {target}.", "a {}."]
    ),
    "an empty list of templates": classifier(template=[]),
    "a dict with another key": classifier(template={"sentence": "a {target}"}),
    "a sentence that is too long": classifier(
        template="a {sensitive} {target}" + " very" * 100
    ),
    "names that are the same tokens": classifier(targets=["cat", "CAT"]),
    "one name": names(["woman"]),
    "equal labels": names(["a", "b", "a "]),
    "equal phrases": names({"a": "same", "b": "same"}),
    "an empty name": names(["a", ""]),
    "a number as name": names(["a", 3]),
    "a text instead of names": names("male"),
    "a set of names": names({"a"}),
    "one value of an attribute": lambda _: parse_sensitive({"sex": ["male"]}),
    "an empty dict of attributes": lambda _: parse_sensitive({}),
    "a phrase beside an attribute": lambda _: parse_sensitive(
        {"a": "b", "sex": ["male", "female"]}
    ),
    "an attribute that is not Unicode": lambda _: parse_sensitive(
        {"\udce9": ["a", "b"]}
    ),
}
