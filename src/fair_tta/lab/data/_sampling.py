"""A sample of a stream that has its share of every group, the same on every machine."""

from __future__ import annotations

import hashlib
import heapq
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import TypeVar

from fair_tta.errors import FairTTAError

T = TypeVar("T")


def choose(
    items: Iterable[T],
    limit: int | None,
    sample: int | None,
    seed: int,
    *,
    key: Callable[[T], str],
    group: Callable[[T], Hashable | None],
) -> Iterable[T]:
    """The first so many items, of these a sample (`sample_groups`); None for all.

    Raises:
        FairTTAError: a number is not positive.
    """
    check_counts(limit, sample)
    some = items if limit is None else islice(items, min(limit, sys.maxsize))
    return some if sample is None else sample_groups(some, sample, seed, key=key, group=group)


def check_counts(limit: int | None, sample: int | None) -> None:
    """Raise if a number is not positive."""
    for name, number in (("limit", limit), ("sample", sample)):
        if number is not None and number < 1:
            raise FairTTAError(f"`{name}` should be at least 1 (got {number!r}).")


def sample_groups(
    items: Iterable[T],
    size: int,
    seed: int,
    *,
    key: Callable[[T], str],
    group: Callable[[T], Hashable | None],
) -> list[T]:
    """So many items, of each group its share and at least one; in the order of the stream.

    Taken are the items whose digest of seed and key is smallest in their group. In memory are
    groups times size items, and those without a group.

    Args:
        items: the stream.
        size: how many to take; all if there are fewer. With more groups than that, one of each.
        seed: chooses which.
        key: the name of an item.
        group: what an item belongs to; None for one that is passed on and not counted.
    """
    counts: Counter[Hashable] = Counter()
    heaps: dict[Hashable, list[tuple[int, int, T]]] = {}
    others: list[tuple[int, T]] = []
    for place, item in enumerate(items):
        of = group(item)
        if of is None:
            others.append((place, item))
            continue
        counts[of] += 1
        heap = heaps.setdefault(of, [])
        entry = -seeded_order(seed, key(item)), place, item  # the largest digest is on top
        if len(heap) < size:
            heapq.heappush(heap, entry)
        elif entry[0] > heap[0][0]:
            heapq.heapreplace(heap, entry)
    shares = _shares(counts, size)
    chosen = [
        (place, item)
        for of, heap in heaps.items()
        for _, place, item in heapq.nlargest(shares[of], heap, key=lambda entry: entry[0])
    ]
    return [item for _, item in sorted([*chosen, *others], key=lambda pair: pair[0])]


def _shares(counts: Counter[Hashable], size: int) -> dict[Hashable, int]:
    """In proportion, by largest remainders, and at least one of each."""
    total = counts.total()
    if size >= total:
        return dict(counts)
    shares = {of: max(1, size * n // total) for of, n in counts.items()}
    for of in sorted(counts, key=lambda of: (-(size * counts[of] % total), repr(of))):
        if sum(shares.values()) >= size:
            break
        shares[of] += shares[of] < counts[of]
    while sum(shares.values()) > max(size, len(shares)):  # the largest give what the rarest got
        shares[max(shares, key=lambda of: (shares[of], repr(of)))] -= 1
    return shares


def seeded_order(seed: int, key: str) -> int:
    """A digest of both: the smallest are chosen."""
    text = f"{seed}\0{key}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
