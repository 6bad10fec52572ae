"""Zero against a count of votes in NumPy, and its ties by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random_task import Drawn, drawn, softmax

from fair_tta import Zero
from fair_tta.extend import Outcome

Array = npt.NDArray[np.float64]
VIEWS = 10


def kept_views(case: Drawn, image: Array, rho: str) -> Array:
    """Return the probabilities of the most certain views, ``[kept, classes]``."""
    p = np.stack([softmax(case.scale * case.target.numpy() @ view) for view in image])
    entropies = -(p * np.log(p)).sum(1)
    count = max(1, math.floor(Fraction(rho) * len(p)))
    return p[np.argsort(entropies, kind="stable")[:count]]


def winner_of(kept: Array) -> int:
    """Return the class with most votes; of several, the one with the largest sum."""
    votes = np.bincount(kept.argmax(1), minlength=kept.shape[1])
    leaders = [label for label, count in enumerate(votes) if count == votes.max()]
    return max(leaders, key=lambda label: float(kept[:, label].sum()))


@given(
    case=drawn(VIEWS), rho=st.sampled_from(["0.05", "0.1", "0.29", "0.4", "0.6", "1"])
)
def test_a_majority_of_the_most_certain_views(case: Drawn, rho: str) -> None:
    outcome = Zero(rho=float(rho)).adapt(case.task, case.features)
    for image, probabilities in zip(
        case.features.numpy(), outcome.probabilities, strict=True
    ):
        kept = kept_views(case, image, rho)
        votes = np.bincount(kept.argmax(1), minlength=kept.shape[1])
        assert outcome.views_kept == len(kept)
        assert probabilities.tolist() == pytest.approx(votes / len(kept), abs=1e-12)
        assert int(probabilities.argmax()) == winner_of(kept)
    assert outcome.sensitive == {}, "the sensitive probabilities are those of zero-shot"


def by_hand(views: list[list[float]], rho: float) -> Outcome:
    """Zero on one image whose views have these probabilities."""
    classes = torch.eye(len(views[0]), dtype=torch.float64)
    features = torch.tensor([views], dtype=torch.float64).log()
    case = Drawn(classes, {}, features, scale=1.0)
    return Zero(rho=rho).adapt(case.task, features)


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_a_tie_goes_to_the_larger_sum_over_the_kept_views(order: list[int]) -> None:
    """The view that is not kept would decide otherwise, as in the reference implementation."""
    views = np.array([[0.45, 0.55], [0.9, 0.1], [0.2, 0.8]])[:, order].tolist()
    tie = by_hand(views, rho=0.7).probabilities[0, order]
    assert tie.tolist() == [0.5, np.nextafter(0.5, 0)]
    everyone = by_hand(views, rho=1.0).probabilities[0, order]
    assert everyone.tolist() == pytest.approx([1 / 3, 2 / 3])


def test_losers_of_a_tie_are_above_those_with_fewer_votes() -> None:
    views = [
        [0.8, 0.1, 0.1],
        [0.1, 0.7, 0.2],
        [0.9, 0.05, 0.05],
        [0.1, 0.8, 0.1],
        [0.1, 0.2, 0.7],
    ]
    (shares,) = by_hand(views, rho=1.0).probabilities.tolist()
    assert shares == [0.4, np.nextafter(0.4, 0), 0.2]


def test_a_class_with_fewer_votes_wins_no_tie_whatever_its_sum() -> None:
    first, second, third = [0.4, 0.22, 0.38], [0.21, 0.41, 0.38], [0.01, 0.01, 0.98]
    (tie,) = by_hand(
        [first, first, second, second, third], rho=1.0
    ).probabilities.tolist()
    assert tie == [np.nextafter(0.4, 0), 0.4, 0.2]
    (majority,) = by_hand([first, first, third], rho=1.0).probabilities.tolist()
    assert majority == [2 / 3, 0, 1 / 3]


@pytest.mark.parametrize(
    ("views", "rho", "count"),
    [(64, 0.1, 6), (64, 0.3, 19), (100, 0.29, 29), (4, 0.1, 1), (1, 1, 1)],
)
def test_how_many_views_vote(views: int, rho: float, count: int) -> None:
    """The hair in 0.29 of 100 is not lost to rounding, and one view always votes."""
    certain, uncertain = [0.1, 0.9], [0.6, 0.4]
    outcome = by_hand([uncertain] * (views - count) + [certain] * count, rho)
    assert outcome.views_kept == count
    assert outcome.probabilities.tolist() == [[0, 1]]
