"""RoboShot against the sequence of steps of its paper."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import families
import numpy as np
import numpy.typing as npt
import pytest
import torch
from checks import picture
from hypothesis import given
from internals import CLASS_LOST, AugMix
from random_task import DIM, Drawn, drawn, random_units, softmax
from torch import Tensor

from fair_tta import TPT, FairTPTClassifier, FairTTAError, Features, ZeroShot
from fair_tta.errors import PromptError
from fair_tta.methods import RoboShot
from fair_tta.miniature import BADGES

Array = npt.NDArray[np.float64]
SENTENCES = (
    "a photo of water",
    "a photo of land",
    "has webbed feet",
    "has claws",
    "day",
    "night",
)
REJECT = [(SENTENCES[0], SENTENCES[1]), (SENTENCES[4], SENTENCES[5])]
ACCEPT = [(SENTENCES[2], SENTENCES[3])]


def step_by_step(case: Drawn, reject: list[Array], accept: list[Array]) -> Array:
    """One direction after another, normalised after each, as the public code does it."""
    rows = []
    for v in case.features[:, 0].numpy():
        for directions, sign in ((reject, -1.0), (accept, 1.0)):
            basis: list[Array] = []
            if directions:
                basis = list(np.linalg.qr(np.stack(directions).T)[0].T)
            for q in basis:
                v = v + sign * (v @ q) * q
                v = v / np.linalg.norm(v)
        rows.append(softmax(case.scale * case.target.numpy() @ v))
    return np.array(rows)


def answer(case: Drawn, adapter: RoboShot | None = None) -> Tensor:
    return (adapter or RoboShot()).adapt(case.task, case.features).probabilities


def with_sentences(case: Drawn) -> Drawn:
    features = random_units(7, len(SENTENCES), DIM)
    return replace(case, sentences=dict(zip(SENTENCES, features, strict=True)))


@given(drawn())
def test_is_its_steps(case: Drawn) -> None:
    """Differences to the first value span what all pairs span, and are independent."""
    values = [z.numpy() for z in case.sensitive.values()]
    reject = [z[i] - z[0] for z in values for i in range(1, len(z))]
    np.testing.assert_allclose(answer(case), step_by_step(case, reject, []), atol=1e-9)
    everything = [
        z[i] - z[j] for z in values for i, j in combinations(range(len(z)), 2)
    ]
    assert np.linalg.matrix_rank(np.stack(everything)) == len(reject)


@given(drawn())
def test_sentences_of_ones_own(case: Drawn) -> None:
    case = with_sentences(case)
    features = {text: z.numpy() for text, z in case.sentences.items()}
    reject = [features[a] - features[b] for a, b in REJECT]
    accept = [features[a] - features[b] for a, b in ACCEPT]
    ours = answer(case, RoboShot(reject=REJECT, accept=ACCEPT))
    np.testing.assert_allclose(ours, step_by_step(case, reject, accept), atol=1e-9)
    alone = answer(case, RoboShot(reject=(), accept=ACCEPT))
    np.testing.assert_allclose(alone, step_by_step(case, [], accept), atol=1e-9)


@given(drawn())
def test_no_pairs_and_pairs_without_a_difference_are_zero_shot(case: Drawn) -> None:
    torch.testing.assert_close(answer(case, RoboShot(reject=())), case.zero_shot)
    same = {a: z[:1].expand(3, -1) for a, z in case.sensitive.items()}
    torch.testing.assert_close(answer(replace(case, sensitive=same)), case.zero_shot)


def test_images_without_the_direction_stay() -> None:
    z = torch.eye(4, dtype=torch.float64)[:2]
    image = torch.tensor([[[0.0, 0.0, 0.6, 0.8]]], dtype=torch.float64)
    case = Drawn(random_units(0, 3, 4), {"s": z}, image)
    torch.testing.assert_close(answer(case), case.zero_shot)


def test_of_an_image_within_the_direction_nothing_is_left() -> None:
    """The rest is rounding, so the answer is that of zero-shot."""
    z = torch.eye(4, dtype=torch.float64)[:2]
    case = Drawn(random_units(0, 4, 4), {"s": z}, (z[:1] - z[1:]).unsqueeze(0) / 2**0.5)
    assert torch.equal(answer(case), case.zero_shot)


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
    assert answer(case.in_float32).dtype == torch.float32
    near = answer(case.in_float32).double()
    torch.testing.assert_close(near, expected, rtol=0, atol=1e-4)


def classifier(**more: Any) -> FairTPTClassifier:
    model, *processor = families.seeded(families.clip)
    settings: dict[str, Any] = {"processor": tuple(processor), "views": AugMix(1)}
    return FairTPTClassifier(model, ["cat", "dog"], **(settings | more))


def test_pairs_need_no_attribute() -> None:
    clf = classifier(
        adapter=RoboShot(reject=[("a photo of a cat", "a photo of a bird")])
    )
    prediction = clf.predict(picture())
    assert prediction.probabilities != prediction.zero_shot
    with pytest.raises(PromptError, match="RoboShot needs sensitive attribute values"):
        classifier(adapter=RoboShot(accept=[("a", "b")]))


def test_long_sentences_are_refused_before_any_image() -> None:
    for pairs in (
        {"reject": [("water " * 99, "land")]},
        {"accept": [("water " * 99, "land")]},
    ):
        with pytest.raises(PromptError, match="takes at most 77: shorten"):
            classifier(sensitive=["man", "woman"], adapter=RoboShot(**pairs))
    with pytest.raises(PromptError, match="takes at most 77: shorten"):
        classifier(adapter=TPT() >> RoboShot(reject=[("water " * 99, "land")]))


def test_tuned_prompts_are_rejected_after_tuning() -> None:
    clf = classifier(sensitive=["man", "woman"], template="a {sensitive} {target}.")
    untouched = clf.with_adapter(TPT(steps=0) >> RoboShot()).predict(picture())
    alone = clf.with_adapter(RoboShot()).predict(picture())
    assert untouched.probabilities == pytest.approx(alone.probabilities, abs=1e-4)
    tuned = clf.with_adapter(TPT(rho=1.0) >> ZeroShot()).predict(picture())
    both = clf.with_adapter(TPT(rho=1.0) >> RoboShot()).predict(picture())
    assert both.probabilities not in (tuned.probabilities, alone.probabilities)


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ("water", r"should be a list of pairs of sentences \(got 'water'\)"),
        (3, r"should be a list of pairs of sentences \(got 3\)"),
        (["water", "land"], r"should hold pairs of two sentences \(got 'water'\)"),
        ([("water",)], "should hold pairs of two sentences"),
        ([("water", " ")], "should hold pairs of two sentences"),
        ([("water", 3)], "should hold pairs of two sentences"),
        ([("water", "water")], "should hold pairs of two sentences"),
    ],
)
def test_pairs_are_checked(pairs: Any, message: str) -> None:
    with pytest.raises(FairTTAError, match=f"`reject` {message}"):
        RoboShot(reject=pairs)
    with pytest.raises(FairTTAError, match=f"`accept` {message}"):
        RoboShot(accept=pairs)


def test_lists_make_the_same_method() -> None:
    one, two = RoboShot(reject=[["a", "b"]]), RoboShot(reject=(("a", "b"),))  # type: ignore[list-item]
    assert one == two
    assert hash(one) == hash(two)


@pytest.mark.parametrize("times", [1.0, 3.0, 0.3])
def test_classes_that_only_differ_by_what_is_rejected(times: float) -> None:
    """Their scores are equal but for rounding: a third of 100 labels changed with the length."""
    colours = ["red", "blue", "green"]
    clf = FairTPTClassifier(
        "miniature",
        colours,
        colours,
        "a photo of a {sensitive} {target}.",
        adapter=RoboShot(),
    )
    features = clf.encode(
        [one.image for one in BADGES.draw(30, seed=5)], with_views=False
    )
    answers = clf.predict(Features(times * features[:, 0]))
    plain = clf.with_adapter("zero-shot").predict(Features(features[:, 0]))
    assert answers.labels == plain.labels
    assert all(CLASS_LOST in answer.warnings for answer in answers)
