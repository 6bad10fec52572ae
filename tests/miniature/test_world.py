"""Drawn images: seeded, correlated only in training, known in every detail."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import TASKS, WORLD_SPLITS, MiniatureTask, WorldSplit

from fair_tta.miniature import BADGES, BIRDS, SCENES

EVERY_TASK = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def test_there_are_tasks_of_every_kind() -> None:
    assert BIRDS.targets == {
        "water bird": "of a water bird",
        "land bird": "of a land bird",
    }
    assert BIRDS.template == "This is a picture {target} {sensitive}."
    assert len(BADGES.targets) >= 3
    assert len(BADGES.sensitive["colour"]) >= 3
    assert len(SCENES.sensitive) == 2


@EVERY_TASK
def test_an_image_depends_on_seed_and_index_alone(task: MiniatureTask) -> None:
    few_images = task.draw(3, seed=7)
    for a, b in zip(few_images, task.draw(9, seed=7), strict=False):
        assert np.array_equal(np.asarray(a.image), np.asarray(b.image))
        assert (a.target, a.sensitive, a.shades) == (b.target, b.sensitive, b.shades)


@EVERY_TASK
def test_no_two_images_of_splits_and_seeds_are_equal(task: MiniatureTask) -> None:
    contents = []
    for split, seed in itertools.product(WORLD_SPLITS, (0, 1)):
        contents += [drawn.image.tobytes() for drawn in task.draw(8, seed, split=split)]
    assert len(set(contents)) == len(contents)


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
    images = task.draw(3 * len(task.groups), split=split)
    counts = Counter((drawn.target, *drawn.sensitive.values()) for drawn in images)
    assert counts == dict.fromkeys(task.groups, 3)


@EVERY_TASK
def test_training_images_are_correlated(task: MiniatureTask) -> None:
    images = task.draw(300, split="train")
    targets = list(task.targets)
    for attribute, names in task.sensitive.items():
        values = list(names)
        n_usual = 0
        for drawn in images:
            usual = values[targets.index(drawn.target) % len(values)]
            n_usual += drawn.sensitive[attribute] == usual
        assert abs(n_usual / len(images) - task.correlation) < 0.1, attribute


@EVERY_TASK
def test_labels_name_the_value_that_prevails_and_some_are_blends(
    task: MiniatureTask,
) -> None:
    images = task.draw(120)
    for index, (attribute, names) in enumerate(task.sensitive.items()):
        values = list(names)
        n_blends = 0
        for drawn in images:
            shade = drawn.shades[index]
            assert values[shade.value] == drawn.sensitive[attribute]
            assert shade.other != shade.value
            assert shade.part < 0.5
            n_blends += shade.part > 0.25
        assert 0.2 < n_blends / len(images) < 0.5


@given(st.sampled_from(list(TASKS.values())), st.data())
@settings(max_examples=12, deadline=None)
def test_a_mix_of_groups_is_drawn_as_requested(
    task: MiniatureTask, data: st.DataObject
) -> None:
    groups = data.draw(st.sets(st.sampled_from(task.groups), min_size=1))
    images = task.draw(12, mix=dict.fromkeys(groups, 2.0))
    assert {(drawn.target, *drawn.sensitive.values()) for drawn in images} <= groups
