"""Normalised entropy against scipy-free, independent computations."""

from __future__ import annotations

import math

import torch
from hypothesis import given
from hypothesis import strategies as st
from internals import normalised_entropy

weights = st.lists(st.floats(0, 1), min_size=2, max_size=9).filter(
    lambda w: sum(w) > 1e-3
)


@given(weights)
def test_equals_the_definition(raw: list[float]) -> None:
    p = [w / sum(raw) for w in raw]
    expected = -math.fsum(x * math.log(x) for x in p if x > 0) / math.log(len(p))
    log_p = torch.tensor(p, dtype=torch.float64).log()
    assert math.isclose(float(normalised_entropy(log_p)), expected, abs_tol=1e-9)


@given(weights)
def test_lies_between_certain_and_indifferent(raw: list[float]) -> None:
    p = torch.tensor(raw) / sum(raw)
    assert -1e-6 <= float(normalised_entropy(p.log())) <= 1 + 1e-6


def test_certain_answers_have_finite_gradients() -> None:
    logits = torch.tensor([1e4, 0.0, -1e4], requires_grad=True)
    entropy = normalised_entropy(logits.log_softmax(-1))
    entropy.backward()
    assert float(entropy.detach()) == 0
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    half = torch.tensor([100.0, 0.0], dtype=torch.float16).log_softmax(-1)
    assert normalised_entropy(half).isfinite()
