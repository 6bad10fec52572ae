"""Files of stored features: every format gives back what was written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from internals import read_features
from safetensors.torch import save_file

from fair_tta.datasets import read_text_features
from fair_tta.errors import DatasetError

VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3) + 1
IDS = ["a.jpg", "sub/b.jpg", "7", "ünï"]
FIXED_SIZE = pa.list_(pa.float32(), 3)


def write(
    path: Path,
    vectors: npt.NDArray[Any],
    names: list[str] | None,
    column: str = "ids",
) -> Path:
    """Write features in the layouts of the documentation."""
    named: dict[str, Any] = {} if names is None else {column: names}
    if path.suffix == ".npy":
        np.save(path, vectors)
    elif path.suffix == ".npz":
        np.savez(path, features=vectors, **named)
    elif path.suffix == ".safetensors":
        metadata = {name: json.dumps(texts) for name, texts in named.items()}
        save_file({"features": torch.tensor(vectors)}, path, metadata)
    else:
        table = pa.table({**named, "vector": pa.array(list(vectors))})
        pq.write_table(table, path)
    return path


@settings(max_examples=15, deadline=None)
@given(
    vectors=arrays.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.tuples(st.integers(1, 5), st.integers(1, 4)),
        elements=st.floats(0.5, 100, width=16),
    ),
    data=st.data(),
)
def test_every_format_gives_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    vectors: npt.NDArray[Any],
    data: st.DataObject,
) -> None:
    text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
    n = len(vectors)
    unique_texts = st.lists(text, min_size=n, max_size=n, unique=True)
    ids = data.draw(st.none() | unique_texts)
    folder = tmp_path_factory.mktemp("features")
    for ending in "npy", "npz", "safetensors", "parquet":
        stored = read_features(write(folder / f"f.{ending}", vectors, ids))
        np.testing.assert_array_equal(np.asarray(stored.features.array), vectors)
        if ending == "npy":
            assert stored.ids is None
            continue
        assert stored.ids == ids
        for name in ids or ():
            source: Any = stored.source(name).source
            expected = vectors[stored.row_of_id[name]]
            np.testing.assert_array_equal(np.asarray(source.values), expected)


def test_arrays_of_numpy_are_memory_mapped(tmp_path: Path) -> None:
    stored = read_features(write(tmp_path / "f.npy", VECTORS, None))
    assert isinstance(stored.features.array, np.memmap)


def test_tensors_may_be_in_bfloat16(tmp_path: Path) -> None:
    save_file({"v": torch.tensor(VECTORS).bfloat16()}, tmp_path / "f.safetensors")
    stored = read_features(tmp_path / "f.safetensors")
    np.testing.assert_allclose(stored.features.array, VECTORS, rtol=0.01)


def test_arrays_may_have_other_names_and_ids_may_be_bytes(tmp_path: Path) -> None:
    ids = np.array([b"a", b"b", b"c", b"d"])
    counts = np.ones((4, 2), int)
    np.savez(tmp_path / "f.npz", vectors=VECTORS, labels=counts, paths=ids)
    assert read_features(tmp_path / "f.npz").ids == ["a", "b", "c", "d"]


def test_columns_may_have_a_fixed_size_and_any_column_may_be_the_ids(
    tmp_path: Path,
) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(VECTORS.ravel()), 3)
    table = pa.table({"no": [4, 5, 6, 7], "embedding": vectors})
    pq.write_table(table, tmp_path / "f.parquet")
    assert read_features(tmp_path / "f.parquet").ids is None
    stored = read_features(tmp_path / "f.parquet", id_column="no")
    assert stored.ids == ["4", "5", "6", "7"]


def error_of(path: Path) -> str:
    """Return the message about a file, which is one line and names it."""
    with pytest.raises(DatasetError) as error:
        read_features(path)
    message = str(error.value)
    assert "\n" not in message
    assert path.name in message
    return message


@pytest.mark.parametrize("ending", ["npy", "npz", "safetensors", "parquet"])
def test_damaged_files_are_named(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"f.{ending}"
    path.write_bytes(b"nonsense")
    assert "cannot be read: " in error_of(path)


def test_pickled_objects_are_not_loaded(tmp_path: Path) -> None:
    objects = np.array([{}, 1], dtype=object)
    np.save(tmp_path / "f.npy", objects, allow_pickle=True)
    assert "pickled objects, which may run code" in error_of(tmp_path / "f.npy")


@pytest.mark.parametrize("ending", ["npz", "safetensors", "parquet"])
def test_text_features(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"t.{ending}", VECTORS, IDS, "prompts")
    features, scale = read_text_features(path)
    assert list(features) == IDS
    assert scale is None
    np.testing.assert_array_equal(features["7"], VECTORS[2])


def test_scale_of_text_features(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", prompts=IDS, features=VECTORS, scale=12.5)
    metadata = {"prompts": json.dumps(IDS), "scale": "12.5"}
    save_file({"features": torch.tensor(VECTORS)}, tmp_path / "t.safetensors", metadata)
    for ending in "npz", "safetensors":
        assert read_text_features(tmp_path / f"t.{ending}")[1] == 12.5


@pytest.mark.parametrize("list_type", [pa.list_(pa.float32()), FIXED_SIZE])
@pytest.mark.parametrize("row_group_size", [2, 6])
def test_a_null_vector_is_a_missing_feature(
    list_type: Any, row_group_size: int, tmp_path: Path
) -> None:
    """The vectors after it once got the ids of others."""
    first, second, third, fourth = VECTORS.tolist()
    rows = pa.array([first, None, second, third, None, fourth], list_type)
    table = pa.table({"id": list("abcdef"), "vector": rows})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=row_group_size)
    stored = read_features(tmp_path / "f.parquet")
    assert stored.ids == ["a", "c", "d", "f"]
    assert stored.missing == ["b", "e"]
    np.testing.assert_array_equal(stored.features.array, VECTORS)


@pytest.mark.parametrize(
    "ids", [["a", None, "c"], [1.0, None, 3.0], pa.array([1.0, np.nan, 2.0])]
)
def test_a_null_id_is_not_the_text_none(ids: Any, tmp_path: Path) -> None:
    table = pa.table({"id": ids, "vector": pa.array(list(VECTORS[:3]))})
    pq.write_table(table, tmp_path / "f.parquet")
    assert "rows whose id is null: 1 ('1')" in error_of(tmp_path / "f.parquet")


def test_files_that_would_be_unpacked_to_gigabytes(tmp_path: Path) -> None:
    """Parquet writes equal vectors once, and 10 MB once took 2 GiB."""
    zeros = np.zeros((2**15, 2**9), np.float32)
    np.savez_compressed(tmp_path / "f.npz", features=zeros)
    numbers = pa.array([0.5] * 2**23, pa.float32())
    vectors = pa.FixedSizeListArray.from_arrays(numbers, 2**9)
    for column in ("vector", "a.b"):
        pq.write_table(pa.table({column: vectors}), tmp_path / f"{column}.parquet")
    for path in tmp_path.iterdir():
        assert path.stat().st_size < 2**20
        assert "bytes when it is unpacked" in error_of(path)
