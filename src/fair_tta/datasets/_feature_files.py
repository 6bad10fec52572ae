"""Files of stored features: vectors of images by id, and vectors of prompts."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open

from fair_tta._io import open_file, printable
from fair_tta.datasets._image_paths import spellings, summarize_names
from fair_tta.datasets._label_files import (
    check_unpacked,
    column_chunks,
    zip_content_bytes,
)
from fair_tta.datasets._path_columns import ID_COLUMNS
from fair_tta.errors import DatasetError, require
from fair_tta.images._stored import Features, ImageSource

_PROMPT_NAMES = ("prompts", "prompt", "texts", "text")

# Rows that are checked together, so that a memory-mapped file is not loaded as a whole
_CHUNK_ROWS = 8192

# Features of models hardly compress: their files unpack to 1 to 3 times their size
_MAX_FEATURE_RATIO = 20


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """Features of images.

    Attributes:
        path: the file.
        features: its vectors, memory-mapped where the format allows it.
        ids: the ids of the vectors; None if the file has none, and then the ids are "0", "1", ...
        missing: ids of rows that have no vector, which are not among `ids`.
    """

    path: Path
    features: Features
    ids: Sequence[str] | None = None
    missing: Sequence[str] = ()

    def find_id(self, name: str) -> str | None:
        """Return the id as the file spells it, None if there is none; it may be `missing`."""
        for spelling in spellings(name):
            if spelling in self.row_of_id or spelling in self._missing_ids:
                return spelling
        return None

    def source(self, name: str) -> ImageSource:
        """Return the features of an id, for the runner."""
        return ImageSource(name, self.features[self.row_of_id[name]])

    @cached_property
    def row_of_id(self) -> dict[str, int]:
        """The number of each id's vector."""
        ids = map(str, range(len(self.features))) if self.ids is None else self.ids
        return {name: row for row, name in enumerate(ids)}

    @cached_property
    def _missing_ids(self) -> frozenset[str]:
        return frozenset(self.missing)


def read_features(
    path: str | os.PathLike[str], *, id_column: str | None = None
) -> FeatureFile:
    """Read features of images from a ``.npy``, ``.npz``, ``.safetensors`` or ``.parquet`` file.

    Vectors are the array, tensor or column ``features``, or the only one that holds rows of floats.
    Ids are an array, a JSON list in the metadata (``.safetensors``), or a column.

    Args:
        path: the file.
        id_column: the name of the ids; by a list of usual names if None.

    Raises:
        DatasetError: the file cannot be read, a row has no direction, or ids repeat or are missing.
    """
    usual_names = ID_COLUMNS if id_column is None else [id_column]
    stored, _ = _read_file(Path(path), usual_names)
    if id_column is not None and stored.ids is None:
        raise DatasetError(f"{str(path)!r} has no ids called {id_column!r}.")
    return stored


def read_text_features(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], float | None]:
    """Read features of prompts from a file like those of images, with prompts instead of ids.

    Args:
        path: the file, with ``prompts`` and ``features``; ``scale`` may be an array of one number,
            or a number in the metadata (``.safetensors``).

    Returns:
        ``{prompt: vector}``, and the logit scale, None if the file has none.
    """
    stored, scale = _read_file(Path(path), _PROMPT_NAMES)
    if stored.ids is None:
        raise DatasetError(
            f"{str(path)!r} has no prompts: call them 'prompts', beside 'features'."
        )
    if stored.missing:
        raise DatasetError(
            f"{str(path)!r} has prompts without a vector: {stored.missing}."
        )
    return dict(zip(stored.ids, stored.features.array, strict=True)), scale


def is_feature_file(path: str | os.PathLike[str]) -> bool:
    """Return True for the names of files that `read_features` reads."""
    return Path(path).suffix.lower() in _READERS


class _StoredArrays(NamedTuple):
    """Arrays and lists of a file by name, and which rows have a vector (all if None)."""

    arrays: dict[str, Any]
    has_vector: npt.NDArray[np.bool_] | None = None


def _read_file(
    path: Path, usual_names: Sequence[str]
) -> tuple[FeatureFile, float | None]:
    """Return the checked features of a file, and its logit scale, None if it has none.

    Args:
        path: the file.
        usual_names: the array of ids or prompts has the first of these names that is there.
    """
    if not is_feature_file(path):
        raise DatasetError(f"{str(path)!r} should be a file of {', '.join(_READERS)}.")
    open_file(path).close()  # raises an error that names the file

    # Read the arrays and choose vectors, names and scale
    try:
        arrays, has_vector = _READERS[path.suffix.lower()](path, usual_names)
        vectors = arrays[_choose_vectors(arrays)]
        names = _choose_names(arrays, usual_names)
        scale = float(arrays["scale"]) if "scale" in arrays else None
    except ImportError:
        raise
    except Exception as error:  # each library has its own for damaged files
        reason = " ".join(str(error).split())[:200]
        if "pickle" in reason or "Python objects" in reason:
            reason = "it holds pickled objects, which may run code; store floats, and ids as text"
        raise DatasetError(
            f"{str(path)!r} cannot be read: {printable(reason)}."
        ) from error
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or not vectors.size:
        raise DatasetError(
            f"{str(path)!r} should hold floats of shape [rows, dim] "
            f"(got {vectors.dtype} {list(vectors.shape)})."
        )
    if has_vector is None:
        has_vector = np.ones(len(vectors), bool)

    # Separate the names of rows that have no vector
    texts = None if names is None else _check_names(path, names, len(has_vector))
    missing: list[str] = []
    if not has_vector.all():
        if texts is None:
            rows = [str(row) for row in np.flatnonzero(~has_vector)]
            raise DatasetError(
                f"{str(path)!r} has rows without a vector, {summarize_names(rows)}, counted from "
                "0, and no ids by which the others are known: give it ids, or leave such rows out."
            )
        missing = [texts[row] for row in np.flatnonzero(~has_vector)]
        texts = [texts[row] for row in np.flatnonzero(has_vector)]
    _check_directions(path, vectors, texts)
    return FeatureFile(path, Features(vectors), texts, missing), scale


def _choose_vectors(arrays: dict[str, Any]) -> str:
    """Return the name of the vectors: ``features``, or the only matrix of floats."""
    if isinstance(arrays.get("features"), np.ndarray):
        return "features"
    matrices = []
    for name, array in arrays.items():
        is_matrix = isinstance(array, np.ndarray) and array.ndim == 2
        if is_matrix and array.dtype.kind == "f":
            matrices.append(name)
    if len(matrices) != 1:
        raise ValueError(
            f"vectors should be an array 'features' or the only matrix of floats (got {matrices})"
        )
    return matrices[0]


def _choose_names(
    arrays: dict[str, Any], usual_names: Sequence[str]
) -> list[Any] | None:
    """Return the ids or prompts, None if there are none."""
    for usual_name in usual_names:
        if usual_name in arrays:
            names = list(arrays[usual_name])
            for row, name in enumerate(names):
                if isinstance(name, bytes):
                    names[row] = name.decode()
            return names
    return None


def _check_names(path: Path, names: Sequence[Any], n_rows: int) -> list[str]:
    """Return ids or prompts as text; raise if some are missing or repeat."""
    texts = []
    without_name = []
    for row, name in enumerate(names):
        if name is None or name != name:  # NaN
            without_name.append(str(row))
        texts.append(str(name))
    if without_name:
        raise DatasetError(
            f"{str(path)!r} has rows whose id is null: {summarize_names(without_name)}, counted "
            "from 0; give each an id, or leave the rows out."
        )
    if len(texts) != n_rows:
        raise DatasetError(f"{str(path)!r} has {n_rows} rows, but {len(texts)} ids.")
    repeated = [text for text, n in Counter(texts).items() if n > 1]
    if repeated:
        raise DatasetError(
            f"{str(path)!r} has ids that repeat: {summarize_names(repeated)}."
        )
    return texts


def _check_directions(
    path: Path, vectors: npt.NDArray[Any], names: Sequence[str] | None
) -> None:
    """Raise if some of the vectors ``[rows, dim]`` have no direction."""
    bad = []
    for start in range(0, len(vectors), _CHUNK_ROWS):
        chunk = vectors[start : start + _CHUNK_ROWS]
        is_good = np.isfinite(chunk).all(1) & chunk.any(1)
        for row in (start + np.flatnonzero(~is_good)).tolist():
            bad.append(str(row) if names is None else names[row])
    if bad:
        raise DatasetError(
            f"{str(path)!r} has vectors with NaN, infinity or only zeros: {summarize_names(bad)}."
        )


def _read_npy(path: Path, usual_names: Sequence[str]) -> _StoredArrays:
    return _StoredArrays({"features": np.load(path, mmap_mode="r", allow_pickle=False)})


def _read_npz(path: Path, usual_names: Sequence[str]) -> _StoredArrays:
    check_unpacked(zip_content_bytes(path), path.stat().st_size, _MAX_FEATURE_RATIO)
    with np.load(path, allow_pickle=False) as archive:
        return _StoredArrays(dict(archive))


def _read_safetensors(path: Path, usual_names: Sequence[str]) -> _StoredArrays:
    arrays: dict[str, Any] = {}
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118 - the file has no iterator
            tensor = file.get_tensor(name)
            if tensor.dtype is torch.bfloat16:  # which numpy does not have
                tensor = tensor.float()
            arrays[name] = tensor.numpy()
        metadata = file.metadata() or {}
    for name in (*usual_names, "scale"):
        if name in metadata:
            arrays[name] = json.loads(metadata[name])
    return _StoredArrays(arrays)


def _read_parquet(path: Path, usual_names: Sequence[str]) -> _StoredArrays:
    arrow = require("pyarrow", "tables")
    compute = require("pyarrow.compute", "tables")
    parquet = require("pyarrow.parquet", "tables")

    # Lists of floats may be vectors; of other columns only names are read
    vector_columns = []
    text_columns = []
    for field in parquet.read_schema(path):
        item_type = getattr(field.type, "value_type", None)  # of lists
        if item_type is not None and arrow.types.is_floating(item_type):
            vector_columns.append(field.name)
        elif field.name in usual_names:
            text_columns.append(field.name)

    # Equal vectors are stored once: count the numbers, of at least 4 bytes each in memory
    columns = [*vector_columns, *text_columns]
    chunks = column_chunks(parquet.read_metadata(path), columns)
    n_numbers = sum(chunk.num_values for chunk in chunks)
    check_unpacked(4 * n_numbers, path.stat().st_size, _MAX_FEATURE_RATIO)

    # Vectors become matrices, without the rows that are null
    table = parquet.read_table(path, columns=columns)
    arrays = {name: table.column(name).to_pylist() for name in text_columns}
    masks = {}
    for name in vector_columns:
        column = table.column(name)
        lengths = compute.unique(compute.list_value_length(column)).to_pylist()
        if len(set(lengths) - {None}) != 1:
            continue  # lists of different lengths are no vectors
        masks[name] = column.is_valid().to_numpy(zero_copy_only=False)
        numbers = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        arrays[name] = numbers.reshape(int(masks[name].sum()), -1)
    # If there are several matrices without that name, `_choose_vectors` raises
    has_vector = masks.get("features")
    if has_vector is None and len(masks) == 1:
        (has_vector,) = masks.values()
    return _StoredArrays(arrays, has_vector)


_READERS = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": _read_safetensors,
    ".parquet": _read_parquet,
}
