"""The first screen over several tasks: what it says is what the audits bear out."""

from __future__ import annotations

import pytest
from report_samples import Page
from verdict_samples import BETTER, CLEAR, EVEN, FAIRER, answers, made

from fair_tta import Audit, audit, compare
from fair_tta.auditing import Scores
from fair_tta.auditing._document import AuditDocument
from fair_tta.lab.report import html_many
from fair_tta.lab.report._first_screen import MOST_METHODS, banners, screen_of_many
from fair_tta.lab.report._verdict import by_gap, cards_of_many, in_short, methods_on

pytestmark = pytest.mark.filterwarnings("ignore::fair_tta.SmallGroupWarning")

WORSE = {**CLEAR, ("cat", "in"): (40, 100)}
SMALL_GAP = dict.fromkeys(CLEAR, (90, 100)) | {("dog", "out"): (60, 100)}


def task(*runs: Audit) -> AuditDocument:
    return compare(runs).document


def test_the_largest_gap_and_a_method_that_helps() -> None:
    wide = task(made(CLEAR), made(BETTER, "Good"), made(WORSE, "Bad"))
    small = task(made(SMALL_GAP), made(SMALL_GAP, "Good"), made(SMALL_GAP, "Bad"))
    tasks = by_gap([("small", small), ("wide", wide)])
    assert [name for name, _ in tasks] == ["wide", "small"]
    wrong, sure, todo = cards_of_many(tasks)
    assert wrong.text == (
        "Largest gap on wide: right in 72 of 100 images overall, but in 20 of 100 of dog / out."
    )
    assert sure.text == "A gap exists on 2 of 2 tasks."
    assert todo.text == (
        "Try Good: it narrows the gap on 1 of 2 tasks, no harm is shown on the others."
    )
    good, bad = methods_on(tasks)
    assert good.verdict == "narrows the gap in 1, raises accuracy in 1 of 2"
    assert (good.name, good.tone) == ("Good", "good")
    assert (bad.name, bad.verdict, bad.tone) == ("Bad", "does harm in 1 of 2", "bad")
    assert good.changed == pytest.approx((60 / 400 + 0) / 2)
    assert good.cost is None


def test_no_advice_without_evidence() -> None:
    same = task(made(CLEAR), made(CLEAR, "Same"))
    todo = cards_of_many([("a", same), ("b", same)])[2]
    assert todo.text == "The method tried is not shown to narrow the gap on any task."
    mixed = task(made(CLEAR), made(BETTER, "Same"))
    harm = task(made(CLEAR), made(WORSE, "Same"))
    todo = cards_of_many([("a", mixed), ("b", harm)])[2]
    assert todo.text == (
        "No method narrows the gap without harm: Same narrows the gap in 1, raises accuracy in 1, "
        "does harm in 1 of 2 tasks."
    )
    alone = made(CLEAR).document
    assert cards_of_many([("a", alone), ("b", alone)])[2].text.startswith("Try methods")


def test_a_gap_narrowed_at_a_cost_is_not_denied() -> None:
    before = {**dict.fromkeys(EVEN, (475, 500)), ("dog", "out"): (250, 500)}
    one = task(made(before), made(FAIRER, "M"))
    assert cards_of_many([("a", one), ("b", one)])[2].text == (
        "No method narrows the gap without harm: M narrows the gap in 2, does harm in 2 of 2 tasks."
    )


def test_only_tasks_on_which_a_method_ran_are_spoken_of() -> None:
    first = task(made(CLEAR), made(BETTER, "M"))
    alone = made(SMALL_GAP).document
    other = task(made(SMALL_GAP), made(SMALL_GAP, "N"), made(SMALL_GAP, "O"))
    tasks = [("T1", first), ("T2", alone), ("T3", other)]
    assert cards_of_many(tasks)[2].text == (
        "Try M: it narrows the gap on 1 of 1 task; not run on T2, T3."
    )
    found = {method.name: method for method in methods_on(tasks)}
    assert found["M"].verdict == "narrows the gap in 1, raises accuracy in 1 of 1"
    assert found["N"].not_run == ("T1", "T2")
    assert banners(tasks)[-1].startswith("Up to 2 methods were compared on each task: ")
    before = {**dict.fromkeys(EVEN, (475, 500)), ("dog", "out"): (250, 500)}
    costs = task(made(before), made(FAIRER, "M"))
    assert cards_of_many([("T1", costs), ("T2", alone)])[2].text.endswith(
        "M narrows the gap in 1, does harm in 1 of 1 task; not run on T2."
    )


def test_nothing_wrong_on_any_task() -> None:
    even = made(dict.fromkeys(CLEAR, (90, 100))).document
    seen = cards_of_many([("a", even), ("b", even)])[0]
    assert (seen.heading, seen.tone) == ("What is seen", "")
    assert seen.text == "a: right in 90 of 100 images overall, and no less often in any group."


def test_banners_of_every_kind_are_told_once() -> None:
    truth, said, group = answers(dict.fromkeys(CLEAR, (10, 20)))
    scores = Scores(confidence=[0.52] * 80, sensitive_entropy={"place": [0.9] * 80})
    first = audit(truth, said, {"place": group}, name="ZeroShot", scores=scores)
    flipped = ["cat" if label == "dog" else "dog" for label in said]
    others = [audit(truth, flipped, {"place": group}, name=name, scores=scores) for name in "ab"]
    document = compare([first, *others]).document
    told = banners([("one", document), ("two", document)])
    assert [sentence.replace("\N{NO-BREAK SPACE}", " ") for sentence in told] == [
        "ZeroShot is not shown to be better than always giving the commonest answer: "
        "one: 'cat' is right in 50 of 100; two: 'cat' is right in 50 of 100.",
        "ZeroShot is hardly sure of any answer: one: median confidence 52 %, by chance 50 %; "
        "two: median confidence 52 %, by chance 50 %.",
        "The model does not perceive this, so every correction by it is noise: one: place; "
        "two: place.",
        "More than 20 % of the answers change: one: a 100 %; one: b 100 %; two: a 100 %; "
        "two: b 100 %.",
        "Groups with fewer than 30 images, whose figures are uncertain: one: 4 of 4; two: 4 of 4.",
        "2 methods were compared on each task: intervals and marks of metrics allow for that "
        "(Holm), those of single groups do not.",
    ]
    assert banners([("one", made(CLEAR).document)]) == []


def test_the_page_has_the_order_of_the_first_screen() -> None:
    wide = compare([made(CLEAR), made(BETTER, "Good")])
    small = compare([made(SMALL_GAP), made(SMALL_GAP, "Good")])
    text = html_many("Two", [("small", small, []), ("wide", wide, [])], intro="Legend.")
    Page(text)  # tags match
    places = [
        text.index(words)
        for words in (
            "<h1>Two</h1>", "images. ZeroShot against 1 other.", "What is wrong", "How sure",
            "What to do", 'id="overview-figure-dots"', 'id="overview-methods"', "<details>",
            "Legend.", 'id="audit-1"', in_short(small.document), 'id="audit-2"', 'id="limits"',
        )
    ]  # fmt: skip
    assert places == sorted(places)
    assert text.index("sha256") > text.index('id="audit-1"')


def test_one_task_has_its_own_screen_and_it_comes_once() -> None:
    one = compare([made(CLEAR), made(BETTER, "Good")])
    page = html_many("One", [("the task", one, [])])
    assert page.count("What is wrong") == 1
    assert "Try Good: gap" in page


def test_many_methods_and_nothing_to_say() -> None:
    runs = [made(CLEAR), *(made(CLEAR, f"m{i}") for i in range(MOST_METHODS + 2))]
    screen = screen_of_many([("a", task(*runs)), ("b", task(*runs))])
    assert len(screen["methods"]) == MOST_METHODS
    assert "2 more methods are below." in screen["methods_caption"]
    assert screen_of_many([])["cards"][0].text == "Nothing was measured: no group has images."
