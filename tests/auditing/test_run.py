"""Figures of a run: answers in sets of classes, and pseudo-EOD beside EOD."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from internals import pseudo_equalized_odds_difference, pseudo_odds

from fair_tta import metrics
from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.lab.report import html, markdown
from fair_tta.metrics import Bootstrap, definitions

TRUTH = ["man", "woman"] * 60
RACE = ["p", "p", "q"] * 40
AGE = ["old", "young", "young", "old"] * 30
BEFORE = ["man", "thief", "woman", "<ape>"] * 30
AFTER = ["man", "woman", "woman", "thief"] * 30
SETS = {"crime": ["thief"], "not <human>": ["<ape>", "animal"]}
TARGETS = ["man", "woman", "thief", "<ape>", "animal"]
few_images = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")


def harmful_audit(answers: list[str], name: str, harmful: Any = SETS) -> Audit:
    groups = {"race": RACE, "age": AGE}
    return audit(TRUTH, answers, groups, name=name, targets=TARGETS, harmful=harmful)


@few_images
@pytest.mark.filterwarnings("ignore:no answer is 'animal'")
def test_harm_rates_are_those_of_the_metrics() -> None:
    document = harmful_audit(BEFORE, "before").document
    harmful = {"crime": ("thief",), "not <human>": ("<ape>", "animal")}
    assert document.data.harmful == harmful
    rates: dict[Any, Any] = {}
    for harm in document.runs[0].harm:
        rates[harm.classes, *harm.sensitive.items()] = harm.rate
    assert len(rates) == 2 * (1 + 2 + 2)
    for name, classes in SETS.items():
        everybody = metrics.harm_rate(BEFORE, ["all"] * 120, classes)["all"]
        assert rates[(name,)] == everybody
        for attribute, column in {"race": RACE, "age": AGE}.items():
            for value, rate in metrics.harm_rate(BEFORE, column, classes).items():
                assert rates[name, (attribute, value)] == rate


@few_images
def test_changes_of_harm_are_those_of_the_metrics_and_are_shown_escaped() -> None:
    compared = compare([harmful_audit(BEFORE, "before"), harmful_audit(AFTER, "after")])
    (comparison,) = compared.document.comparisons
    changes: dict[Any, Any] = {}
    for harm in comparison.harm:
        changes[harm.classes, *harm.sensitive.items()] = harm.difference
    change = metrics.harm_rate_change(BEFORE, AFTER, RACE, ["thief"])["q"]
    assert changes["crime", ("race", "q")] == change
    assert Audit.from_json(compared.to_json()) == compared
    page = html(compared)
    assert "Answers in the set crime" in page
    assert "Answers in the set not &lt;human&gt;" in page
    for text in (page, markdown(compared)):
        assert "<ape>" not in text
        assert "everybody" in text


@few_images
def test_sets_need_no_name_and_may_be_left_out() -> None:
    one_set = harmful_audit(BEFORE, "before", ["thief"])
    assert one_set.document.data.harmful == {"harmful": ("thief",)}
    no_sets = harmful_audit(BEFORE, "before", None)
    assert "harm" not in no_sets.to_json()
    assert "Answers in the set" not in html(no_sets)


N = 400
QUICK = Bootstrap(200)
CLASSES = ["cat", "dog"]
generator = np.random.default_rng(0)
SPECIES = generator.choice(CLASSES, N)
GENDERS = generator.choice(["man", "woman"], N)
AGES = generator.choice(["young", "old"], N)
FIRST = np.where(generator.random(N) < 0.7, SPECIES, "cat")
SECOND = np.where(generator.random(N) < 0.2, SPECIES, FIRST)
CLASS_BELIEFS = generator.dirichlet([1, 1], N)
VALUE_BELIEFS = {
    "gender": generator.dirichlet([1, 1], N),
    "mood": generator.dirichlet([1, 1, 1], N),
}


def with_beliefs(answers: Any, name: str, beliefs: Any = CLASS_BELIEFS) -> Audit:
    scores = Scores(
        zero_shot=dict(zip(CLASSES, beliefs.T, strict=True)),
        sensitive_zero_shot=VALUE_BELIEFS,
    )
    sensitive = {"gender": GENDERS, "age": AGES}
    return audit(SPECIES, answers, sensitive, name=name, scores=scores, interval=QUICK)


@pytest.fixture(scope="module")
def compared() -> Audit:
    return compare([with_beliefs(FIRST, "first"), with_beliefs(SECOND, "second")])


def codes(answers: Any) -> Any:
    return np.array([CLASSES.index(answer) for answer in answers])


def test_odds_of_a_run_are_those_of_the_functions(compared: Audit) -> None:
    """EOD of one attribute alone, although groups of the audit are intersections."""
    for run, answers in zip(compared.document.runs, (FIRST, SECOND), strict=True):
        assert run.perceived is not None
        for attribute, odds in run.perceived.items():
            pseudo = pseudo_odds(
                [codes(answers)], CLASS_BELIEFS, VALUE_BELIEFS[attribute], QUICK
            )
            assert odds.pseudo_eod == pseudo.runs[0]
        eod = metrics.equalized_odds_difference(
            SPECIES, answers, GENDERS, interval=QUICK
        )
        assert run.perceived["gender"].eod == eod
        assert eod != run.metrics.equalized_odds_difference
        # There are no labels of this attribute
        assert run.perceived["mood"].eod is None


def test_changes_of_odds_are_those_of_the_functions(compared: Audit) -> None:
    changes = compared.document.comparisons[0].perceived
    assert changes is not None
    runs = [codes(FIRST), codes(SECOND)]
    pseudo = pseudo_odds(runs, CLASS_BELIEFS, VALUE_BELIEFS["gender"], QUICK)
    assert changes["gender"].pseudo_eod == pseudo.changes[0]
    assert changes["gender"].eod == metrics.paired_difference(
        definitions.EQUALIZED_ODDS, SPECIES, FIRST, SECOND, GENDERS, interval=QUICK
    )
    assert changes["mood"].eod is None


def test_odds_are_saved_and_shown(compared: Audit) -> None:
    assert Audit.from_json(compared.to_json()) == compared
    page = html(compared)
    assert "What an examination without labels would have shown" in page
    assert "no labels of this attribute" in page


def test_without_beliefs_there_are_no_odds() -> None:
    bare = audit(SPECIES, FIRST, GENDERS, interval=QUICK)
    assert "perceived" not in json.loads(bare.to_json())["runs"][0]
    assert "audit-table-perceived" not in html(bare)
    beliefs = dict(zip(CLASSES, CLASS_BELIEFS.T, strict=True))
    scores = Scores(zero_shot=beliefs)
    of_classes_only = audit(SPECIES, FIRST, GENDERS, scores=scores, interval=QUICK)
    assert of_classes_only.document.runs[0].perceived is None
    sensitive = {"gender": GENDERS, "age": AGES}
    mixed = compare(
        [
            with_beliefs(FIRST, "first"),
            audit(SPECIES, SECOND, sensitive, name="second", interval=QUICK),
        ]
    )
    assert mixed.document.comparisons[0].perceived is None
    assert "audit-table-perceived" in html(mixed)


def test_two_models_have_no_common_beliefs() -> None:
    first = with_beliefs(FIRST, "first")
    other_model = with_beliefs(SECOND, "second", CLASS_BELIEFS[::-1])
    assert compare([first, other_model]).document.comparisons[0].perceived is None
    rounded = np.clip(CLASS_BELIEFS + 1e-5, 0, 1)
    rounded /= rounded.sum(1, keepdims=True)
    same_model = with_beliefs(SECOND, "second", rounded)
    assert compare([first, same_model]).document.comparisons[0].perceived


def test_beliefs_are_matched_by_name() -> None:
    """They come in any order, and in classes that were never answered."""
    cat, dog = CLASS_BELIEFS.T
    zeros = np.zeros(N)

    def perceived_with(beliefs: dict[str, Any]) -> Any:
        scores = Scores(zero_shot=beliefs, sensitive_zero_shot=VALUE_BELIEFS)
        measured = audit(
            SPECIES, FIRST, {"gender": GENDERS}, scores=scores, interval=QUICK
        )
        return measured.document.runs[0].perceived

    odds = perceived_with({"dog": dog, "bird": zeros, "cat": cat})
    pseudo_eod = pseudo_equalized_odds_difference(
        codes(FIRST), np.stack([cat, dog, zeros], 1), VALUE_BELIEFS["gender"]
    )
    assert odds["gender"].pseudo_eod.value == pytest.approx(pseudo_eod)
    assert perceived_with({"cow": cat, "hen": dog}) is None
