"""Records, samples of them, and problems."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from internals import (
    Dataset,
    Problem,
    ProblemKind,
    Problems,
    Record,
    choose_sample,
    collect_records,
    printable,
)


def dataset_of(keys: list[str]) -> Dataset:
    records = []
    for key in keys:
        records.append(Record(Path(key), "y", {"s": "a"}, key))
    return Dataset("some", tuple(records), Problems(), {"split": "test"})


def sampled_keys(keys: list[str], size: int, seed: int) -> list[str]:
    return [record.key for record in dataset_of(keys).sample(size, seed)]


names = st.lists(st.text(min_size=1), min_size=1, max_size=30, unique=True)


@settings(max_examples=40, deadline=None)
@given(
    keys=names,
    size=st.integers(1, 40),
    seed=st.integers(0, 2**32),
    order=st.randoms(),
)
def test_a_sample_depends_on_seed_and_keys_only(
    keys: list[str], size: int, seed: int, order: random.Random
) -> None:
    sample = sampled_keys(keys, size, seed)
    assert len(sample) == min(size, len(keys))
    assert len(set(sample)) == len(sample)
    assert set(sample) <= set(keys)
    shuffled = order.sample(keys, len(keys))
    assert sampled_keys(shuffled, size, seed) == sample
    # A smaller sample is the beginning of a larger one
    assert sampled_keys(keys, 1, seed) == sample[:1]
    # Another image takes at most one place and changes nothing else
    with_another = sampled_keys([*keys, "another"], size, seed)
    kept = [key for key in with_another if key != "another"]
    assert kept == sample[: len(kept)] or "another" in keys
    assert len(kept) >= len(sample) - 1


def test_a_sample_is_by_digest() -> None:
    keys = [f"{i:06}.jpg" for i in range(50)]
    digests = {}
    for key in keys:
        digest = hashlib.blake2b(f"7\0{key}".encode(), digest_size=16)
        digests[key] = digest.hexdigest()
    expected = sorted(keys, key=lambda key: digests[key])
    assert sampled_keys(keys, 20, seed=7) == expected[:20]


def test_samples_are_recorded() -> None:
    data = dataset_of([f"{i}" for i in range(5)])
    sample = data.sample(3, seed=4)
    assert sample.parameters == {"split": "test", "sample": 3, "seed": 4}
    assert not sample.problems
    assert data.sample().problems.examples == {
        ProblemKind.SMALL: ("5 instead of 1000",)
    }
    assert data.sample().parameters["sample"] == 1000
    assert data.sample(5, 1).records != data.sample(5, 2).records


all_problems = st.builds(Problem, st.sampled_from(ProblemKind), st.text(max_size=5))


@settings(max_examples=50, deadline=None)
@given(problems=st.lists(all_problems, max_size=30))
def test_summaries_count_everything(problems: list[Problem]) -> None:
    records, summary = collect_records(problems)
    assert records == ()
    for cause in ProblemKind:
        details = [problem.detail for problem in problems if problem.kind is cause]
        assert summary.counts.get(cause, 0) == len(details)
        expected = tuple(map(printable, details[:20]))
        assert summary.examples.get(cause, ()) == expected
    assert summary.lost == sum(not problem.kind.is_note for problem in problems)
    assert bool(summary) == bool(problems)
    document = summary.to_dict()
    assert json.loads(json.dumps(document)) == document


def test_the_headline_and_lines_of_problems() -> None:
    missing = [Problem(ProblemKind.MISSING_IMAGE, f"{i}.png") for i in range(30)]
    _, problems = collect_records(missing)
    assert problems.headline() == "30 rows were left out"
    assert problems.lines() == ["30 x image file is missing: 0.png; 1.png; 2.png; ..."]
    notes = [Problem(ProblemKind.DUPLICATE, "x"), Problem(ProblemKind.ENCODING, "y")]
    _, problems = collect_records([*missing, *notes])
    assert (problems.rows, problems.lost) == (31, 30)
    assert problems.headline() == (
        "31 rows were left out, 1 of them because the image is counted already"
    )


def test_repeated_and_contradicting_rows() -> None:
    first = Record(Path("a"), "y", {"s": "1"}, "a")
    second = Record(Path("b"), "y", {"s": "1"}, "b")
    records, problems = collect_records([first, second, first, first])
    assert records == (first, second)
    assert problems.counts == {ProblemKind.DUPLICATE: 2}
    other_target = Record(Path("a"), "z", {"s": "1"}, "a")
    other_value = Record(Path("a"), "y", {"s": "2"}, "a")
    for contradicting in (other_target, other_value):
        records, problems = collect_records([first, second, contradicting, first])
        assert records == (second,)
        assert problems.examples == {ProblemKind.CONFLICT: ("a", "a", "a")}


# Items of a stream are (group, key)
Item = tuple[str, str]
streams = st.lists(st.sampled_from("aaaaabbc"), max_size=60).map(
    lambda groups: [(group, f"{i}.jpg") for i, group in enumerate(groups)]
)


# Rare groups get more than their share, which the largest gives back
WITH_RARE_GROUPS = [(group, f"{i}") for i, group in enumerate("a" * 58 + "bc")]


def group_of(item: Item) -> str | None:
    return item[0] or None


def choose(items: list[Item], size: int, seed: int = 0) -> list[Item]:
    chosen = choose_sample(
        items, None, size, seed, key=lambda item: item[1], group=group_of
    )
    return list(chosen)


@settings(deadline=None)
@given(streams, st.integers(1, 70), st.integers(0, 3))
@example(WITH_RARE_GROUPS, 4, 0)
def test_each_group_has_its_share(items: list[Item], size: int, seed: int) -> None:
    chosen = choose(items, size, seed)
    counts = Counter(map(group_of, items))
    chosen_counts = Counter(map(group_of, chosen))
    at_least_one_each = max(size, len(counts))
    assert len(chosen) == min(len(items), at_least_one_each)
    assert chosen == sorted(set(chosen), key=items.index)
    assert set(chosen_counts) == set(counts)
    for group, n in counts.items():
        exact = min(1.0, size / max(1, len(items))) * n
        assert chosen_counts[group] <= max(1, exact + 1)
        # Rare groups may take from the others
        assert chosen_counts[group] >= min(n, exact - len(counts))


@given(streams, st.integers(1, 20))
def test_the_order_of_the_stream_does_not_choose(items: list[Item], size: int) -> None:
    shuffled = random.Random(0).sample(items, len(items))
    assert set(choose(shuffled, size)) == set(choose(items, size))


def test_seeds_choose() -> None:
    items = [("a", f"{i}.jpg") for i in range(100)]
    first = choose(items, 10, seed=0)
    assert choose(items, 10, seed=0) == first
    assert choose(items, 10, seed=1) != first


def test_items_without_a_group_are_passed_on() -> None:
    groups = ["", "a", "a", "", "b"]
    chosen = choose([(group, str(i)) for i, group in enumerate(groups)], 2)
    assert [group for group, _ in chosen] in (["", "a", "", "b"], ["", "", "a", "b"])


def test_a_limit_of_any_size() -> None:
    chosen = choose_sample("ab", 10**30, None, 0, key=str, group=str)
    assert list(chosen) == ["a", "b"]
