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
import torch
from safetensors import safe_open

from fair_tta._io import open_file, printable
from fair_tta.datasets._image_paths import spellings, summarize_names
from fair_tta.datasets._label_files import check_unpacked, unpacked_size
from fair_tta.datasets._path_columns import ID_COLUMNS
from fair_tta.errors import DatasetError, require
from fair_tta.images._stored import Features, ImageSource

_PROMPTS = ("prompts", "prompt", "texts", "text")
_AT_ONCE = 8192  # rows that are checked together
_FEATURE_TIMES = (
    20  # by which files of features are packed: those of a model are some 1 to 3
)
_HAS_VECTOR = " rows that have a vector"  # beside the arrays of parquet


@dataclass(frozen=True, eq=False)
class FeatureFile:
    """Features of images.

    Attributes:
        path: the file.
        features: its rows, memory-mapped where the format allows it.
        ids: of the rows; None if it has none, and then they are known by their numbers from 0 on.
        missing: ids of rows that have no vector, which are not among `ids`.
    """

    path: Path
    features: Features
    ids: Sequence[str] | None = None
    missing: Sequence[str] = ()

    def find_id(self, name: str) -> str | None:
        """The id that is meant: as written, or with other slashes and accents; None if none is.

        It may be `missing`.
        """
        known = (
            form
            for form in spellings(name)
            if form in self.row_of_id or form in self._missing
        )
        return next(known, None)

    def source(self, name: str) -> ImageSource:
        """The features of an id, for the runner."""
        return ImageSource(name, self.features[self.row_of_id[name]])

    @cached_property
    def _missing(self) -> frozenset[str]:
        """Ids without a vector."""
        return frozenset(self.missing)

    @cached_property
    def row_of_id(self) -> dict[str, int]:
        """The row of each id."""
        names = map(str, range(len(self.features))) if self.ids is None else self.ids
        return {name: place for place, name in enumerate(names)}


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
    held = _read(Path(path), ID_COLUMNS if id_column is None else (id_column,))
    if id_column is not None and held.names is None:
        raise DatasetError(f"{str(path)!r} has no ids called {id_column!r}.")
    return FeatureFile(Path(path), Features(held.array), held.names, held.missing)


def read_text_features(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], float | None]:
    """``{prompt: vector}`` of such a file, and its logit scale, None if it has none.

    ``prompts`` stand in place of ids; ``scale`` is an array of one number, or in the metadata.
    """
    held = _read(Path(path), _PROMPTS)
    if held.names is None:
        raise DatasetError(
            f"{str(path)!r} has no prompts: call them 'prompts', beside 'features'."
        )
    if held.missing:
        raise DatasetError(
            f"{str(path)!r} has prompts without a vector: {held.missing}."
        )
    return dict(zip(held.names, held.array, strict=True)), held.scale


def is_feature_file(path: str | os.PathLike[str]) -> bool:
    """By its name."""
    return Path(path).suffix.lower() in _READERS


class _Held(NamedTuple):
    """What a file of features holds: vectors with their names, names without one, and the scale."""

    array: Any
    names: list[str] | None
    missing: list[str]
    scale: float | None


def _read(path: Path, names: Sequence[str]) -> _Held:
    """Return what a file holds, checked."""
    if not is_feature_file(path):
        raise DatasetError(f"{str(path)!r} should be a file of {', '.join(_READERS)}.")
    open_file(path).close()  # or an error that names it
    try:
        held = _READERS[path.suffix.lower()](path, names)
        vectors = [
            n for n, of in held.items() if isinstance(of, np.ndarray) and of.ndim == 2
        ]
        vectors = [n for n in vectors if n == "features" or held[n].dtype.kind == "f"]
        if "features" not in held and len(vectors) != 1:
            raise ValueError(
                f"one array 'features' should hold its vectors; found {vectors}"
            )
        array = held["features" if "features" in held else vectors[0]]
        ids = next((held[name] for name in names if name in held), None)
        texts = (
            None
            if ids is None
            else [i.decode() if isinstance(i, bytes) else i for i in ids]
        )
        has_vector = held.get(_HAS_VECTOR)
        scale = float(held["scale"]) if "scale" in held else None
    except ImportError:
        raise
    except Exception as error:  # each library has its own for damaged files
        reason = " ".join(str(error).split())[:200]
        if "pickle" in reason or "Python objects" in reason:
            reason = "it holds pickled objects, which may run code; store floats, and ids as text"
        raise DatasetError(
            f"{str(path)!r} cannot be read: {printable(reason)}."
        ) from error
    if array.ndim != 2 or array.dtype.kind != "f" or not array.size:
        got = f"{array.dtype} {list(array.shape)}"
        raise DatasetError(
            f"{str(path)!r} should hold floats of shape [rows, dim] (got {got})."
        )
    rows = len(array) if has_vector is None else len(has_vector)
    nameless = [
        place for place, name in enumerate(texts or ()) if name is None or name != name
    ]
    if nameless:
        raise DatasetError(
            f"{str(path)!r} has rows whose id is null: {summarize_names([*map(str, nameless)])}, "
            "counted from 0; give each an id, or leave the rows out."
        )
    found = None if texts is None else [*map(str, texts)]
    if found is not None and len(found) != rows:
        raise DatasetError(f"{str(path)!r} has {len(found)} ids for {rows} vectors.")
    missing: list[str] = []
    if has_vector is not None and not has_vector.all():
        places = [str(place) for place in np.flatnonzero(~has_vector)]
        if found is None:
            raise DatasetError(
                f"{str(path)!r} has rows without a vector, {summarize_names(places)}, counted "
                "from 0, and no ids by which the others are known: give it ids, or leave such "
                "rows out."
            )
        missing = [
            name
            for name, is_there in zip(found, has_vector, strict=True)
            if not is_there
        ]
        found = [
            name for name, is_there in zip(found, has_vector, strict=True) if is_there
        ]
    twice = [name for name, n in Counter([*(found or ()), *missing]).items() if n > 1]
    parts = (array[i : i + _AT_ONCE] for i in range(0, len(array), _AT_ONCE))
    good = np.concatenate([np.isfinite(part).all(1) & part.any(1) for part in parts])
    bad = [str(i) if found is None else found[i] for i in np.flatnonzero(~good)]
    for what, some in (
        ("ids that repeat", twice),
        ("vectors with NaN, infinity or only zeros", bad),
    ):
        if some:
            raise DatasetError(f"{str(path)!r} has {what}: {summarize_names(some)}.")
    return _Held(array, found, missing, scale)


def _npy(path: Path, names: Sequence[str]) -> dict[str, Any]:
    return {"features": np.load(path, mmap_mode="r", allow_pickle=False)}


def _npz(path: Path, names: Sequence[str]) -> dict[str, Any]:
    check_unpacked(unpacked_size(path), path.stat().st_size, _FEATURE_TIMES)
    with np.load(path, allow_pickle=False) as held:
        return dict(held)


def _safetensors(path: Path, names: Sequence[str]) -> dict[str, Any]:
    with safe_open(path, "pt") as file:
        about = file.metadata() or {}
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    half = {
        name: of.float() if of.dtype is torch.bfloat16 else of
        for name, of in held.items()
    }
    texts = {
        name: json.loads(about[name]) for name in (*names, "scale") if name in about
    }
    return {name: of.numpy() for name, of in half.items()} | texts


def _parquet(path: Path, names: Sequence[str]) -> dict[str, Any]:
    arrow, compute = require("pyarrow", "tables"), require("pyarrow.compute", "tables")
    parquet = require("pyarrow.parquet", "tables")

    def is_vector(kind: Any) -> bool:
        return hasattr(kind, "value_type") and bool(
            arrow.types.is_floating(kind.value_type)
        )

    some = [
        f.name
        for f in parquet.read_schema(path)
        if f.name in names or is_vector(f.type)
    ]
    numbers = _parquet_numbers(parquet.read_metadata(path), some)
    check_unpacked(4 * numbers, path.stat().st_size, _FEATURE_TIMES)
    table = parquet.read_table(path, columns=some)
    held: dict[str, Any] = {}
    masks: dict[str, Any] = {}
    for name, column in zip(some, table.itercolumns(), strict=True):
        if not is_vector(column.type):
            held[name] = column.to_pylist()
        elif (
            len(
                set(compute.unique(compute.list_value_length(column)).to_pylist())
                | {None}
            )
            == 2
        ):
            # rows without a vector have no numbers here: the others keep theirs by this mask
            has_vector = column.is_valid().to_numpy(zero_copy_only=False)
            flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
            held[name] = flat.reshape(int(has_vector.sum()), -1)
            masks[name] = has_vector
    vectors = [name for name in masks if name == "features"] or [*masks]
    if len(vectors) == 1:  # otherwise it is an error which is meant
        held[_HAS_VECTOR] = masks[vectors[0]]
    return held


def _parquet_numbers(metadata: Any, names: Sequence[str]) -> int:
    """Return how many numbers and texts some columns hold, however small they are written."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    columns = [group.column(j) for group in groups for j in range(metadata.num_columns)]
    return sum(
        c.num_values for c in columns if c.path_in_schema.partition(".")[0] in names
    )


_READERS = {
    ".npy": _npy,
    ".npz": _npz,
    ".safetensors": _safetensors,
    ".parquet": _parquet,
}
