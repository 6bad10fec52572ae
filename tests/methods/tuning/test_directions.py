"""Directions: the weighted sum, and UPGrad without a solver and without silent fallbacks."""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import families
import numpy as np
import pytest
import torch
from checks import TARGETS, picture
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchjd.aggregation import MGDA, Mean, PCGrad, TrimmedMean, UPGradWeighting
from torchjd.linalg import QuadprogProjector

from fair_tta import FairTPT, FairTPTClassifier, FairTPTMO, FairTTAError
from fair_tta.extend import AugMix
from fair_tta.methods._tuning.directions import Aggregated, Direction, UPGrad, WeightedSum, combine
from fair_tta.methods._tuning.losses import SLoss


def gramian_of(jacobian: Tensor) -> Tensor:
    return jacobian.double() @ jacobian.double().T


def closed_form(gramian: Tensor, preference: tuple[float, float]) -> list[float]:
    """METHODS 5.2: two objectives, exact."""
    a, c, b = float(gramian[0, 0]), float(gramian[0, 1]), float(gramian[1, 1])
    p1, p2 = preference
    if c >= 0:
        return [p1, p2]
    return [p1 + p2 * -c / a, p2 + p1 * -c / b]


def spread(lam: float, terms: int) -> Tensor:
    """1 for the target, `lam` shared by the others."""
    first, rest = (0.0, 1.0) if math.isinf(lam) else (1.0, lam)
    return torch.tensor([first] + [rest / (terms - 1)] * (terms - 1), dtype=torch.float64)


def by_least_squares(jacobian: Tensor, preference: Tensor) -> Tensor:
    """The aggregate by its definition: each gradient plus whatever of the others shortens it."""
    rows = jacobian.double().numpy()
    lengths = np.linalg.norm(rows, axis=1)
    unit = rows / np.where(lengths > 0, lengths, 1)[:, None]
    total = np.zeros(rows.shape[1])
    for k, weight in enumerate(preference.tolist()):
        others = [j for j in range(len(rows)) if j != k and lengths[j] > 0]
        best = unit[k]
        for size in range(1, len(others) + 1):
            for some in combinations(others, size):
                x = np.linalg.lstsq(unit[list(some)].T, -unit[k])[0]
                shorter = unit[k] + x @ unit[list(some)]
                if (x >= 0).all() and np.linalg.norm(shorter) < np.linalg.norm(best):
                    best = shorter
        total += weight * lengths[k] * best
    return torch.tensor(total)


def by_torchjd(jacobian: Tensor, preference: Tensor) -> Tensor:
    """TorchJD's weights on gradients of length one, hardly regularised."""
    lengths = jacobian.double().norm(dim=1)
    unit: Tensor = jacobian.double() / lengths[:, None]
    projector = QuadprogProjector(norm_eps=0.0, reg_eps=1e-14)
    weighting = UPGradWeighting(preference * lengths, projector)
    aggregate: Tensor = weighting(unit @ unit.T) @ unit
    return aggregate


def assert_same_direction(found: Tensor, wanted: Tensor, scale: Tensor, tolerance: float) -> None:
    assert float((found - wanted).norm()) <= tolerance * float(scale)


vectors = st.lists(st.floats(-1, 1), min_size=6, max_size=6)


@settings(deadline=None)
@given(vectors, vectors, st.floats(-8, 3), st.floats(-8, 3), st.sampled_from([0.0, 1.0, 100.0]))
def test_upgrad_equals_the_closed_form_at_all_scales(
    first: list[float], second: list[float], log_a: float, log_b: float, lam: float
) -> None:
    jacobian = torch.tensor([first, second], dtype=torch.float64)
    if float(jacobian.norm(dim=1).min()) < 1e-3:
        return
    jacobian = jacobian * 10.0 ** torch.tensor([[log_a], [log_b]], dtype=torch.float64)
    gramian = gramian_of(jacobian)
    weights = UPGrad(lam).weights(gramian)
    cosine = float(gramian[0, 1] / (gramian[0, 0] * gramian[1, 1]).sqrt())
    if abs(cosine) < 1 - 1e-6:
        assert weights.tolist() == pytest.approx(closed_form(gramian, (1, lam)), rel=1e-4)
    # the direction conflicts with neither gradient, relative to their lengths
    direction = weights @ jacobian
    lengths = jacobian.norm(dim=1)
    scale = float((weights * lengths).sum())
    for g, length in zip(jacobian, lengths, strict=True):
        assert float(direction @ g) / (float(length) * scale) >= -1e-7


@pytest.mark.parametrize(
    "jacobian",
    [
        1e-3 * torch.tensor([[1.0, 0.0], [-2.0, 0.5]]),  # small: squared norms below 1e-4
        torch.tensor([[1.0, 0.0], [-0.9e-3, 0.5e-3]]),  # unequal: below 1 % of the other
    ],
)
def test_torchjds_defaults_would_conflict_and_ours_do_not(jacobian: Tensor) -> None:
    gramian = gramian_of(jacobian)
    preference = torch.tensor([1.0, 1.0], dtype=torch.float64)
    plain = UPGradWeighting(preference)(gramian) @ jacobian.double()
    ours = UPGrad(1.0).weights(gramian) @ jacobian.double()
    conflicts = [float(plain @ g.double() / g.norm()) for g in jacobian]
    assert min(conflicts) < -1e-6  # the silent fallback
    for g in jacobian:
        assert float(ours @ g.double()) >= -1e-12


def test_upgrad_where_there_is_nothing_to_weigh() -> None:
    assert UPGrad(3.0).weights(torch.zeros(2, 2).double()).tolist() == [1, 3]
    one = gramian_of(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert UPGrad(3.0).weights(one).tolist() == [1, 3]
    opposed = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    direction = UPGrad(1.0).weights(gramian_of(opposed)) @ opposed.double()
    assert float(direction.norm()) < 1e-4
    assert UPGrad(3.0).weights(torch.eye(1).double()).tolist() == [1]
    infinite = gramian_of(torch.tensor([[1.0, 0.0], [-0.5, 1.0]]))
    assert UPGrad(math.inf).weights(infinite).tolist() == pytest.approx([0.5, 1])


@pytest.mark.parametrize("lam", [0.0, 1.0, 100.0, math.inf])
@pytest.mark.parametrize("terms", [2, 3, 4, 5, 8])
def test_upgrad_equals_two_independent_solvers(terms: int, lam: float) -> None:
    generator = torch.Generator().manual_seed(terms)
    preference, conflicts = spread(lam, terms), 0
    for i in range(20 if terms < 8 else 5):
        # as many dimensions as terms, or few more: conflicts in plenty
        jacobian = torch.randn(terms, terms + i % 3, generator=generator, dtype=torch.float64)
        jacobian *= 10 ** (6 * torch.rand(terms, 1, generator=generator, dtype=torch.float64) - 3)
        gramian = gramian_of(jacobian)
        conflicts += int((gramian < 0).any())
        found = UPGrad(lam).weights(gramian) @ jacobian
        scale = preference @ jacobian.norm(dim=1)
        assert_same_direction(found, by_least_squares(jacobian, preference), scale, 1e-6)
        assert_same_direction(found, by_torchjd(jacobian, preference), scale, 1e-5)
        for row in jacobian:  # no conflict
            assert float(found @ row) >= -1e-7 * float(scale * row.norm())
    assert conflicts > 2


a, b = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
minus = [-1.0, 0.0, 0.0]
DEGENERATE = {
    "zeros": [[0.0] * 3] * 3,
    "one zero": [a, [0.0] * 3, [-0.5, 1.0, 0.0]],
    "opposed": [a, minus, b],
    "all along a line": [a, minus, a],
    "the same": [b, b, b],
    "collinear, conflicting": [[-1.0, 1.0, 0.0], a, [2.0, 0.0, 0.0]],
    "a plane around": [a, [-1.0, 1.0, 0.0], [-1.0, -1.0, 0.0]],
    "four around": [a, b, minus, [0.0, -1.0, 0.0]],
    "dependent": [a, b, [1.0, 1.0, 0.0], [-1.0, -0.5, 0.1]],
}


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12, 1e30])
@pytest.mark.parametrize("rows", DEGENERATE.values(), ids=DEGENERATE)
def test_upgrad_where_gradients_are_degenerate(rows: list[list[float]], scale: float) -> None:
    preference = spread(3.0, len(rows))
    for unequal in (1.0, 1e-6):
        jacobian = torch.tensor(rows) * torch.tensor(scale)
        jacobian[0] *= unequal
        weights = UPGrad(3.0).weights(gramian_of(jacobian))
        assert weights.isfinite().all()
        assert (
            weights >= preference * (1 - 1e-12)
        ).all()  # something is added, nothing is taken away
        found = weights @ jacobian.double()
        wanted = by_least_squares(jacobian, preference)
        length = preference @ jacobian.double().norm(dim=1)
        assert_same_direction(found, wanted, length, 1e-7)


def test_upgrad_by_hand() -> None:
    """g1 = (1, 0) and g2 = (-1, 1) conflict, g3 = (0, -1) conflicts with g2."""
    gramian = gramian_of(torch.tensor([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]]))
    # g1 + g2/2 = (1/2, 1/2) conflicts with g3: g1 + g2 + g3 = 0 is shorter, so for all
    assert UPGrad(2.0).weights(gramian).tolist() == pytest.approx([3, 3, 3])
    gramian = gramian_of(torch.tensor([[1.0, 0.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    assert UPGrad(2.0).weights(gramian).tolist() == pytest.approx([1 + 1, 1 + 0.5, 1])


def test_a_term_without_gradient_changes_nothing_for_the_others() -> None:
    """The way for many terms gives what the way for two gives."""
    generator = torch.Generator().manual_seed(0)
    jacobians = torch.randn(50, 2, 3, generator=generator, dtype=torch.float64)
    padded = torch.cat([jacobians, torch.zeros(50, 1, 3, dtype=torch.float64)], dim=1)
    three = UPGrad(2.0).weights(padded @ padded.mT)
    two = UPGrad(1.0).weights(jacobians @ jacobians.mT)  # the third has its share of lam
    torch.testing.assert_close(three[:, :2], two)
    assert (three[:, 2] == 1).all()


def test_gradients_that_are_no_numbers_leave_the_preference() -> None:
    gramian = gramian_of(torch.tensor([[1.0, 0.0], [math.nan, 0.5]]))
    assert UPGrad(3.0).weights(gramian).tolist() == [1, 3]
    gramian = gramian_of(torch.tensor([[1.0, 0.0], [math.inf, 0.5], [-1.0, 0.5]]))
    assert UPGrad(2.0).weights(gramian).isfinite().all()


def test_aggregators_of_torchjd() -> None:
    jacobian = torch.tensor([[1.0, 0.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 4.0]])
    gradients = torch.stack([jacobian, 2 * jacobian]).view(2, 3, 2, 2)
    for aggregator in (Mean(), MGDA(), PCGrad(), TrimmedMean(trim_number=1)):
        direction = Aggregated(aggregator)
        assert direction.wants(3) == [True] * 3
        with torch.random.fork_rng():
            torch.manual_seed(0)
            found = combine(direction, gradients)
            torch.manual_seed(0)
            expected = torch.stack([aggregator(one.double()) for one in (jacobian, 2 * jacobian)])
        assert found.shape == (2, 2, 2)
        torch.testing.assert_close(found.flatten(1), expected.float())


@pytest.mark.parametrize("aggregator", [Mean, "MGDA", 3])
def test_what_is_no_aggregator(aggregator: Any) -> None:
    with pytest.raises(FairTTAError, match="`aggregator` should be an aggregator of TorchJD such"):
        FairTPTMO(aggregator=aggregator)


@pytest.mark.parametrize(
    ("aggregator", "got"),
    [(lambda g: g, r"\[2, 6\]"), (lambda g: g[0, :3], r"\[3\]"), (lambda g: None, "a NoneType")],
)
def test_an_aggregator_that_gives_something_else(aggregator: Any, got: str) -> None:
    with pytest.raises(FairTTAError, match=rf"give a tensor of shape \[6\] \(got {got}\)"):
        combine(Aggregated(aggregator), torch.ones(1, 2, 2, 3))


def test_a_direction_with_other_weights() -> None:
    class Odd:
        def weights(self, gramian: Tensor) -> Tensor:
            return gramian

        def wants(self, terms: int) -> list[bool]:
            return [True] * terms

    message = r"Odd.weights should give a tensor of shape \[1, 2\] \(got \[1, 2, 2\]\)"
    with pytest.raises(FairTTAError, match=message):
        combine(Odd(), torch.ones(1, 2, 2, 3))


def test_an_aggregator_with_a_memory_sees_each_image_anew() -> None:
    """TorchJD's stateful aggregators have `reset`."""

    class Counting:
        def __init__(self) -> None:
            self.seen = 0

        def reset(self) -> None:
            self.seen = 0

        def __call__(self, gradients: Tensor) -> Tensor:
            self.seen += 1
            return gradients[0] * self.seen

    assert combine(Aggregated(Counting()), torch.ones(3, 2, 1, 2)).tolist() == [[[1, 1]]] * 3


def test_an_objective_with_three_terms() -> None:
    model, *processor = families.seeded(families.clip)
    clf = FairTPTClassifier(
        (model, processor),
        TARGETS,
        {"place": ["on water", "on land"], "time": ["by day", "at night", "at noon"]},
        "a photo of a {target} {sensitive}.",
        views=AugMix(4),
    )
    images = [picture(0), picture(1)]
    for lam in (0.0, 1.0, 100.0, math.inf):
        one = clf.with_adapter(FairTPT(lam=lam)).predict_proba(images)
        each = clf.with_adapter(FairTPT(lam=lam, loss=SLoss(separate=True))).predict_proba(images)
        assert each == pytest.approx(one, abs=1e-5)  # the mean of their gradients either way
        free = clf.with_adapter(FairTPTMO(lam=lam, loss=SLoss(separate=True))).predict(images)
        assert all(not p.warnings or "step" in p.warnings[0] for p in free)


@pytest.mark.parametrize(
    ("lam", "weights"),
    [(0.0, [1, 0, 0]), (1.0, [0.5, 0.25, 0.25]), (math.inf, [0, 0.5, 0.5])],
)
def test_weighted_sum_of_three(lam: float, weights: list[float]) -> None:
    direction = WeightedSum(lam)
    assert direction.weights(torch.eye(3).double()).tolist() == pytest.approx(weights)
    assert direction.wants(3) == [weight > 0 for weight in weights]


@pytest.mark.parametrize(
    ("lam", "weights", "wants"),
    [(0.0, [1, 0], [True, False]), (1.0, [0.5, 0.5], [True, True]),
     (99.0, [0.01, 0.99], [True, True]), (math.inf, [0, 1], [False, True])],
)  # fmt: skip
def test_weighted_sum(lam: float, weights: list[float], wants: list[bool]) -> None:
    direction = WeightedSum(lam)
    assert direction.weights(torch.eye(2).double()).tolist() == pytest.approx(weights)
    assert direction.wants(2) == wants
    assert direction.weights(torch.eye(1).double()).tolist() == [1]
    assert direction.wants(1) == [True]


@pytest.mark.parametrize("terms", [2, 3])
@pytest.mark.parametrize("direction", [WeightedSum(2.0), UPGrad(2.0)])
def test_images_are_weighed_on_their_own(direction: Direction, terms: int) -> None:
    gradients = torch.randn(4, terms, 3, 5, generator=torch.Generator().manual_seed(0))
    together = combine(direction, gradients)
    for i in range(4):
        flat = gradients[i].flatten(1).double().numpy()
        weights = direction.weights(torch.tensor(flat @ flat.T)).numpy()
        expected = np.einsum("t,t...->...", weights, gradients[i].double().numpy())
        assert together[i].numpy() == pytest.approx(expected, rel=1e-5, abs=1e-6)
