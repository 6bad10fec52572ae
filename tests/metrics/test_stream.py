"""Metrics of batches: any split and any merge gives what one call on all rows gives."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fair_tta import metrics
from fair_tta.errors import FairTTAError, SmallGroupWarning
from fair_tta.metrics import Estimate, MetricStream

Row = tuple[str, str, str]
CLASSES, VALUES = ("bird", "cat", "dog"), ("man", "other", "woman")
ROWS = st.lists(
    st.tuples(*map(st.sampled_from, (CLASSES, CLASSES, VALUES))),
    min_size=1,
    max_size=60,
)


@pytest.fixture(autouse=True)
def _small_groups_are_fine() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        yield


def one_shot(
    y_true: Any, y_pred: Any, sensitive: Any, **names: Any
) -> dict[str, Estimate]:
    """The functions, each by itself."""
    every = y_true, y_pred, sensitive
    names = {"interval": 0.95, **names}
    found = {
        name: getattr(metrics, name)(*every, **names)
        for name in (
            *(
                "accuracy",
                "balanced_accuracy",
                "worst_group_accuracy",
                "bias",
                "typical_gap",
            ),
            *("equalized_odds_difference", "equal_opportunity_difference"),
            "demographic_parity_difference",
        )
    }
    for name in ("worst_group_accuracy", "bias"):
        found[f"{name}_s"] = getattr(metrics, name)(*every, over="sensitive", **names)
    return found


def same(found: dict[str, Estimate], wanted: dict[str, Estimate]) -> None:
    """Equal to the last digits that the order of sums may change."""
    assert found.keys() == wanted.keys()
    for name, one in found.items():
        other = wanted[name]
        assert (one.n, one.reason) == (other.n, other.reason), name
        assert float(one) == pytest.approx(float(other), abs=1e-12, nan_ok=True), name
        assert (one.low is None) == (other.low is None), name
        if one.low is not None:
            assert (one.low, one.high) == pytest.approx(
                (other.low, other.high), abs=1e-9
            ), name


def columns(rows: list[Row]) -> tuple[tuple[str, ...], ...]:
    return tuple(zip(*rows, strict=True)) if rows else ((), (), ())


@settings(max_examples=25, deadline=None)
@given(ROWS, st.data())
def test_any_split_and_any_merge_give_the_same(
    rows: list[Row], data: st.DataObject
) -> None:
    """Some batches are empty, most lack classes and groups; workers send pickles or JSON."""
    places = data.draw(
        st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))
    )
    workers = [MetricStream(targets=CLASSES) for _ in range(4)]
    for worker, stream in enumerate(workers):
        mine = [row for row, place in zip(rows, places, strict=True) if place == worker]
        cut = data.draw(st.integers(0, len(mine)))
        for some in (mine[:cut], mine[cut:]):
            stream.update(*columns(some))
    first, *others = data.draw(st.permutations(workers))
    sent = MetricStream(targets=CLASSES)
    sent.load_state_dict(json.loads(json.dumps(others[0].state_dict())))
    together = first.merge(
        sent, *(pickle.loads(pickle.dumps(other)) for other in others[1:])
    )
    same(together.compute(), one_shot(*columns(rows), targets=CLASSES))


@settings(max_examples=10, deadline=None)
@given(ROWS)
def test_names_that_may_not_occur(rows: list[Row]) -> None:
    names: dict[str, Any] = {
        "targets": [*CLASSES, "fish"],
        "values": [*VALUES, "unknown"],
    }
    stream = MetricStream(**names)
    for start in range(0, len(rows), 7):
        stream.update(*columns(rows[start : start + 7]))
    same(stream.compute(), one_shot(*columns(rows), **names))
    assert "unknown" in str(stream.compute()["worst_group_accuracy_s"].reason)


@settings(max_examples=15, deadline=None)
@given(
    st.lists(
        st.tuples(*[st.integers(0, 1)] * 2, st.integers(0, 2)), min_size=1, max_size=60
    )
)
def test_two_classes_equal_fairlearn_and_a_count_by_hand(
    rows: list[tuple[int, ...]],
) -> None:
    fairlearn: Any = pytest.importorskip("fairlearn.metrics")
    y_true, y_pred, group = (np.array(column) for column in zip(*rows, strict=True))
    stream = MetricStream(interval=None, targets=[0, 1])
    for half in (slice(None, None, 2), slice(1, None, 2)):
        stream.update(y_true[half], y_pred[half], group[half])
    found = stream.compute()
    assert found["accuracy"].value == sum(t == p for t, p, _ in rows) / len(rows)
    by_cell = [
        np.mean(y_pred[(y_true == t) & (group == g)] == t)
        for t in (0, 1)
        for g in (0, 1, 2)
        if ((y_true == t) & (group == g)).any()
    ]
    assert found["worst_group_accuracy"].value == min(by_cell)
    present = set(group.tolist())
    if len(present) < 2 or len(by_cell) < 2 * len(present):
        return  # fairlearn takes 0 for rates that do not exist
    theirs = fairlearn.equalized_odds_difference(
        y_true, y_pred, sensitive_features=group
    )
    assert found["equalized_odds_difference"].value == pytest.approx(theirs)
    theirs = fairlearn.demographic_parity_difference(
        y_true, y_pred, sensitive_features=group
    )
    assert found["demographic_parity_difference"].value == pytest.approx(theirs)


def test_a_group_that_a_batch_lacks_is_not_relabelled() -> None:
    """As torchmetrics issue 3489 has it: group 0 is absent from a batch, and 1 becomes 0."""
    stream = MetricStream()
    stream.update([0, 1, 0, 1], [0, 1, 1, 1], [1, 1, 2, 2])
    stream.update([0, 1], [0, 0], [0, 0])
    rows = [
        *zip([0, 1, 0, 1, 0, 1], [0, 1, 1, 1, 0, 0], [1, 1, 2, 2, 0, 0], strict=True)
    ]
    assert stream.state_dict()["counts"] == [[*row, 1] for row in rows]


KINDS = {
    "lists": list,
    "arrays": np.array,
    "small integers": lambda x: np.array(x, np.uint8),
    "booleans": lambda x: np.array(x, bool),
    "floats": lambda x: np.array(x, float),
    "tensors": torch.tensor,
    "half-precision tensors with a gradient": lambda x: torch.tensor(
        x, dtype=torch.bfloat16, requires_grad=True
    ),
    "lists of tensors": lambda x: [*torch.tensor(x)],
}


@pytest.mark.parametrize(
    "kind", [*KINDS, "series", "categories", "nullable", "objects"]
)
def test_columns_of_any_kind(kind: str) -> None:
    pandas = pytest.importorskip("pandas")
    more = {
        "series": pandas.Series,
        "categories": lambda x: pandas.Series(pandas.Categorical(x, categories=[1, 0])),
        "nullable": lambda x: pandas.Series(x, dtype="Int64"),
        "objects": lambda x: pandas.Series(x, dtype=object),
    }
    make: Any = (KINDS | more)[kind]
    columns = [0, 1, 1, 0, 1, 1] * 9, [0, 1, 0, 0, 1, 1] * 9, [0, 0, 0, 1, 1, 1] * 9
    stream = MetricStream()
    stream.update(*map(make, columns))
    same(stream.compute(), one_shot(*columns))
    same(one_shot(*map(make, columns)), one_shot(*columns))


def test_several_attributes_and_reset() -> None:
    rows = (
        [0, 1, 1, 0] * 20,
        [0, 1, 0, 0] * 20,
        {"a": [0, 0, 1, 1] * 20, "b": ["x", "y"] * 40},
    )
    stream = MetricStream(interval=0.9)
    stream.update([1], [1], [0])
    stream.reset()
    stream.update(*rows)
    stream.update([], [], {"a": [], "b": []})
    same(stream.compute(), one_shot(*rows, interval=0.9))


def test_errors_leave_the_state_as_it_was() -> None:
    stream = MetricStream(targets=["cat", "dog"])
    with pytest.raises(FairTTAError, match="`y_true` should have at least one row"):
        stream.compute()
    stream.update(["cat", "dog"], ["cat", "cat"], {"place": ["in", "out"]})
    before = stream.state_dict()
    for wrong, text in (
        (
            (["cat"], ["cow"], {"place": ["in"]}),
            "`y_pred` holds 'cow', which is not in `targets`",
        ),
        (
            (["cat"], ["cat"], ["in"]),
            r"attributes \['place'\], as before \(got \['sensitive'\]\)",
        ),
        (
            (["cat"], ["cat", "dog"], {"place": ["in"]}),
            "`y_pred` should be as long as `y_true`",
        ),
        (
            (["cat"], [None], {"place": ["in"]}),
            r"`y_pred` should have no missing values \(row 0\)",
        ),
        ((["cat"], [["cat"]], {"place": ["in"]}), r"one dimension \(row 0 is a list\)"),
    ):
        with pytest.raises(FairTTAError, match=text):
            stream.update(*wrong)
        assert stream.state_dict() == before


def test_the_state_does_not_grow_with_the_rows() -> None:
    random = np.random.default_rng(0)
    stream, sizes = MetricStream(), []
    for _ in range(20):
        stream.update(*random.integers(0, [[2], [2], [7]], (3, 5000)))
        sizes.append(len(pickle.dumps(stream)))
    assert max(sizes[2:]) - min(sizes[2:]) < 100
    assert stream.compute()["accuracy"].n == 100_000


def test_metrics_do_not_import_torch() -> None:
    code = "import sys, fair_tta.metrics; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
