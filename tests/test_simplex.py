"""Statement (i) of the paper's appendix B, with ties."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fair_tta.simplex import distance, flip_margin


def simplex(n: int) -> st.SearchStrategy[Tensor]:
    # small integers make ties likely, and sums of eighths are exact
    return st.lists(st.integers(0, 4), min_size=n, max_size=n).filter(any).map(
        lambda w: torch.tensor(w, dtype=torch.float64) / sum(w)
    )  # fmt: skip


pairs = st.integers(2, 5).flatmap(lambda n: st.tuples(simplex(n), simplex(n)))


@given(pairs)
def test_no_flip_is_shorter_than_the_margin(pair: tuple[Tensor, Tensor]) -> None:
    p, q = pair
    if int(p.argmax()) != int(q.argmax()):
        assert float(distance(p, q)) >= float(flip_margin(p)) - 1e-12


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
