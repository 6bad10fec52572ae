"""The first screen over several tasks: what it says is what the audits bear out."""

from __future__ import annotations

import pytest
from internals import (
    MAX_METHODS,
    AuditDocument,
    audit_banners,
    audit_cards,
    by_gap,
    first_screen,
    methods_on_tasks,
    short_verdict,
    title_of_tasks,
)
from report_samples import Page
from verdict_samples import BETTER, CLEAR, EVEN, FAIRER, answers, made

from fair_tta import audit, compare
from fair_tta.auditing import Audit, Scores
from fair_tta.lab.report import html_many

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.errors.SmallGroupWarning")

WORSE = {**dict.fromkeys(CLEAR, (80, 100)), ("dog", "out"): (10, 100)}
SMALL_GAP = dict.fromkeys(CLEAR, (90, 100)) | {("dog", "out"): (60, 100)}


def task(*runs: Audit) -> AuditDocument:
    return compare(runs).document


def test_the_largest_gap_and_a_method_that_helps() -> None:
    wide = task(made(CLEAR), made(BETTER, "Good"), made(WORSE, "Bad"))
    small = task(made(SMALL_GAP), made(SMALL_GAP, "Good"), made(SMALL_GAP, "Bad"))
    tasks = by_gap([("small", small), ("wide", wide)])
    assert [name for name, _ in tasks] == ["wide", "small"]
    wrong, helps, todo = audit_cards(tasks)
    assert wrong.text == (
        "Largest typical gap on wide: right on 72 of 100 images, but on 20 of 100 of dog / out."
    )
    says = "Good narrows the gap on 1 of 2 tasks, no harm is shown on the others"
    assert (helps.text, helps.tone) == (f"{says}.", "good")
    assert helps.details.startswith(
        "Typical gap with Good, the interval of its change in points, and balanced accuracy: "
        "wide 49."
    )
    assert todo.text == "Use Good. Confirm it on images that took no part."
    assert title_of_tasks(tasks, "Two") == f"Two: {says}"
    good, bad = methods_on_tasks(tasks)
    assert good.verdict == (
        "narrows the gap in 1, helps the worst group in 1, raises accuracy in 1 of 2"
    )
    assert "at 72.5 \N{RIGHTWARDS ARROW} 87.5; small 20." in helps.details
    assert (good.name, good.tone) == ("Good", "good")
    assert (bad.name, bad.tone) == ("Bad", "bad")
    assert bad.verdict == "hurts the worst group in 1, costs accuracy in 1 of 2"
    assert good.balanced_values == "77.5 \N{RIGHTWARDS ARROW} 85.0"
    assert good.cost is None
    figure = first_screen(tasks).chart
    assert figure is not None
    assert [(row.name, row.tone) for row in figure.rows] == [
        ("wide", "good"),
        ("small", ""),
    ]


def test_no_advice_without_evidence() -> None:
    same = task(made(CLEAR), made(CLEAR, "Same"))
    tried, todo = audit_cards([("a", same), ("b", same)])[1:]
    assert tried.heading == "What was tried"
    assert tried.text == "No method is shown to narrow the gap without harm."
    assert todo.text.startswith("Label more images")
    mixed = task(made(CLEAR), made(BETTER, "Same"))
    harm = task(made(CLEAR), made(WORSE, "Same"))
    tasks = [("a", mixed), ("b", harm)]
    tried, todo = audit_cards(tasks)[1:]
    assert tried.text == (
        "Same narrows the gap on a; on b it costs balanced accuracy, accuracy, the worst group."
    )
    assert todo.text.startswith("Use Same for a only.")
    assert (
        title_of_tasks(tasks, "T")
        == "T: Same narrows the gap on 1 of 2 tasks, 1 harmed"
    )
    alone = made(CLEAR).document
    tasks = [("a", alone), ("b", alone)]
    assert audit_cards(tasks)[-1].text.startswith("Try methods")
    assert (
        title_of_tasks(tasks, "T") == "T: a gap between groups is shown on 2 of 2 tasks"
    )
    chart = first_screen(tasks).chart
    assert chart is not None
    assert chart.heading.startswith("Typical gap of each task in points")


def test_a_gap_narrowed_at_a_cost_is_not_denied() -> None:
    before = {**dict.fromkeys(EVEN, (475, 500)), ("dog", "out"): (250, 500)}
    one = task(made(before), made(FAIRER, "M"))
    assert "M narrows the gap by serving the better groups worse in 2" in (
        audit_cards([("a", one), ("b", one)])[1].text
    )


def test_only_tasks_on_which_a_method_ran_are_spoken_of() -> None:
    first = task(made(CLEAR), made(BETTER, "M"))
    alone = made(SMALL_GAP).document
    other = task(made(SMALL_GAP), made(SMALL_GAP, "N"), made(SMALL_GAP, "O"))
    tasks = [("T1", first), ("T2", alone), ("T3", other)]
    assert (
        audit_cards(tasks)[1].text
        == "M narrows the gap on 1 of 1 task; not run on T2, T3."
    )
    found = {method.name: method for method in methods_on_tasks(tasks)}
    assert found["M"].verdict.endswith("raises accuracy in 1 of 1")
    assert found["N"].not_run == ("T1", "T2")


def test_nothing_wrong_on_any_task() -> None:
    even = made(dict.fromkeys(CLEAR, (90, 100))).document
    seen = audit_cards([("a", even), ("b", even)])[0]
    assert (seen.heading, seen.tone) == ("What is seen", "")
    assert seen.text == "a: right on 90 of 100 images, no less often in any group."


def test_banners_of_every_kind_are_told_once() -> None:
    truth, said, group = answers(dict.fromkeys(CLEAR, (10, 20)))
    scores = Scores(confidence=[0.52] * 80, sensitive_entropy={"place": [0.9] * 80})
    first = audit(truth, said, {"place": group}, name="ZeroShot", scores=scores)
    flipped = ["cat" if label == "dog" else "dog" for label in said]
    others = [
        audit(truth, flipped, {"place": group}, name=name, scores=scores)
        for name in "ab"
    ]
    document = compare([first, *others]).document
    told = audit_banners([("one", document), ("two", document)])
    assert [sentence.replace("\N{NO-BREAK SPACE}", " ") for sentence in told] == [
        "ZeroShot is not shown to be better than always giving the commonest answer: "
        "one: 'cat' is right in 50 of 100; two: 'cat' is right in 50 of 100.",
        "ZeroShot is hardly sure of any answer: one: median confidence 52 %, by chance 50 %; "
        "two: median confidence 52 %, by chance 50 %.",
        "More than 20 % of the answers change: one: a 100 %; one: b 100 %; two: a 100 %; "
        "two: b 100 %.",
        "Groups with fewer than 30 images, whose figures are uncertain: one: 4 of 4; two: 4 of 4.",
    ]
    assert audit_banners([("one", made(CLEAR).document)]) == []


def test_the_page_has_the_order_of_the_first_screen() -> None:
    wide = compare([made(CLEAR), made(BETTER, "Good")])
    small = compare([made(SMALL_GAP), made(SMALL_GAP, "Good")])
    text = html_many("Two", [("small", small, []), ("wide", wide, [])], intro="Legend.")
    Page(text)  # tags match
    places = [
        text.index(words)
        for words in (
            "<h1>Two: Good narrows the gap on 1 of 2", "800 images", "What is wrong", "What helps",
            "What to do", 'id="overview-figure-dots"', 'id="overview-methods"', "<details>",
            "Legend.", 'id="audit-1"', short_verdict(small.document), 'id="audit-2"', 'id="limits"',
        )
    ]  # fmt: skip
    assert places == sorted(places)
    assert text.index("sha256") > text.index('id="audit-1"')


def test_one_task_has_its_own_screen_and_it_comes_once() -> None:
    one = compare([made(CLEAR), made(BETTER, "Good")])
    page = html_many("One", [("the task", one, [])])
    assert page.count("What is wrong") == 1
    assert "Good narrows the gap: two groups" in page


def test_many_methods_and_nothing_to_say() -> None:
    runs = [made(CLEAR), *(made(CLEAR, f"m{i}") for i in range(MAX_METHODS + 2))]
    screen = first_screen([("a", task(*runs)), ("b", task(*runs))])
    assert len(screen.methods) == MAX_METHODS
    assert "2 more methods are below." in screen.legend
    assert (
        first_screen([]).cards[0].text == "Nothing was measured: no group has images."
    )
