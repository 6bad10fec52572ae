"""Files of stored features: vectors of images by id, and vectors of prompts."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from fair_tta._io import open_file, printable
from fair_tta.datasets._label_files import first_three, spellings
from fair_tta.datasets._labels import PATH_COLUMNS
from fair_tta.errors import DatasetError, require
from fair_tta.images._stored import Features, ImageSource

ID_COLUMNS = ("id", "ids", *PATH_COLUMNS, "paths", "files", "filenames", "name", "names")
"""Where ids are looked for, if no name is given."""

_PROMPTS = ("prompts", "prompt", "texts", "text")
_AT_ONCE = 8192  # rows that are checked together


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """Features of images.

    Attributes:
        path: the file.
        features: its rows, memory-mapped where the format allows it.
        ids: of the rows; None if it has none, and then they are known by their numbers from 0 on.
    """

    path: Path
    features: Features
    ids: Sequence[str] | None = None

    def find(self, name: str) -> str | None:
        """The id that is meant: as written, or with other slashes and accents; None if none is."""
        return next((form for form in spellings(name) if form in self.places), None)

    def source(self, name: str) -> ImageSource:
        """The features of an id, for the runner."""
        return ImageSource(name, self.features[self.places[name]])

    @cached_property
    def places(self) -> dict[str, int]:
        """The row of each id."""
        names = map(str, range(len(self.features))) if self.ids is None else self.ids
        return {name: place for place, name in enumerate(names)}


def read_features(path: str | os.PathLike[str], *, id_column: str | None = None) -> FeatureFile:
    """Read features of images from a ``.npy``, ``.npz``, ``.safetensors`` or ``.parquet`` file.

    Vectors are the array, tensor or column ``features``, or the only one that holds rows of floats.
    Ids are an array, a JSON list in the metadata (``.safetensors``), or a column.

    Args:
        path: the file.
        id_column: the name of the ids; by a list of usual names if None.

    Raises:
        DatasetError: the file cannot be read, a row has no direction, or ids repeat or are missing.
    """
    array, ids, _ = _read(Path(path), ID_COLUMNS if id_column is None else (id_column,))
    if id_column is not None and ids is None:
        raise DatasetError(f"{str(path)!r} has no ids called {id_column!r}.")
    return FeatureFile(Path(path), Features(array), ids)


def read_text_features(path: str | os.PathLike[str]) -> tuple[dict[str, Any], float | None]:
    """``{prompt: vector}`` of such a file, and its logit scale, None if it has none.

    ``prompts`` stand in place of ids; ``scale`` is an array of one number, or in the metadata.
    """
    array, prompts, scale = _read(Path(path), _PROMPTS)
    if prompts is None:
        raise DatasetError(f"{str(path)!r} has no prompts: call them 'prompts', beside 'features'.")
    return dict(zip(prompts, array, strict=True)), scale


def is_feature_file(path: str | os.PathLike[str]) -> bool:
    """By its name."""
    return Path(path).suffix.lower() in _READERS


def _read(path: Path, names: Sequence[str]) -> tuple[Any, list[str] | None, float | None]:
    """Vectors, their names and the scale, checked."""
    if not is_feature_file(path):
        raise DatasetError(f"{str(path)!r} should be a file of {', '.join(_READERS)}.")
    open_file(path).close()  # or an error that names it
    try:
        held = _READERS[path.suffix.lower()](path, names)
        vectors = [n for n, of in held.items() if isinstance(of, np.ndarray) and of.ndim == 2]
        vectors = [n for n in vectors if n == "features" or held[n].dtype.kind == "f"]
        if "features" not in held and len(vectors) != 1:
            raise ValueError(f"one array 'features' should hold its vectors; found {vectors}")
        array = held["features" if "features" in held else vectors[0]]
        ids = next((held[name] for name in names if name in held), None)
        texts = None if ids is None else [i.decode() if isinstance(i, bytes) else i for i in ids]
        scale = float(held["scale"]) if "scale" in held else None
    except ImportError:
        raise
    except Exception as error:  # each library has its own for damaged files
        reason = " ".join(str(error).split())[:200]
        if "pickle" in reason or "Python objects" in reason:
            reason = "it holds pickled objects, which may run code; store floats, and ids as text"
        raise DatasetError(f"{str(path)!r} cannot be read: {printable(reason)}.") from error
    if array.ndim != 2 or array.dtype.kind != "f" or not array.size:
        got = f"{array.dtype} {list(array.shape)}"
        raise DatasetError(f"{str(path)!r} should hold floats of shape [rows, dim] (got {got}).")
    found = None if texts is None else [*map(str, texts)]
    if found is not None and len(found) != len(array):
        raise DatasetError(f"{str(path)!r} has {len(found)} ids for {len(array)} vectors.")
    twice = [name for name, n in Counter(found).items() if n > 1]
    parts = (array[i : i + _AT_ONCE] for i in range(0, len(array), _AT_ONCE))
    good = np.concatenate([np.isfinite(part).all(1) & part.any(1) for part in parts])
    bad = [str(i) if found is None else found[i] for i in np.flatnonzero(~good)]
    for what, some in ("ids that repeat", twice), ("vectors with NaN, infinity or only zeros", bad):
        if some:
            raise DatasetError(f"{str(path)!r} has {what}: {first_three(some)}.")
    return array, found, scale


def _npy(path: Path, names: Sequence[str]) -> dict[str, Any]:
    return {"features": np.load(path, mmap_mode="r", allow_pickle=False)}


def _npz(path: Path, names: Sequence[str]) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as held:
        return dict(held)


def _safetensors(path: Path, names: Sequence[str]) -> dict[str, Any]:
    with safe_open(path, "pt") as file:
        about = file.metadata() or {}
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    half = {name: of.float() if of.dtype is torch.bfloat16 else of for name, of in held.items()}
    texts = {name: json.loads(about[name]) for name in (*names, "scale") if name in about}
    return {name: of.numpy() for name, of in half.items()} | texts


def _parquet(path: Path, names: Sequence[str]) -> dict[str, Any]:
    arrow, compute = require("pyarrow", "tables"), require("pyarrow.compute", "tables")
    parquet = require("pyarrow.parquet", "tables")

    def is_vector(kind: Any) -> bool:
        return hasattr(kind, "value_type") and bool(arrow.types.is_floating(kind.value_type))

    some = [f.name for f in parquet.read_schema(path) if f.name in names or is_vector(f.type)]
    table = parquet.read_table(path, columns=some)
    held = {}
    for name, column in zip(some, table.itercolumns(), strict=True):
        if not is_vector(column.type):
            held[name] = column.to_pylist()
        elif len(set(compute.unique(compute.list_value_length(column)).to_pylist()) | {None}) == 2:
            flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
            held[name] = flat.reshape(len(table), -1)
    return held


_READERS = {".npy": _npy, ".npz": _npz, ".safetensors": _safetensors, ".parquet": _parquet}
