"""Files of stored features: what is read is what was written, and what is wrong is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from cli_fixtures import write_labels
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from internals import FeatureFile, Labels, Problem, ProblemKind, Record, read_features
from safetensors.torch import save_file

from fair_tta.datasets import read_text_features
from fair_tta.errors import DatasetError

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3) + 1
IDS = ["a.jpg", "sub/b.jpg", "7", "ünï"]


def write(path: Path, rows: Any, names: list[str] | None, called: str = "ids") -> Path:
    """In the layouts of the documentation."""
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".npz":
        np.savez(path, features=rows, **({called: np.array(names)} if names else {}))  # type: ignore[arg-type]
    elif path.suffix == ".safetensors":
        about = {called: json.dumps(names)} if names else None
        save_file({"features": torch.tensor(rows)}, path, about)
    else:
        columns = {called: names} if names else {}
        pq.write_table(pa.table({**columns, "vector": pa.array(list(rows))}), path)
    return path


@settings(max_examples=15, deadline=None)
@given(
    rows=arrays.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.tuples(st.integers(1, 5), st.integers(1, 4)),
        elements=st.floats(0.5, 100, width=16),
    ),
    data=st.data(),
)
def test_every_format_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, rows: Any, data: st.DataObject
) -> None:
    text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
    many = st.lists(text, min_size=len(rows), max_size=len(rows), unique=True)
    ids = data.draw(st.none() | many)
    folder = tmp_path_factory.mktemp("features")
    for ending in "npy", "npz", "safetensors", "parquet":
        found = read_features(write(folder / f"f.{ending}", rows, ids))
        assert found.ids == (None if ending == "npy" else ids)
        np.testing.assert_array_equal(np.asarray(found.features.array), rows)
        if ids is not None and ending != "npy":
            for name, row in zip(ids, rows, strict=True):
                source: Any = found.source(name).source
                np.testing.assert_array_equal(np.asarray(source.values), row)


def test_formats(tmp_path: Path) -> None:
    """Memory-mapped, in bfloat16, by other names, as lists of one size, with bytes for ids."""
    mapped = read_features(write(tmp_path / "f.npy", ROWS, None))
    assert isinstance(mapped.features.array, np.memmap)
    save_file({"v": torch.tensor(ROWS).bfloat16()}, tmp_path / "f.safetensors")
    half = read_features(tmp_path / "f.safetensors")
    np.testing.assert_allclose(half.features.array, ROWS, rtol=0.01)
    np.savez(
        tmp_path / "f.npz",
        vectors=ROWS,
        labels=np.ones((4, 2), int),
        paths=np.array([b"a", b"b", b"c", b"d"]),
    )
    named = read_features(tmp_path / "f.npz")
    assert named.ids == ["a", "b", "c", "d"]
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(ROWS.ravel()), 3)
    pq.write_table(
        pa.table({"no": [4, 5, 6, 7], "embedding": fixed}), tmp_path / "f.parquet"
    )
    assert read_features(tmp_path / "f.parquet").ids is None
    assert read_features(tmp_path / "f.parquet", id_column="no").ids == [
        "4",
        "5",
        "6",
        "7",
    ]


def test_what_is_wrong_is_one_line(tmp_path: Path) -> None:
    bad = ROWS.copy()
    bad[1, 1], bad[3] = np.nan, 0
    odd: dict[str, tuple[Any, str]] = {
        "nan.npz": (
            {"features": bad, "ids": IDS},
            "or only zeros: 2 ('sub/b.jpg', 'ünï')",
        ),
        "twice.npz": (
            {"features": ROWS, "ids": ["a"] * 4},
            "has ids that repeat: 1 ('a')",
        ),
        "few.npz": ({"features": ROWS, "ids": ["a"]}, "has 1 ids for 4 vectors"),
        "two.npz": (
            {"a": ROWS, "b": ROWS},
            "'features' should hold its vectors; found ['a', 'b']",
        ),
        "flat.npz": (
            {"features": ROWS[0]},
            "floats of shape [rows, dim] (got float32 [3])",
        ),
        "whole.npz": (
            {"features": ROWS.astype(int)},
            "floats of shape [rows, dim] (got int64 [4, 3])",
        ),
        "none.npz": (
            {"features": ROWS[:0]},
            "floats of shape [rows, dim] (got float32 [0, 3])",
        ),
    }
    for name, (held, text) in odd.items():
        np.savez(tmp_path / name, **held)
        assert text in refused(tmp_path / name)
    np.save(tmp_path / "p.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "p.npz", features=ROWS, ids=np.array(IDS, dtype=object))
    for name in "p.npy", "p.npz":
        assert "it holds pickled objects, which may run code" in refused(
            tmp_path / name
        )
    pq.write_table(
        pa.table({"id": ["a", "b"], "v": [[1.0], [1.0, 2.0]]}), tmp_path / "r.parquet"
    )
    assert "'features' should hold its vectors; found []" in refused(
        tmp_path / "r.parquet"
    )
    for name in "d.npy", "d.npz", "d.safetensors", "d.parquet":
        (tmp_path / name).write_bytes(b"nonsense")
        assert "cannot be read: " in refused(tmp_path / name)
    assert "should be a file of .npy, .npz, .safetensors, .parquet" in refused(
        tmp_path / "f.csv"
    )
    with pytest.raises(DatasetError, match="has no ids called 'nr'"):
        read_features(write(tmp_path / "f.npz", ROWS, IDS), id_column="nr")


def refused(path: Path) -> str:
    with pytest.raises(DatasetError) as found:
        read_features(path)
    assert "\n" not in str(found.value)
    assert path.name in str(found.value)
    return str(found.value)


@pytest.mark.parametrize("ending", ["npz", "safetensors", "parquet"])
def test_text_features(tmp_path: Path, ending: str) -> None:
    table, scale = read_text_features(
        write(tmp_path / f"t.{ending}", ROWS, IDS, "prompts")
    )
    assert list(table) == IDS
    assert scale is None
    np.testing.assert_array_equal(table["7"], ROWS[2])
    with pytest.raises(DatasetError, match="has no prompts: call them 'prompts'"):
        read_text_features(write(tmp_path / f"n.{ending}", ROWS, IDS))


def test_scale_of_text_features(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", prompts=IDS, features=ROWS, scale=12.5)
    about = {"prompts": json.dumps(IDS), "scale": "12.5"}
    save_file({"features": torch.tensor(ROWS)}, tmp_path / "t.safetensors", about)
    for ending in "npz", "safetensors":
        assert read_text_features(tmp_path / f"t.{ending}")[1] == 12.5


def labelled(folder: Path, features: FeatureFile, names: list[str]) -> Labels:
    write_labels(folder / "labels.csv", [(name, "cat", "land") for name in names])
    return Labels(
        features.path, folder / "labels.csv", "animal", ("place",), features=features
    )


def test_labels_by_id(tmp_path: Path) -> None:
    features = read_features(write(tmp_path / "f.npz", ROWS, IDS))
    labels = labelled(tmp_path, features, ["u\u0308ni\u0308", "sub\\b.jpg", "7"])
    found = labels.scan().records()
    assert [row.key for row in found if isinstance(row, Record)] == [
        "ünï",
        "sub/b.jpg",
        "7",
    ]
    labels = labelled(tmp_path, features, ["a.jpg", "w", "x", "y", "z"])
    text = "'labels.csv' has ids that are not in 'f.npz': 4 ('w', 'x', 'y', ...); ids there: 4 ("
    with pytest.raises(DatasetError) as error:
        labels.scan()
    assert text in str(error.value)
    assert "\n" not in str(error.value)
    found = labels.scan(skip_unknown=True).records()
    kinds = [row.kind if isinstance(row, Problem) else row.key for row in found]
    assert kinds == ["a.jpg", *[ProblemKind.NO_FEATURES] * 4]
    with pytest.raises(DatasetError, match="has ids that are not in"):
        labelled(tmp_path, features, ["w", "x"]).scan(skip_unknown=True)


def test_labels_in_the_order_of_rows(tmp_path: Path) -> None:
    features = read_features(write(tmp_path / "f.npy", ROWS, None))
    (tmp_path / "labels.csv").write_text(
        "animal,place\ncat,land\ncat\ndog,sea\ndog,land\n"
    )
    labels = Labels(
        features.path, tmp_path / "labels.csv", "animal", ("place",), features=features
    )
    found = labels.scan().records()
    assert [row.key if isinstance(row, Record) else "" for row in found] == [
        "0",
        "",
        "2",
        "3",
    ]
    (tmp_path / "labels.csv").write_text("animal,place\ncat,land\n")
    with pytest.raises(
        DatasetError, match=r"has 4 vectors without ids and 'labels.csv' has 1 row"
    ):
        labels.scan()


def write_parquet(path: Path, vectors: Any, **columns: Any) -> Path:
    pq.write_table(pa.table({**columns, "vector": vectors}), path)
    return path


FIXED = pa.list_(pa.float32(), 3)


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), FIXED])
@pytest.mark.parametrize("groups", [1, 5])
def test_a_null_vector_is_a_missing_feature(
    kind: Any, groups: int, tmp_path: Path
) -> None:
    """The vectors after it had the ids of others, silently where the widths fitted."""
    vectors = pa.array([[1, 2, 3], None, [4, 5, 6], [7, 8, 9], None, [1, 1, 2]], kind)
    ids = ["a", "b", "c", "d", "e", "f"]
    table = pa.table({"id": ids, "vector": vectors})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=-(-6 // groups))
    features = read_features(tmp_path / "f.parquet")
    assert features.ids == ["a", "c", "d", "f"]
    assert features.missing == ["b", "e"]
    np.testing.assert_array_equal(
        features.features.array, [[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 1, 2]]
    )
    found = labelled(tmp_path, features, ["f", "e", "c"]).scan().records()
    assert [row if isinstance(row, Problem) else row.key for row in found] == [
        "f", Problem(ProblemKind.NO_FEATURES, "e"), "c",
    ]  # fmt: skip


def test_a_null_vector_without_ids_is_an_error(tmp_path: Path) -> None:
    """So is one of a prompt."""
    vectors = pa.array([[1, 2, 3], None, [4, 5, 6]], FIXED)
    path = write_parquet(tmp_path / "f.parquet", vectors)
    assert "has rows without a vector, 1 ('1')" in refused(path)
    write_parquet(tmp_path / "t.parquet", vectors, prompts=["a", "b", "c"])
    with pytest.raises(DatasetError, match=r"prompts without a vector: \['b'\]"):
        read_text_features(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    "ids", [["a", None, "c"], [1.0, None, 3.0], pa.array([1.0, np.nan, 2.0])]
)
def test_a_null_id_is_not_the_id_none(ids: Any, tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "f.parquet", pa.array(list(ROWS[:3])), id=ids)
    assert "has rows whose id is null: 1 ('1'), counted from 0" in refused(path)
    save_file(
        {"v": torch.tensor(ROWS)},
        tmp_path / "f.safetensors",
        {"ids": '["a", null, "c", 4]'},
    )
    assert "has rows whose id is null" in refused(tmp_path / "f.safetensors")


def test_files_that_would_be_unpacked_to_gigabytes(tmp_path: Path) -> None:
    """Before they are: 10 MB took 2 GiB, and parquet writes equal vectors once."""
    np.savez_compressed(
        tmp_path / "f.npz", features=np.zeros((2**15, 2**9), np.float32)
    )
    assert (tmp_path / "f.npz").stat().st_size < 2**20
    assert "bytes when it is unpacked" in refused(tmp_path / "f.npz")
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array([0.5] * 2**23, pa.float32()), 2**9
    )
    path = write_parquet(tmp_path / "f.parquet", vectors)
    assert path.stat().st_size < 2**20
    assert "bytes when it is unpacked" in refused(path)


@pytest.mark.parametrize(
    "header",
    ["id,animal,place", "photo,animal,place", "animal,place,Filename"],
)
def test_features_without_ids_and_labels_with_names(
    header: str, tmp_path: Path
) -> None:
    """In another order than the labels: an accuracy of 80 became 47, without a word."""
    features = read_features(write(tmp_path / "f.npy", ROWS, None))
    rows = ["3.png,cat,land", "1.png,dog,sea", "0.png,dog,land", "2.png,dog,land"]
    if header.startswith("animal"):
        rows = [",".join([*row.split(",")[1:], row.split(",")[0]]) for row in rows]
    (tmp_path / "labels.csv").write_text("\n".join([header, *rows]))
    common = (features.path, tmp_path / "labels.csv", "animal", ("place",))
    labels = Labels(*common, features=features)
    name = next(name for name in header.split(",") if name not in ("animal", "place"))
    with pytest.raises(
        DatasetError, match=rf"has no ids.*in the column '{name}'.*`by_position`"
    ):
        labels.scan()
    allowed = Labels(*common, features=features, by_position=True).scan().records()
    assert [row.key if isinstance(row, Record) else "" for row in allowed] == [
        "0",
        "1",
        "2",
        "3",
    ]


NUMBERS = np.random.default_rng(0).permutation(
    8
)  # ids of rows of labels, in another order
EIGHT = np.arange(24, dtype=np.float32).reshape(8, 3) + 1


def numbered(folder: Path, header: str, **more: Any) -> Labels:
    """Labels whose columns ``order`` and "" count rows; others are `NUMBERS`, or a neighbour's."""
    features = FeatureFile(folder / "f.npz", EIGHT, [*map(str, range(8))])  # type: ignore[arg-type]
    columns = {
        "order": range(8),
        "": range(8),
        "nn": (NUMBERS + 1) % 8,
        "person": range(8),
    }
    cells = [columns.get(name, NUMBERS) for name in header.split(",")]
    rows = [
        ",".join([*map(str, row), "cat", "sea"]) for row in zip(*cells, strict=True)
    ]
    (folder / "labels.csv").write_text("\n".join([f"{header},animal,place", *rows]))
    return Labels(
        features.path,
        folder / "labels.csv",
        "animal",
        ("place",),
        features=features,
        **more,
    )


@pytest.mark.parametrize(
    "header", [",uid", "order,uid", "uid,order", "nn,uid", ",image,id"]
)
def test_ids_that_several_columns_may_be_are_not_guessed(
    header: str, tmp_path: Path
) -> None:
    """An index that pandas wrote was taken for the ids: an accuracy of 72 became 34."""
    if header == ",image,id":  # a known name each, of different ids
        labels = numbered(tmp_path, "id,nn")
        text = labels.file.read_text().replace("id,nn", "id,image")
        labels.file.write_text(text)
        columns = "'id', 'image'"
    else:
        labels = numbered(tmp_path, header)
        columns = ", ".join(map(repr, header.split(",")))
    with pytest.raises(DatasetError) as error:
        labels.scan()
    assert f"has several columns that hold ids of 'f.npz': {columns}" in str(
        error.value
    )
    assert "`path_column`" in str(error.value)


@pytest.mark.parametrize(
    ("header", "column", "more"),
    [
        (",id", "id", {}),
        (",name", "name", {}),
        ("order,uid", "uid", {"path": "uid"}),
        ("person,uid", "uid", {"cluster": "person"}),
        ("uid,Image", "Image", {}),  # the same ids twice
    ],
)
def test_the_column_of_ids(header: str, column: str, more: Any, tmp_path: Path) -> None:
    values = numbered(tmp_path, header, **more).scan()
    assert values.path_column == column
    keys = [row.key for row in values.records() if isinstance(row, Record)]
    assert keys == [*map(str, NUMBERS)]


def test_ids_that_the_first_rows_do_not_have(tmp_path: Path) -> None:
    """The first column was taken where none of the first hundred rows has a vector."""
    labels = numbered(tmp_path, "uid")
    rows = [f"{i + 1000},{i},cat,sea" for i in range(-150, 8)]
    labels.file.write_text("\n".join(["other,uid,animal,place", *rows]))
    assert labels.scan(skip_unknown=True).path_column == "uid"


def test_a_column_of_ids_that_is_there_twice(tmp_path: Path) -> None:
    """CSV took the last and Excel the first."""
    labels = numbered(tmp_path, "id,nn")
    labels.file.write_text(labels.file.read_text().replace("id,nn", "id,id"))
    with pytest.raises(DatasetError, match=r"has more than one column called \['id'\]"):
        labels.scan()


HEADERS = (
    "name,names,ids,paths,filenames,uid,key,photo,photo_id,img_id,image_uid".split(",")
)


@pytest.mark.parametrize("column", HEADERS)
@pytest.mark.parametrize("ids", [("p3", "p1", "p0", "p2"), (3, 1, 0, 2)])
def test_names_without_endings_are_names(column: str, ids: Any, tmp_path: Path) -> None:
    """Their rows were joined with vectors without ids by nothing but their order."""
    features = read_features(write(tmp_path / "f.npy", ROWS, None))
    rows = [f"{name},cat,sea" for name in ids]
    (tmp_path / "labels.csv").write_text("\n".join([f"{column},animal,place", *rows]))
    common = (features.path, tmp_path / "labels.csv", "animal", ("place",))
    with pytest.raises(DatasetError, match=rf"has names, in the column '{column}'"):
        Labels(*common, features=features).scan()
    assert (
        Labels(*common, features=features, by_position=True).scan().path_column is None
    )


def test_columns_that_are_no_names(tmp_path: Path) -> None:
    """Numbers of rows, ages, and texts that come again or seldom."""
    features = read_features(write(tmp_path / "f.npy", ROWS, None))
    rows = [
        "0,31,0.5,a,,cat,sea",
        "1,55,0.1,b,,dog,sea",
        "2,4,0.2,a,,cat,sea",
        "3,7,0.9,c,x,dog,sea",
    ]
    (tmp_path / "labels.csv").write_text(
        "\n".join([",age,score,site,note,animal,place", *rows])
    )
    common = (features.path, tmp_path / "labels.csv", "animal", ("place",))
    assert len(Labels(*common, features=features).scan().records()) == 4
