"""CelebA in its layouts and with its faults."""

from __future__ import annotations

from pathlib import Path

import dataset_fixtures as fixtures
import pytest
from internals import PAPER_TASKS, ProblemKind, Split, read_celeba

from fair_tta.datasets import BenchmarkTask

HAIR = BenchmarkTask.find("CelebA", "hair color", "gender")
CELEBA_TASKS = [task for task in PAPER_TASKS if task.dataset == "CelebA"]
# The field of a fixture's face, and the labels of yes and no
LABELS = {
    "hair color": ("blond", "blond", "dark"),
    "smiling": ("smiling", "smiling", "not smiling"),
    "makeup": ("makeup", "makeup", "no makeup"),
    "glasses": ("glasses", "glasses", "no glasses"),
}
CODES: dict[Split, set[int]] = {
    "train": {0},
    "validation": {1},
    "test": {2},
    "all": {0, 1, 2},
}
TEST_FACES = [face.name for face in fixtures.celeba_faces() if face.split == 2]


@pytest.mark.parametrize("layout", fixtures.CELEBA_LAYOUTS)
@pytest.mark.parametrize("task", CELEBA_TASKS, ids=str)
def test_all_layouts_give_the_labels(
    layout: str, task: BenchmarkTask, tmp_path: Path
) -> None:
    fixtures.CELEBA_LAYOUTS[layout](tmp_path)
    field, yes, no = LABELS[task.target]
    for split, codes in CODES.items():
        expected = []
        for face in fixtures.celeba_faces():
            if face.split in codes:
                target = yes if getattr(face, field) else no
                gender = "male" if face.male else "female"
                expected.append((face.name, target, {"gender": gender}))
        dataset = read_celeba(tmp_path, task, split=split)
        assert [(r.key, r.target, r.sensitive) for r in dataset] == expected
        assert all(r.path.is_file() and r.path.name == r.key for r in dataset)
        # The fixture is a small part of CelebA
        detail = f"{dataset.parameters['labels']}: 32 instead of 202599"
        assert dataset.problems.examples == {ProblemKind.PARTIAL: (detail,)}
        assert dataset.problems.lost == 0
        assert dataset.parameters["split"] == split


def test_labels_can_be_read_without_images(tmp_path: Path) -> None:
    fixtures.celeba_flat(tmp_path)
    expected = read_celeba(tmp_path, HAIR).records
    (tmp_path / "img_align_celeba").rename(tmp_path / "elsewhere")
    assert read_celeba(tmp_path, HAIR, check_images=False).records == expected


def test_a_partial_copy_gives_one_summary(tmp_path: Path) -> None:
    fixtures.celeba_flat(tmp_path)
    for name in TEST_FACES[:5]:
        (tmp_path / "img_align_celeba" / name).unlink()
    (tmp_path / "img_align_celeba" / TEST_FACES[5]).write_bytes(b"")
    labels = tmp_path / "list_attr_celeba.txt"
    lines = labels.read_text().splitlines()
    for index, line in enumerate(lines):
        if line.startswith(TEST_FACES[6]):
            lines[index] = line.replace(" -1", " 7").replace("  1", "  7")
        if line.startswith(TEST_FACES[7]):
            lines[index] = line[:-3]
            cut_line = index + 1
    lines.append("999999.jpg" + " -1" * 40)
    labels.write_text("\n".join(lines) + "\n")
    dataset = read_celeba(tmp_path, HAIR)
    assert [record.key for record in dataset] == TEST_FACES[8:]
    assert dataset.problems.examples == {
        ProblemKind.MISSING_IMAGE: tuple(TEST_FACES[:5]),
        ProblemKind.EMPTY_IMAGE: (TEST_FACES[5],),
        ProblemKind.UNKNOWN_VALUE: (f"{TEST_FACES[6]} (hair color '7')",),
        ProblemKind.MALFORMED_ROW: (f"list_attr_celeba.txt line {cut_line}",),
        ProblemKind.NO_SPLIT: ("999999.jpg",),
        ProblemKind.PARTIAL: ("list_attr_celeba.txt: 33 instead of 202599",),
    }
    assert dataset.problems.lost == 9


@pytest.mark.parametrize("ending", ["txt", "csv"])
def test_unknown_and_contradicting_splits_are_problems(
    ending: str, tmp_path: Path
) -> None:
    write = fixtures.celeba_flat if ending == "txt" else fixtures.celeba_kaggle
    write(tmp_path)
    splits = tmp_path / f"list_eval_partition.{ending}"
    separator = " " if ending == "txt" else ","
    first, second, third, *_ = TEST_FACES
    text = splits.read_text().replace(f"{first}{separator}2", f"{first}{separator}test")
    splits.write_text(f"{text}{second}{separator}0\n{third}{separator}2\n")
    dataset = read_celeba(tmp_path, HAIR)
    assert [record.key for record in dataset] == TEST_FACES[2:]
    expected = (f"{first} (split 'test')", f"{second} (split '2 and 0')")
    assert dataset.problems.examples[ProblemKind.UNKNOWN_VALUE] == expected
    assert len(read_celeba(tmp_path, HAIR, split="all")) == 32


def test_all_images_can_be_read_without_the_file_of_splits(tmp_path: Path) -> None:
    fixtures.celeba_flat(tmp_path)
    (tmp_path / "list_eval_partition.txt").unlink()
    assert len(read_celeba(tmp_path, HAIR, split="all")) == 32


def test_a_file_without_the_count_and_with_zeros_is_read(tmp_path: Path) -> None:
    fixtures.celeba_flat(tmp_path)
    expected = read_celeba(tmp_path, HAIR)
    labels = tmp_path / "list_attr_celeba.txt"
    text = labels.read_text().removeprefix("202599\n").replace("-1", " 0")
    labels.write_text(text.replace("\n", "\r\n"))
    dataset = read_celeba(tmp_path, HAIR)
    assert dataset.records == expected.records
    assert dataset.problems == expected.problems
