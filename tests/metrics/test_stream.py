"""Metrics of batches: any split and any merge gives what one call on all rows gives."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fair_tta import metrics
from fair_tta.errors import FairTTAError
from fair_tta.metrics import Estimate, MetricStream
from fair_tta.metrics.definitions import METRICS

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")
Row = tuple[str, str, str]
CLASSES = ("bird", "cat", "dog")
VALUES = ("man", "other", "woman")
NAMES = st.sampled_from(CLASSES)
ROWS = st.lists(
    st.tuples(NAMES, NAMES, st.sampled_from(VALUES)), min_size=1, max_size=60
)


def at_once(
    y_true: Any, y_pred: Any, sensitive: Any, *, interval: float = 0.95, **names: Any
) -> dict[str, Estimate]:
    """Return the metrics of answers by their functions, each by itself."""
    estimates = {}
    for name, definition in METRICS.items():
        if getattr(definition, "score", None) is not None:
            continue
        function = getattr(metrics, name.removesuffix("_s"))
        options = {"over": "sensitive"} if name.endswith("_s") else {}
        estimates[name] = function(
            y_true, y_pred, sensitive, interval=interval, **names, **options
        )
    return estimates


def assert_same(actual: dict[str, Estimate], expected: dict[str, Estimate]) -> None:
    """Allow for last digits, which the order of sums may change."""
    assert actual.keys() == expected.keys()
    for name, estimate in actual.items():
        other = expected[name]
        assert (estimate.n, estimate.reason) == (other.n, other.reason), name
        value = pytest.approx(float(other), abs=1e-12, nan_ok=True)
        assert float(estimate) == value, name
        assert (estimate.low is None) == (other.low is None), name
        if estimate.low is not None:
            bounds = pytest.approx((other.low, other.high), abs=1e-9)
            assert (estimate.low, estimate.high) == bounds, name


def columns(rows: list[Row]) -> tuple[tuple[str, ...], ...]:
    return tuple(zip(*rows, strict=True)) if rows else ((), (), ())


@settings(max_examples=25, deadline=None)
@given(ROWS, st.data())
def test_any_split_and_any_merge_give_the_same(
    rows: list[Row], data: st.DataObject
) -> None:
    """Some batches are empty, most lack classes and groups; workers send pickles or JSON."""
    worker_of_row = data.draw(
        st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows))
    )
    streams = [MetricStream(targets=CLASSES) for _ in range(4)]
    for number, stream in enumerate(streams):
        of_worker = [
            row
            for row, worker in zip(rows, worker_of_row, strict=True)
            if worker == number
        ]
        cut = data.draw(st.integers(0, len(of_worker)))
        stream.update(*columns(of_worker[:cut]))
        stream.update(*columns(of_worker[cut:]))
    merged, by_json, *by_pickle = data.draw(st.permutations(streams))
    received = MetricStream(targets=CLASSES)
    received.load_state_dict(json.loads(json.dumps(by_json.state_dict())))
    merged.merge(received, *[pickle.loads(pickle.dumps(s)) for s in by_pickle])
    assert_same(merged.compute(), at_once(*columns(rows), targets=CLASSES))


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
    assert_same(stream.compute(), at_once(*columns(rows), **names))
    assert "unknown" in str(stream.compute()["worst_group_accuracy_s"].reason)


def test_a_group_that_a_batch_lacks_is_not_relabelled() -> None:
    """As torchmetrics issue 3489 has it: group 0 is absent from a batch, and 1 becomes 0."""
    stream = MetricStream()
    stream.update([0, 1, 0, 1], [0, 1, 1, 1], [1, 1, 2, 2])
    stream.update([0, 1], [0, 0], [0, 0])
    rows = [
        *zip([0, 1, 0, 1, 0, 1], [0, 1, 1, 1, 0, 0], [1, 1, 2, 2, 0, 0], strict=True)
    ]
    assert stream.state_dict()["counts"] == [[*row, 1] for row in rows]


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
    assert_same(stream.compute(), at_once(*rows, interval=0.9))


def test_errors_leave_the_state_unchanged() -> None:
    stream = MetricStream(targets=["cat", "dog"])
    stream.update(["cat", "dog"], ["cat", "cat"], {"place": ["in", "out"]})
    before = stream.state_dict()
    place = {"place": ["in"]}
    wrong: list[tuple[Any, Any, Any]] = [
        (["cat"], ["cow"], place),
        (["cat"], ["cat"], ["in"]),
        (["cat"], ["cat", "dog"], place),
        (["cat"], [None], place),
        (["cat"], [["cat"]], place),
    ]
    for batch in wrong:
        with pytest.raises(FairTTAError):
            stream.update(*batch)
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
