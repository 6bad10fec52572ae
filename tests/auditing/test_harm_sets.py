from __future__ import annotations

from typing import Any

import pytest

from fair_tta import FairTTAError, audit, compare, metrics
from fair_tta.auditing import Audit
from fair_tta.lab import report

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")

TRUTH = ["man", "woman"] * 60
RACE = ["p", "p", "q"] * 40
AGE = ["old", "young", "young", "old"] * 30
BEFORE = ["man", "thief", "woman", "<ape>"] * 30
AFTER = ["man", "woman", "woman", "thief"] * 30
SETS = {"crime": ["thief"], "not <human>": ["<ape>", "animal"]}
TARGETS = ["man", "woman", "thief", "<ape>", "animal"]


def made(answers: list[str], name: str = "before", **more: Any) -> Audit:
    groups = {"race": RACE, "age": AGE}
    options: dict[str, Any] = {"targets": TARGETS, "harmful": SETS, **more}
    return audit(TRUTH, answers, groups, name=name, **options)


@pytest.mark.filterwarnings("ignore:no answer is 'animal'")
def test_rates_are_those_of_the_metrics() -> None:
    found = made(BEFORE).document
    assert found.data.harmful == {
        "crime": ("thief",),
        "not <human>": ("<ape>", "animal"),
    }
    rates: dict[Any, Any] = {
        (h.classes, *h.sensitive.items()): h.rate for h in found.runs[0].harm
    }
    assert len(rates) == 2 * (1 + 2 + 2)
    for name, classes in SETS.items():
        everybody = metrics.harm_rate(BEFORE, ["all"] * 120, classes)["all"]
        assert rates[(name,)] == everybody
        for attribute, column in {"race": RACE, "age": AGE}.items():
            for value, figure in metrics.harm_rate(BEFORE, column, classes).items():
                assert rates[name, (attribute, value)] == figure


def test_changes_are_those_of_the_metrics() -> None:
    together = compare([made(BEFORE), made(AFTER, "after")])
    (comparison,) = together.document.comparisons
    changes = {(h.classes, *h.sensitive.items()): h.difference for h in comparison.harm}
    expected = metrics.harm_rate_change(BEFORE, AFTER, RACE, ["thief"])["q"]
    assert changes["crime", ("race", "q")] == expected
    assert Audit.from_json(together.to_json()) == together


def test_without_sets_nothing_is_said() -> None:
    plain = made(BEFORE, harmful=None)
    assert "harm" not in plain.to_json()
    assert "Answers in the set" not in report.html(plain)


def test_report_and_card_show_them_escaped() -> None:
    together = compare([made(BEFORE), made(AFTER, "after")])
    page, card = report.html(together), report.markdown(together)
    assert "Answers in the set crime" in page
    assert "Answers in the set not &lt;human&gt;" in page
    assert "better" in page
    for text in (page, card):
        assert "<ape>" not in text
        assert "everybody" in text


def test_one_set_needs_no_name() -> None:
    assert made(BEFORE, harmful=["thief"]).document.data.harmful == {
        "harmful": ("thief",)
    }


@pytest.mark.parametrize(
    ("harmful", "message"),
    [
        (
            "thief",
            r"`harmful` should be a list of classes, or \{name: classes\} \(got 'thief'\)",
        ),
        ({"crime": []}, "`harmful` should be a list of classes"),
        (["thug"], r"`harmful` should be among the classes, .* \(got \['thug'\]\)"),
    ],
)
def test_what_is_wrong_is_told(harmful: Any, message: str) -> None:
    with pytest.raises(FairTTAError, match=message):
        made(BEFORE, harmful=harmful)


def test_runs_with_other_sets_are_not_compared() -> None:
    with pytest.raises(FairTTAError, match="harmful differ"):
        compare([made(BEFORE), made(AFTER, "after", harmful=["thief"])])
