"""Fields become classifiers, few of which are kept; methods are names and nothing else."""

from __future__ import annotations

import logging

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
    guarded,
    why_unusable,
    without_folders,
)

from fair_tta import FairTTAError, ZeroShot


@pytest.fixture(scope="module")
def classifiers() -> Classifiers:
    return Classifiers(views=4, limits=UploadLimits(names=6))


@pytest.mark.parametrize("name", TASKS)
def test_fields_of_drawn_worlds_ask_what_the_worlds_ask(
    name: str, classifiers: Classifiers
) -> None:
    task = TASKS[name]
    question = classifiers.get(form_fields_of(task))._task
    assert dict(question.targets) == task.targets
    assert {a: dict(names) for a, names in question.sensitive.items()} == task.sensitive
    assert question.templates.sentences["joint"] == task.template


def test_classifiers_are_kept_and_share_the_model(classifiers: Classifiers) -> None:
    first = classifiers.get(FormFields("cat, dog", "day, night"))
    assert classifiers.get(FormFields("cat\ndog", "day\nnight", " ")) is first
    assert first._backend is classifiers.get(FormFields("cat, dog"))._backend
    assert isinstance(first.adapter, ZeroShot)
    for number in range(MAX_CLASSIFIERS):
        classifiers.get(FormFields(f"cat, dog {number}"))
        assert classifiers._cached.cache_info().currsize <= MAX_CLASSIFIERS
    assert classifiers.get(FormFields("cat, dog", "day, night")) is not first


def test_a_question_that_is_too_long_is_refused(classifiers: Classifiers) -> None:
    for fields in (
        FormFields("a,b,c,d,e,f,g"),
        FormFields("a, b", "c,d,e,f,g,h,i"),
        FormFields("a, b", "", "x" * 20_000),
    ):
        with pytest.raises(FairTTAError, match="should have at most"):
            classifiers.get(fields)


@pytest.mark.parametrize(
    "name", ["my_file.py:Method", "tie:reference=/etc/passwd", "fair-tpt:lam=10"]
)
def test_only_names_of_methods_are_taken(name: str) -> None:
    with pytest.raises(FairTTAError, match="choose methods from"):
        chosen_methods(["tpt", name])


def test_methods_come_with_defaults_in_the_order_asked_for() -> None:
    assert list(chosen_methods(["tpt", "zero-shot", "tpt"])) == ["tpt", "zero-shot"]


def test_what_cannot_be_used_here_is_refused() -> None:
    unusable = {name for name in ADAPTERS if why_unusable(name)}
    assert unusable == {"bend-vlm", "tie", "ttr", "sem", "balanced-head"}
    for name in unusable:
        with pytest.raises(FairTTAError):
            chosen_methods([name])
    assert list(chosen_methods(["balanced-head"], has_labels=True)) == ["balanced-head"]


@pytest.mark.parametrize("folder", ["/srv/secret", r"C:\Users\me\secret"])
def test_no_message_names_folders_however_paths_are_written(folder: str) -> None:
    separator = "\\" if "\\" in folder else "/"
    path = separator.join((folder, "uploads", "12ab", "my cat.png"))
    for text in (f"cannot read {path!r}: damaged", f"cannot read '{path}': damaged"):
        assert without_folders(text, folder) == "cannot read 'my cat.png': damaged"


def test_an_internal_error_is_logged_and_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        text = guarded(lambda: str(1 // 0), str)
    assert "ZeroDivisionError" in caplog.text
    assert "division" not in text
