"""Random labels, answers and sensitive values of a few images."""

from __future__ import annotations

from hypothesis import strategies as st

CLASSES = ["cat", "dog", "bird"]
VALUES = ["man", "woman", "other"]

Columns = tuple[list[str], list[str], list[str]]


def answer_columns(classes: int, values: int) -> st.SearchStrategy[Columns]:
    """Return labels, answers and values, where each answer is also a label."""
    names = st.sampled_from(CLASSES[:classes])
    rows = st.lists(
        st.tuples(names, names, st.sampled_from(VALUES[:values])),
        min_size=1,
        max_size=40,
    )
    columns = rows.map(_to_columns)
    return columns.filter(lambda columns: set(columns[1]) <= set(columns[0]))


def _to_columns(rows: list[tuple[str, str, str]]) -> Columns:
    truth, answers, values = map(list, zip(*rows, strict=True))
    return truth, answers, values
