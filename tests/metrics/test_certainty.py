"""Indifference, confidence and rankings against explicit loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fair_tta import metrics
from fair_tta.errors import FairTTAError
from fair_tta.methods._tuning.entropy import normalised_entropy


def test_indifference_and_confidence_are_mean_entropies() -> None:
    logits = 3 * torch.randn(200, 5, generator=torch.Generator().manual_seed(0))
    log_probabilities = logits.log_softmax(-1)
    entropy = normalised_entropy(log_probabilities)
    p = log_probabilities.exp()
    asi = metrics.average_sensitive_indifference(probabilities=p)
    atc = metrics.average_target_confidence(probabilities=p.double().numpy())
    assert asi.value == pytest.approx(float(entropy.mean()), abs=1e-6)
    assert atc.value == pytest.approx(1 - asi.value, abs=1e-6)
    assert asi.n == 200
    again = metrics.average_sensitive_indifference(entropies=entropy)
    assert again.value == pytest.approx(asi.value, abs=1e-6)
    # the normal limit of the bootstrap of a mean
    generator = np.random.default_rng(0)
    values = entropy.double().numpy()
    means = generator.choice(values, (4000, 200)).mean(1)
    assert (asi.low, asi.high) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.005)


def test_extremes() -> None:
    assert metrics.average_sensitive_indifference(probabilities=[[0.5, 0.5]] * 3).value == 1
    assert metrics.average_target_confidence(probabilities=[[1, 0]] * 3).value == 1
    one = metrics.average_target_confidence(entropies=[0.25])
    assert (one.value, one.low, one.high) == (0.75, 0, 1)  # one image says next to nothing
    none = metrics.average_target_confidence(entropies=[])
    assert math.isnan(none.value)
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
            "`probabilities` should be from 0 on and sum to 1 in each row.",
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
        (
            lambda: metrics.max_skew(["a", "b"], 3),
            "`k` should lie from 1 to 2, the ranking's length (got 3).",
        ),
        (
            lambda: metrics.max_skew([], 1),
            "`ranked` should have at least one row (got none).",
        ),
        (
            lambda: metrics.ndkl(["a", "z"], values=["a", "b"]),
            "`ranked` holds 'z', which is not in `values`: ['a', 'b'].",
        ),
        (
            lambda: metrics.ndkl(["a", "b"], desired=["a"]),  # type: ignore[arg-type]
            "`desired` should be {value: share} (got ['a']).",
        ),
        (
            lambda: metrics.max_skew(["a", "b"], 1, desired={"a": "x", "b": 0.5}),  # type: ignore[dict-item]
            "`desired` should give each value a share, 1 in all (got {'a': 'x', 'b': 0.5}).",
        ),
        (
            lambda: metrics.ndkl(["a", "b"], desired={"a": 0.5, "b": 0.6}),
            "`desired` should give each value a share, 1 in all (got {'a': 0.5, 'b': 0.6}).",
        ),
        (
            lambda: metrics.ndkl(["a", "b"], desired={"a": 1.0, "b": 0.0}),
            "`desired` should give every value that occurs a share above 0.",
        ),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(FairTTAError) as error:
        call()
    assert str(error.value) == message


rankings = st.lists(st.sampled_from("abc"), min_size=1, max_size=25)


@settings(max_examples=50, deadline=None)
@given(rankings, st.data())
def test_rankings_by_hand(ranked: list[str], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(ranked)))
    share = {v: ranked.count(v) / len(ranked) for v in set(ranked)}
    skews = [math.log(ranked[:k].count(v) / k / share[v]) for v in set(ranked[:k])]
    assert metrics.max_skew(ranked, k).value == pytest.approx(max(*skews, 0))
    total, weight = 0.0, 0.0
    for i in range(1, len(ranked) + 1):
        top = {v: ranked[:i].count(v) / i for v in set(ranked[:i])}
        divergence = sum(p * math.log(p / share[v]) for v, p in top.items())
        total += divergence / math.log2(i + 1)
        weight += 1 / math.log2(i + 1)
    assert metrics.ndkl(ranked).value == pytest.approx(total / weight, abs=1e-12)
    absent = metrics.ndkl(ranked, values=["a", "b", "c", "never"])
    assert absent.value == pytest.approx(metrics.ndkl(ranked).value, abs=1e-12)


def test_a_desired_distribution() -> None:
    half = {"man": 0.5, "woman": 0.5}
    assert metrics.max_skew(["man"] * 4, 2, desired=half).value == pytest.approx(math.log(2))
    assert metrics.ndkl(["man"] * 4, desired=half).value == pytest.approx(math.log(2))
    assert metrics.max_skew(["man", "woman"] * 4, 4, desired=half).value == 0
