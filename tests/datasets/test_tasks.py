"""The 13 pairs of the paper, and reading a dataset by its task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

import dataset_fixtures as made
import pytest
from internals import PAPER_TASKS, Split, parse_names, parse_sensitive

from fair_tta import FairTTAError, Templates
from fair_tta.datasets import BenchmarkTask, read_dataset
from fair_tta.errors import DatasetError

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
        paper = NAMES.get((task.dataset, attribute))
        assert paper is None or list(names.values()) == paper
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
    with pytest.raises(
        FairTTAError, match=r"no task is called 'CelebA age x gender'\. There are"
    ):
        BenchmarkTask.find("CelebA", "age", "gender")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    made.celeba_torchvision(root)
    made.utkface(root / "UTKFace")
    made.fairface(root / "fairface")
    made.waterbirds(root / "waterbird_complete95_forest2water2")
    return root


@pytest.mark.parametrize("task", PAPER_TASKS, ids=str)
def test_every_task_is_read_from_one_folder_of_datasets(
    task: BenchmarkTask, everything: Path
) -> None:
    dataset = read_dataset(task, everything)
    assert dataset.task is task
    assert dataset.name == task.dataset
    (values,) = task.sensitive.values()
    # every group occurs, and nothing else
    assert set(dataset.groups()) == {(y, s) for y in task.targets for s in values}
    assert all(record.path.is_file() for record in dataset)
    default = {"FairFace": "validation", "UTKFace": "all"}.get(task.dataset, "test")
    assert dataset.parameters["split"] == default
    has_age = "age" in (task.target, *task.sensitive)
    assert ("young_below" in dataset.parameters) == has_age


def test_splits_are_passed_on(everything: Path) -> None:
    celeba, birds = BenchmarkTask.find("CelebA", "smiling", "gender"), PAPER_TASKS[3]
    for task in (celeba, birds):
        sizes = {
            split: len(read_dataset(task, everything, split=split))
            for split in get_args(Split)
        }
        assert sum(sizes.values()) == 2 * sizes["all"]
        assert min(sizes.values()) > 0
    faces = BenchmarkTask.find("UTKFace", "gender", "race")
    assert len(read_dataset(faces, everything, split="all")) == 48
    with pytest.raises(DatasetError, match="`split` should be 'all' or None: UTKFace"):
        read_dataset(faces, everything, split="test")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"split": "dev"},
            r"`split` should be one of train, validation, test, all \(got 'dev'\)",
        ),
        (
            {"padding": "wide"},
            r"`padding` should be None: only FairFace has two sets of images",
        ),
    ],
)
def test_options_of_readers_are_checked(
    options: dict[str, Any], message: str, everything: Path
) -> None:
    with pytest.raises(DatasetError, match=message):
        read_dataset(
            BenchmarkTask.find("CelebA", "smiling", "gender"), everything, **options
        )


def test_ages_and_padding_are_passed_on(everything: Path) -> None:
    ages = read_dataset(
        BenchmarkTask.find("UTKFace", "age", "race"),
        everything,
        young_below=20,
        old_from=60,
    )
    assert ages.parameters["young_below"] == 20
    assert ages.parameters["old_from"] == 60
    faces = BenchmarkTask.find("FairFace", "gender", "race")
    with pytest.raises(
        DatasetError, match="has no folder fairface-img-margin125-trainval/val"
    ):
        read_dataset(faces, everything, padding="wide")
    with pytest.raises(
        DatasetError, match=r"`padding` should be one of narrow, wide \(got"
    ):
        read_dataset(faces, everything, padding=cast(Any, "both"))


def test_tasks_of_other_datasets_are_refused(everything: Path) -> None:
    with pytest.raises(DatasetError, match=r"own use `read_folder` \(got 'ImageNet'\)"):
        read_dataset(replace(PAPER_TASKS[0], dataset="ImageNet"), everything)


@pytest.mark.parametrize("task", PAPER_TASKS[:6], ids=str)
def test_a_missing_folder_names_source_and_layout(
    task: BenchmarkTask, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError) as caught:
        read_dataset(task, tmp_path / "nowhere")
    text = str(caught.value)
    assert text.startswith(
        f"{task.dataset}: there is no folder '{tmp_path / 'nowhere'}'.\n"
    )
    assert "Nothing is downloaded for you. Its authors offer it at https://" in text
    assert "DIR/" in text

    archive = tmp_path / "all.zip"
    archive.write_bytes(b"PK")
    with pytest.raises(
        DatasetError, match=r"is a file, not a folder \(an archive\? Unpack it\)"
    ):
        read_dataset(task, archive)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match=r"it is empty|no usable record"):
        read_dataset(task, tmp_path / "empty")
