"""Directions: the weighted sum, aggregators, and UPGrad without quadprog or silent fallbacks."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from contextlib import redirect_stdout
from functools import partial
from itertools import combinations
from typing import Any

import families
import numpy as np
import pytest
import torch
from checks import TARGETS, picture
from internals import (
    Aggregator,
    SLoss,
    WeightedSum,
    combine,
    needed_terms,
    upgrad_weights,
)
from torch import Tensor
from torchjd.aggregation import (
    MGDA,
    Krum,
    KrumWeighting,
    Mean,
    MeanWeighting,
    MGDAWeighting,
    PCGrad,
    TrimmedMean,
    UPGradWeighting,
    Weighting,
)

from fair_tta import FairTPT, FairTPTClassifier, FairTPTMO
from fair_tta.extend import AugMix


def gramian_of(jacobian: Tensor) -> Tensor:
    return jacobian.double() @ jacobian.double().T


def spread(lam: float, terms: int) -> Tensor:
    """1 for the target, `lam` for each of the others."""
    first, of_others = (0.0, 1.0) if math.isinf(lam) else (1.0, lam)
    return torch.tensor([first] + [of_others] * (terms - 1), dtype=torch.float64)


def by_least_squares(jacobian: Tensor, preference: Tensor) -> Tensor:
    """The aggregate by its definition: each gradient plus the others that shorten it."""
    rows = jacobian.double().numpy()
    lengths = np.linalg.norm(rows, axis=1)
    unit = rows / np.where(lengths > 0, lengths, 1)[:, None]
    total = np.zeros(rows.shape[1])
    for k, weight in enumerate(preference.tolist()):
        conflicting = [j for j in range(len(rows)) if j != k and lengths[j] > 0]
        best = unit[k]
        for size in range(1, len(conflicting) + 1):
            for chosen in combinations(conflicting, size):
                x = np.linalg.lstsq(unit[list(chosen)].T, -unit[k])[0]
                shorter = unit[k] + x @ unit[list(chosen)]
                if (x >= 0).all() and np.linalg.norm(shorter) < np.linalg.norm(best):
                    best = shorter
        total += weight * lengths[k] * best
    return torch.tensor(total)


def by_enumeration(gramian: Tensor, preference: Tensor) -> list[float]:
    """Weights from the optimality conditions: which gradients are added is tried in all ways."""
    lengths = gramian.diagonal().sqrt().numpy()
    usable = [k for k, length in enumerate(lengths) if length > 0]
    cosines = (gramian.numpy() / np.where(lengths > 0, lengths, 1)).T
    cosines = cosines / np.where(lengths > 0, lengths, 1)
    weights = preference.numpy().copy()
    for k in usable:
        candidates = [j for j in usable if j != k]
        for size in range(len(candidates) + 1):
            for chosen in map(list, combinations(candidates, size)):
                added = np.zeros(len(lengths))
                added[chosen] = np.linalg.solve(
                    cosines[np.ix_(chosen, chosen)], -cosines[chosen, k]
                )
                conflicts = cosines[candidates, k] + cosines[candidates] @ added < -1e-9
                if (added >= 0).all() and not conflicts.any():
                    weights += (
                        preference[k].item()
                        * lengths[k]
                        * added
                        / np.where(lengths, lengths, 1)
                    )
                    break
            else:
                continue
            break
    return [float(weight) for weight in weights]


def assert_same_direction(
    direction: Tensor, expected: Tensor, scale: Tensor, tolerance: float
) -> None:
    assert float((direction - expected).norm()) <= tolerance * float(scale)


@pytest.mark.parametrize(
    "jacobian",
    [
        1e-3
        * torch.tensor([[1.0, 0.0], [-2.0, 0.5]]),  # small: squared norms below 1e-4
        torch.tensor(
            [[1.0, 0.0], [-0.9e-3, 0.5e-3]]
        ),  # unequal: below 1 % of the other
    ],
)
def test_torchjds_defaults_would_conflict_and_ours_do_not(jacobian: Tensor) -> None:
    gramian = gramian_of(jacobian)
    preference = torch.tensor([1.0, 1.0], dtype=torch.float64)
    plain = UPGradWeighting(preference)(gramian) @ jacobian.double()
    ours = upgrad_weights(gramian, 1.0) @ jacobian.double()
    conflicts = [float(plain @ g.double() / g.norm()) for g in jacobian]
    assert min(conflicts) < -1e-6  # the silent fallback
    for g in jacobian:
        assert float(ours @ g.double()) >= -1e-12


def test_upgrad_where_there_is_nothing_to_weigh() -> None:
    assert upgrad_weights(torch.zeros(2, 2).double(), 3.0).tolist() == [1, 3]
    with_zero = gramian_of(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert upgrad_weights(with_zero, 3.0).tolist() == [1, 3]
    opposed = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    direction = upgrad_weights(gramian_of(opposed), 1.0) @ opposed.double()
    assert float(direction.norm()) < 1e-4
    assert upgrad_weights(torch.eye(1).double(), 3.0).tolist() == [1]
    infinite = gramian_of(torch.tensor([[1.0, 0.0], [-0.5, 1.0]]))
    assert upgrad_weights(infinite, math.inf).tolist() == pytest.approx([0.5, 1])


@pytest.mark.parametrize("lam", [0.0, 1.0, 100.0, math.inf])
@pytest.mark.parametrize("terms", [2, 3, 4, 5, 8])
def test_upgrad_equals_its_definition(terms: int, lam: float) -> None:
    generator = torch.Generator().manual_seed(terms)
    preference, conflicts = spread(lam, terms), 0
    for i in range(20 if terms < 8 else 5):
        # as many dimensions as terms, or few more: conflicts in plenty
        jacobian = torch.randn(
            terms, terms + i % 3, generator=generator, dtype=torch.float64
        )
        jacobian *= 10 ** (
            6 * torch.rand(terms, 1, generator=generator, dtype=torch.float64) - 3
        )
        gramian = gramian_of(jacobian)
        conflicts += int((gramian < 0).any())
        direction = upgrad_weights(gramian, lam) @ jacobian
        scale = preference @ jacobian.norm(dim=1)
        assert_same_direction(
            direction, by_least_squares(jacobian, preference), scale, 1e-6
        )
        for row in jacobian:  # no conflict
            assert float(direction @ row) >= -1e-7 * float(scale * row.norm())
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
def test_upgrad_where_gradients_are_degenerate(
    rows: list[list[float]], scale: float
) -> None:
    preference = spread(3.0, len(rows))
    for unequal in (1.0, 1e-6):
        jacobian = torch.tensor(rows) * torch.tensor(scale)
        jacobian[0] *= unequal
        weights = upgrad_weights(gramian_of(jacobian), 3.0)
        assert weights.isfinite().all()
        assert (
            weights >= preference * (1 - 1e-12)
        ).all()  # something is added, nothing is taken away
        direction = weights @ jacobian.double()
        expected = by_least_squares(jacobian, preference)
        length = preference @ jacobian.double().norm(dim=1)
        assert_same_direction(direction, expected, length, 1e-7)


def random_jacobian(generator: np.random.Generator, i: int) -> Tensor:
    """Two to four gradients: of similar lengths, of very different ones, with one of zero."""
    terms = 2 + i % 3
    rows = generator.standard_normal((terms, terms + generator.integers(3)))
    if i % 2:
        rows *= 10.0 ** generator.uniform(-6, 6, (terms, 1))
    if (
        i % 7 == 0
    ):  # its weight is its preference, whatever a solver makes of a column of zeros
        rows[generator.integers(terms)] = 0
    return torch.from_numpy(rows)


def test_upgrad_equals_what_was_enumerated_on_300_gramians() -> None:
    """Weights, not only the direction: those of independent gradients are unique."""
    generator = np.random.default_rng(0)
    conflicts = 0
    for i in range(300):
        jacobian = random_jacobian(generator, i)
        lam = (0.0, 1.0, 100.0, math.inf)[i // 3 % 4]
        gramian = gramian_of(jacobian)
        expected = by_enumeration(gramian, spread(lam, len(jacobian)))
        assert upgrad_weights(gramian, lam).tolist() == pytest.approx(
            expected, rel=1e-6, abs=1e-12
        )
        conflicts += int((gramian < 0).any())
    assert conflicts > 200


def test_gradients_that_are_no_numbers_leave_the_preference() -> None:
    gramian = gramian_of(torch.tensor([[1.0, 0.0], [math.nan, 0.5]]))
    assert upgrad_weights(gramian, 3.0).tolist() == [1, 3]
    gramian = gramian_of(torch.tensor([[1.0, 0.0], [math.inf, 0.5], [-1.0, 0.5]]))
    assert upgrad_weights(gramian, 2.0).isfinite().all()


def test_aggregators_of_torchjd() -> None:
    jacobian = torch.tensor(
        [[1.0, 0.0, 0.0, 0.0], [-1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 2.0, 4.0]]
    )
    gradients = torch.stack([jacobian, 2 * jacobian]).view(2, 3, 2, 2)
    for aggregator in (Mean(), MGDA(), PCGrad(), TrimmedMean(trim_number=1)):
        assert needed_terms(aggregator, 3) == [True] * 3
        with torch.random.fork_rng():
            torch.manual_seed(0)
            combined = combine(aggregator, gradients)
            torch.manual_seed(0)
            expected = torch.stack(
                [aggregator(matrix.double()) for matrix in (jacobian, 2 * jacobian)]
            )
        assert combined.shape == (2, 2, 2)
        torch.testing.assert_close(combined.flatten(1), expected.float())


@pytest.mark.parametrize(
    ("weighting", "aggregator"),
    [(MeanWeighting(), Mean()), (MGDAWeighting(), MGDA()), (KrumWeighting(1), Krum(1))],
)
def test_weightings_of_gramians(weighting: Weighting[Any], aggregator: Any) -> None:
    gradients = torch.randn(5, 4, 2, 3, generator=torch.Generator().manual_seed(0))
    assert needed_terms((weighting, "gramian"), 4) == [True] * 4
    combined = combine((weighting, "gramian"), gradients)
    torch.testing.assert_close(combined, combine(aggregator, gradients))


def test_a_function_of_the_gramian() -> None:
    def equal_lengths(gramian: Tensor) -> Tensor:
        return 1 / gramian.diagonal().sqrt()

    gradients = torch.tensor(
        [[[[3.0, 0.0]], [[0.0, 4.0]]], [[[0.0, 5.0]], [[8.0, 6.0]]]]
    )
    combined = combine((equal_lengths, "gramian"), gradients)
    torch.testing.assert_close(combined, torch.tensor([[[1.0, 1.0]], [[0.8, 1.6]]]))


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

    gradients = torch.ones(3, 2, 1, 2)
    assert combine(Counting(), gradients).tolist() == [[[1, 1]]] * 3
    assert (
        combine((Counting(), "gramian"), gradients).tolist() == [[[4, 4]]] * 3
    )  # 2 terms times 2


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
        in_one_term = clf.with_adapter(FairTPT(lam=lam)).predict_proba(images)
        in_separate_terms = clf.with_adapter(
            FairTPT(lam=lam, loss=SLoss(separate=True))
        ).predict_proba(images)
        assert in_separate_terms == pytest.approx(
            in_one_term, abs=1e-5
        )  # the sum of their gradients either way
        free = clf.with_adapter(FairTPTMO(lam=lam, loss=SLoss(separate=True))).predict(
            images
        )
        assert all(not p.warnings or "step" in p.warnings[0] for p in free)


@pytest.mark.parametrize(
    ("lam", "weights"),
    [
        (7.0, [1]),
        (0.0, [1, 0]),
        (1.0, [0.5, 0.5]),
        (99.0, [0.01, 0.99]),
        (math.inf, [0, 1]),
        (3.0, [0.25, 0.75, 0.75]),
        (math.inf, [0, 1, 1]),
    ],
)
def test_weighted_sum(lam: float, weights: list[float]) -> None:
    direction = WeightedSum(lam)
    gradients = torch.eye(len(weights))
    assert direction(gradients).tolist() == pytest.approx(weights)
    assert needed_terms(direction, len(weights)) == [weight > 0 for weight in weights]


@pytest.mark.parametrize("terms", [2, 3])
@pytest.mark.parametrize(
    "aggregator", [WeightedSum(2.0), (partial(upgrad_weights, lam=2.0), "gramian")]
)
def test_images_are_weighed_on_their_own(aggregator: Aggregator, terms: int) -> None:
    gradients = torch.randn(4, terms, 3, 5, generator=torch.Generator().manual_seed(0))
    together = combine(aggregator, gradients)
    for i in range(4):
        matrix = gradients[i].flatten(1).double()
        if isinstance(aggregator, tuple):
            weights = aggregator[0](matrix @ matrix.T)
        else:
            weights = torch.tensor([1 / 3] + [2 / 3] * (terms - 1)).double()
        expected = np.einsum(
            "t,t...->...", weights.numpy(), gradients[i].double().numpy()
        )
        assert together[i].numpy() == pytest.approx(expected, rel=1e-5, abs=1e-6)


HIDE_QUADPROG = """
import sys

class Hider:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("quadprog", "qpsolvers"):
            raise ModuleNotFoundError(f"{name} is hidden")

sys.meta_path.insert(0, Hider())
import torchjd.aggregation
try:
    torchjd.aggregation.UPGrad()
except ImportError:
    print("hidden")
"""

PREDICT = """
from fair_tta.extend import AugMix
from fair_tta import FairTPTClassifier, FairTPTMO, miniature
from fair_tta.methods import SLoss

task = miniature.BADGES
images = [drawn.image for drawn in task.draw(3, seed=1)]
for loss in (SLoss(), SLoss(separate=True)):
    sensitive = {**task.sensitive, "size": ["small", "large"]}
    clf = FairTPTClassifier(
        "miniature", task.targets, sensitive, task.template, adapter=FairTPTMO(loss=loss),
        views=AugMix(4),
    )
    print(clf.predict_proba(images).tolist())
"""


def test_upgrad_needs_no_quadprog() -> None:
    """TorchJD's default projector does, and quadprog is GPL."""

    process = subprocess.run(
        [sys.executable, "-c", HIDE_QUADPROG + PREDICT], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    hidden, *without = process.stdout.splitlines()
    assert hidden == "hidden"
    with redirect_stdout(io.StringIO()) as printed:  # this process has it
        exec(PREDICT, {})
    for line, expected in zip(without, printed.getvalue().splitlines(), strict=True):
        np.testing.assert_allclose(
            json.loads(line), json.loads(expected), rtol=0, atol=1e-6
        )
