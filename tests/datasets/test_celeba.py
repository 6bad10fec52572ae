"""CelebA in its layouts and with its faults."""

from __future__ import annotations

from pathlib import Path

import dataset_fixtures as made
import pytest
from internals import PAPER_TASKS, ProblemKind, Split, read_celeba

from fair_tta.datasets import BenchmarkTask
from fair_tta.errors import DatasetError

HAIR = BenchmarkTask.find("CelebA", "hair color", "gender")
CELEBA_TASKS = [task for task in PAPER_TASKS if task.dataset == "CelebA"]
YES_AND_NO = {
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


@pytest.mark.parametrize("layout", made.CELEBA_LAYOUTS)
@pytest.mark.parametrize("task", CELEBA_TASKS, ids=str)
def test_all_layouts_give_the_labels(
    layout: str, task: BenchmarkTask, tmp_path: Path
) -> None:
    made.CELEBA_LAYOUTS[layout](tmp_path)
    field, yes, no = YES_AND_NO[task.target]
    for split, codes in CODES.items():
        dataset = read_celeba(tmp_path, task, split=split)
        assert [(r.key, r.target, r.sensitive) for r in dataset] == [
            (
                face.name,
                yes if getattr(face, field) else no,
                {"gender": "male" if face.male else "female"},
            )
            for face in made.celeba_faces()
            if face.split in codes
        ]
        assert all(r.path.is_file() and r.path.name == r.key for r in dataset)
        # the fixture is a small part of CelebA, whose files announce 202599 rows
        assert dataset.problems.to_dict() == {
            ProblemKind.PARTIAL.value: {
                "count": 1,
                "examples": [f"{dataset.parameters['labels']}: 32 instead of 202599"],
            }
        }
        assert dataset.problems.lost == 0
        assert dataset.parameters["split"] == split


def test_labels_alone_can_be_read(tmp_path: Path) -> None:
    made.celeba_flat(tmp_path)
    expected = [(r.key, r.path) for r in read_celeba(tmp_path, HAIR)]
    (tmp_path / "img_align_celeba").rename(tmp_path / "elsewhere")
    records = read_celeba(tmp_path, HAIR, check_images=False).records
    assert [(r.key, r.path) for r in records] == expected
    with pytest.raises(DatasetError, match=r"has no folder img_align_celeba\.\n"):
        read_celeba(tmp_path, HAIR)
    (tmp_path / "img_align_celeba.zip").write_bytes(b"PK")
    with pytest.raises(
        DatasetError, match=r"\(there is an archive of that name: unpack it\)"
    ):
        read_celeba(tmp_path, HAIR)


def test_a_partial_copy_gives_one_summary(tmp_path: Path) -> None:
    made.celeba_flat(tmp_path)
    test = [face.name for face in made.celeba_faces() if face.split == 2]
    for name in test[:5]:
        (tmp_path / "img_align_celeba" / name).unlink()
    (tmp_path / "img_align_celeba" / test[5]).write_bytes(b"")
    labels = tmp_path / "list_attr_celeba.txt"
    lines = labels.read_text().splitlines()
    odd = next(i for i, line in enumerate(lines) if line.startswith(test[6]))
    lines[odd] = lines[odd].replace(" -1", " 7").replace("  1", "  7")
    cut = next(i for i, line in enumerate(lines) if line.startswith(test[7]))
    lines[cut] = lines[cut][:-3]
    labels.write_text("\n".join([*lines, "999999.jpg" + " -1" * 40]) + "\n")
    dataset = read_celeba(tmp_path, HAIR)
    assert [r.key for r in dataset] == test[8:]
    assert dict(dataset.problems.counts) == {
        ProblemKind.MISSING_IMAGE: 5,
        ProblemKind.EMPTY_IMAGE: 1,
        ProblemKind.UNKNOWN_VALUE: 1,
        ProblemKind.MALFORMED_ROW: 1,
        ProblemKind.NO_SPLIT: 1,
        ProblemKind.PARTIAL: 1,
    }
    assert dataset.problems.lost == 9
    text = str(dataset.problems)
    assert f"5 x image file is missing: {test[0]}; {test[1]}; {test[2]}; ..." in text
    assert f"{test[6]} (hair color '7')" in text
    assert f"list_attr_celeba.txt line {cut + 1}" in text

    for name in test:
        (tmp_path / "img_align_celeba" / name).unlink(missing_ok=True)
    with pytest.raises(
        DatasetError, match=r"CelebA: no usable record in .*\n.*image file is mis"
    ):
        read_celeba(tmp_path, HAIR)


@pytest.mark.parametrize("ending", ["txt", "csv"])
def test_splits_that_are_none_are_counted(ending: str, tmp_path: Path) -> None:
    (made.celeba_flat if ending == "txt" else made.celeba_kaggle)(tmp_path)
    parts = tmp_path / f"list_eval_partition.{ending}"
    test = [face.name for face in made.celeba_faces() if face.split == 2]
    between = " " if ending == "txt" else ","
    text = parts.read_text().replace(f"{test[0]}{between}2", f"{test[0]}{between}test")
    parts.write_text(f"{text}{test[1]}{between}0\n{test[2]}{between}2\n")
    dataset = read_celeba(tmp_path, HAIR)
    assert [r.key for r in dataset] == test[2:]
    assert dataset.problems.counts[ProblemKind.UNKNOWN_VALUE] == 2
    expected = f"{test[0]} (split 'test')", f"{test[1]} (split '2 and 0')"
    assert dataset.problems.examples[ProblemKind.UNKNOWN_VALUE] == expected
    assert len(read_celeba(tmp_path, HAIR, split="all")) == len(made.celeba_faces())


PAGE = """
<!DOCTYPE html><html><head><title>Google Drive - Quota exceeded</title></head>
<body><p>Sorry, you can't view or download this file at this time.</p></body></html>"""


@pytest.mark.parametrize("file", ["list_attr_celeba.txt", "list_eval_partition.txt"])
def test_a_web_page_in_disguise_is_named_as_such(file: str, tmp_path: Path) -> None:
    made.celeba_flat(tmp_path)
    (tmp_path / file).write_text(PAGE)
    with pytest.raises(DatasetError) as caught:
        read_celeba(tmp_path, HAIR)
    text = str(caught.value)
    assert f"{file}' is a web page (HTML) saved under that name" in text
    assert (
        "titled 'Google Drive - Quota exceeded', not a label file: its download has fai"
        in text
    )
    assert "mmlab.ie.cuhk.edu.hk" in text


@pytest.mark.parametrize("file", ["list_attr_celeba.csv", "list_eval_partition.csv"])
def test_a_web_page_may_also_be_a_csv(file: str, tmp_path: Path) -> None:
    made.celeba_kaggle(tmp_path)
    (tmp_path / file).write_text("<html>no title")
    with pytest.raises(
        DatasetError, match=r"(?s)CelebA: .* is a web page \(HTML\) .*mmlab.*DIR"
    ):
        read_celeba(tmp_path, HAIR)


def test_missing_files_and_columns_are_named(tmp_path: Path) -> None:
    made.celeba_flat(tmp_path)
    splits, labels = (
        tmp_path / "list_eval_partition.txt",
        tmp_path / "list_attr_celeba.txt",
    )
    splits.unlink()
    with pytest.raises(
        DatasetError, match=r"has no list_eval_partition.txt or list_eval_part"
    ):
        read_celeba(tmp_path, HAIR)
    assert len(read_celeba(tmp_path, HAIR, split="all")) == 32
    labels.write_text(
        labels.read_text().replace("Male", "Female").replace("Blond", "Fair")
    )
    with pytest.raises(DatasetError, match=r"lacks \['Blond_Hair', 'Male'\]"):
        read_celeba(tmp_path, HAIR, split="all")
    labels.write_text("202599\n")
    with pytest.raises(DatasetError, match=r"lacks \['Blond_Hair', 'Male'\]"):
        read_celeba(tmp_path, HAIR, split="all")
    labels.unlink()
    with pytest.raises(
        DatasetError, match=r"txt or list_attr_celeba.csv \(it has img_align_cele"
    ):
        read_celeba(tmp_path, HAIR)


def test_a_file_without_the_count_and_with_zeros_is_read(tmp_path: Path) -> None:
    made.celeba_flat(tmp_path)
    expected = read_celeba(tmp_path, HAIR).records
    labels = tmp_path / "list_attr_celeba.txt"
    text = labels.read_text().removeprefix("202599\n").replace("-1", " 0")
    labels.write_text(text.replace("\n", "\r\n"))
    dataset = read_celeba(tmp_path, HAIR)
    assert dataset.records == expected
    assert dict(dataset.problems.counts) == {ProblemKind.PARTIAL: 1}


def test_tasks_must_fit(tmp_path: Path) -> None:
    with pytest.raises(
        DatasetError, match=r"`task` should belong to CelebA \(got 'FairFace gend"
    ):
        read_celeba(tmp_path, PAPER_TASKS[0])
    age = BenchmarkTask("CelebA", "age", HAIR.targets, HAIR.sensitive, HAIR.template)
    with pytest.raises(
        DatasetError, match=r"`task` should be about attributes of CelebA, \['gend"
    ):
        read_celeba(tmp_path, age)
