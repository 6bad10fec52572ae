"""OrthCali without normalising again: PRISM-mini. The rest is in test_against_literal.py."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from random_task import DIM, Drawn, drawn, random_units, softmax

from fair_tta import OrthCali


@given(drawn())
def test_prism_mini_is_its_formula(case: Drawn) -> None:
    """Images are projected, prompts are not, and nothing is normalised again."""
    a = np.concatenate([z.numpy() for z in case.sensitive.values()]).T
    projector = np.eye(DIM) - a @ np.linalg.pinv(a)
    expected = [
        softmax(case.scale * case.target.numpy() @ projector @ v)
        for v in case.features[:, 0].numpy()
    ]
    ours = (
        OrthCali(lam=0, renormalise=False).adapt(case.task, case.features).probabilities
    )
    np.testing.assert_allclose(ours, expected, atol=1e-9)


def test_orthogonal_prompts_change_nothing() -> None:
    """Then the projected prompts have length one, normalised again or not."""
    eye = torch.eye(6, dtype=torch.float64)
    case = Drawn(eye[:2], {"s": eye[2:4]}, random_units(0, 5, 1, 6))
    for renormalise in (True, False):
        ours = OrthCali(lam=0, renormalise=renormalise).adapt(case.task, case.features)
        torch.testing.assert_close(ours.probabilities, case.zero_shot)


@given(drawn())
def test_normalising_again_counts(case: Drawn) -> None:
    one, two = (
        OrthCali(lam=0, renormalise=r).adapt(case.task, case.features).probabilities
        for r in (True, False)
    )
    assert not torch.allclose(one, two)
