"""Running sums against the whole of the images, and what the guard objects to."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from random_task import DIM, Drawn, drawn, random_units, task_of
from torch import Tensor

from fair_tta import FairTTAError, metrics
from fair_tta._linalg import unit
from fair_tta.auditing._examine import MOST_ENTROPY, MOST_R_SQUARED
from fair_tta.methods._own.logit_balance import StreamGuard, drift_of, perception_sums, r_squared_of


def images_of(case: Drawn, n: int = 60) -> Tensor:
    mix = torch.randn(n, len(case.features), generator=torch.Generator().manual_seed(n)).double()
    mixed: Tensor = mix @ case.features[:, 0]
    return unit(mixed)


@given(drawn())
def test_sums_give_what_all_images_give(case: Drawn) -> None:
    task, images = case.task, images_of(case)
    parts = [perception_sums(task, part) for part in images.split(11)]
    sums = {name: torch.stack([part[name] for part in parts]).sum(0) for name in parts[0]}
    logits = case.scale * images.numpy() @ case.target.numpy().T
    for attribute, z in case.sensitive.items():
        powers = np.exp(case.scale * (images.numpy() @ z.numpy().T))
        w = powers / powers.sum(1, keepdims=True)
        ours = r_squared_of(sums, attribute, len(images))
        assert ours == pytest.approx(metrics.r_squared(logits, w), abs=1e-6)
        entropy = -(w * np.log(np.maximum(w, 1e-300))).sum() / math.log(len(z))
        assert float(sums[f"entropy.{attribute}"]) == pytest.approx(entropy, abs=1e-6)
        recent = torch.from_numpy(w[-20:])
        gap = w[-20:].mean(0) - w[:-20].mean(0)
        expected = gap / np.sqrt(np.maximum(w.var(0), 1e-12) * (1 / 20 + 1 / 40))
        np.testing.assert_allclose(drift_of(sums, recent, attribute, 60), expected, atol=1e-4)


def test_nothing_varies() -> None:
    task = task_of(random_units(0, 3, DIM), {"s": random_units(1, 2, DIM)})
    one = random_units(2, 1, DIM)
    sums = perception_sums(task, one.expand(50, DIM))
    assert math.isnan(r_squared_of(sums, "s", 50))
    recent = task.logits(one, task.sensitive_features["s"]).softmax(-1).expand(20, 2)
    assert drift_of(sums, recent, "s", 50).abs().max() < 1e-3
    assert drift_of(sums, recent, "s", 30).tolist() == [0, 0]  # ten before are not enough


def along(direction: Tensor, shares: Tensor) -> Tensor:
    """Images that show the first value in these shares, and nothing else but noise."""
    signs = 2.0 * (torch.rand(len(shares), generator=torch.Generator().manual_seed(0)) < shares) - 1
    noise = torch.randn(len(shares), DIM, generator=torch.Generator().manual_seed(1))
    return unit(signs.double()[:, None] * direction + 0.1 * noise.double())


def objections(shares: Tensor) -> list[str | None]:
    """What is said before each image."""
    guard = StreamGuard()
    axes = torch.eye(DIM, dtype=torch.float64)
    task = task_of(axes[2:5], {"s": torch.stack([axes[0], -axes[0]])})
    images = along(axes[0], shares)
    w = task.logits(images, task.sensitive_features["s"]).softmax(-1)
    steps = [perception_sums(task, image[None]) for image in images]
    running = {k: torch.stack([step[k] for step in steps]).cumsum(0) for k in steps[0]}
    found = []
    for n in range(guard.least, len(images)):
        sums = {name: values[n - 1] for name, values in running.items()}
        recent = {"s": w[max(0, n - guard.window) : n]}
        found.append(guard.objection(task, n, sums, recent))
    return found


def test_images_that_do_not_drift_raise_no_alarm() -> None:
    assert set(objections(torch.full((3000,), 0.3))) == {None}


def test_a_drift_is_noticed_within_a_window() -> None:
    shares = torch.cat([torch.full((1000,), 0.5), torch.full((400,), 0.9)])
    found = objections(shares)
    assert set(found[:700]) == {None}  # 300 to 999
    assert set(found[900:1000]) == {
        "what is perceived of 's' drifts ('s 0' is seen more often than before): reset the stream "
        "if this is to stay"
    }


def test_too_few_images() -> None:
    guard = StreamGuard(least=30)
    task = task_of(random_units(0, 3, DIM), {"s": random_units(1, 2, DIM)})
    assert guard.objection(task, 29, {}, {}) == "29 images were seen, 30 are needed"


def test_an_attribute_that_is_not_perceived() -> None:
    axes = torch.eye(DIM, dtype=torch.float64)
    task = task_of(axes[:3], {"s": axes[3:5]})
    images = unit(random_units(3, 50, DIM) * (torch.arange(DIM) < 3))
    sums = perception_sums(task, images)
    recent = {"s": torch.full((50, 2), 0.5)}
    found = StreamGuard(least=50).objection(task, 50, sums, recent)
    assert found == "the model does not perceive 's' (mean entropy 1.00)"
    assert StreamGuard(least=50, most_entropy=1.01).objection(task, 50, sums, recent) is None


def test_an_attribute_that_is_the_target() -> None:
    axes = torch.eye(DIM, dtype=torch.float64)
    task = task_of(torch.stack([axes[0], -axes[0]]), {"s": torch.stack([axes[0], -axes[0]])}, 4.0)
    images = along(axes[0], torch.full((80,), 0.5))
    sums = perception_sums(task, images)
    recent = {"s": task.logits(images, task.sensitive_features["s"]).softmax(-1)}
    found = StreamGuard(least=50).objection(task, 80, sums, recent)
    assert found == "the model cannot tell 's' from the target (R^2 1.00)"
    assert StreamGuard(least=50, most_r_squared=1).objection(task, 80, sums, recent) is None


def test_stop_signs_are_those_of_examinations() -> None:
    guard = StreamGuard()
    assert (guard.most_entropy, guard.most_r_squared) == (MOST_ENTROPY, MOST_R_SQUARED)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"least": 0}, r"`least` should be a number of images \(got 0\)"),
        ({"window": 1.5}, r"`window` should be a number of images \(got 1.5\)"),
        ({"drift": -1}, r"`drift` should be 0 or more \(got -1\)"),
        ({"most_entropy": math.nan}, "`most_entropy` should be 0 or more"),
    ],
)
def test_settings_are_checked(settings: dict[str, float], message: str) -> None:
    with pytest.raises(FairTTAError, match=message):
        StreamGuard(**settings)  # type: ignore[arg-type]
