"""Labels of images and of stored features: which row belongs to which image."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_fixtures import write_labels
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import (
    FeatureFile,
    Labels,
    Problem,
    ProblemKind,
    Record,
    collect_records,
)

from fair_tta.errors import DatasetError

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3) + 1


def labels_of(folder: Path, text: str, **options: Any) -> Labels:
    """Write a label file with columns ``animal`` and ``place``."""
    (folder / "labels.csv").write_text(text, encoding="utf-8")
    return Labels(folder, folder / "labels.csv", "animal", ("place",), **options)


def keys_and_problems(labels: Labels, **options: Any) -> list[str | ProblemKind]:
    rows = labels.scan(**options).records(check_images=False)
    return [row.key if isinstance(row, Record) else row.kind for row in rows]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcde"), st.sampled_from("xy"), st.sampled_from("uv")
        ),
        min_size=1,
    )
)
def test_repeated_rows_are_those_that_datasets_leave_out(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("labels")
    write_labels(folder / "labels.csv", rows)
    values = Labels(folder, folder / "labels.csv", "animal", ("place",)).scan()
    read = values.records(check_images=False)
    written = []
    for name, animal, place in rows:
        written.append(Record(folder / name, animal, {"place": place}, name))
    records, _ = collect_records(written)
    assert tuple(row for row in read if isinstance(row, Record)) == records
    assert len(read) == values.row_count == len(rows)
    assert values.value_counts["animal"] == Counter(row[1] for row in rows)
    assert values.labels_in("place") == sorted({row[2] for row in rows})


def test_merged_values_do_not_contradict_each_other(tmp_path: Path) -> None:
    rows = [("a", "x", "sea"), ("a", "x", "lake"), ("b", "y", "sea")]
    write_labels(tmp_path / "labels.csv", rows)
    labels = Labels(
        tmp_path,
        tmp_path / "labels.csv",
        "animal",
        ("place",),
        rename={"place": {"sea": "water", "lake": "water"}},
    )
    assert keys_and_problems(labels) == ["a", ProblemKind.DUPLICATE, "b"]
    assert labels.scan().labels_in("place") == ["water"]


def test_paths_that_are_too_long(tmp_path: Path) -> None:
    too_long = tmp_path / ("a" * 5000)
    for images, file in ((too_long, tmp_path), (tmp_path, too_long)):
        with pytest.raises(DatasetError):
            Labels(images, file, "animal", ("place",)).scan()


def test_odd_names_do_not_stop_a_scan(tmp_path: Path) -> None:
    names = ["d" * 5000, "..", "a\0b/c"]
    rows = "".join(f"{name},cat,sea\n" for name in names)
    labels = labels_of(tmp_path, f"file,animal,place\n{rows}")
    expected = [Problem(ProblemKind.MISSING_IMAGE, name) for name in names]
    assert labels.scan().records() == expected


def clusters_of(folder: Path, cells: list[str]) -> list[str | None]:
    rows = "\n".join(f"{i}.png,cat,in,{cell}" for i, cell in enumerate(cells))
    labels = labels_of(folder, f"path,animal,place,person\n{rows}\n", cluster="person")
    records = labels.scan().records(check_images=False)
    return [row.cluster for row in records if isinstance(row, Record)]


@pytest.mark.parametrize(
    "cells",
    [
        "person 1,Person 1 ,person 2",
        "1,1.0,2",
        "person 1,person  1,None",
        "x,x\u200b,y",
    ],
)
def test_clusters_that_read_alike(cells: str, tmp_path: Path) -> None:
    """The images of one person were two persons."""
    with pytest.raises(DatasetError, match="clusters that read alike"):
        clusters_of(tmp_path, cells.split(","))


def test_missing_clusters(tmp_path: Path) -> None:
    """All images without a person were of one person called None."""
    cells = "None,none,NA,,<NA>,null,a,b".split(",")
    assert clusters_of(tmp_path, cells) == [""] * 6 + ["a", "b"]


def features_of(folder: Path, ids: list[str] | None, **options: Any) -> FeatureFile:
    return FeatureFile(folder / "f.npz", VECTORS, ids, **options)  # type: ignore[arg-type]


def test_features_are_matched_by_id(tmp_path: Path) -> None:
    ids = ["a.jpg", "sub/b.jpg", "7", "ünï"]
    features = features_of(tmp_path, ids, missing=["c.jpg"])
    text = "file,animal,place\nu\u0308ni\u0308,cat,in\nsub\\b.jpg,cat,in\nc.jpg,cat,in\n7,cat,in\n"
    labels = labels_of(tmp_path, text, features=features)
    expected = ["ünï", "sub/b.jpg", ProblemKind.NO_FEATURES, "7"]
    assert keys_and_problems(labels) == expected


def test_rows_without_features_may_be_left_out_unless_all_are(tmp_path: Path) -> None:
    features = features_of(tmp_path, ["a", "b", "c", "d"])
    text = "file,animal,place\na,cat,in\nw,cat,in\n"
    labels = labels_of(tmp_path, text, features=features)
    with pytest.raises(DatasetError):
        labels.scan()
    expected = ["a", ProblemKind.NO_FEATURES]
    assert keys_and_problems(labels, skip_unknown=True) == expected
    labels = labels_of(tmp_path, text.replace("a,cat", "x,cat"), features=features)
    with pytest.raises(DatasetError):
        labels.scan(skip_unknown=True)


def test_features_without_ids_are_matched_by_position(tmp_path: Path) -> None:
    features = features_of(tmp_path, None)
    text = "animal,place\ncat,land\ncat\ndog,sea\ndog,land\n"
    labels = labels_of(tmp_path, text, features=features)
    expected = ["0", ProblemKind.MALFORMED_ROW, "2", "3"]
    assert keys_and_problems(labels) == expected
    labels = labels_of(tmp_path, "animal,place\ncat,land\n", features=features)
    with pytest.raises(DatasetError):
        labels.scan()


COLUMNS_OF_NAMES = (
    "id photo Filename name names ids paths filenames uid key photo_id img_id image_uid"
)


@pytest.mark.parametrize("column", COLUMNS_OF_NAMES.split())
@pytest.mark.parametrize(
    "names", [("3.png", "1.png", "0.png", "2.png"), ("p3", "p1", "p0", "p2"), "3102"]
)
def test_rows_with_names_are_not_matched_by_position(
    column: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    """In another order than the labels, an accuracy of 80 silently became 47."""
    features = features_of(tmp_path, None)
    rows = "\n".join(f"cat,{name},sea" for name in names)
    text = f"animal,{column},place\n{rows}\n"
    with pytest.raises(DatasetError, match=rf"has names, in the column '{column}'"):
        labels_of(tmp_path, text, features=features).scan()
    labels = labels_of(tmp_path, text, features=features, by_position=True)
    assert keys_and_problems(labels) == ["0", "1", "2", "3"]
    assert labels.scan().path_column is None


def test_other_columns_are_no_names(tmp_path: Path) -> None:
    """Numbers of rows, ages, scores, and texts that repeat or are rare are no names."""
    text = (
        ",age,score,site,note,animal,place\n0,31,0.5,a,,cat,sea\n1,55,0.1,b,,dog,sea\n"
        "2,4,0.2,a,,cat,sea\n3,7,0.9,c,x,dog,sea\n"
    )
    labels = labels_of(tmp_path, text, features=features_of(tmp_path, None))
    assert keys_and_problems(labels) == ["0", "1", "2", "3"]
