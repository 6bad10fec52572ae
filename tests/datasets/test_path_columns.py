"""The column of a label file that names images or features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dataset_fixtures as fixtures
import numpy as np
import pytest
from internals import FeatureFile, Labels, Record

from fair_tta.errors import DatasetError

IDS = np.random.default_rng(0).permutation(8)
VECTORS = np.arange(24, dtype=np.float32).reshape(8, 3) + 1


def labels_with_columns(folder: Path, header: str, **options: Any) -> Labels:
    """Return labels whose columns hold the `IDS`, unless their names say otherwise."""
    columns: dict[str, Any] = {
        "order": range(8),
        "": range(8),
        "other_id": (IDS + 1) % 8,
        "half_known": [100, 101, 102, *((IDS + 1) % 8)[3:]],
        "person": range(8),
    }
    lines = [f"{header},animal,place"]
    for row in range(8):
        cells = [columns.get(name, IDS)[row] for name in header.split(",")]
        lines.append(",".join([*map(str, cells), "cat", "sea"]))
    file = folder / "labels.csv"
    file.write_text("\n".join(lines))
    ids = [str(i) for i in range(8)]
    features = FeatureFile(folder / "f.npz", VECTORS, ids)  # type: ignore[arg-type]
    return Labels(
        features.path, file, "animal", ("place",), features=features, **options
    )


@pytest.mark.parametrize(
    "header", [",uid", "order,uid", "uid,order", "half_known,uid", ",image,id"]
)
def test_ids_that_several_columns_may_be_are_not_guessed(
    header: str, tmp_path: Path
) -> None:
    """An index that pandas wrote was taken for the ids: an accuracy of 72 became 34."""
    labels = labels_with_columns(tmp_path, header)
    if header == ",image,id":  # two usual names, of different ids
        labels = labels_with_columns(tmp_path, "id,other_id")
        text = labels.file.read_text().replace("other_id", "image")
        labels.file.write_text(text)
        header = "id,image"
    expected = ", ".join(map(repr, header.split(",")))
    with pytest.raises(DatasetError, match=f"hold ids of 'f.npz': {expected};"):
        labels.scan()


@pytest.mark.parametrize(
    ("header", "column", "options"),
    [
        (",id", "id", {}),
        (",name", "name", {}),
        ("order,uid", "uid", {"path": "uid"}),
        ("person,uid", "uid", {"cluster": "person"}),
        ("uid,Image", "Image", {}),  # the same ids twice
    ],
)
def test_the_column_of_ids(
    header: str, column: str, options: Any, tmp_path: Path
) -> None:
    values = labels_with_columns(tmp_path, header, **options).scan()
    assert values.path_column == column
    keys = [row.key for row in values.records() if isinstance(row, Record)]
    assert keys == [str(i) for i in IDS]


def test_ids_that_the_first_rows_do_not_have(tmp_path: Path) -> None:
    """The first column was taken where none of the first hundred rows has a vector."""
    labels = labels_with_columns(tmp_path, "uid")
    rows = [f"{i + 1000},{i},cat,sea" for i in range(-150, 8)]
    labels.file.write_text("\n".join(["other,uid,animal,place", *rows]))
    assert labels.scan(skip_unknown=True).path_column == "uid"


def test_a_column_of_ids_that_is_there_twice(tmp_path: Path) -> None:
    labels = labels_with_columns(tmp_path, "id,other_id")
    labels.file.write_text(labels.file.read_text().replace("other_id", "id"))
    with pytest.raises(DatasetError, match=r"more than one column called \['id'\]"):
        labels.scan()


@pytest.mark.parametrize(
    "header",
    ["id,url,what it shows,mask", "number,image,photo,mask"],
)
def test_the_column_of_paths_is_the_one_whose_images_exist(
    header: str, tmp_path: Path
) -> None:
    images, file = fixtures.folder(tmp_path)
    rows = [f"{i},http://x/{i}.png,{i}.png,mask{i}.png,cat,in" for i in range(6)]
    file.write_text("\n".join([f"{header},animal,place", *rows]))
    records = Labels(images, file, "animal", ("place",)).scan().records()
    keys = [record.key for record in records if isinstance(record, Record)]
    assert keys == [f"{i}.png" for i in range(6)]


def test_other_files_of_this_machine_are_not_looked_for(tmp_path: Path) -> None:
    """An uploaded label file would learn from the choice which files there are."""
    images, file = fixtures.folder(tmp_path)
    rows = [[images / f"{5 - i}.png", f"{i}.png", "cat", "in"] for i in range(6)]
    fixtures.write_csv(file, [["elsewhere", "here", "animal", "place"], *rows])
    values = Labels(images, file, "animal", ("place",)).scan()
    assert values.path_column == "here"
