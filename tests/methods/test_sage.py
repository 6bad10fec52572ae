"""SAGE against a loop over templates."""

from __future__ import annotations

from typing import Any

import families
import numpy as np
import pytest
import torch
from checks import picture
from hypothesis import given
from hypothesis import strategies as st
from internals import OPENINGS, AugMix, mean_of_widest_range
from random_task import random_units

from fair_tta import FairTPTClassifier, FairTTAError
from fair_tta.errors import PromptError
from fair_tta.methods import SAGE

TEMPLATES = (
    "a photo of a {}.",
    "a drawing of a {target}.",
    "a {} on water",
    "a bird, not a {}",
)


def classifier(**more: Any) -> FairTPTClassifier:
    model, *processor = families.seeded(families.clip)
    settings: dict[str, Any] = {"targets": ["cat", "dog", "water bird"], "scale": 30.0}
    return FairTPTClassifier(
        model, **(settings | more), processor=tuple(processor), views=AugMix(1)
    )


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(2, 4))
def test_the_widest_templates_are_averaged(seed: int, keep: int, targets: int) -> None:
    logits = random_units(seed, 6, 5, targets)
    expected = []
    for image in logits.numpy():
        best = sorted(range(5), key=lambda t: image[t].min() - image[t].max())[:keep]
        expected.append(np.mean([image[t] for t in best], axis=0))
    np.testing.assert_allclose(mean_of_widest_range(logits, keep), expected, atol=1e-12)


def test_equal_templates_keep_their_order() -> None:
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    assert mean_of_widest_range(logits, 1).tolist() == [1, 0]


@pytest.mark.parametrize("keep", [1, 3])
def test_is_the_best_of_single_templates(keep: int) -> None:
    """Cosines of classifiers that have one template each."""
    clf = classifier(adapter=SAGE(TEMPLATES, keep=keep))
    others = [
        FairTPTClassifier(clf._backend, clf.targets, template=t, scale=30.0)
        for t in TEMPLATES
    ]
    for seed in range(4):
        v = clf.encode([picture(seed)])[0, 0]
        logits = [
            (30 * other._task.target_features @ v).double().numpy() for other in others
        ]
        best = sorted(logits, key=lambda row: row.min() - row.max())[:keep]
        expected = torch.from_numpy(np.mean(best, axis=0)).softmax(-1)
        ours = list(clf.predict(picture(seed)).probabilities.values())
        assert ours == pytest.approx(expected.tolist(), abs=1e-5)


def test_all_templates_are_their_mean_and_one_is_zero_shot() -> None:
    clf = classifier(template=TEMPLATES[0])
    alone = clf.with_adapter(SAGE(TEMPLATES[:1])).predict(picture())
    assert alone.probabilities == pytest.approx(alone.zero_shot, abs=1e-6)
    again = clf.with_adapter(SAGE([TEMPLATES[0]] * 3, keep=2)).predict(picture())
    assert again.probabilities == pytest.approx(alone.zero_shot, abs=1e-6)


def test_by_default_openings_stand_before_the_classifiers_sentence() -> None:
    clf = classifier(
        targets={"b": "with blond hair", "d": "with dark hair"},
        sensitive=["man", "woman"],
        template="A {sensitive} person {target}.",
    )
    sentences = SAGE()._sentences(clf._task)
    assert sentences[:4] == [
        "A person with blond hair.",
        "A person with dark hair.",
        "A photo. A person with blond hair.",
        "A photo. A person with dark hair.",
    ]
    assert len(sentences) == 2 * len(OPENINGS)
    own = SAGE(
        ["A person {target}.", *[f"{o}A person {{}}." for o in OPENINGS[1:]]], keep=2
    )
    expected = clf.with_adapter(own).predict(picture()).probabilities
    assert clf.with_adapter(SAGE(keep=2)).predict(picture()).probabilities == expected


def test_bad_templates_and_numbers() -> None:
    wrong: list[Any] = ["a {}", [], (), 3]
    for templates in wrong:
        with pytest.raises(
            FairTTAError, match="`templates` should be a list of sentences"
        ):
            SAGE(templates)
    with pytest.raises(
        PromptError, match=r"`templates` should have `\{target\}` and no other slot"
    ):
        SAGE(["a {} on {sensitive}"])
    with pytest.raises(PromptError, match="`templates` should be a sentence"):
        SAGE([3])  # type: ignore[list-item]
    for keep in (0, 11, 1.0):
        with pytest.raises(
            FairTTAError, match=r"`keep` should be a number .* from 1 to 10"
        ):
            SAGE(keep=keep)  # type: ignore[arg-type]
    with pytest.raises(FairTTAError, match="from 1 to 2"):
        SAGE(["a {}", "{}"], keep=3)


def test_long_templates_are_refused_before_any_image() -> None:
    with pytest.raises(PromptError, match="takes at most 77: shorten"):
        classifier(adapter=SAGE(["a photo " * 40 + "{}"]))


def test_lists_make_the_same_method() -> None:
    assert SAGE(["a {}"]) == SAGE(("a {}",))
    assert hash(SAGE(["a {}"])) == hash(SAGE(("a {}",)))
