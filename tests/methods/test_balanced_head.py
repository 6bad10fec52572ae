"""BalancedHead against scipy's optimiser, its choice of ridge, and how many labels it takes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from fits import fit_on_features
from internals import _cross_validated_head, anchored_head, cell_weights, unit_features
from random_task import DIM, EncodedClassifier, random_units, task_of
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from fair_tta import FairTTAError
from fair_tta.errors import SmallReferenceWarning
from fair_tta.methods import BalancedHead

Array = Any
SCALE = 20.0


class Case:
    """Images, two or more classes and attributes whose values pull towards some of them."""

    def __init__(
        self, seed: int, classes: int = 3, values: tuple[int, ...] = (2,), n: int = 160
    ):
        self.target = random_units(seed, classes, DIM)
        self.sensitive = {f"s{i}": random_units(seed + 1 + i, k, DIM)
                          for i, k in enumerate(values)}  # fmt: skip
        places = torch.arange(n)
        mixed = random_units(seed + 9, n, DIM) + self.target[places % classes]
        for values_of in self.sensitive.values():
            mixed = mixed + 0.6 * values_of[places // 2 % len(values_of)]
        self.features = unit_features(mixed).unsqueeze(1)
        self.task = task_of(self.target, self.sensitive, SCALE)
        self.names = list(self.task.targets)
        v = self.features[:, 0].numpy()
        self.logits = SCALE * v @ self.target.numpy().T
        self.perceived = [
            softmax(SCALE * v @ z.numpy().T, 1) for z in self.sensitive.values()
        ]


def base_of(case: Case) -> Array:
    """LogitBalance's offsets of all values, centred over the classes."""
    u = case.logits - case.logits.mean(1, keepdims=True)
    q, found = softmax(case.logits, 1), []
    for w in case.perceived:
        each = [[np.average(u, 0, w_s * q_y) for q_y in q.T] for w_s in w.T]
        means = np.mean(each, 1)
        found.append(1.5 * (means - w.mean(0) @ means))
    every = np.concatenate(found)
    return every - every.mean(1, keepdims=True)


def fitted(case: Case, labels: Any) -> BalancedHead:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallReferenceWarning)
        return fit_on_features(
            BalancedHead(), EncodedClassifier(case.task), case.features, labels
        )


def labels_of(case: Case, wrong: float = 0.2, seed: int = 0) -> list[str]:
    """What was mixed into the images, and by chance another class."""
    random = np.random.default_rng(seed)
    places, n = np.arange(len(case.logits)) % len(case.names), len(case.logits)
    drawn = np.where(
        random.random(n) < wrong, random.integers(len(case.names), size=n), places
    )
    return [case.names[i] for i in drawn]


def by_scipy(x: Array, anchor: Array, y: Array, omega: Array, ridge: float) -> Array:
    shape = x.shape[1], anchor.shape[1]

    def value(flat: Array) -> tuple[float, Array]:
        d = flat.reshape(shape)
        z = anchor + x @ d
        loss = (
            -(omega * log_softmax(z, 1)[np.arange(len(y)), y]).mean()
            + ridge / 2 * (d**2).sum()
        )
        wrong = softmax(z, 1) - np.eye(shape[1])[y]
        return loss, (x.T @ (omega[:, None] * wrong) / len(y) + ridge * d).ravel()

    found = minimize(value, np.zeros(np.prod(shape)), jac=True, method="BFGS",
                     options={"gtol": 1e-9, "maxiter": 5000})  # fmt: skip
    return found.x.reshape(shape)


@pytest.mark.parametrize("ridge", [0.003, 0.1, 3.0])
def test_the_head_is_what_scipy_finds(ridge: float) -> None:
    random = np.random.default_rng(0)
    x, anchor = random.normal(size=(70, 5)) / 2, random.normal(size=(70, 3))
    y, omega = random.integers(3, size=70), random.uniform(0.2, 2, size=70)
    tensors: list[Any] = [torch.from_numpy(array) for array in (x, anchor, y, omega)]
    ours = anchored_head(tensors[0], tensors[1], tensors[2], tensors[3], ridge).numpy()
    np.testing.assert_allclose(ours, by_scipy(x, anchor, y, omega, ridge), atol=1e-5)


def test_weights_let_values_count_alike_within_a_class() -> None:
    y = torch.tensor([0] * 40 + [1] * 20)
    hard = torch.nn.functional.one_hot(
        torch.tensor([0] * 30 + [1] * 10 + [0] * 4 + [1] * 16)
    )
    omega = cell_weights(y, [hard.double()])
    cells = [
        float(omega[(y == k) & (hard[:, s] == 1)].sum()) for k in (0, 1) for s in (0, 1)
    ]
    assert cells == pytest.approx([20, 20, 10, 10]), "classes keep their shares"
    assert float(omega.mean()) == pytest.approx(1)


def test_cells_of_fewer_than_four_images_count_less() -> None:
    y = torch.tensor([0] * 40)
    hard = torch.nn.functional.one_hot(torch.tensor([0] * 39 + [1]))
    omega = cell_weights(y, [hard.double()])
    assert float(omega[:39].sum()) == pytest.approx(40 * 0.8), (
        "1 to a quarter, of one image of 4"
    )
    assert float(omega[39]) == pytest.approx(40 * 0.2)


def test_the_whole_method_by_hand() -> None:
    """Scale, folds and ridge chosen as the docstring says, each head by scipy."""
    case = Case(21, classes=2, n=200)
    labels = labels_of(case)
    y = np.array([case.names.index(name) for name in labels])
    v, w = case.features[:, 0].numpy(), case.perceived[0]
    anchor = case.logits - w @ base_of(case)
    cells = np.stack([w[y == k].sum(0) for k in range(2)])
    omega = (w / np.maximum(cells, 4)[y]).sum(1)
    omega *= (np.bincount(y) / np.bincount(y, omega))[y]
    omega /= omega.mean()

    def loss(z: Array) -> float:
        return float(-(omega * log_softmax(z, 1)[np.arange(len(y)), y]).mean())

    scale = min((1, 2, 3, 5, 8), key=lambda s: loss(s * anchor))
    rms = np.sqrt(((v - v.mean(0)) ** 2).sum(1).mean())
    x = np.concatenate([(v - v.mean(0)) / rms, w - w.mean(0)], 1)
    folds = np.random.default_rng(0).permutation(len(y)) % 5
    losses = {0.0: loss(scale * anchor)}
    for ridge in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0):
        z = scale * anchor.copy()
        for fold in range(5):
            own = folds != fold
            d = by_scipy(x[own], scale * anchor[own], y[own], omega[own], ridge)
            z[~own] += x[~own] @ d
        losses[ridge] = loss(z)
    best = min(losses, key=lambda ridge: losses[ridge])
    assert best, "this case is one in which a head helps"
    d = by_scipy(x, scale * anchor, y, omega, best)
    ours = fitted(case, labels).adapt(case.task, case.features).probabilities.numpy()
    np.testing.assert_allclose(ours, softmax(scale * anchor + x @ d, 1), atol=1e-5)


def test_where_no_head_has_a_lower_loss_there_is_none() -> None:
    random = np.random.default_rng(0)
    anchor, x = 2 * random.normal(size=(60, 2)), random.normal(size=(60, 30))
    y = (random.random(60) < softmax(anchor, 1)[:, 1]).astype(
        int
    )  # features tell nothing
    tensors: list[Any] = [
        torch.from_numpy(array) for array in (x, anchor, y, np.ones(60))
    ]
    assert not bool(_cross_validated_head(*tensors).any())
    x[:, 0] = 2 * y - 1
    assert bool(_cross_validated_head(*tensors)[0].any())


def test_images_without_labels_count_for_the_offsets() -> None:
    case = Case(23, classes=2, n=300)
    labels = labels_of(case)
    some = [name if i < 150 else None for i, name in enumerate(labels)]
    method = fitted(case, some)
    assert method.reference is not None
    assert method.reference.images == 300
    assert fitted(case, dict(enumerate(labels[:150]))) == method


def test_how_many_labels_it_takes() -> None:
    case = Case(24, classes=2, n=250)
    labels = labels_of(case)
    with pytest.raises(FairTTAError, match=r"50 or more images.*got 49"):
        fitted(case, dict(enumerate(labels[:49])))
    with pytest.raises(FairTTAError, match=r"50 or more images.*got 0"):
        fitted(case, None)
    with pytest.warns(
        SmallReferenceWarning, match="fitted on 199 class labels; with fewer than 200"
    ):
        fit_on_features(
            BalancedHead(),
            EncodedClassifier(case.task),
            case.features,
            dict(enumerate(labels[:199])),
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_on_features(
            BalancedHead(), EncodedClassifier(case.task), case.features, labels
        )
    one_class = fitted(case, ["target 0"] * 250)
    assert np.isfinite(
        one_class.adapt(case.task, case.features).probabilities.numpy()
    ).all()
