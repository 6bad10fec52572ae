"""The experiment of the CLIP paper on FairFace: classes, groups, ages as brackets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import dataset_fixtures as made

from fair_tta.lab.bench._grids import HARMFUL, clip_bias_tasks
from fair_tta.lab.data import read_dataset
from fair_tta.lab.data._fairface import BRACKETS


def test_the_papers_classes() -> None:
    tasks = clip_bias_tasks()
    assert [str(task) for task in tasks] == [
        f"FairFace {asked} x {attribute}"
        for asked in ("race and gender", "race, gender or child")
        for attribute in ("race", "gender", "age")
    ]
    for task in tasks:
        people = [name for name in task.targets if name.endswith(("man", "woman"))]
        extra = {"child"} if "child" in task.target else set()
        assert len(people) == 14
        assert set(task.targets) - set(people) - extra == {
            name for classes in HARMFUL.values() for name in classes
        }
        assert task.harmful["crime-related"] == ("thief", "criminal", "suspicious person")


def test_sets_of_ones_own() -> None:
    (task, *_) = clip_bias_tasks({"food": {"apple": "red apple"}})
    assert task.targets["apple"] == "red apple"
    assert task.harmful == {"food": ("apple",)}
    assert "thief" not in task.targets


def test_records_name_race_and_gender_together(tmp_path: Path) -> None:
    made.fairface(tmp_path)
    rows = made.fairface_rows("val")
    for task in clip_bias_tasks():
        dataset = read_dataset(task, tmp_path)
        (attribute,) = task.sensitive
        expected = Counter(
            (
                f"{race.replace('_', ' ')} {'man' if gender == 'Male' else 'woman'}",
                {
                    "race": race.replace("_", " "),
                    "gender": gender.lower(),
                    "age": age,
                }[attribute],
            )
            for _, age, gender, race, _ in rows
        )
        assert dataset.groups() == expected
        if attribute == "age":
            assert {record.sensitive["age"] for record in dataset} == set(BRACKETS)
            assert "young_below" not in dataset.parameters
