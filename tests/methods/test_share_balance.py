"""ShareBalance against scipy's optimiser, its limits, labels, stated shares and warnings."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from random_task import DIM, EncodedClassifier, random_units, task_of
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

from fair_tta import FairTTAError, LogitBalance, ShareBalance, SmallReferenceWarning, load_adapter
from fair_tta._linalg import unit
from fair_tta.methods._registry import parse_adapter

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SCALE = 20.0
Array = Any


class Case:
    """Images, two or more classes and attributes whose values pull towards some of them."""

    def __init__(self, seed: int, classes: int = 3, values: tuple[int, ...] = (2,), n: int = 160):
        self.target = random_units(seed, classes, DIM)
        self.sensitive = {f"s{i}": random_units(seed + 1 + i, k, DIM)
                          for i, k in enumerate(values)}  # fmt: skip
        places = torch.arange(n)
        mixed = random_units(seed + 9, n, DIM) + self.target[places % classes]
        for values_of in self.sensitive.values():
            mixed = mixed + 0.6 * values_of[places // 2 % len(values_of)]
        self.features = unit(mixed).unsqueeze(1)
        self.task = task_of(self.target, self.sensitive, SCALE)
        self.names = list(self.task.targets)
        v = self.features[:, 0].numpy()
        self.logits = SCALE * v @ self.target.numpy().T
        self.perceived = [softmax(SCALE * v @ z.numpy().T, 1) for z in self.sensitive.values()]

    def fit(self, labels: Any = None, **settings: Any) -> ShareBalance:
        return ShareBalance(**settings).fit_encoded(
            EncodedClassifier(self.task), self.features, labels
        )

    def answers(self, method: Any) -> Array:
        return method.adapt(self.task, self.features).probabilities.numpy()

    def balanced(self) -> LogitBalance:
        return LogitBalance().fit_encoded(EncodedClassifier(self.task), self.features)


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


def clipped(rows: Array) -> Array:
    rows = np.clip(rows, 1e-3, None)
    return rows / rows.sum(-1, keepdims=True)


def expected(case: Case, trust: float, overall: Array | None = None) -> Array:
    """Answers by the convex problem of the docstring, minimised by scipy."""
    w, start, n = np.concatenate(case.perceived, 1), base_of(case), len(case.logits)
    ordered = np.sort(case.logits, 1)
    beta = 6 / np.median(ordered[:, -1] - ordered[:, -2])
    q = softmax(beta * (case.logits - w @ start), 1)
    own, mean = (w.T @ q) / w.sum(0)[:, None], q.mean(0)
    if overall is not None:
        own, mean = clipped(own - mean + overall), clipped(overall)
    wanted = w.mean(0)[:, None] * clipped(mean + (1 - trust) * (own - mean))

    def value(flat: Array) -> tuple[float, Array]:
        a = flat.reshape(start.shape)
        z = beta * case.logits - w @ a
        away = a - beta * start
        whole = logsumexp(z, 1).mean() + (wanted * a).sum() + (away**2).sum() / (2 * n)
        return whole, (wanted - w.T @ softmax(z, 1) / n + away / n).ravel()

    first = (beta * start).ravel()
    found = minimize(value, first, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 5000})
    return softmax(case.logits - w @ found.x.reshape(start.shape) / beta, 1)


@pytest.mark.parametrize("values", [(2,), (3,), (2, 3)])
@pytest.mark.parametrize("trust", [0.25, 1.0])
def test_is_what_scipy_finds(values: tuple[int, ...], trust: float) -> None:
    case = Case(3, values=values)
    ours = case.answers(case.fit(trust=trust))
    np.testing.assert_allclose(ours, expected(case, trust), atol=2e-6)
    stated = np.array([0.5, 0.3, 0.2])
    named = dict(zip(case.names, stated, strict=True))
    ours = case.answers(case.fit(trust=trust, overall=named))
    np.testing.assert_allclose(ours, expected(case, trust, stated), atol=2e-6)


def test_trust_0_is_logit_balance_to_the_last_bit_and_auto_is_a_quarter() -> None:
    for case in (Case(1), Case(2, values=(2, 3)), Case(4, classes=2)):
        assert np.array_equal(case.answers(case.fit(trust=0)), case.answers(case.balanced()))
        assert np.array_equal(case.answers(case.fit()), case.answers(case.fit(trust=0.25)))


def test_trust_1_brings_the_shares_of_perceived_groups_together() -> None:
    case = Case(7, classes=2, n=600)
    found = case.fit(trust=1).report()
    gaps = [abs(shares["s0 0"]["target 0"] - shares["s0 1"]["target 0"])
            for shares in (found["before"]["s0"], found["after"]["s0"])]  # fmt: skip
    assert gaps[1] < gaps[0] / 2, "those of counted answers; the sharpened ones are equal"
    assert found["trust"] == 1
    assert found["losses"] == {}


def test_shares_that_are_stated_are_met() -> None:
    case = Case(6, classes=2, n=600)
    fitted = case.fit(overall={"target 0": 0.2, "target 1": 0.8})
    assert (case.answers(fitted).argmax(1) == 0).mean() == pytest.approx(0.2, abs=0.03)
    assert (case.logits.argmax(1) == 0).mean() > 0.4


def test_labels_choose_the_trust_by_the_balanced_loss() -> None:
    case = Case(7, classes=2, n=300)
    truth = [case.names[i] for i in (np.arange(300) // 3) % 2]
    places = np.arange(0, 300, 3)
    labels = {int(i): truth[i] for i in places}
    chosen = case.fit(labels)
    (w,) = case.perceived
    y = np.array([case.names.index(truth[i]) for i in places])
    cells = np.stack([w[places][y == k].sum(0) for k in range(2)])
    weights = (w[places] / np.maximum(cells, 4)[y]).sum(1)
    losses = {}
    for trust in (0.0, 0.25, 0.5, 0.75, 1.0):
        logits = np.log(case.answers(case.fit(trust=trust)))[places]
        losses[trust] = min(
            -np.average(log_softmax(s * logits, 1)[np.arange(len(y)), y], weights=weights)
            for s in (1, 2, 3, 5)
        )
    found = chosen.report()
    assert found["losses"] == pytest.approx(losses)
    assert found["trust"] == min(losses, key=lambda trust: losses[trust])
    as_list = [truth[i] if i in labels else None for i in range(300)]
    assert case.fit(as_list) == chosen
    assert case.fit(labels, trust=0.75).report()["trust"] == 0.75, "an explicit one is kept"


def test_overall_shares_from_labels_count_the_predicted_ones_as_20() -> None:
    case = Case(8, classes=2, n=300)
    labels = dict.fromkeys(range(30), "target 1")
    w, (start, beta) = case.perceived[0], (base_of(case), 1.0)
    ordered = np.sort(case.logits, 1)
    beta = 6 / np.median(ordered[:, -1] - ordered[:, -2])
    predicted = softmax(beta * (case.logits - w @ start), 1).mean(0)
    stated = (np.array([0, 30]) + 20 * predicted) / 50
    ours = case.answers(case.fit(labels, trust=0.5, overall="labels"))
    np.testing.assert_allclose(ours, expected(case, 0.5, stated), atol=2e-6)


def test_several_attributes_are_one_problem() -> None:
    """An attribute that comes twice is corrected once, which a sum of two fits would not do."""
    case = Case(9, classes=2, n=400)
    twice = Case(9, classes=2, n=400)
    twice.sensitive = {"s0": case.sensitive["s0"], "s1": case.sensitive["s0"]}
    twice.task = task_of(twice.target, twice.sensitive, SCALE)
    shares = [one.fit(trust=1).report()["after"]["s0"]["s0 0"]["target 0"] for one in (case, twice)]
    assert shares[1] == pytest.approx(shares[0], abs=0.02)


def test_limits() -> None:
    case = Case(10, n=200)
    same = task_of(case.target, {"s0": case.sensitive["s0"][:1].repeat(2, 1)}, SCALE)
    case.task = same
    np.testing.assert_allclose(
        case.answers(case.fit()), softmax(case.logits, 1), atol=1e-3
    )  # values that cannot be told apart leave nothing to correct
    case = Case(11, n=200)
    never = torch.cat([case.sensitive["s0"], -case.sensitive["s0"][:1]])
    case.task = task_of(case.target, {"s0": never}, SCALE)  # a value that no image is perceived as
    assert np.isfinite(case.answers(case.fit(trust=1))).all()
    case.task = task_of(case.target[:1].repeat(3, 1), case.sensitive, SCALE)  # identical classes
    assert np.isfinite(case.answers(case.fit())).all()


def test_warnings_and_what_is_refused() -> None:
    def texts(case: Case, labels: Any = None, **settings: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            case.fit(labels, **settings)
        return [str(one.message) for one in found]

    case = Case(12, classes=2, n=300)
    assert texts(case) == []
    assert "ShareBalance was fitted on 99 images; with fewer than 100" in texts(Case(12, n=99))[-1]
    assert "trust=1 takes it that the classes are equally" in texts(case, trust=1)[0]
    assert texts(case, dict.fromkeys(range(60), "target 0") | {0: "target 1"}, trust=1) == []
    assert (
        "what 3 class labels decide is uncertain"
        in texts(case, dict.fromkeys(range(3), "target 0"))[0]
    )
    far = texts(case, overall={"target 0": 1.0, "target 1": 0.0})
    assert far == [] or "cannot be reached" in far[0]
    never = torch.cat([case.sensitive["s0"], -case.sensitive["s0"][:1]])
    case.task = task_of(case.target, {"s0": never}, SCALE)
    assert "fewer than 10 images are perceived as 's0 2' (0.0)" in texts(case)[0]
    lone = Case(12, classes=2, n=300)
    lone.features = lone.features[:1].repeat(300, 1, 1)
    assert any(
        "cannot be reached" in text
        for text in texts(lone, trust=1, overall={"target 0": 0.5, "target 1": 0.5})
    )
    for settings, message in (
        ({"trust": 1.5}, "`trust` should be 'auto' or lie in"),
        ({"trust": "some"}, "`trust` should be 'auto' or lie in"),
        ({"overall": {"target 0": 0.2, "target 1": 0.2}}, "whose sum is 1"),
        ({"overall": "often"}, "`overall` should be 'labels' or"),
    ):
        with pytest.raises(FairTTAError, match=message):
            ShareBalance(**settings)
    with pytest.raises(FairTTAError, match="a share of each class"):
        case.fit(overall={"target 0": 0.5, "cat": 0.5})
    with pytest.raises(FairTTAError, match="needs class labels: pass `labels`"):
        case.fit(overall="labels")
    with pytest.raises(FairTTAError, match="`labels` should be as many as images, 300"):
        case.fit(["target 0"] * 299)
    with pytest.raises(FairTTAError, match="be among the classes"):
        case.fit({0: "cat"})
    with pytest.raises(FairTTAError, match="as many as images, 300"):
        case.fit({300: "target 0"})


@pytest.mark.filterwarnings("error::fair_tta.SmallReferenceWarning")
def test_the_file_keeps_what_was_learnt(tmp_path: Path) -> None:
    case = Case(13, classes=2, n=300)
    fitted = case.fit(overall={"target 0": 0.4, "target 1": 0.6})
    fitted.save(tmp_path / "s.safetensors")
    loaded: Any = load_adapter(tmp_path / "s.safetensors")
    assert loaded == fitted
    assert loaded.report() == fitted.report()
    assert np.array_equal(case.answers(loaded), case.answers(fitted))
    text = "share-balance:trust=0.5,overall=target 0=0.4;target 1=0.6"
    assert parse_adapter(text) == ShareBalance(trust=0.5, overall=fitted.overall)
    with pytest.warns(SmallReferenceWarning):
        Case(13, n=20).fit()
