"""PerceptionCLIP against plain sums of exponentials."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import families
import numpy as np
import numpy.typing as npt
import pytest
import torch
from checks import picture
from hypothesis import given
from hypothesis import strategies as st
from internals import AugMix, classify_given_value
from random_task import Drawn, drawn, joint_of, random_units
from torch import Tensor

from fair_tta import FairTPTClassifier, FairTTAError, Templates
from fair_tta.errors import PromptError
from fair_tta.methods import PerceptionCLIP


def by_formula(
    joint: npt.NDArray[np.float64],
    values: npt.NDArray[np.float64] | None,
    temperature: float,
) -> list[float]:
    """Of logits ``[targets, values]`` of one image, and those of the sensitive prompts."""
    targets, count = joint.shape
    if values is None:
        weight = [
            sum(math.exp(joint[y, z] / temperature) for y in range(targets))
            for z in range(count)
        ]
    else:
        weight = [math.exp(values[z] / temperature) for z in range(count)]
    answer = []
    for y in range(targets):
        p = 0.0
        for z in range(count):
            given_z = math.exp(joint[y, z]) / sum(
                math.exp(joint[k, z]) for k in range(targets)
            )
            p += weight[z] / sum(weight) * given_z
        answer.append(p)
    return answer


def one_attribute(case: Drawn) -> Drawn:
    name = next(iter(case.sensitive))
    return replace(case, sensitive={name: case.sensitive[name]})


def answer(case: Drawn, **settings: Any) -> Tensor:
    return PerceptionCLIP(**settings).adapt(case.task, case.features).probabilities


@given(drawn(), st.sampled_from([0.5, 1.0, 3.0, 10.0]), st.booleans())
def test_is_its_formula(case: Drawn, temperature: float, with_class: bool) -> None:
    case = one_attribute(case)
    (z,) = case.sensitive.values()
    texts = joint_of(case.target, z).unflatten(0, (len(case.target), -1)).numpy()
    expected = []
    for v in case.features[:, 0].numpy():
        values = None if with_class else case.scale * z.numpy() @ v
        expected.append(by_formula(case.scale * texts @ v, values, temperature))
    ours = answer(case, temperature=temperature, with_class=with_class)
    np.testing.assert_allclose(ours, expected, atol=1e-9)


@given(drawn(), st.booleans())
def test_order_and_precision_do_not_matter(case: Drawn, with_class: bool) -> None:
    case = one_attribute(case)
    expected = answer(case, with_class=with_class)
    other = answer(case.renamed, with_class=with_class).flip(-1)
    torch.testing.assert_close(other, expected, rtol=0, atol=1e-9)
    small = answer(case.in_float32, with_class=with_class)
    torch.testing.assert_close(small.double(), expected, rtol=0, atol=1e-4)


@given(drawn(), st.booleans())
def test_values_with_the_same_prompts_are_one_value(
    case: Drawn, with_class: bool
) -> None:
    """Then the answer is the softmax of the joint prompts of any of them."""
    (z,) = one_attribute(case).sensitive.values()
    same = replace(case, sensitive={"s": z[:1].expand(3, -1)})
    joint = joint_of(case.target, z[:1])
    expected = same.task.log_probabilities(case.features[:, 0], joint).exp()
    torch.testing.assert_close(answer(same, with_class=with_class), expected)


def test_large_logits_do_not_overflow() -> None:
    logits = 1e4 * random_units(0, 5, 3, 4).float()
    for by_value in (None, 1e4 * random_units(1, 5, 4).float()):
        log_p = classify_given_value(logits, by_value, 0.01)
        assert torch.isfinite(log_p.exp()).all()
        torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(5))


def test_an_infinite_temperature_counts_every_value_the_same() -> None:
    logits = random_units(0, 5, 3, 4)
    ours = classify_given_value(logits, None, math.inf).exp()
    torch.testing.assert_close(ours, logits.softmax(1).mean(-1))


def classifier(**more: Any) -> FairTPTClassifier:
    model, *processor = families.seeded(families.clip)
    settings: dict[str, Any] = {
        "sensitive": {"sex": ["male", "female"], "age": ["young", "old"]},
        "template": "a {sensitive} {target}.",
        "adapter": PerceptionCLIP(),
    }
    return FairTPTClassifier(
        model,
        ["cat", "dog"],
        **(settings | more),
        processor=tuple(processor),
        views=AugMix(1),
    )


def test_several_attributes_are_all_combinations() -> None:
    clf = classifier()
    pairs = [f"{a} {b}" for a, b in product(["male", "female"], ["young", "old"])]
    combined = classifier(sensitive=pairs)
    assert clf.predict(picture()).probabilities == pytest.approx(
        combined.predict(picture()).probabilities, abs=1e-6
    )


def test_joint_prompts_are_needed_at_construction() -> None:
    template = Templates("a {target}.", "a {sensitive} animal.")
    with pytest.raises(
        PromptError, match="joint prompts are needed, but `template` does not"
    ):
        classifier(template=template)


@pytest.mark.parametrize("temperature", [0, -1.0, math.nan])
def test_temperature_is_checked(temperature: float) -> None:
    with pytest.raises(FairTTAError, match="`temperature` should be a positive number"):
        PerceptionCLIP(temperature)
