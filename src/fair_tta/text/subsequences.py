"""Sequences of token ids: what two of them have in common, and one that holds both."""

from __future__ import annotations

from collections.abc import Sequence


def count_common(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common beginning."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


def match(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """A longest common subsequence: for each of `a` the index of its partner in `b`, or -1."""
    length = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in reversed(range(len(a))):
        for j in reversed(range(len(b))):
            length[i][j] = (
                length[i + 1][j + 1] + 1
                if a[i] == b[j]
                else max(length[i + 1][j], length[i][j + 1])
            )
    partner = [-1] * len(a)
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            partner[i] = j
            i, j = i + 1, j + 1
        elif length[i + 1][j] >= length[i][j + 1]:
            i += 1
        else:
            j += 1
    return partner


def merge(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """A shortest sequence that contains both `a` and `b` in order."""
    merged: list[int] = []
    done = 0
    for i, partner in enumerate(match(a, b)):
        if partner >= 0:
            merged += b[done:partner]
            done = partner + 1
        merged.append(a[i])
    return [*merged, *b[done:]]
