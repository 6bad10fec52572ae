"""Samples: of each group its share, the same on every machine, in the order of the stream."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import example, given, settings
from hypothesis import strategies as st
from internals import choose_sample

Item = tuple[str, str]
streams = st.lists(st.sampled_from("aaaaabbc"), max_size=60).map(
    lambda groups: [(group, f"{i}.jpg") for i, group in enumerate(groups)]
)


def sample(items: list[Item], size: int, seed: int = 0) -> list[Item]:
    return [
        *choose_sample(
            items, None, size, seed, key=lambda i: i[1], group=lambda i: i[0]
        )
    ]


@settings(deadline=None)
@given(streams, st.integers(1, 70), st.integers(0, 3))
@example([(group, f"{i}") for i, group in enumerate("a" * 16 + "bbbcc")], 10, 0)
def test_shares(items: list[Item], size: int, seed: int) -> None:
    found = sample(items, size, seed)
    counts, taken = (Counter(group for group, _ in some) for some in (items, found))
    assert len(found) == min(len(items), max(size, len(counts)))
    assert found == sorted(found, key=items.index)
    assert len(set(found)) == len(found)
    assert set(taken) == set(counts)
    for group, n in counts.items():
        exact = min(1.0, size / max(1, len(items))) * n
        assert taken[group] <= max(1, exact + 1)
        # the rarest may take from the others
        assert taken[group] >= min(n, exact - len(counts))


def test_a_limit_of_any_size() -> None:
    assert list(choose_sample("ab", 10**30, None, 0, key=str, group=str)) == ["a", "b"]


@given(streams, st.integers(1, 20))
def test_the_order_of_the_stream_does_not_choose(items: list[Item], size: int) -> None:
    mixed = random.Random(0).sample(items, len(items))
    assert set(sample(mixed, size)) == set(sample(items, size))


def test_seeds_choose() -> None:
    items = [("a", f"{i}.jpg") for i in range(100)]
    assert sample(items, 10, 0) == sample(items, 10, 0) != sample(items, 10, 1)


def test_what_has_no_group_is_passed_on() -> None:
    items = ["x", "a1", "a2", "y", "b1"]
    group = lambda item: item[0] if len(item) > 1 else None  # noqa: E731
    found = [*choose_sample(items, None, 2, 0, key=str, group=group)]
    assert [i for i in found if len(i) == 1] == ["x", "y"]
    assert {i[0] for i in found if len(i) > 1} == {"a", "b"}
