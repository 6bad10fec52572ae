"""FormFields become classifiers, few of which are kept; methods are names and nothing else."""

from __future__ import annotations

import re

import pytest
from internals import (
    ADAPTERS,
    MAX_CLASSIFIERS,
    TASKS,
    Classifiers,
    FormFields,
    UploadLimits,
    chosen_methods,
    form_fields_of,
    why_unusable,
)

from fair_tta import FairTTAError, ZeroShot


@pytest.fixture(scope="module")
def classifiers() -> Classifiers:
    return Classifiers(views=4, limits=UploadLimits(names=6))


@pytest.mark.parametrize("name", TASKS)
def test_fields_of_drawn_worlds_ask_what_the_worlds_ask(
    name: str, classifiers: Classifiers
) -> None:
    task, asked = TASKS[name], classifiers.get(form_fields_of(TASKS[name]))._task
    assert dict(asked.targets) == task.targets
    assert {a: dict(names) for a, names in asked.sensitive.items()} == task.sensitive
    assert asked.templates.sentences["joint"] == task.template


def test_classifiers_are_kept_and_share_the_model(classifiers: Classifiers) -> None:
    first = classifiers.get(FormFields("cat, dog", "day, night"))
    assert classifiers.get(FormFields("cat\ndog", "day\nnight", " ")) is first
    assert first._backend is classifiers.get(FormFields("cat, dog"))._backend
    assert isinstance(first.adapter, ZeroShot)
    for place in range(MAX_CLASSIFIERS):
        classifiers.get(FormFields(f"cat, dog {place}"))
        assert classifiers._cached.cache_info().currsize <= MAX_CLASSIFIERS
    assert classifiers.get(FormFields("cat, dog", "day, night")) is not first


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (FormFields(""), "`targets`"),
        (FormFields("cat"), "at least two"),
        (FormFields("cat, dog", "day"), "at least two"),
        (FormFields("cat, dog", "", "no slots"), "slot"),
        (FormFields("a,b,c,d,e,f,g"), "`Classes` should have at most 6 names (got 7)"),
        (
            FormFields("a, b", "c,d,e,f,g,h,i"),
            "`What should not matter` should have at most 6 names",
        ),
        (
            FormFields("a, b", "", "x" * 20_000),
            "`Sentence` should have at most 10,000 characters",
        ),
        (FormFields("x" * 20_000), "`Classes` should have at most 10,000 characters"),
        (
            FormFields("a, b", "x" * 20_000),
            "`What should not matter` should have at most 10,000",
        ),
    ],
)
def test_what_cannot_be_asked_is_told(
    fields: FormFields, message: str, classifiers: Classifiers
) -> None:
    with pytest.raises(FairTTAError, match=re.escape(message)):
        classifiers.get(fields)


@pytest.mark.parametrize(
    "name", ["my_file.py:Method", "tie:reference=/etc/passwd", "fair-tpt:lam=10"]
)
def test_only_names_of_methods_are_taken(name: str) -> None:
    with pytest.raises(FairTTAError, match="choose methods from"):
        chosen_methods(["tpt", name])


def test_methods_come_with_defaults_in_the_order_asked_for() -> None:
    assert list(chosen_methods(["tpt", "zero-shot", "tpt"])) == ["tpt", "zero-shot"]


def test_what_cannot_be_used_here_has_a_reason() -> None:
    unusable = {name for name in ADAPTERS if why_unusable(name)}
    assert unusable == {"bend-vlm", "tie", "ttr", "sem", "balanced-head"}
    for name in unusable:
        with pytest.raises(FairTTAError, match=f"^{name} cannot be used here: it"):
            chosen_methods([name])
    assert list(chosen_methods(["balanced-head"], has_labels=True)) == ["balanced-head"]
