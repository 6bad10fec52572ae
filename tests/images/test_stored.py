"""Features that the user has already: read when they are used, checked, never guessed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from internals import ROWS_PER_CHUNK, image_digest, stack_features

from fair_tta import FairTTAError, Features
from fair_tta.errors import FeatureMismatchWarning

DIM = 8


def rows(n: int, seed: int = 0, dim: int = DIM) -> Any:
    return np.random.default_rng(seed).standard_normal((n, dim))


def of_length_one(array: Any) -> Any:
    return array / np.linalg.norm(array, axis=1, keepdims=True)


KINDS: dict[str, Callable[[Any], Any]] = {
    "float16": lambda a: a.astype(np.float16),
    "float64": lambda a: a,
    "big-endian": lambda a: a.astype(">f4"),
    "columns first": np.asfortranarray,
    "backwards": lambda a: a[::-1][::-1],
    "torch": torch.tensor,
    "bfloat16": lambda a: torch.tensor(a).bfloat16(),
    "with gradient": lambda a: torch.tensor(a).requires_grad_(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_become_unit_features(kind: str) -> None:
    array = 7 * rows(5)
    features = Features(KINDS[kind](array))
    unit = features._unit(torch.zeros(1, DIM))
    assert unit.shape == (5, 1, DIM)
    assert unit.dtype == torch.float32
    assert not unit.requires_grad
    coarse = 0.02 if kind == "bfloat16" else 0.002
    np.testing.assert_allclose(unit[:, 0].numpy(), of_length_one(array), atol=coarse)
    stacked = stack_features(list(features), torch.zeros(1, DIM))
    torch.testing.assert_close(stacked, unit)


@given(st.floats(-30, 30))
def test_any_length_will_do(power: float) -> None:
    array = rows(3) * 10.0**power
    unit = Features(array)._unit(torch.zeros(1, DIM))[:, 0].numpy()
    np.testing.assert_allclose(unit, of_length_one(rows(3)), atol=1e-5)


def test_a_memory_mapped_array_is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", rows(20).astype(np.float16))
    array = np.load(tmp_path / "v.npy", mmap_mode="r")
    features = Features(array)
    assert features.array is array
    assert np.shares_memory(features[3:9].array, array)
    assert not np.shares_memory(features._unit(torch.zeros(1, DIM)).numpy(), array)
    before = torch.tensor(rows(4)).float()
    unit = Features(before)._unit(torch.zeros(1, DIM))
    unit.zero_()
    assert before.any(), "the user's own numbers stay"


def test_a_sequence_of_rows() -> None:
    features = Features(rows(10))
    assert len(features) == len(list(features)) == 10
    assert features.dim == DIM
    assert repr(features) == "Features([10, 8] of float64)"
    part = features[2:9:3]
    assert isinstance(part, Features)
    assert [row.row for row in part] == [2, 5, 8]
    assert features[-1].row == 9
    with pytest.raises(IndexError):
        features[10]
    chunks = [
        len(chunk) for chunk in Features(rows(2 * ROWS_PER_CHUNK + 1, dim=1))._chunks()
    ]
    assert chunks == [ROWS_PER_CHUNK, ROWS_PER_CHUNK, 1]


def test_content_decides_the_digest() -> None:
    array = rows(3).astype(np.float16)
    equal_arrays = [
        Features(array),
        Features(torch.tensor(array)),
        Features(array.astype(np.float64)),
    ]
    assert len({image_digest(features[1]) for features in equal_arrays}) == 1
    assert len({image_digest(row) for row in equal_arrays[0]}) == 3


def test_rows_are_checked_when_they_are_used() -> None:
    array = rows(3 * ROWS_PER_CHUNK, dim=2)
    array[ROWS_PER_CHUNK + 5, 0] = np.nan
    array[ROWS_PER_CHUNK + 7] = np.inf
    array[2 * ROWS_PER_CHUNK + 1 :] = 0
    _, second, third = Features(array)._chunks()
    chunk = ROWS_PER_CHUNK
    wrong_rows = {
        "NaN or infinite": (second, f"row {chunk + 5}, {chunk + 7}."),
        "zero": (third, f"row {2 * chunk + 1}, {2 * chunk + 2}, "),
    }
    for reason, (features, listed) in wrong_rows.items():
        with pytest.raises(FairTTAError, match=f"not be {reason}: see {listed}"):
            features._unit(torch.zeros(1, 2))


def warns(features: Features, texts: Any) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        features._warn_if_other_model(torch.tensor(texts).float())
    assert all(warning.category is FeatureMismatchWarning for warning in caught)
    return bool(caught)


def pair(seed: int, cone: float, dim: int = 128) -> tuple[Any, Any]:
    """Images that vary along the differences of four prompts; both share a cone, if there is one.

    With `cone` 0 cosines are small and have both signs, as those of SigLIP.
    """
    generator = np.random.default_rng(seed)
    common, noise = (
        generator.standard_normal(dim),
        generator.standard_normal((400, dim)),
    )
    prompts = generator.standard_normal((4, dim))
    images = cone * common + noise + 0.4 * prompts[generator.integers(0, 4, 400)]
    return of_length_one(images), of_length_one(cone * common + prompts)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cone", [0.0, 1.0])
def test_features_of_another_model_are_noticed(seed: int, cone: float) -> None:
    images, texts = pair(seed, cone)
    assert not warns(Features(images), texts)
    rotation, _ = np.linalg.qr(rows(128, seed, 128))
    assert warns(Features(images @ rotation), texts)
    assert warns(Features(rows(400, seed, 128)), texts)


def test_once_and_not_for_a_few() -> None:
    _, texts = pair(0, 1.0)
    foreign = Features(rows(400, 9, 128))
    assert warns(foreign, texts)
    assert not warns(foreign, texts)
    assert not warns(foreign[:100], texts)
    assert not warns(Features(rows(29, 9, 128)), texts)
