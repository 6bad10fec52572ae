"""The 13 pairs of the paper."""

from __future__ import annotations

import pytest
from internals import PAPER_TASKS, parse_names, parse_sensitive

from fair_tta import Templates
from fair_tta.datasets import BenchmarkTask

# As the paper's tables of results call them.
MAIN = {
    ("FairFace", "gender", "race"),
    ("CelebA", "hair color", "gender"),
    ("CelebA", "smiling", "gender"),
    ("Waterbirds", "bird type", "background"),
    ("UTKFace", "age", "race"),
    ("UTKFace", "gender", "race"),
}
MORE = {
    ("FairFace", "age", "race"),
    ("FairFace", "age", "gender"),
    ("FairFace", "race", "gender"),
    ("CelebA", "makeup", "gender"),
    ("CelebA", "glasses", "gender"),
    ("UTKFace", "age", "gender"),
    ("UTKFace", "race", "gender"),
}
# The paper's table of names, in its order.
NAMES = {
    ("FairFace", "gender"): ["male", "female"],
    ("FairFace", "race"): [
        "White", "Southeast Asian", "Middle Eastern", "Black", "Indian", "Latino Hispanic",
        "East Asian",
    ],
    ("CelebA", "hair color"): ["with dark hair", "with blond hair"],
    ("CelebA", "smiling"): ["smiling", "not smiling"],
    ("CelebA", "gender"): ["male", "female"],
    ("Waterbirds", "bird type"): ["of a water bird", "of a land bird"],
    ("Waterbirds", "background"): ["on water", "on land"],
    ("UTKFace", "age"): ["young", "old"],
    ("UTKFace", "gender"): ["male", "female"],
    ("UTKFace", "race"): ["White", "Black", "Asian", "Indian"],
}  # fmt: skip
# Its table of templates: target, sensitive, joint.
_PERSON = (
    "A photo of a {target} person.",
    "A photo of a {sensitive} person.",
    "A photo of a {sensitive} {target} person.",
)
TEMPLATES = {
    "FairFace": _PERSON,
    "UTKFace": _PERSON,
    "CelebA": (
        "A photo of a celebrity {target}.",
        "A photo of a {sensitive} celebrity.",
        "A photo of a {sensitive} celebrity {target}.",
    ),
    "Waterbirds": (
        "This is a picture {target}.",
        "This is a picture {sensitive}.",
        "This is a picture {target} {sensitive}.",
    ),
}


def test_there_are_the_papers_pairs() -> None:
    names = [(t.dataset, t.target, *t.sensitive) for t in PAPER_TASKS]
    assert set(names[:6]) == MAIN
    assert set(names[6:]) == MORE
    assert len(PAPER_TASKS) == 13


@pytest.mark.parametrize("task", PAPER_TASKS, ids=str)
def test_names_and_templates_are_the_papers(task: BenchmarkTask) -> None:
    for attribute, names in {task.target: task.targets, **task.sensitive}.items():
        # The table of further attributes gives no names
        if (task.dataset, attribute) in NAMES:
            assert list(names.values()) == NAMES[task.dataset, attribute]
    target, sensitive, joint = TEMPLATES[task.dataset]
    expected = f"target: {target}\nsensitive: {sensitive}\njoint: {joint}"
    assert str(Templates.from_sentence(task.template)) == expected


@pytest.mark.parametrize("task", PAPER_TASKS, ids=str)
def test_a_task_is_what_the_classifier_takes(task: BenchmarkTask) -> None:
    arguments = task.arguments()
    assert set(arguments) == {"targets", "sensitive", "template"}
    assert parse_names("targets", task.targets) == arguments["targets"]
    assert parse_sensitive(task.sensitive) == arguments["sensitive"]


def test_tasks_are_found_by_name() -> None:
    for task in PAPER_TASKS:
        assert BenchmarkTask.find(task.dataset, task.target, *task.sensitive) is task
