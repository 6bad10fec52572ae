"""Pseudo figures beside true ones in audits."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from internals import pseudo_equalized_odds_difference, pseudo_odds

from fair_tta import metrics
from fair_tta.auditing import Audit, Scores, audit, compare
from fair_tta.errors import FairTTAError
from fair_tta.lab.report import html, markdown
from fair_tta.metrics import Bootstrap, definitions

N, QUICK = 400, Bootstrap(200)
CLASSES, GENDER, AGE = ["cat", "dog"], ["man", "woman"], ["young", "old"]
generator = np.random.default_rng(0)
TRUTH, GENDERS, AGES = (
    generator.choice(CLASSES, N), generator.choice(GENDER, N), generator.choice(AGE, N),
)  # fmt: skip
BEFORE = np.where(generator.random(N) < 0.7, TRUTH, "cat")
AFTER = np.where(generator.random(N) < 0.2, TRUTH, BEFORE)
Q = generator.dirichlet([1, 1], N)
W = {
    "gender": generator.dirichlet([1, 1], N),
    "mood": generator.dirichlet([1, 1, 1], N),
}


def named(q: Any) -> dict[str, Any]:
    return dict(zip(CLASSES, q.T, strict=True))


def make(answers: Any, name: str, q: Any = Q, **more: Any) -> Audit:
    return audit(
        TRUTH, answers, {"gender": GENDERS, "age": AGES}, name=name, targets=CLASSES,
        scores=Scores(zero_shot=named(q), sensitive_zero_shot=W), interval=QUICK, **more,
    )  # fmt: skip


@pytest.fixture(scope="module")
def both() -> Audit:
    return compare([make(BEFORE, "before"), make(AFTER, "after")])


def positions(answers: Any) -> Any:
    return np.array([CLASSES.index(a) for a in answers])


def test_it_holds_what_the_functions_say(both: Audit) -> None:
    """EOD of one attribute alone, although groups of the audit are intersections."""
    for run, answers in zip(both.document.runs, (BEFORE, AFTER), strict=True):
        assert run.perceived is not None
        for attribute, odds in run.perceived.items():
            pseudo = pseudo_odds([positions(answers)], Q, W[attribute], QUICK).runs[0]
            assert odds.pseudo_eod == pseudo
        true = metrics.equalized_odds_difference(
            TRUTH, answers, GENDERS, interval=QUICK
        )
        found = run.perceived["gender"].eod
        assert found is not None
        assert found == true
        assert found != run.metrics.equalized_odds_difference
        assert run.perceived["mood"].eod is None  # nobody labelled it
    change = both.document.comparisons[0].perceived
    assert change is not None
    pseudo = pseudo_odds(
        [positions(BEFORE), positions(AFTER)], Q, W["gender"], QUICK
    ).changes[0]
    assert change["gender"].pseudo_eod == pseudo
    true = metrics.paired_difference(
        definitions.EQUALIZED_ODDS, TRUTH, BEFORE, AFTER, GENDERS, interval=QUICK
    )
    assert change["gender"].eod is not None
    assert change["gender"].eod == true
    assert change["mood"].eod is None


def test_it_is_saved_and_shown(both: Audit) -> None:
    again = Audit.from_json(both.to_json())
    assert again == both
    page = html(both)
    assert "What an examination without labels would have shown" in page
    assert "no labels of this attribute" in page
    assert "balanced" in markdown(both).lower()


def test_without_beliefs_there_is_nothing(both: Audit) -> None:
    bare = audit(TRUTH, BEFORE, GENDERS, interval=QUICK)
    assert bare.document.runs[0].perceived is None
    assert "perceived" not in json.loads(bare.to_json())["runs"][0]
    assert "audit-table-perceived" not in html(bare)
    only_targets = audit(
        TRUTH, BEFORE, GENDERS, scores=Scores(zero_shot=named(Q)), interval=QUICK
    )
    assert only_targets.document.runs[0].perceived is None
    mixed = compare([make(BEFORE, "before"), audit(
        TRUTH, AFTER, {"gender": GENDERS, "age": AGES}, name="after", targets=CLASSES,
        interval=QUICK,
    )])  # fmt: skip
    assert mixed.document.comparisons[0].perceived is None
    assert "audit-table-perceived" in html(mixed)


def test_two_models_have_no_common_beliefs() -> None:
    other = compare([make(BEFORE, "before"), make(AFTER, "after", q=Q[::-1])])
    assert other.document.comparisons[0].perceived is None
    nearly = np.clip(Q + 1e-5, 0, 1)
    assert (
        compare(
            [
                make(BEFORE, "before"),
                make(AFTER, "after", q=nearly / nearly.sum(1, keepdims=True)),
            ]
        )
        .document.comparisons[0]
        .perceived
    )


def test_names_count_and_not_places(both: Audit) -> None:
    """Beliefs come in any order, and in classes that were never answered."""
    swapped = Scores(
        zero_shot={"dog": Q[:, 1], "bird": np.zeros(N), "cat": Q[:, 0]},
        sensitive_zero_shot={"gender": W["gender"]},
    )
    found = audit(TRUTH, BEFORE, {"gender": GENDERS}, scores=swapped, interval=QUICK)
    assert found.document.runs[0].perceived is not None
    value = found.document.runs[0].perceived["gender"].pseudo_eod.value
    q = np.stack([Q[:, 0], Q[:, 1], np.zeros(N)], 1)
    wanted = pseudo_equalized_odds_difference(positions(BEFORE), q, W["gender"])
    assert value == pytest.approx(wanted)
    other = Scores(zero_shot={"cow": Q[:, 0], "hen": Q[:, 1]}, sensitive_zero_shot=W)
    found = audit(TRUTH, BEFORE, {"gender": GENDERS}, scores=other, interval=QUICK)
    assert found.document.runs[0].perceived is None


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(
        FairTTAError, match=r"zero_shot\['cat'\]` should be as long as `y_true`, 400"
    ):
        make(BEFORE, "before", q=Q[:7])
    with pytest.raises(FairTTAError, match=r"`zero_shot` should be >= 0 and sum to 1"):
        make(BEFORE, "before", q=Q / 2)
    with pytest.raises(
        FairTTAError, match=r"zero_shot\['cat'\]` should lie between 0 and 1"
    ):
        make(BEFORE, "before", q=2 * Q)
    with pytest.raises(
        FairTTAError, match=r"sensitive_zero_shot\['a'\]` should be as long"
    ):
        Scores(sensitive_zero_shot={"a": Q[:3]})._checked(N)
