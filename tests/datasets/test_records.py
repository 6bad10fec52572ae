"""Samples and summaries."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from internals import (
    Dataset,
    Problem,
    ProblemKind,
    Problems,
    Record,
    collect_records,
    printable,
)

from fair_tta.errors import DatasetError


def dataset(keys: list[str]) -> Dataset:
    records = tuple(Record(Path(key), "y", {"s": "a"}, key) for key in keys)
    return Dataset("some", records, Problems(), {"split": "test"})


def keys_of(data: Dataset) -> list[str]:
    return [record.key for record in data]


names = st.lists(st.text(min_size=1), min_size=1, max_size=30, unique=True)


@settings(max_examples=40, deadline=None)
@given(keys=names, k=st.integers(1, 40), seed=st.integers(0, 2**32), order=st.randoms())
def test_a_sample_depends_on_seed_and_keys_only(
    keys: list[str], k: int, seed: int, order: random.Random
) -> None:
    sample = keys_of(dataset(keys).sample(k, seed))
    assert len(sample) == min(k, len(keys)) == len(set(sample))
    assert set(sample) <= set(keys)
    shuffled = order.sample(keys, len(keys))
    assert keys_of(dataset(shuffled).sample(k, seed)) == sample
    # a smaller sample is the beginning of a larger one
    assert keys_of(dataset(keys).sample(1, seed)) == sample[:1]
    # an image that is missing costs one place and changes nothing else
    rest = keys_of(dataset([*keys, "new"]).sample(k, seed))
    assert [key for key in rest if key != "new"] == sample[
        : len(rest) - ("new" in rest)
    ] or ("new" in keys)


def test_a_sample_is_by_digest() -> None:
    keys = [f"{i:06}.jpg" for i in range(50)]
    by_hand = sorted(
        keys,
        key=lambda key: hashlib.blake2b(
            f"7\0{key}".encode(), digest_size=16
        ).hexdigest(),
    )
    assert keys_of(dataset(keys).sample(20, seed=7)) == by_hand[:20]


def test_samples_are_uniform() -> None:
    keys = [f"{i:06}.jpg" for i in range(20)]
    runs = 2000
    counts = np.zeros(20)
    pairs = 0
    for seed in range(runs):
        chosen = keys_of(dataset(keys).sample(5, seed))
        counts[[keys.index(key) for key in chosen]] += 1
        pairs += keys[0] in chosen and keys[1] in chosen
    # each image with probability 1/4, each pair with 5 * 4 / (20 * 19); five standard deviations
    assert np.abs(counts / runs - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / runs)
    both = 20 / 380
    assert abs(pairs / runs - both) < 5 * np.sqrt(both * (1 - both) / runs)


def test_samples_are_recorded() -> None:
    data = dataset([f"{i}" for i in range(5)])
    sample = data.sample(3, seed=4)
    assert sample.parameters == {"split": "test", "sample": 3, "seed": 4}
    assert not sample.problems
    assert data.sample().problems.to_dict() == {
        ProblemKind.SMALL.value: {"count": 1, "examples": ["5 instead of 1000"]}
    }
    assert data.sample().parameters["sample"] == 1000
    assert data.sample(5, 1).records != data.sample(5, 2).records
    for k in (0, -1):
        with pytest.raises(
            DatasetError, match=rf"`k` should be an integer >= 1 \(got {k}\)\."
        ):
            data.sample(k)


def test_datasets_can_be_pickled_and_do_not_change() -> None:
    data = dataset(["a", "b"])
    assert pickle.loads(pickle.dumps(data)) == data
    with pytest.raises(AttributeError):
        data.records[0].target = "z"  # type: ignore[misc]


kinds = st.sampled_from(ProblemKind)


@settings(max_examples=50, deadline=None)
@given(problems=st.lists(st.builds(Problem, kinds, st.text(max_size=5)), max_size=30))
def test_summaries_count_everything(problems: list[Problem]) -> None:
    records, summary = collect_records(problems)
    assert records == ()
    for kind in ProblemKind:
        same = [p.detail for p in problems if p.kind is kind]
        assert summary.counts.get(kind, 0) == len(same)
        assert summary.examples.get(kind, ()) == tuple(map(printable, same[:20]))
    assert summary.lost == sum(not p.kind.is_note for p in problems)
    assert bool(summary) == bool(problems)
    assert json.loads(json.dumps(summary.to_dict())) == summary.to_dict()


def test_twins_and_conflicts() -> None:
    a = Record(Path("a"), "y", {"s": "1"}, "a")
    other = Record(Path("a"), "z", {"s": "1"}, "a")
    third = Record(Path("a"), "y", {"s": "2"}, "a")
    b = Record(Path("b"), "y", {"s": "1"}, "b")
    assert collect_records([a, b, a, a])[0] == (a, b)
    assert collect_records([a, b, a, a])[1].counts == {ProblemKind.DUPLICATE: 2}
    for odd in (other, third):
        records, problems = collect_records([a, b, odd, a])
        assert records == (b,)
        assert problems.counts == {ProblemKind.CONFLICT: 3}
        assert problems.examples == {ProblemKind.CONFLICT: ("a", "a", "a")}
