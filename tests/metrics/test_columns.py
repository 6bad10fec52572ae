"""Columns of one value per image: what is read, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from internals import escape_invisible, lookalikes

from fair_tta import FairTTAError, audit, metrics

pandas = pytest.importorskip("pandas")
pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")

LABELS = ["cat", "dog"] * 40
ANSWERS = ["cat"] * 80
PLACES = ["in"] * 40 + ["out"] * 40

KINDS: dict[str, Callable[[Any], Any]] = {
    "tuples": tuple,
    "iterators": lambda x: map(np.int64, x),
    "arrays": np.array,
    "small integers": lambda x: np.array(x, np.uint8),
    "booleans": lambda x: np.array(x, bool),
    "floats": lambda x: np.array(x, float),
    "tensors": torch.tensor,
    "half-precision tensors with a gradient": lambda x: torch.tensor(
        x, dtype=torch.bfloat16, requires_grad=True
    ),
    "lists of tensors": lambda x: list(torch.tensor(x)),
    "series": pandas.Series,
    "categories": lambda x: pandas.Series(pandas.Categorical(x, categories=[1, 0])),
    "nullable": lambda x: pandas.Series(x, dtype="Int64"),
    "objects": lambda x: pandas.Series(x, dtype=object),
}


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_any_kind(kind: str) -> None:
    columns = [0, 1, 1, 0] * 9, [0, 1, 0, 0] * 9, [0, 0, 1, 1] * 9
    of_kind = [KINDS[kind](column) for column in columns]
    expected = metrics.equalized_odds_difference(*columns)
    assert metrics.equalized_odds_difference(*of_kind) == expected


def test_a_table_of_sensitive_values_has_several_attributes() -> None:
    frame = pandas.DataFrame({"a": [0, 0, 1, 1] * 9, "b": [0, 1] * 18})
    groups = metrics.group_accuracy([0] * 36, [0] * 36, frame)
    assert list(groups) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_names_and_numbers_may_mix() -> None:
    assert list(metrics.group_accuracy(["a"] * 2, ["a"] * 2, ["x", 1])) == [1, "x"]
    assert metrics.accuracy([True, False], [1, 0]).value == 1
    assert metrics.accuracy([1, "none"], [1, 1]).value == 0.5


def test_a_dash_and_none_as_text_are_names() -> None:
    audited = audit(LABELS, ANSWERS, ["-", "-", "None", "None"] * 20)
    assert audited.document.data.sensitive == {"sensitive": ("-", "None")}


def test_a_table_is_no_column() -> None:
    labels = pandas.DataFrame({"label": LABELS})
    calls: list[Callable[[], object]] = [
        lambda: metrics.accuracy(LABELS, labels),
        lambda: audit(labels, ANSWERS, PLACES),
        lambda: audit(LABELS, ANSWERS, {"place": labels}),
        lambda: audit(LABELS, ANSWERS, PLACES, clusters=labels),
        lambda: metrics.MetricStream().update(labels, ANSWERS, ["in"]),
        lambda: metrics.harm_rate(labels, ["in"], ["label"]),
    ]
    for call in calls:
        with pytest.raises(FairTTAError, match="should be one column"):
            call()
    assert metrics.accuracy(labels["label"], LABELS).value == 1


@pytest.mark.parametrize("missing", [None, float("nan"), pandas.NA, "nan", "<NA>"])
def test_missing_values(missing: Any) -> None:
    """A missing label is refused; an image without a person is its own cluster."""
    with pytest.raises(FairTTAError, match=r"no missing values \(row 3\)"):
        metrics.accuracy([*LABELS[:3], missing, *LABELS[4:]], ANSWERS)
    persons = [f"{i // 2}" for i in range(76)]
    clustered = metrics.accuracy(LABELS, ANSWERS, clusters=[*persons, *[missing] * 4])
    alone = ["a", "b", "c", "d"]
    expected = metrics.accuracy(LABELS, ANSWERS, clusters=[*persons, *alone])
    assert clustered == expected


TWINS: list[tuple[Any, Any]] = [
    ("man", "man\u200b"),
    ("man", "\u2068man\u2069"),
    ("man", "ma\u00adn"),
    ("East Asian", "East\u00a0Asian"),
    ("caf\u00e9", "cafe\u0301"),
    ("man", "man\x7f"),
    ("man", "m\x00an"),
    ("man", "man\x1b"),
    ("man", "man\ufe0f"),
    ("man", "man\U000e0100"),
    ("man", "m\u034fan"),
    ("man", "man\u3164"),
    ("a man", "a\u2800man"),
    ("man", "man\u180b"),
    ("man", "man\u17b4"),
    (1, "1"),
    (True, "True"),
    (1.0, "1.0"),
]


def calls_with_both(first: Any, second: Any) -> Iterator[Callable[[], object]]:
    """Yield calls that get two names as labels, answers, values, persons or in two batches."""
    truth = ["cat", "dog"] * 40
    column = [first, second] * 40
    yield lambda: audit(truth, ANSWERS, column)
    yield lambda: audit(truth, ANSWERS, {"a": ["x"] * 80, "b": column})
    yield lambda: audit(truth, ANSWERS, ["x"] * 80, values=[first, second, "x"])
    yield lambda: audit(column, column, truth)
    yield lambda: audit([first, "cat"] * 40, column, truth)
    yield lambda: audit(truth, truth, truth, clusters=[*column[:40], *range(9, 49)])
    yield lambda: metrics.accuracy(column, column)
    yield lambda: metrics.worst_group_accuracy(truth, ANSWERS, column)
    yield lambda: metrics.harm_rate(ANSWERS, column, ["cat"])
    yield lambda: metrics.MetricStream().update(truth, ANSWERS, column)
    stream = metrics.MetricStream()
    stream.update(truth, ANSWERS, [first] * 80)
    yield lambda: stream.update(truth, ANSWERS, [second] * 80)


@pytest.mark.parametrize("twins", TWINS)
def test_names_that_look_alike_are_refused(twins: tuple[Any, Any]) -> None:
    for call in calls_with_both(*twins):
        with pytest.raises(FairTTAError, match="should differ visibly") as error:
            call()
        message = str(error.value)
        for name in twins:
            shown = repr(name)
            if all(isinstance(twin, str) for twin in twins):
                shown = f"'{escape_invisible(name)}'"
            assert shown in message


def test_names_that_differ_visibly_are_two_groups() -> None:
    assert lookalikes(["man", "Man", "men", "ma n"]) == []
    hangul_and_thai = ["\u0e01", "\u0e01\u0e34", "\ud55c\uae00", "\u2764", "\u2605"]
    assert lookalikes(hangul_and_thai) == []
