"""PartialProjection against its published formula and against the equation that it solves."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import families
import numpy as np
import numpy.typing as npt
import pytest
import torch
from checks import picture
from hypothesis import given
from hypothesis import strategies as st
from internals import AugMix, balance_part
from random_task import DIM, Drawn, drawn, joint_of, random_units, softmax, unrelated
from torch import Tensor

from fair_tta import TPT, FairTPTClassifier, Templates
from fair_tta.errors import PromptError
from fair_tta.methods import PartialProjection

optimize: Any = pytest.importorskip("scipy.optimize")
linalg: Any = pytest.importorskip("scipy.linalg")
Array = npt.NDArray[np.float64]


def published(e: Array, basis: Array) -> Array:
    """As printed; `basis` has orthonormal columns."""
    within = basis @ (basis.T @ e)
    rest = e - within
    n, o = np.linalg.norm(within), np.linalg.norm(rest)
    big = n + (1 - o) / n
    a = (big - o * math.sqrt(big**2 - n**2)) / (big**2 + o**2)
    moved: Array = math.sqrt(1 - a**2) * rest / o + a * within / n
    return moved


FLOOR = 1e-12  # of float64


def by_formula(case: Drawn) -> Array:
    differences = []
    for z in case.sensitive.values():
        joint = joint_of(case.target, z).numpy().reshape(len(case.target), len(z), DIM)
        prototypes = [joint[:, s].mean(0) for s in range(len(z))]
        differences += [p - prototypes[0] for p in prototypes[1:]]
    basis = linalg.orth(np.stack(differences).T)
    targets = np.stack([published(t, basis) for t in case.target.numpy()])
    images = [published(v, basis) for v in case.features[:, 0].numpy()]
    return np.array([softmax(case.scale * targets @ v) for v in images])


def answer(case: Drawn) -> Tensor:
    return PartialProjection().adapt(case.task, case.features).probabilities


@given(drawn())
def test_is_its_formula(case: Drawn) -> None:
    np.testing.assert_allclose(answer(case), by_formula(case), atol=1e-9)


@given(st.floats(1e-3, 0.999))
def test_solves_its_equation(n: float) -> None:
    """The share of the part that stays is the share of similarity that is given up."""
    e = torch.tensor([[n, math.sqrt(1 - n**2), 0.0]], dtype=torch.float64)
    a, rest, _ = balance_part(e, torch.eye(3, dtype=torch.float64)[:1], FLOOR)[0][
        0
    ].tolist()
    o = math.sqrt(1 - n**2)

    def imbalance(a: float) -> float:
        return (1 - n * a - o * math.sqrt(1 - a**2)) / (1 - o) - a / n

    assert a == pytest.approx(optimize.brentq(imbalance, 0, n, xtol=1e-14), abs=1e-7)
    assert math.hypot(a, rest) == pytest.approx(1)


def test_of_a_short_part_38_percent_stays() -> None:
    for n in (1e-2, 1e-5, 1e-12):
        e = torch.tensor([[n, math.sqrt(1 - n**2)]], dtype=torch.float64)
        moved, _ = balance_part(e, torch.eye(2, dtype=torch.float64)[:1], FLOOR)
        assert float(moved[0, 0]) / n == pytest.approx((3 - math.sqrt(5)) / 2, rel=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_part_and_no_rest_stay(dtype: torch.dtype) -> None:
    eye = torch.eye(4, dtype=dtype)
    assert torch.equal(balance_part(eye, eye[:2], FLOOR)[0], eye)
    assert torch.equal(balance_part(eye, eye[:0], FLOOR)[0], eye)
    near = torch.tensor([[1.0, 0, 0, 1e-9]], dtype=dtype)
    moved, is_within = balance_part(near, eye[:2], 1e-8)
    assert moved.isfinite().all()
    assert is_within.all()


@given(drawn())
def test_values_with_the_same_prompts_change_nothing(case: Drawn) -> None:
    same = {a: z[:1].expand(2, -1) for a, z in case.sensitive.items()}
    still = replace(case, sensitive=same)
    torch.testing.assert_close(answer(still), case.zero_shot)


@given(unrelated())
def test_an_unrelated_attribute_changes_nothing(case: Drawn) -> None:
    """The joint prompts of our tests then differ in directions that nothing else has."""
    torch.testing.assert_close(answer(case), case.zero_shot, rtol=0, atol=1e-9)


@given(drawn())
def test_order_duplicates_and_precision_do_not_matter(case: Drawn) -> None:
    expected = answer(case)
    torch.testing.assert_close(
        answer(case.renamed).flip(-1), expected, rtol=0, atol=1e-9
    )
    twice = {a: torch.cat([z, z]) for a, z in case.sensitive.items()}
    torch.testing.assert_close(
        answer(replace(case, sensitive=twice)), expected, rtol=0, atol=1e-9
    )
    small = answer(case.in_float32)
    assert small.dtype == torch.float32
    torch.testing.assert_close(small.double(), expected, rtol=0, atol=1e-4)


def classifier(template: Any) -> FairTPTClassifier:
    model, *processor = families.seeded(families.clip)
    return FairTPTClassifier(
        model, ["cat", "dog"], ["male", "female"], template, adapter=PartialProjection(),
        processor=tuple(processor), views=AugMix(1),
    )  # fmt: skip


def test_joint_prompts_are_needed_at_construction() -> None:
    with pytest.raises(
        PromptError, match="joint prompts are needed, but `template` does not"
    ):
        classifier(Templates("a {target}.", "a {sensitive} animal."))


def test_comes_after_tuning() -> None:
    clf = classifier("a {sensitive} {target}.")
    alone = clf.predict(picture())
    untouched = clf.with_adapter(TPT(steps=0) >> PartialProjection()).predict(picture())
    assert untouched.probabilities == pytest.approx(alone.probabilities, abs=1e-4)


def test_images_are_unit_vectors_again() -> None:
    moved, _ = balance_part(random_units(0, 50, DIM), random_units(1, 3, DIM), FLOOR)
    torch.testing.assert_close(moved.norm(dim=-1), torch.ones(50, dtype=torch.float64))
