"""Indifference and confidence against explicit loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from internals import normalised_entropy

from fair_tta import metrics

HALVES = [[0.5, 0.5]] * 3


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
    # The normal limit of the bootstrap of a mean.
    generator = np.random.default_rng(0)
    values = entropy.double().numpy()
    means = generator.choice(values, (4000, 200)).mean(1)
    assert (asi.low, asi.high) == pytest.approx(
        np.quantile(means, [0.025, 0.975]), abs=0.005
    )


def test_extremes() -> None:
    indifferent = metrics.average_sensitive_indifference(probabilities=HALVES)
    assert indifferent.value == 1
    certain = metrics.average_target_confidence(probabilities=[[1, 0]] * 3)
    assert certain.value == 1
    # One image says next to nothing.
    one_image = metrics.average_target_confidence(entropies=[0.25])
    assert one_image == metrics.Estimate(0.75, 1, 0, 1)
    no_image = metrics.average_target_confidence(entropies=[])
    assert no_image == metrics.Estimate(None, 0, reason="no images")
