"""The statements of the paper's appendix B, with ties."""

from __future__ import annotations

from itertools import chain, combinations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fair_tta.metrics.simplex import (
    collapse_distance,
    distance,
    flip_margin,
    universal_collapse_distance,
)


def simplex(n: int) -> st.SearchStrategy[Tensor]:
    # small whole numbers make ties and zeros likely
    whole = st.lists(st.integers(0, 4), min_size=n, max_size=n).filter(any)
    return whole.map(lambda w: torch.tensor(w, dtype=torch.float64) / sum(w))


pairs = st.integers(2, 5).flatmap(lambda n: st.tuples(simplex(n), simplex(n)))
vectors = st.integers(2, 6).flatmap(simplex)


@given(pairs)
def test_i_no_flip_is_shorter_than_the_margin(pair: tuple[Tensor, Tensor]) -> None:
    p, q = pair
    if int(p.argmax()) != int(q.argmax()):
        assert float(distance(p, q)) >= float(flip_margin(p)) - 1e-12


@given(pairs)
def test_ii_beyond_the_collapse_distance_all_flip(pair: tuple[Tensor, Tensor]) -> None:
    p, q = pair
    if int(p.argmax()) == int(q.argmax()):
        assert float(distance(p, q)) <= float(collapse_distance(p)) + 1e-12


@given(pairs)
def test_iii_the_universal_bound_is_weaker(pair: tuple[Tensor, Tensor]) -> None:
    p, q = pair
    bound = universal_collapse_distance(len(p))
    assert float(collapse_distance(p)) <= bound + 1e-12
    if int(p.argmax()) == int(q.argmax()):
        assert float(distance(p, q)) <= bound + 1e-12


@given(vectors)
def test_collapse_distance_equals_the_search_over_all_sets(p: Tensor) -> None:
    """The paper's formula, literally: a maximum over all sets of other entries."""
    lead, values = int(p.argmax()), p.tolist()
    others = [i for i in range(len(p)) if i != lead]
    best = 0.0
    for omega in chain.from_iterable(combinations(others, m) for m in range(len(others) + 1)):
        share = 1 / (1 + len(omega))
        best = max(
            best,
            abs(values[lead] - share)
            + sum(abs(values[i] - (share if i in omega else 0)) for i in others),
        )
    assert abs(float(collapse_distance(p)) - best / 2) < 1e-12


@given(vectors)
def test_the_margin_is_attained(p: Tensor) -> None:
    """At the margin the second largest draws level."""
    lead = int(p.argmax())
    if p.shape[0] > 1 and float(flip_margin(p)) > 0:
        q = p.clone()
        second = int(p.topk(2).indices[1])
        q[lead] -= flip_margin(p)
        q[second] += flip_margin(p)
        assert abs(float(distance(p, q) - flip_margin(p))) < 1e-12
        assert abs(float(q[lead] - q[second])) < 1e-12


@given(pairs)
def test_distance_is_a_metric_between_0_and_1(pair: tuple[Tensor, Tensor]) -> None:
    p, q = pair
    expected = float((p - q).clamp(min=0).sum())  # the paper's other form
    assert abs(float(distance(p, q)) - expected) < 1e-12
    assert float(distance(p, q)) == float(distance(q, p)) <= 1 + 1e-12
    assert float(distance(p, p)) == 0


def test_the_bound_is_reached_at_a_tie() -> None:
    p, q = torch.tensor([0.375, 0.625]), torch.tensor([0.5, 0.5])
    assert int(p.argmax()) != int(q.argmax())
    assert float(distance(p, q)) == float(flip_margin(p)) == 0.125


def test_batches() -> None:
    p = torch.rand(3, 4, 5).softmax(-1)
    assert collapse_distance(p).shape == flip_margin(p).shape == (3, 4)
    torch.testing.assert_close(collapse_distance(p)[1, 2], collapse_distance(p[1, 2]))
