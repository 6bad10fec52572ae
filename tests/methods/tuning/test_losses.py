"""Marginals, filter and losses against numpy."""

from __future__ import annotations

import math
from fractions import Fraction

import families
import pytest
import torch
from checks import make_task
from hypothesis import given
from hypothesis import strategies as st
from internals import (
    Task,
    Term,
    count_kept,
    marginal,
    most_confident,
    normalised_entropy,
)

from fair_tta.methods import SLoss, SuperTSLoss
from fair_tta.models import TransformersBackend


@given(st.integers(1, 200), st.integers(1, 100))
def test_the_filter_keeps_a_whole_number_of_views(views: int, percent: int) -> None:
    exact = Fraction(views * percent, 100)
    assert count_kept(views, percent / 100) == max(1, math.floor(exact))


def test_the_examples_that_bite() -> None:
    assert count_kept(64, 0.1) == 6
    assert count_kept(8, 0.1) == 1  # int(8 * 0.1) is 0
    assert count_kept(100, 0.29) == 29  # int(100 * 0.29) is 28
    assert count_kept(64, 0.75) == 48


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.floats(0.01, 1))
def test_the_most_certain_views_in_their_order(
    certainty: list[int], rho: float
) -> None:
    """Ties are kept in the order of the views."""
    logits = torch.tensor([[float(c), 0.0, 0.0] for c in certainty])
    log_probabilities = logits.log_softmax(-1)
    kept = most_confident(log_probabilities, rho).tolist()
    # not from `certainty`: equal rows need not be rounded equally
    entropies = normalised_entropy(log_probabilities).tolist()
    expected = sorted(range(len(certainty)), key=lambda i: entropies[i])
    assert kept == expected[: count_kept(len(certainty), rho)]
    chosen = [certainty[i] for i in kept]
    assert chosen == sorted(certainty, reverse=True)[: len(kept)]


def test_marginal_is_the_mean() -> None:
    p = torch.rand(3, 7, 4).softmax(-1)
    torch.testing.assert_close(marginal(p.log()).exp(), p.mean(1))
    certain = torch.tensor([[0.0, -math.inf], [-math.inf, 0.0]])
    torch.testing.assert_close(marginal(certain).exp(), torch.tensor([0.5, 0.5]))


@pytest.fixture(scope="module")
def task() -> Task:
    return make_task(TransformersBackend(*families.seeded(families.clip)))


def test_super_ts_has_a_context_per_target(task: Task) -> None:
    """Moving one target's context moves its own prompts and no others."""
    objective = SuperTSLoss().objective(task)
    vectors = len(task.context)
    context = task.context.repeat(3, 1)
    moved = context.clone()
    moved[vectors : 2 * vectors] = context[vectors : 2 * vectors].flip(-1)
    for term, size in zip(objective.terms, (3, 2), strict=True):
        before = task.encode_many(term.prompts, context[None])[0]
        after = task.encode_many(term.prompts, moved[None])[0]
        changed = ((before - after).abs().amax(1) > 1e-4).tolist()
        assert changed == [False] * size + [True] * size + [False] * size


def test_product_attribute() -> None:
    backend = TransformersBackend(*families.seeded(families.clip))
    from fair_tta import Templates

    two = {"sex": {"m": "male", "f": "female"}, "age": {"y": "young", "o": "old"}}
    task = Task(
        backend,
        {"a": "cat", "b": "dog"},
        two,
        Templates.from_sentence("a {sensitive} {target} here"),
    )
    assert task.product.sensitive == {
        "sex x age": {
            "m x y": "male young", "m x o": "male old",
            "f x y": "female young", "f x o": "female old",
        }
    }  # fmt: skip
    assert torch.equal(task.product.context, task.context)
    assert [
        len(SLoss(joint=joint).objective(task).terms[1].prompts)
        for joint in (False, True)
    ] == [4, 4]
    for joint, groups in ((False, ((1, 2), (1, 2))), (True, ((1, 4),))):
        term = SLoss(joint=joint).objective(task).terms[1]
        assert isinstance(term, Term)
        assert term.groups == groups


@pytest.mark.parametrize(
    "target", ["a photo of a {target}", "now a {target}!", "! now {target}"]
)
@pytest.mark.parametrize("order", [1, -1])
def test_product_attribute_has_the_vectors_of_the_whole_context(
    target: str, order: int
) -> None:
    """Names that end like the template take a token with them; the numbering stays the parent's."""
    backend = TransformersBackend(*families.seeded(families.clip))
    from fair_tta import Templates

    attributes = {"cry": {"w": "wow!", "h": "hey!"}, "age": {"y": "young", "o": "old"}}
    task = Task(
        backend,
        {"a": "cat", "b": "dog"},
        dict(list(attributes.items())[::order]),
        Templates(target, "face {sensitive}! now", "{target} face {sensitive}! now"),
    )
    assert torch.equal(task.product.context, task.context)
    for prompts in (
        *task.product.sensitive_prompts.values(),
        *(task.product.joint_prompts(a) for a in task.product.sensitive),
    ):
        expected = task.own_features(prompts)
        torch.testing.assert_close(
            task.encode(prompts, task.context), expected, rtol=0, atol=1e-5
        )
        ids, slots = prompts.tokens.ids, prompts.slots
        context = torch.tensor(task._shared.token_ids)
        assert torch.equal(ids[slots >= 0], context[slots[slots >= 0]])


def test_blocks_change_nothing(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many prompts and episodes are worked on a bounded number of tokens at a time."""
    context = task.context + 0.1 * torch.randn(5, *task.context.shape)
    prompts = task.joint_prompts("place")
    cotangent = torch.randn(5, len(prompts), 16)
    expected = (
        task.encode_many(prompts, context),
        task._pull_back(prompts, context, cotangent),
    )
    leaf = context.clone().requires_grad_()
    (direct,) = torch.autograd.grad(task.encode(prompts, leaf), leaf, cotangent)
    torch.testing.assert_close(expected[1], direct, rtol=1e-4, atol=1e-4)
    for tokens in (1, 30, 100, 300):
        monkeypatch.setattr("fair_tta.prompts._task.TOKENS_AT_ONCE", tokens)
        torch.testing.assert_close(task.encode_many(prompts, context), expected[0])
        pulled = task._pull_back(prompts, context, cotangent)
        torch.testing.assert_close(pulled, expected[1], rtol=1e-4, atol=1e-4)
