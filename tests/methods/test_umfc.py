"""UMFC against its formula, with both groupings."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from fits import fit_on_features
from hypothesis import given, settings
from internals import unit_features
from random_task import DIM, Drawn, EncodedClassifier, drawn, random_units, softmax
from torch import Tensor

from fair_tta import TPT, FairTTAError
from fair_tta.errors import PromptError
from fair_tta.methods import UMFC

Array = npt.NDArray[np.float64]
pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallReferenceWarning")


def reference(n: int = 40) -> Tensor:
    return random_units(2_654_435_769, n, 1, DIM)


def random_case() -> Drawn:
    sensitive = {"s": random_units(1, 2, DIM)}
    return Drawn(random_units(0, 3, DIM), sensitive, random_units(2, 6, 1, DIM))


def fit(case: Drawn, **more: Any) -> UMFC:
    return fit_on_features(
        UMFC(**more), EncodedClassifier(case.task), reference().split(11)
    )


def answer(case: Drawn, **more: Any) -> Tensor:
    return fit(case, **more).adapt(case.task, case.features).probabilities


def norm(v: Array) -> Array:
    length = np.linalg.norm(v)
    direction: Array = v / length if length > 1e-6 else 0 * v
    return direction


def by_formula(
    case: Drawn, groupings: list[tuple[Array, Array]], alpha: float, beta: float
) -> Array:
    """`groupings` has group numbers of the reference images and of those to classify."""
    v, target = reference()[:, 0].numpy(), case.target.numpy()
    m = v.mean(0)
    t = np.zeros(DIM)
    for own, _ in groupings:
        for k in set(own.tolist()):
            t += norm(m - v[own == k].mean(0))
    texts = np.stack([norm(row - beta * norm(t)) for row in target])
    rows = []
    for i, x in enumerate(case.features[:, 0].numpy()):
        logits = case.scale * texts @ x
        for own, new in groupings:
            members = [case.scale * target @ u for u in v[own == new[i]]]
            mean = np.mean(members, axis=0) if members else case.scale * target @ m
            logits = logits - alpha / len(groupings) * mean
        rows.append(softmax(logits))
    return np.array(rows)


@settings(max_examples=20)
@given(drawn())
def test_perceived_groups_are_its_formula(case: Drawn) -> None:
    v, x = reference()[:, 0].numpy(), case.features[:, 0].numpy()
    groupings = [((v @ z.T).argmax(1), (x @ z.T).argmax(1))
                 for z in (z.numpy() for z in case.sensitive.values())]  # fmt: skip
    for alpha, beta in ((0.9, 0.3), (0.5, 0.0), (0.0, 1.0)):
        ours = answer(case, alpha=alpha, beta=beta, perceived=True)
        np.testing.assert_allclose(
            ours, by_formula(case, groupings, alpha, beta), atol=1e-9
        )


@pytest.mark.parametrize("clusters", [1, 3, 5])
def test_clusters_are_its_formula(clusters: int) -> None:
    """Groups by scikit-learn, started from our centres, which it keeps."""
    cluster: Any = pytest.importorskip("sklearn.cluster")
    case = Drawn(random_units(0, 3, DIM), {}, random_units(1, 6, 1, DIM))
    fitted = fit(case, clusters=clusters)
    assert fitted.reference is not None
    start = fitted.reference.tensors["centres"].numpy()
    theirs = cluster.KMeans(clusters, init=start, n_init=1, tol=0).fit(
        reference()[:, 0].numpy()
    )
    np.testing.assert_allclose(theirs.cluster_centers_, start, atol=1e-9)
    groups = (theirs.labels_, theirs.predict(case.features[:, 0].numpy()))
    ours = fitted.adapt(case.task, case.features).probabilities
    np.testing.assert_allclose(ours, by_formula(case, [groups], 0.9, 0.3), atol=1e-9)


@settings(max_examples=8)
@given(drawn())
def test_without_strength_it_is_zero_shot(case: Drawn) -> None:
    for perceived in (False, True):
        ours = answer(case, alpha=0.0, beta=0.0, perceived=perceived)
        torch.testing.assert_close(ours, case.zero_shot)


@settings(max_examples=6)
@given(drawn())
def test_order_and_precision_do_not_matter(case: Drawn) -> None:
    for perceived in (False, True):
        expected = answer(case, perceived=perceived)
        other = answer(case.renamed, perceived=perceived).flip(-1)
        torch.testing.assert_close(other, expected, rtol=0, atol=1e-9)
        assert answer(case.in_float32, perceived=perceived).dtype == torch.float32


def test_two_groups_leave_the_prompts_where_they_are() -> None:
    """Whatever they are, ``m - m_1`` and ``m - m_2`` point to opposite sides."""
    case = random_case()
    fitted = fit(case, perceived=True, alpha=0.0, beta=5.0)
    ours = fitted.adapt(case.task, case.features).probabilities
    torch.testing.assert_close(ours, case.zero_shot)
    three = fit(case, alpha=0.0, beta=5.0)
    assert not torch.allclose(three._prepared(case.task)["texts"], case.target)


def test_a_value_that_nothing_seems_to_have_takes_the_mean() -> None:
    shown = unit_features(reference()[:, 0].mean(0, keepdim=True))
    hidden = torch.cat([shown, -shown])
    case = replace(
        random_case(), sensitive={"s": hidden}, features=hidden[1:].unsqueeze(1)
    )
    fitted = fit(case, perceived=True)
    assert fitted.reference is not None
    learnt = fitted.reference.tensors
    torch.testing.assert_close(learnt["centres.s"][1], learnt["mean"])


def test_settings_after_fitting() -> None:
    case = Drawn(
        random_units(0, 3, DIM),
        {"s": random_units(1, 2, DIM)},
        random_units(2, 6, 1, DIM),
    )
    fitted = fit(case)
    changed = (
        replace(fitted, alpha=0.5, beta=0.1)
        .adapt(case.task, case.features)
        .probabilities
    )
    torch.testing.assert_close(changed, answer(case, alpha=0.5, beta=0.1))
    with pytest.raises(
        FairTTAError, match=r"fitted with clusters=3 \(got 4\): fit it again"
    ):
        replace(fitted, clusters=4).adapt(case.task, case.features)
    with pytest.raises(FairTTAError, match=r"fitted with perceived=False \(got True\)"):
        replace(fitted, perceived=True).adapt(case.task, case.features)


def test_what_it_needs() -> None:
    nothing = Drawn(random_units(0, 3, DIM), {}, random_units(2, 6, 1, DIM))
    assert not UMFC().needs.sensitive
    assert UMFC(perceived=True).needs.sensitive
    assert answer(nothing).isfinite().all()
    with pytest.raises(PromptError, match="UMFC needs sensitive attribute values"):
        fit(nothing, perceived=True)
    with pytest.raises(
        FairTTAError, match=r"at most the number of reference images, 40 \(got 41"
    ):
        fit(nothing, clusters=41)
    with pytest.raises(FairTTAError, match="should be a UsesTexts"):
        TPT() >> UMFC()  # type: ignore[operator]


@pytest.mark.parametrize("value", [-1, math.inf, math.nan])
def test_strengths_are_checked(value: float) -> None:
    with pytest.raises(FairTTAError, match="`alpha` should be a number >= 0"):
        UMFC(alpha=value)
    with pytest.raises(FairTTAError, match="`beta` should be a number >= 0"):
        UMFC(beta=value)


@pytest.mark.parametrize("clusters", [0, 1.5])
def test_clusters_are_checked(clusters: Any) -> None:
    with pytest.raises(FairTTAError, match="`clusters` should be an integer >= 1"):
        UMFC(clusters=clusters)
