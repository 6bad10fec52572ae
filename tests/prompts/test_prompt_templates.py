"""Templates and names."""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from internals import PAPER_TASKS, parse_names, parse_sensitive

from fair_tta import Templates

PERSON = "A photo of a {sensitive} {target} person."
CELEBRITY = "A photo of a {sensitive} celebrity {target}."

# The paper's 13 pairs: template, names of targets, names of sensitive values.
PAIRS: dict[str, tuple[str, list[str], list[str]]] = {
    str(task): (task.template, [*task.targets.values()], [*names.values()])
    for task in PAPER_TASKS
    for names in task.sensitive.values()
}

# The paper's table of templates: target, sensitive, joint.
PAPER = {
    PERSON: (
        "A photo of a {target} person.",
        "A photo of a {sensitive} person.",
        "A photo of a {sensitive} {target} person.",
    ),
    CELEBRITY: (
        "A photo of a celebrity {target}.",
        "A photo of a {sensitive} celebrity.",
        "A photo of a {sensitive} celebrity {target}.",
    ),
    "This is a picture {target} {sensitive}.": (
        "This is a picture {target}.",
        "This is a picture {sensitive}.",
        "This is a picture {target} {sensitive}.",
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_the_papers_prompts(pair: str) -> None:
    template, targets, sensitive = PAIRS[pair]
    y, s = parse_names("targets", targets), parse_names("sensitive", sensitive)
    templates = Templates.from_sentence(template)
    target, sensitive_sentence, joint = PAPER[template]
    assert [p.text for p in templates._target_prompts(y)] == [
        target.replace("{target}", name) for name in targets
    ]
    assert [p.text for p in templates._sensitive_prompts(s)] == [
        sensitive_sentence.replace("{sensitive}", name) for name in sensitive
    ]
    assert [p.text for p in templates._joint_prompts(y, s)] == [
        joint.replace("{target}", a).replace("{sensitive}", b)
        for a in targets
        for b in sensitive
    ]


@pytest.mark.parametrize(
    ("template", "target", "sensitive"),
    [
        (
            "a [S-CLS] celebrity [T-CLS].",
            "a celebrity {target}.",
            "a {sensitive} celebrity.",
        ),
        ("{sensitive} {}", "{target}", "{sensitive}"),
        ("{target}, {sensitive}!", "{target},!", ", {sensitive}!"),
        ("a : {target} ({sensitive}) b", "a : {target} () b", "a : ({sensitive}) b"),
        ("x{sensitive}y {target}", "xy {target}", "x{sensitive}y"),
        ("a  b {sensitive} {target}", "a  b {target}", "a  b {sensitive}"),
    ],
)
def test_taking_a_slot_out(template: str, target: str, sensitive: str) -> None:
    lines = str(Templates.from_sentence(template)).splitlines()
    assert lines[0] == f"target: {target}"
    assert lines[1] == f"sensitive: {sensitive}"


def test_without_sensitive_slot_there_are_target_prompts_only() -> None:
    templates = Templates.from_sentence("a photo of a {}.")
    assert [p.text for p in templates._target_prompts({"cat": "cat"})] == [
        "a photo of a cat."
    ]


def test_strings_of_other_kinds_become_plain_ones() -> None:
    class Animal(str, Enum):  # noqa: UP042 - users have such classes
        CAT = "cat"
        DOG = "dog"

    names: Any
    for names in (
        np.array(["cat", "dog"]),
        list(Animal),
        {Animal.CAT: "cat", "dog": Animal.DOG},
    ):
        parsed = parse_names("targets", names)
        assert parsed == {"cat": "cat", "dog": "dog"}
        assert {type(text) for pair in parsed.items() for text in pair} == {str}


def test_keys_of_a_dict_are_in_order() -> None:
    names: Any = {"b": 1, "a": 2}.keys()
    assert list(parse_names("x", names)) == ["b", "a"]


def test_sensitive_attributes() -> None:
    assert parse_sensitive(None) == {}
    expected = {"sensitive": {"on water": "on water", "on land": "on land"}}
    assert parse_sensitive(["on water", "on land"]) == expected
    assert parse_sensitive({"on water": "on water", "on land": "on land"}) == expected
    assert parse_sensitive(
        {"sex": ["male", "female"], "age": {"y": "young", "o": "old"}}
    ) == {
        "sex": {"male": "male", "female": "female"},
        "age": {"y": "young", "o": "old"},
    }


words = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="{}[]"), max_size=8
)
names = st.lists(
    st.text(min_size=1, max_size=8).map(str.strip).filter(bool),
    min_size=2,
    max_size=4,
    unique=True,
)


@given(words, words, words, names, names)
def test_joint_prompts_are_the_sentence(
    a: str, b: str, c: str, targets: list[str], sensitive: list[str]
) -> None:
    templates = Templates.from_sentence(f"{a}{{target}}{b}{{sensitive}}{c}")
    y, s = parse_names("targets", targets), parse_names("sensitive", sensitive)
    joint = [p.text for p in templates._joint_prompts(y, s)]
    assert joint == [f"{a}{t}{b}{v}{c}" for t in targets for v in sensitive]


@given(words, words, words, names)
def test_target_prompts_hold_the_words_of_the_sentence(
    a: str, b: str, c: str, targets: list[str]
) -> None:
    templates = Templates.from_sentence(f"{a}{{target}}{b}{{sensitive}}{c}")
    for prompt, name in zip(
        templates._target_prompts(parse_names("targets", targets)), targets, strict=True
    ):
        without_spaces = "".join(f"{a}{name}{b}{c}".split())
        assert "".join(prompt.text.split()) == without_spaces
        assert sum(part.slot is not None for part in prompt.parts) == 1
