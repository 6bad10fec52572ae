"""Indifference and confidence against explicit loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from internals import normalised_entropy

from fair_tta import metrics
from fair_tta.errors import FairTTAError


def test_indifference_and_confidence_are_mean_entropies() -> None:
    logits = 3 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    log_probabilities = logits.log_softmax(-1)
    entropy = normalised_entropy(log_probabilities)
    p = log_probabilities.exp()
    asi = metrics.average_sensitive_indifference(probabilities=p)
    atc = metrics.average_target_confidence(probabilities=p.double().numpy())
    assert asi.value == pytest.approx(float(entropy.mean()), abs=1e-6)
    assert float(atc) == pytest.approx(1 - float(asi), abs=1e-6)
    assert asi.n == 200
    again = metrics.average_sensitive_indifference(entropies=entropy)
    assert again.value == pytest.approx(asi.value, abs=1e-6)
    # the normal limit of the bootstrap of a mean
    generator = np.random.default_rng(0)
    values = entropy.double().numpy()
    means = generator.choice(values, (4000, 200)).mean(1)
    assert (asi.low, asi.high) == pytest.approx(
        np.quantile(means, [0.025, 0.975]), abs=0.005
    )


def test_extremes() -> None:
    assert (
        metrics.average_sensitive_indifference(probabilities=[[0.5, 0.5]] * 3).value
        == 1
    )
    assert metrics.average_target_confidence(probabilities=[[1, 0]] * 3).value == 1
    one = metrics.average_target_confidence(entropies=[0.25])
    assert (one.value, one.low, one.high) == (
        0.75,
        0,
        1,
    )  # one image says next to nothing
    none = metrics.average_target_confidence(entropies=[])
    assert none.value is None
    assert none.reason == "no images"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: metrics.average_target_confidence(),
            "pass either `probabilities` or `entropies`.",
        ),
        (
            lambda: metrics.average_target_confidence(probabilities=[[0.5, 0.6]]),
            "`probabilities` should be >= 0 and sum to 1 in each row.",
        ),
        (
            lambda: metrics.average_target_confidence(probabilities=[[1.0]]),
            "`probabilities` should have two columns or more (got 1).",
        ),
        (
            lambda: metrics.average_target_confidence(probabilities=[1.0]),
            "`probabilities` should have 2 dimensions (got 1).",
        ),
        (
            lambda: metrics.average_target_confidence(entropies=np.ones((1, 2))),
            "`entropies` should have one dimension (got 2).",
        ),
        (
            lambda: metrics.average_target_confidence(entropies=["much"]),
            "`entropies` should be numbers.",
        ),
        (
            lambda: metrics.average_target_confidence(entropies=[1.5]),
            "`entropies` should lie between 0 and 1.",
        ),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(FairTTAError) as error:
        call()
    assert str(error.value) == message
