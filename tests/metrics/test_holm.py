"""Holm's procedure against its textbook form on sorted p-values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from internals import step_down


def rejected(p_values: list[float], error: float) -> set[int]:
    """Step by step from the smallest p-value on, until the first that is too large."""
    found = set()
    for k, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[i] > error / (len(p_values) - k):
            break
        found.add(i)
    return found


def holm(p_values: list[float], error: float) -> list[float]:
    """The error at which each is judged."""
    found = step_down(
        len(p_values),
        lambda left: error / len(left),
        lambda i, share: (share, p_values[i] <= share),
        lambda one: one[1],
    )
    return [share for share, _ in found]


@given(st.lists(st.floats(0, 0.2), max_size=9), st.sampled_from([0.01, 0.05, 0.2]))
def test_marks_are_those_of_the_textbook(p_values: list[float], error: float) -> None:
    errors = holm(p_values, error)
    assert {i for i, p in enumerate(p_values) if p <= errors[i]} == rejected(
        p_values, error
    )
    assert all(error / len(p_values) <= e <= error for e in errors)


def test_one_comparison_has_the_whole_error() -> None:
    assert holm([1.0], 0.05) == [0.05]
    assert holm([], 0.05) == []
