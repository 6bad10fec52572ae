from __future__ import annotations

import pytest
from internals import PAPER_TASKS, prompt_problems


@pytest.mark.parametrize(
    ("phrase", "why"),
    [
        ("-1", "a number"),
        ("0", "a number"),
        ("1.5", "a number"),
        ("03-Sep", "a date"),
        ("Oct-19", "a date"),
        ("2019-10-01", "a date"),
        ("Latino_Hispanic", "a name with an underscore"),
        ("True", "an answer to another question"),
        ("f", "a single letter"),
    ],
)
def test_what_can_hardly_be_meant(phrase: str, why: str) -> None:
    assert prompt_problems([phrase]) == {phrase: why}


def test_what_people_say_is_not_doubted() -> None:
    for task in PAPER_TASKS:
        for names in (task.targets, *task.sensitive.values()):
            assert prompt_problems(names.values()) == {}
    for phrase in (
        "20-29 years old",
        "more than 70",
        "no glasses",
        "a dog, black",
        "狗",
        "marching band",
    ):
        assert prompt_problems([phrase]) == {}
