"""Several runs are judged together, with clusters as without."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from internals import RateMetric, read_answer_table

from fair_tta.metrics import Bootstrap, definitions

METRICS = [definitions.BIAS, definitions.EQUALIZED_ODDS]


@pytest.mark.parametrize("metric", METRICS, ids=["bias", "equalized odds"])
def test_clusters_never_narrow_the_joint_intervals(
    metric: RateMetric,
) -> None:
    """Each person has one right and one wrong answer in each group, so totals hardly vary."""
    truth = np.tile([0, 0, 1, 1], 60)
    groups = np.repeat([0, 1], 120)
    answers = np.tile([0, 1], 120)
    generator = np.random.default_rng(0)
    runs = [
        np.where(generator.random(240) < p, truth, answers) for p in (0.0, 0.1, 0.4)
    ]
    table = read_answer_table(truth, runs, groups, None, None)
    clustered = replace(table, clusters=np.arange(240) // 4)
    joint = metric.differences(clustered, Bootstrap())
    independent = metric.differences(table, Bootstrap())
    narrower = 0
    assert metric.intervals is not None
    assert metric.intervals.joint_changes is not None
    alone = metric.intervals.joint_changes(clustered, 0.95)
    # Max-T and not Holm's procedure, which is wider.
    bounds = metric.intervals.joint_changes(table, 0.95)
    assert [(estimate.low, estimate.high) for estimate in independent] == bounds
    for estimate, other, (low, high) in zip(joint, independent, alone, strict=True):
        assert estimate.low is not None
        assert estimate.high is not None
        assert other.low is not None
        assert other.high is not None
        assert estimate.low <= other.low
        assert estimate.high >= other.high
        narrower += other.low < low or high < other.high
    assert narrower
