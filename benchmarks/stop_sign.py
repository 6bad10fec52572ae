"""Does a sign that needs no method foretell where corrections harm? On tasks that lack a cell.

    python benchmarks/stop_sign.py --data DIR           the six tasks of benchmarks/real_clip.py
    python benchmarks/stop_sign.py                      the drawn world alone, three minutes

The drawn world has every cell (class and attribute value), so each is taken away in turn. Of each
task Cramer's V of class and attribute is printed, what `stop_signs` finds in the zero-shot
answers, and what corrections do to accuracy and to the worst group.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from page_blocks import PAGE, change, table, write_blocks
from real_clip import FIRST, Question, answers_of, celeba_questions, compared

from fair_tta import FairTPTClassifier
from fair_tta.auditing import Audit
from fair_tta.auditing._judge import stop_signs
from fair_tta.metrics._estimate import direction
from fair_tta.miniature import TASKS

METHODS = ("association-correction", "logit-balance", "orthcali:lam=0", "roboshot")
IMAGES = 1200  # of a drawn task


def drawn_questions(images: int) -> Iterator[Question]:
    """Every task and attribute of the drawn world, whole and without each of its cells."""
    for name, task in TASKS.items():
        drawn = task.draw(images, seed=7)
        for attribute, values in task.sensitive.items():
            classifier = FairTPTClassifier(
                "miniature", task.targets, {attribute: values}, task.template, adapter=FIRST
            )
            stored = classifier.encode([one.image for one in drawn], with_views=False)[:, 0]
            question = Question(
                f"{name} by {attribute}",
                classifier,
                stored.numpy(),
                [one.target for one in drawn],
                [one.sensitive[attribute] for one in drawn],
            )
            yield question
            for cell in question.cells():
                yield without(question, cell)


def without(question: Question, cell: tuple[str, str]) -> Question:
    """The task with no images of a cell."""
    pairs = list(zip(question.truth, question.values, strict=True))
    keep = [i for i, pair in enumerate(pairs) if pair != cell]
    return replace(
        question,
        title=f"{question.title} without {cell[0]} / {cell[1]}",
        features=question.features[keep],
        truth=[pairs[i][0] for i in keep],
        values=[pairs[i][1] for i in keep],
    )


def has_sign(found: Audit) -> bool:
    """Whether the worst group is one that the attribute helps."""
    return any("the attribute helps it" in text for text in stop_signs(found.document))


def outcome(found: Audit, method: str) -> str:
    """What a method does to accuracy and the worst group, each alone."""
    sides = []
    for metric in ("accuracy", "worst_group_accuracy"):
        figure = found.difference(metric, method)
        sides.append(direction(figure.low, figure.high))
    return "harms" if -1 in sides else "helps" if 1 in sides else "cannot tell"


def report(questions: Iterator[Question]) -> tuple[str, str]:
    """A row for each task, and how often each outcome came with and without the sign."""
    rows, counts = [], Counter[tuple[bool, str]]()
    for question in questions:
        answers = {name: answers_of(question, name) for name in (FIRST, *METHODS)}
        found = compared(question, answers)
        sign = has_sign(found)
        cells = []
        for method in METHODS:
            counts[sign, outcome(found, method)] += 1
            both = [change(found.difference(metric, method), 1).partition(" [")[0]
                    for metric in ("accuracy", "worst_group_accuracy")]  # fmt: skip
            cells.append(" / ".join(both))
        v = f"{question.association():.2f}"
        rows.append([question.title, f"{len(question.truth):,}", v, "yes" if sign else "", *cells])
        print(" | ".join(rows[-1]), flush=True)
    kinds = ("harms", "cannot tell", "helps")
    summary = table(
        ["sign", *kinds],
        [["yes" if sign else "no", *(f"{counts[sign, kind]}" for kind in kinds)]
         for sign in (True, False)],
    )  # fmt: skip
    return table(["task", "n", "Cramer's V", "sign", *(f"`{m}`" for m in METHODS)], rows), summary


def main() -> None:
    """Run the tasks that were asked for, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of real_clip.py")
    parser.add_argument("--images", type=int, default=IMAGES, help="of each drawn task")
    parser.add_argument("--page", type=Path, nargs="?", const=PAGE, help="write the tables to it")
    asked = parser.parse_args()
    sources = {"drawn": drawn_questions(asked.images)}
    if asked.data:
        sources = {"celeba": celeba_questions(asked.data), **sources}
    blocks = {}
    for name, questions in sources.items():
        blocks[name], blocks[f"{name}-counts"] = report(questions)
        print(f"\n{blocks[f'{name}-counts']}\n")
    if asked.page:
        write_blocks("stop-sign", blocks, asked.page)


if __name__ == "__main__":
    main()
