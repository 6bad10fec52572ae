"""EpisodicTIE against its formula."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from hypothesis import given
from internals import nearest_value
from random_task import DIM, Drawn, drawn, random_units, softmax
from torch import Tensor

from fair_tta.methods import EpisodicTIE


def answer(case: Drawn) -> Tensor:
    return EpisodicTIE().adapt(case.task, case.features).probabilities


@given(drawn())
def test_is_its_formula(case: Drawn) -> None:
    """By least squares: what the perceived prompts cannot explain of an image."""
    expected = []
    for v in case.features[:, 0].numpy():
        chosen = [
            max(z.numpy(), key=lambda z_s: float(v @ z_s))
            for z in case.sensitive.values()
        ]
        a = np.stack(chosen).T
        rest = v - a @ np.linalg.lstsq(a, v, rcond=None)[0]
        rest /= np.linalg.norm(rest)
        expected.append(softmax(case.scale * case.target.numpy() @ rest))
    np.testing.assert_allclose(answer(case), expected, atol=1e-9)


@given(drawn())
def test_one_attribute_is_tie_with_the_scale_of_the_image(case: Drawn) -> None:
    (name, z), *_ = case.sensitive.items()
    one = replace(case, sensitive={name: z})
    expected = []
    for v in case.features[:, 0].numpy():
        z_s = z.numpy()[int(np.argmax(z.numpy() @ v))]
        rest = v - (v @ z_s) * z_s
        expected.append(
            softmax(case.scale * case.target.numpy() @ rest / np.linalg.norm(rest))
        )
    np.testing.assert_allclose(answer(one), expected, atol=1e-9)


def test_an_orthogonal_prompt_changes_nothing() -> None:
    z = torch.eye(4, dtype=torch.float64)[:2]
    image = torch.tensor([[[0.0, 0.0, 0.6, 0.8]]], dtype=torch.float64)
    case = Drawn(random_units(0, 3, 4), {"s": z}, image)
    torch.testing.assert_close(answer(case), case.zero_shot)


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
    both = {**case.sensitive, **{f"again {a}": z for a, z in case.sensitive.items()}}
    torch.testing.assert_close(
        answer(replace(case, sensitive=both)), expected, rtol=0, atol=1e-9
    )
    assert answer(case.in_float32).dtype == torch.float32


def test_prompts_may_differ_from_image_to_image() -> None:
    images, values = random_units(0, 3, 1, DIM), random_units(1, 3, 4, DIM)
    index, chosen = nearest_value(images, values)
    for i in range(3):
        own, z = nearest_value(images[i : i + 1], values[i])
        assert int(index[i]) == int(own[0])
        assert torch.equal(chosen[i], z[0])
