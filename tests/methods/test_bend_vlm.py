"""BendVLM against a constrained optimiser and brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from fits import fit_on_features
from hypothesis import given, settings
from internals import bend
from random_task import (
    DIM,
    Drawn,
    EncodedClassifier,
    drawn,
    joint_of,
    random_units,
    softmax,
)
from torch import Tensor

from fair_tta import TPT, FairTTAError
from fair_tta.methods import BendVLM

optimize: Any = pytest.importorskip("scipy.optimize")
Array = npt.NDArray[np.float64]
pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")


def reference_of(case: Drawn, n: int = 40) -> tuple[Tensor, dict[str, list[int]]]:
    places = [[i // (1 + 3 * k) for i in range(n)] for k in range(len(case.sensitive))]
    every = zip(case.sensitive.items(), places, strict=True)
    values = {a: [place % len(z) for place in own] for (a, z), own in every}
    return random_units(2_654_435_769, n, 1, DIM), values


def fit(case: Drawn, neighbours: int = 4) -> BendVLM:
    features, values = reference_of(case)
    names = {a: [f"{a} {i}" for i in values[a]] for a in case.sensitive}
    classifier = EncodedClassifier(case.task)
    return fit_on_features(BendVLM(neighbours), classifier, features.split(9), names)


def answer(case: Drawn, neighbours: int = 4) -> Tensor:
    return fit(case, neighbours).adapt(case.task, case.features).probabilities


def conditions(case: Drawn, y: int, neighbours: int) -> tuple[Array, list[Array]]:
    """e0 and the differences mu_s - mu_1, one image at a time."""
    rows = []
    for z in case.sensitive.values():
        rows += list(z.numpy())
        joint = (
            joint_of(case.target, z).numpy().reshape(len(case.target), len(z), DIM)[y]
        )
        rows += [(joint[i] - joint[j]) / 2 for i, j in combinations(range(len(z)), 2)]
    a = np.stack(rows).T
    e0 = (
        case.target[y].numpy()
        - a @ np.linalg.lstsq(a, case.target[y].numpy(), rcond=1e-9)[0]
    )
    e0 /= np.linalg.norm(e0)
    features, values = reference_of(case)
    differences = []
    for name, z in case.sensitive.items():
        means = []
        for s in range(len(z)):
            own = [v for v, value in zip(features[:, 0].numpy(), values[name], strict=True)
                   if value == s]  # fmt: skip
            own.sort(key=lambda v: -float(v @ e0))
            means.append(np.mean(own[:neighbours], axis=0))
        differences += [mean - means[0] for mean in means[1:]]
    return e0, differences


@settings(max_examples=30)
@given(drawn())
def test_is_its_formula(case: Drawn) -> None:
    for neighbours in (1, 4, 99):
        texts = []
        for y in range(len(case.target)):
            e0, differences = conditions(case, y, neighbours)
            d = np.stack(differences).T
            e = e0 - d @ np.linalg.lstsq(d, e0, rcond=1e-9)[0]
            texts.append(e / np.linalg.norm(e))
        images = case.features[:, 0].numpy()
        expected = [softmax(case.scale * np.stack(texts) @ v) for v in images]
        np.testing.assert_allclose(answer(case, neighbours), expected, atol=1e-8)


@pytest.mark.parametrize("values", [2, 3, 7])
def test_is_what_a_constrained_optimiser_finds(values: int) -> None:
    """The largest <e, e0> with |e| = 1 and <e, mu_s - mu_1> = 0, by trust regions."""
    target, z = random_units(0, 2, DIM), random_units(1, values, DIM)
    case = Drawn(target, {"s": z}, random_units(2, 3, 1, DIM))
    reference = fit(case).reference
    assert reference is not None
    for y, ours in enumerate(reference.tensors["texts"].numpy()):
        e0, differences = conditions(case, y, 4)
        sphere = optimize.NonlinearConstraint(
            lambda e: e @ e,
            1,
            1,
            jac=lambda e: 2 * e,
            hess=lambda _, v: 2 * v[0] * np.eye(DIM),
        )
        found = optimize.minimize(
            lambda e, e0=e0: -e @ e0,
            e0,
            jac=lambda _, e0=e0: -e0,
            hess=lambda _: np.zeros((DIM, DIM)),
            method="trust-constr",
            constraints=[
                sphere,
                optimize.LinearConstraint(np.stack(differences), 0, 0),
            ],
            options={"gtol": 1e-10, "xtol": 1e-12},
        )
        assert found.success
        np.testing.assert_allclose(ours, found.x, atol=1e-5)
        assert ours @ e0 >= found.x @ e0 - 1e-9
        assert max(abs(ours @ d) for d in differences) < 1e-9


@given(drawn())
def test_bent_prompts_are_as_near_to_every_group(case: Drawn) -> None:
    groups = random_units(3, 2, 3, DIM)
    bent = bend(case.target[:2], groups[:, 1:] - groups[:, :1], 1e-12)
    cosine = (groups @ bent.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(cosine, cosine[:, :1].expand_as(cosine))
    torch.testing.assert_close(bent.norm(dim=-1), torch.ones(2, dtype=torch.float64))


def test_groups_that_are_alike_leave_the_first_step() -> None:
    """Orthogonal prompts and equal means: nothing changes."""
    eye = torch.eye(8, dtype=torch.float64)
    start = eye[:2]
    assert torch.equal(bend(start, torch.zeros(2, 3, 8), 1e-12), start)


@settings(max_examples=20)
@given(drawn())
def test_order_and_precision_do_not_matter(case: Drawn) -> None:
    expected = answer(case)
    features, values = reference_of(case)
    other = case.renamed
    names = {a: [f"{a} {len(z) - 1 - values[a][i]}" for i in range(40)]
             for a, z in case.sensitive.items()}  # fmt: skip
    fitted = fit_on_features(BendVLM(4), EncodedClassifier(other.task), features, names)
    ours = fitted.adapt(other.task, other.features).probabilities.flip(-1)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-8)
    small = answer(case.in_float32, 99)  # all, so that no rounding chooses the nearest
    assert small.dtype == torch.float32
    torch.testing.assert_close(small.double(), answer(case, 99), rtol=0, atol=1e-3)


@pytest.mark.parametrize("neighbours", [0, -1, 1.5])
def test_neighbours_are_checked(neighbours: Any) -> None:
    with pytest.raises(FairTTAError, match="`neighbours` should be an integer >= 1"):
        BendVLM(neighbours)


def test_another_number_needs_another_fit() -> None:
    case = Drawn(
        random_units(0, 2, DIM),
        {"s": random_units(1, 2, DIM)},
        random_units(2, 3, 1, DIM),
    )
    with pytest.raises(
        FairTTAError, match=r"fitted with neighbours=4 \(got 9\): fit it again"
    ):
        replace(fit(case), neighbours=9).adapt(case.task, case.features)
    with pytest.raises(
        FairTTAError, match="the second method of a chain should be a UsesTexts"
    ):
        TPT() >> BendVLM()  # type: ignore[operator]
