"""The drawn pictures: seeded, correlated only in training, known in every detail."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import TASKS, WORLD_SPLITS, MiniatureTask, WorldSplit

from fair_tta import FairTTAError
from fair_tta.miniature import BADGES, BIRDS, SCENES

EVERY_TASK = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def test_there_are_tasks_of_every_kind_the_issue_asks_for() -> None:
    assert BIRDS.targets == {
        "water bird": "of a water bird",
        "land bird": "of a land bird",
    }
    assert BIRDS.template == "This is a picture {target} {sensitive}."
    assert len(BADGES.targets) >= 3
    assert len(BADGES.sensitive["colour"]) >= 3
    assert len(SCENES.sensitive) == 2


@EVERY_TASK
def test_a_picture_depends_on_seed_and_place_alone(task: MiniatureTask) -> None:
    first, more_images = task.draw(3, seed=7), task.draw(9, seed=7)
    for a, b in zip(first, more_images, strict=False):
        assert np.array_equal(np.asarray(a.image), np.asarray(b.image))
        assert (a.target, a.sensitive, a.shades) == (b.target, b.sensitive, b.shades)


@EVERY_TASK
def test_no_two_pictures_of_splits_and_seeds_are_equal(task: MiniatureTask) -> None:
    pictures = [
        picture.image.tobytes()
        for split, seed in itertools.product(WORLD_SPLITS, (0, 1))
        for picture in task.draw(8, seed, split=split)
    ]
    assert len(set(pictures)) == len(pictures)


@EVERY_TASK
def test_global_random_states_are_untouched(task: MiniatureTask) -> None:
    np.random.seed(3)
    expected = np.random.rand()
    np.random.seed(3)
    task.draw(2)
    assert np.random.rand() == expected


@EVERY_TASK
@pytest.mark.parametrize("split", ["validation", "test"])
def test_groups_are_of_equal_size_outside_training(
    task: MiniatureTask, split: WorldSplit
) -> None:
    pictures = task.draw(3 * len(task.groups), split=split)
    counts = Counter((p.target, *p.sensitive.values()) for p in pictures)
    assert counts == dict.fromkeys(task.groups, 3)


@EVERY_TASK
def test_training_pictures_are_correlated(task: MiniatureTask) -> None:
    pictures = task.draw(300, split="train")
    for index, (attribute, values) in enumerate(task.sensitive.items()):
        usual = [
            list(values).index(p.sensitive[attribute])
            == list(task.targets).index(p.target) % len(values)
            for p in pictures
        ]
        assert abs(np.mean(usual) - task.correlation) < 0.1, (index, attribute)


@EVERY_TASK
def test_labels_name_the_value_that_prevails_and_some_are_blends(
    task: MiniatureTask,
) -> None:
    pictures = task.draw(120)
    for index, (attribute, values) in enumerate(task.sensitive.items()):
        shades = [p.shades[index] for p in pictures]
        assert all(
            list(values)[s.value] == p.sensitive[attribute]
            for s, p in zip(shades, pictures, strict=True)
        )
        assert all(s.part < 0.5 and s.other != s.value for s in shades)
        assert 0.2 < np.mean([s.part > 0.25 for s in shades]) < 0.5


@given(st.sampled_from(list(TASKS.values())), st.data())
@settings(max_examples=12, deadline=None)
def test_a_mix_of_groups_is_drawn_as_asked(
    task: MiniatureTask, data: st.DataObject
) -> None:
    chosen = data.draw(st.sets(st.sampled_from(task.groups), min_size=1))
    pictures = task.draw(12, mix=dict.fromkeys(chosen, 2.0))
    assert {(p.target, *p.sensitive.values()) for p in pictures} <= chosen


def test_a_mix_with_unknown_groups_is_refused() -> None:
    with pytest.raises(
        FairTTAError, match=r"`mix` should have keys such as \('water bird', 'water'\)"
    ):
        BIRDS.draw(1, mix={("water bird", "air"): 1.0})


@pytest.mark.parametrize("weight", [0.0, -1.0, float("inf"), float("nan")])
def test_a_mix_without_weight_is_refused(weight: float) -> None:
    with pytest.raises(FairTTAError, match="`mix` should have finite weights >= 0"):
        BIRDS.draw(1, mix={("water bird", "water"): weight})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": -1}, r"`n` should be an integer >= 0 \(got -1\)"),
        ({"n": 1.5}, r"`n` should be an integer >= 0 \(got 1.5\)"),
        ({"n": 1, "seed": -1}, r"`seed` should be an integer >= 0 \(got -1\)"),
        (
            {"n": 1, "seed": "a"},
            r"`seed` should be an integer >= 0 \(got 'a'\)",
        ),
        (
            {"n": 1, "split": "dev"},
            r"`split` should be one of train, .* \(got 'dev'\)",
        ),
    ],
)
def test_what_cannot_be_drawn(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(FairTTAError, match=message):
        TASKS["birds"].draw(**arguments)
