"""Two methods in a row: the general second stage."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import families
import pytest
import torch
from checks import picture
from internals import Chained, TextFeatures
from torch import Tensor

from fair_tta import TPT, FairTPT, FairTPTClassifier, FairTPTMO, OrthCali, ZeroShot
from fair_tta.extend import AugMix, Needs, Objective, Outcome, Task, Term, UsesTexts
from fair_tta.methods import SLoss, SuperTSLoss

NAMES = {"gender": ["man", "woman"], "age": ["young", "old"]}


@pytest.fixture(scope="module")
def clf() -> FairTPTClassifier:
    model, *processor = families.seeded(families.clip)
    return FairTPTClassifier(
        model, ["cat", "dog"], NAMES, "a {sensitive} {target}.", processor=tuple(processor),
        views=AugMix(6),
    )  # fmt: skip


@dataclass(frozen=True)
class Sharp(UsesTexts):
    """A second stage that says nothing but probabilities, and warns of each image."""

    def adapt_texts(self, task: Task, features: Tensor, texts: TextFeatures) -> Outcome:
        log_p = 2 * task.log_probabilities(features[:, :1], texts.target)
        return Outcome(
            log_p.softmax(-1).squeeze(1), warnings=(("sharp",),) * len(features)
        )


@pytest.mark.parametrize("first", [TPT(), FairTPT(), FairTPT(loss=SuperTSLoss())])
def test_zero_shot_after_tuning_is_the_tuned_answer(
    clf: FairTPTClassifier, first: TPT
) -> None:
    pictures = [picture(i) for i in range(3)]
    tuned = clf.with_adapter(first).predict(pictures)
    chained = clf.with_adapter(first >> ZeroShot()).predict(pictures)
    for prediction, expected in zip(tuned, chained, strict=True):
        assert prediction == expected


def test_a_second_stage_of_ones_own(clf: FairTPTClassifier) -> None:
    before = clf.with_adapter(TPT()).predict(picture())
    after = clf.with_adapter(TPT() >> Sharp()).predict(picture())
    p = torch.tensor(list(before.probabilities.values()), dtype=torch.float64)
    expected = p.square() / p.square().sum()
    assert list(after.probabilities.values()) == pytest.approx(
        expected.tolist(), abs=1e-5
    )
    assert after.sensitive == before.sensitive
    assert (after.learning_rate, after.views_kept) == (
        before.learning_rate,
        before.views_kept,
    )
    assert after.warnings == (*before.warnings, "sharp")


def test_a_chain_needs_what_its_parts_need() -> None:
    assert not (TPT() >> ZeroShot()).needs.sensitive
    chain = TPT() >> OrthCali(lam=0)
    assert isinstance(chain, Chained)
    assert chain.needs == Needs(sensitive=True, views=True, prompt_gradient=True)


@dataclass(frozen=True)
class MeanOfAttributes:
    """The terms of `SLoss`, with the mean over attributes in place of the sum."""

    def objective(self, task: Task) -> Objective:
        target, added = SLoss().objective(task).terms
        assert isinstance(added, Term)
        return Objective((target, replace(added, sign=added.sign / len(added.groups))))


@pytest.mark.parametrize("method", [FairTPT, FairTPTMO])
@pytest.mark.parametrize("lam", [0.0, 1.0, 100.0, math.inf])
def test_lam_by_n_is_the_mean_over_attributes(
    clf: FairTPTClassifier, method: type[FairTPT], lam: float
) -> None:
    """The directions are parallel, and the length of ELRA's step depends on nothing else."""
    pictures = [picture(i) for i in range(2)]
    added = clf.with_adapter(method(lam=lam / len(NAMES))).predict_proba(pictures)
    averaged = clf.with_adapter(method(lam=lam, loss=MeanOfAttributes())).predict_proba(
        pictures
    )
    assert averaged == pytest.approx(added, abs=1e-5)


def test_an_aggregator_of_gradients(clf: FairTPTClassifier) -> None:
    """The sum that FairTPT takes, as a function of the matrix of gradients."""

    def weighted(gradients: Tensor) -> Tensor:
        return (gradients[0] + 100 * gradients[1:].mean(0)) / 101

    pictures = [picture(i) for i in range(2)]
    weighted_sum = clf.with_adapter(FairTPT(lam=100.0, rho=0.75)).predict_proba(
        pictures
    )
    aggregated = clf.with_adapter(FairTPTMO(aggregator=weighted)).predict_proba(
        pictures
    )
    assert aggregated == pytest.approx(weighted_sum, abs=1e-5)
