"""Audits and examinations that cause each sentence of a report, and what a report refuses."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from examination_samples import examined
from internals import (
    audit_title,
    change_sentences,
    cost_sentence,
    first_screen,
    title_of_tasks,
)
from internals import examination_text as text
from report_samples import sample
from verdict_samples import BETTER, CLEAR, EVEN, FAIRER, Rates, answers, made

from fair_tta import AssociationCorrection, audit, compare
from fair_tta.auditing import Audit, Examination, Scores
from fair_tta.errors import SmallGroupWarning
from fair_tta.lab.report import html, html_many, write_report

WORSE = {**dict.fromkeys(CLEAR, (80, 100)), ("dog", "out"): (10, 100)}
SMALL_GAP = dict.fromkeys(CLEAR, (90, 100)) | {("dog", "out"): (60, 100)}
CLEAR_500 = {**dict.fromkeys(EVEN, (475, 500)), ("dog", "out"): (250, 500)}

Tasks = dict[str, list[Audit]]


def plain(report: str) -> str:
    """Return the text without typography, and without the digits of intervals."""
    for sign, character in (("\N{NO-BREAK SPACE}", " "), ("\N{MINUS SIGN}", "-")):
        report = report.replace(sign, character)
    number = r"[-+]?\d+\.\d+"
    report = re.sub(f"{number} to {number}", "LOW to HIGH", report)
    return re.sub(rf"\[{number}, {number}\]", "[LOW, HIGH]", report)


def screen_of(make: Callable[[], Tasks]) -> Callable[[Path], str]:
    """Return a case: all that the first screen says of tasks."""

    def case(folder: Path) -> str:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)
            tasks = [
                (name, (compare(runs) if len(runs) > 1 else runs[0]).document)
                for name, runs in make().items()
            ]
        screen = first_screen(tasks)
        document = tasks[0][1]
        is_single = len(tasks) == 1
        lines = [audit_title(document) if is_single else title_of_tasks(tasks, "Tasks")]
        lines += screen.cautions
        for card in screen.cards:
            heading = f"{card.heading} ({card.tone})" if card.tone else card.heading
            lines.append(f"{heading}: {card.text} {card.details}".strip())
        lines += [f"Note: {banner}" for banner in screen.banners]
        assert screen.chart is not None
        lines += [screen.chart.heading, screen.chart.caption]
        for row in screen.chart.rows:
            lines.append(f"- {row.name}: {row.text} {row.details} {row.tone}".rstrip())
        lines += screen.chart.sentences
        for method in screen.methods:
            lines.append(f"* {method.name}: {method.verdict} {method.tone}".rstrip())
        lines.append(screen.legend)
        # Where a cost is known, what is said below the first screen too
        if cost_sentence(document):
            lines += [*change_sentences(document), cost_sentence(document)]
        return plain("\n".join(line for line in lines if line))

    return case


def two(before: Rates, after: Rates) -> Callable[[Path], str]:
    """Return the case of one method on one task."""
    return screen_of(lambda: {"": [made(before), made(after, "M")]})


def one(rates: Rates) -> Callable[[Path], str]:
    """Return the case of one run."""
    return screen_of(lambda: {"": [made(rates)]})


def clustered() -> Tasks:
    truth, _, group = answers(CLEAR)
    people = [f"person {i // 4}" for i in range(len(truth))]
    runs = []
    for name, rates in (("ZeroShot", CLEAR), ("M", BETTER)):
        labels = answers(rates)[1]
        runs.append(audit(truth, labels, {"place": group}, name=name, clusters=people))
    return {"": runs}


def unsure() -> Tasks:
    truth, labels, group = answers(dict.fromkeys(CLEAR, (10, 20)))
    scores = Scores(confidence=[0.52] * 80, sensitive_entropy={"place": [0.9] * 80})
    flipped = ["cat" if label == "dog" else "dog" for label in labels]
    runs = []
    for name, answered in (("ZeroShot", labels), ("a", flipped), ("b", flipped)):
        run = audit(truth, answered, {"place": group}, name=name, scores=scores)
        runs.append(run)
    return {"one": runs, "two": runs}


def harmful() -> Tasks:
    truth = ["man", "man", "thief", "thief"] * 100
    labels = ["man", "thief", "thief", "thief"] * 100
    skin = {"skin": ["a", "b"] * 200}
    return {"": [audit(truth, labels, skin, name="M", harmful={"crime": ["thief"]})]}


def priced() -> Tasks:
    association = made(BETTER, "Association", AssociationCorrection(), seconds=8.0)
    return {"": [made(CLEAR, seconds=4.0), association]}


def examination(make: Callable[[], Examination]) -> Callable[[Path], str]:
    """Return a case: all sentences of an examination."""

    def case(folder: Path) -> str:
        document = make().document
        lines = []
        for attribute, perceived in document.attributes.items():
            for card in text.examination_cards(document, attribute):
                lines.append(f"{card.heading}: {card.text} {card.details}".strip())
            lines.append(text.certainty_sentence(attribute, perceived))
            lines += text.label_plan(document, attribute)
        lines += text.examination_banners(document)
        return plain("\n".join(lines))

    return case


def with_changes() -> Examination:
    """Return an examination whose first method is not shown to narrow the gap."""
    document = examined().to_dict()
    bounds = {"orthcali": (-0.12, -0.26, 0.02), "zero": (-0.05, -0.08, -0.02)}
    for method in document["adapters"]:
        change = dict(
            zip(("value", "low", "high"), bounds[method["name"]], strict=True)
        )
        method["pseudo_eod"]["place"]["change"].update(change)
    document["ranking"]["place"] = ["orthcali", "zero"]
    return Examination.from_json(json.dumps(document))


RACE_AND_AGE = {"race": [f"value {i}" for i in range(9)], "age": ["young", "old"]}
NOT_AN_AUDIT: Any = "audit.json"
TINY = {**CLEAR, ("dog", "out"): (1, 4)}

CASES = {
    "one run with a clear gap": one(CLEAR),
    "one run with a gap that is not shown": one(
        {**dict.fromkeys(CLEAR, (8, 10)), ("dog", "out"): (7, 10)}
    ),
    "one run without any gap": one(dict.fromkeys(CLEAR, (300, 300))),
    "one run with a gap that rounds to nothing": one(
        {**dict.fromkeys(EVEN, (9030, 10000)), ("dog", "out"): (8990, 10000)}
    ),
    "one run with shares near 100": one(
        {**dict.fromkeys(EVEN, (1000, 1000)), ("dog", "out"): (996, 1000)}
    ),
    "one run with a share near 0": one(
        {**dict.fromkeys(EVEN, (1000, 1000)), ("dog", "out"): (1, 1000)}
    ),
    "one run that guesses": one(dict.fromkeys(CLEAR, (50, 100))),
    "one run with a class that is hard in all groups": one(
        {cell: (95 if cell[0] == "cat" else 60, 100) for cell in CLEAR}
    ),
    "one run that answers with a harmful class": screen_of(harmful),
    "a method that narrows the gap": two(CLEAR, BETTER),
    "a method that closes the gap": two(CLEAR, dict.fromkeys(CLEAR, (90, 100))),
    "a method that serves the better groups worse": two(CLEAR_500, FAIRER),
    "a method that only costs accuracy": two(
        CLEAR, {**CLEAR, ("cat", "in"): (70, 100), ("cat", "out"): (70, 100)}
    ),
    "a method that widens the gap": two(
        dict.fromkeys(CLEAR, (900, 1000)),
        {**dict.fromkeys(EVEN, (960, 1000)), ("dog", "out"): (720, 1000)},
    ),
    "a method that helps the worst group, like all": two(
        dict.fromkeys(EVEN, (700, 1000)) | {("dog", "out"): (400, 1000)},
        dict.fromkeys(EVEN, (800, 1000)) | {("dog", "out"): (500, 1000)},
    ),
    "a method that helps the worst group at the cost of all": two(
        dict.fromkeys(EVEN, (900, 1000)) | {("dog", "out"): (400, 1000)},
        dict.fromkeys(EVEN, (480, 1000))
        | {("dog", "out"): (440, 1000), ("cat", "out"): (990, 1000)},
    ),
    "a method that changes hardly anything": two(
        CLEAR, CLEAR | {("dog", "out"): (23, 100)}
    ),
    "a method that changes nothing": two(CLEAR, CLEAR),
    "a method that gains in one group and loses in another": two(
        CLEAR, {**CLEAR, ("dog", "out"): (45, 100), ("cat", "in"): (82, 100)}
    ),
    "a method on a group with four images": two(TINY, TINY | {("dog", "out"): (3, 4)}),
    "a method on small groups": two(
        dict.fromkeys(EVEN, (18, 20)) | {("dog", "out"): (2, 20)},
        dict.fromkeys(CLEAR, (18, 20)),
    ),
    "a method on clustered images": screen_of(clustered),
    "a method with its cost": screen_of(priced),
    "two methods, one without a cost": screen_of(
        lambda: {
            "": [
                made(CLEAR_500),
                made(FAIRER, "Costs"),
                made({**CLEAR_500, ("dog", "out"): (330, 500)}, "Free"),
            ]
        }
    ),
    "two tasks without methods": screen_of(
        lambda: {"a": [made(CLEAR)], "b": [made(CLEAR)]}
    ),
    "two tasks without a gap": screen_of(
        lambda: {name: [made(dict.fromkeys(CLEAR, (90, 100)))] for name in "ab"}
    ),
    "two tasks, helped on one": screen_of(
        lambda: {
            "small": [made(SMALL_GAP), made(SMALL_GAP, "Good"), made(SMALL_GAP, "Bad")],
            "large": [made(CLEAR), made(BETTER, "Good"), made(WORSE, "Bad")],
        }
    ),
    "two tasks, nothing changed": screen_of(
        lambda: {name: [made(CLEAR), made(CLEAR, "Same")] for name in "ab"}
    ),
    "two tasks, one harmed": screen_of(
        lambda: {
            "a": [made(CLEAR), made(BETTER, "Same")],
            "b": [made(CLEAR), made(WORSE, "Same")],
        }
    ),
    "two tasks, narrowed at a cost": screen_of(
        lambda: {name: [made(CLEAR_500), made(FAIRER, "M")] for name in "ab"}
    ),
    "three tasks, a method was not run on all": screen_of(
        lambda: {
            "T1": [made(CLEAR), made(BETTER, "M")],
            "T2": [made(SMALL_GAP)],
            "T3": [made(SMALL_GAP), made(SMALL_GAP, "N"), made(SMALL_GAP, "O")],
        }
    ),
    "two tasks with every banner": screen_of(unsure),
    "an examination": examination(examined),
    "an examination without methods": examination(lambda: examined(adapters=[])),
    "an examination of many values": examination(
        lambda: examined(
            sensitive=RACE_AND_AGE, targets=[f"class {i}" for i in range(12)]
        )
    ),
    "an examination of one image": examination(lambda: examined(n=1)),
    "an examination whose methods change nothing": examination(
        lambda: examined(corrected=(0.0, 0.0))
    ),
    "an examination whose method changes a lot": examination(
        lambda: examined(corrected=(8.0, 0.0))
    ),
    "an examination whose second method narrows the gap": examination(with_changes),
    "a report in an unknown format": lambda _: write_report(
        sample(n=30, runs=["a"]), "a.pdf"
    ),
    "a path instead of an audit": lambda _: html(NOT_AN_AUDIT),
    "an audit without runs": lambda _: html(
        {**sample(n=30, runs=["a"]).to_dict(), "runs": []}
    ),
    "an audit without figures": lambda _: html({"schema": "fair-tta/audit/1"}),
    "no audits": lambda _: html_many("t", []),
}
