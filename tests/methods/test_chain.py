"""Two methods in a row: the general second stage."""

from __future__ import annotations

from dataclasses import dataclass

import families
import pytest
import torch
from checks import picture
from torch import Tensor

from fair_tta import TPT, FairTPT, FairTPTClassifier, FairTPTMO, OrthCali, ZeroShot
from fair_tta.errors import FairTTAError
from fair_tta.extend import AugMix, Needs, Outcome, Task, Texts, UsesTexts
from fair_tta.methods import Chained, SLoss, SuperTSLoss
from fair_tta.methods._tuning.directions import WeightedSum

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

    def adapt_texts(self, task: Task, features: Tensor, texts: Texts) -> Outcome:
        log_p = 2 * task.log_probabilities(features[:, :1], texts.target)
        return Outcome(log_p.softmax(-1).squeeze(1), warnings=(("sharp",),) * len(features))


@pytest.mark.parametrize("first", [TPT(), FairTPT(), FairTPT(loss=SuperTSLoss())])
def test_zero_shot_after_tuning_is_the_tuned_answer(clf: FairTPTClassifier, first: TPT) -> None:
    pictures = [picture(i) for i in range(3)]
    alone = clf.with_adapter(first).predict(pictures)
    chained = clf.with_adapter(first >> ZeroShot()).predict(pictures)
    for one, two in zip(alone, chained, strict=True):
        assert one == two


def test_a_second_stage_of_ones_own(clf: FairTPTClassifier) -> None:
    before = clf.with_adapter(TPT()).predict(picture())
    after = clf.with_adapter(TPT() >> Sharp()).predict(picture())
    p = torch.tensor(list(before.probabilities.values()), dtype=torch.float64)
    expected = p.square() / p.square().sum()
    assert list(after.probabilities.values()) == pytest.approx(expected.tolist(), abs=1e-5)
    assert after.sensitive == before.sensitive
    assert (after.learning_rate, after.views_kept) == (before.learning_rate, before.views_kept)
    assert after.warnings == (*before.warnings, "sharp")


def test_a_chain_needs_what_its_parts_need() -> None:
    assert not (TPT() >> ZeroShot()).needs.sensitive
    chain = TPT() >> OrthCali(lam=0)
    assert isinstance(chain, Chained)
    assert chain.needs == Needs(sensitive=True, views=True, prompt_gradient=True)


def test_separate_terms_have_the_average_of_a_weighted_sum(clf: FairTPTClassifier) -> None:
    """A weighted sum shares lambda, so terms of their own change nothing; UPGrad does."""
    pictures = [picture(i) for i in range(2)]
    for loss, other in ((SLoss(), SLoss(separate=True)),):
        one = clf.with_adapter(FairTPT(loss=loss)).predict_proba(pictures)
        two = clf.with_adapter(FairTPT(loss=other)).predict_proba(pictures)
        assert two == pytest.approx(one, abs=1e-5)
        assert len(other.objective(clf._task).terms) == 3
    assert len(SuperTSLoss(separate=True).objective(clf._task).terms) == 3


def test_an_aggregator_of_gradients(clf: FairTPTClassifier) -> None:
    """The sum that FairTPT takes, as a function of the matrix of gradients."""

    def weighted(gradients: Tensor) -> Tensor:
        weights = WeightedSum(100.0).weights(gradients @ gradients.T)
        return weights @ gradients

    pictures = [picture(i) for i in range(2)]
    one = clf.with_adapter(FairTPT(lam=100.0, rho=0.75)).predict_proba(pictures)
    two = clf.with_adapter(FairTPTMO(aggregator=weighted)).predict_proba(pictures)
    assert two == pytest.approx(one, abs=1e-5)


@dataclass(frozen=True)
class Equal:
    """A direction of one's own: every term has the same weight."""

    def weights(self, gramian: Tensor) -> Tensor:
        return torch.full_like(gramian[..., 0], 1 / gramian.shape[-1])

    def wants(self, terms: int) -> list[bool]:
        return [True] * terms


def test_a_direction_of_ones_own(clf: FairTPTClassifier) -> None:
    pictures = [picture(i) for i in range(2)]
    one = clf.with_adapter(FairTPT(lam=1.0, rho=0.75)).predict_proba(pictures)
    two = clf.with_adapter(FairTPTMO(aggregator=Equal())).predict_proba(pictures)
    assert two == pytest.approx(one, abs=1e-5)


def test_three_in_a_row_are_refused() -> None:
    with pytest.raises(
        FairTTAError, match=r"not three \(got ZeroShot\(\) after Chained.*leave one"
    ):
        TPT() >> OrthCali(lam=0) >> ZeroShot()  # type: ignore[operator, unused-ignore]
