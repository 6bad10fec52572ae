"""The parts of `effect.py`: each is a plan, steps by name, so that a run can stop and go on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from effect_figures import (
    Answers,
    answers,
    answers_of_images,
    changes,
    columns_of,
    concatenated,
    fitted,
    mean_of,
    verdicts_of,
)
from effect_pictures import (
    ALONE,
    REFERENCE,
    SEEDS,
    TEST,
    VALIDATION,
    Drawer,
    Mix,
    Pictures,
    Question,
    together,
)

from fair_tta import AssociationCorrection, LogitBalance
from fair_tta.miniature._world import TASKS, WorldSplit

Step = tuple[str, Callable[[], dict]]

SIZES = (30, 100, 300, 1000)
STRENGTHS = (0.5, 1.0, 1.5, 2.0, 3.0)
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
AUDITED = (100, 200, 400, 1000, 2000)
"""Images of an audit, and the methods that it compares by default."""
COMPARED = ("association-correction", "logit-balance")
FLIPPED = 20  # how often as many answers are flipped at random

_TIME, _SEASON = TASKS["scenes"].sensitive.values()
WRONG: dict[
    str, dict[str, dict[str, str]]
] = {  # attributes that the pictures do not have
    "birds": {"time": dict(_TIME)},
    "badges": {"season": {"summer": "summer", "winter": "winter"}},
    "scenes": dict(TASKS["birds"].sensitive),
}


@dataclass(frozen=True)
class Run:
    """What is asked, and of how many pictures.

    Attributes:
        drawer: draws and encodes.
        questions: by name.
        adapters: by name, not fitted.
        seeds: how many.
        pictures: of each seed, for methods that look at one view.
        with_views: of each seed, for the others: the first of the same pictures.
        reference: pictures to fit on, for each seed others.
        of_images: answers of methods that work on the pictures themselves, by task and method.
    """

    drawer: Drawer
    questions: Mapping[str, Question]
    adapters: Mapping[str, Any]
    seeds: int = SEEDS
    pictures: int = 720
    with_views: int = 144
    reference: int = 1000
    of_images: dict[Hashable, Answers] = field(default_factory=dict)

    def references(self, question: Question) -> list[Pictures]:
        return self._drawn(question, "validation", REFERENCE, self.reference)

    def tested(self, question: Question, *, views: bool = False) -> list[Pictures]:
        n = self.with_views if views else self.pictures
        return self._drawn(question, "test", TEST, n, views)

    def validated(self, question: Question) -> list[Pictures]:
        return self._drawn(question, "validation", VALIDATION, self.pictures // 2)

    def _drawn(
        self,
        question: Question,
        split: WorldSplit,
        first: int,
        n: int,
        views: bool = False,
    ) -> list[Pictures]:
        seeds = range(first, first + self.seeds)
        return [
            self.drawer.pictures(question.task, split, s, n, views=views) for s in seeds
        ]

    @cached_property
    def corrections(self) -> dict[str, Any]:
        """Methods that look at one view and at the attribute: what placebos are for."""
        return {
            name: adapter
            for name, adapter in self.adapters.items()
            if adapter.needs.sensitive
            and not adapter.needs.views
            and not adapter.needs.pixels
        }

    @property
    def fitted_ones(self) -> dict[str, Any]:
        return {n: a for n, a in self.corrections.items() if a.needs.reference}


def answered(run: Run, question: Question, adapter, pictures, clf=None) -> Answers:
    """Each seed with a reference of its own."""
    clf = question.classifier() if clf is None else clf
    return concatenated(
        [
            answers(clf, fitted(adapter, clf, reference), tested)
            for tested, reference in zip(
                pictures, run.references(question), strict=True
            )
        ]
    )


def methods(run: Run) -> Iterator[Step]:
    """Every method on every question."""
    for question in run.questions.values():
        for name, adapter in run.adapters.items():
            yield f"{question.name}/{name}", partial(_method, run, question, adapter)


def _method(run: Run, question: Question, adapter) -> dict:
    if adapter.needs.pixels:
        return _on_images(run, question, adapter)
    pictures = run.tested(question, views=adapter.needs.views)
    answers = answered(run, question, adapter, pictures)
    return changes(question, together(pictures), *answers.labels)


def _on_images(run: Run, question: Question, adapter) -> dict:
    """A sixth of the pictures with views: the vision tower goes back for each of them."""
    n = max(1, run.with_views // 6)
    pictures = [tested.first(n) for tested in run.tested(question)]
    key = (
        question.task.name,
        question.attributes if adapter.needs.sensitive else (),
        adapter,
    )
    if (
        key not in run.of_images
    ):  # what needs no attribute says the same whichever is named
        clf, seeds = question.classifier(), range(TEST, TEST + run.seeds)
        drawn = [
            [drawn_image.image for drawn_image in question.task.draw(n, seed)]
            for seed in seeds
        ]
        answers = [answers_of_images(clf, adapter, images) for images in drawn]
        run.of_images[key] = concatenated(answers)
    return changes(question, together(pictures), *run.of_images[key].labels)


def verdicts(run: Run) -> Iterator[Step]:
    """Of how many images an audit has to be to show that a method narrows the gap."""
    for question in run.questions.values():
        yield question.name, partial(_verdicts, run, question)


def _verdicts(run: Run, question: Question) -> dict:
    pictures, methods = (
        run.tested(question),
        [name for name in COMPARED if name in run.adapters],
    )
    verdicts = [
        answered(run, question, run.adapters[name], pictures).labels for name in methods
    ]
    runs = [verdicts[0][0], *(after for _, after in verdicts)]
    rows = columns_of(question, together(pictures), runs)
    return verdicts_of(rows, methods, AUDITED, 20 * run.seeds)


def choice(run: Run) -> Iterator[Step]:
    """Strengths of our own corrections, on validation pictures."""
    for question in run.questions.values():
        for method_type in (AssociationCorrection, LogitBalance):
            for strength in sorted({0.25, 0.75, *STRENGTHS}):
                step = partial(_choice, run, question, method_type(strength=strength))
                yield f"{question.name}/{method_type.__name__}/{strength:g}", step


def _choice(run: Run, question: Question, adapter) -> dict:
    pictures = run.validated(question)
    answers = answered(run, question, adapter, pictures)
    return changes(question, together(pictures), *answers.labels)


def placebos(run: Run) -> Iterator[Step]:
    """What comes of naming a wrong attribute, of random flips, of a stranger's correction."""
    for question in (q for q in run.questions.values() if q.name in ALONE):
        for name, adapter in run.corrections.items():
            yield f"{question.name}/{name}", partial(_placebo, run, question, adapter)


def _placebo(run: Run, question: Question, adapter) -> dict:
    pictures = run.tested(question)
    all_pictures = together(pictures)
    right = answered(run, question, adapter, pictures)
    before = right.labels[0]
    flips = [
        changes(
            question,
            all_pictures,
            before,
            flipped(before, right, np.random.default_rng(seed)),
        )
        for seed in range(FLIPPED)
    ]
    placebo_changes = {
        "right": changes(question, all_pictures, *right.labels),
        "random flips": mean_of(flips),
    }
    if isinstance(adapter, AssociationCorrection | LogitBalance):
        placebo_changes["stranger"] = changes(
            question, all_pictures, before, strangers(right)
        )
    if not adapter.needs.reference_sensitive:  # nobody has labels of what is not there
        clf = question.classifier(WRONG[question.task.name])
        wrong = answered(run, question, adapter, pictures, clf)
        placebo_changes["wrong attribute"] = changes(
            question, all_pictures, *wrong.labels
        )
    return placebo_changes


def flipped(
    labels: np.ndarray, method: Answers, random: np.random.Generator
) -> np.ndarray:
    """As many answers changed as the method changes, any of them to any other class."""
    after, classes = labels.copy(), method.before.shape[1]
    flipped_indices = random.choice(len(labels), method.flips, replace=False)
    after[flipped_indices] = (
        after[flipped_indices] + random.integers(1, classes, len(flipped_indices))
    ) % classes
    return after


def strangers(method: Answers, seed: int = 0) -> np.ndarray:
    """Labels if each picture got what the method adds to the logits of some other picture.

    For methods that add something to the logits according to the perceived attribute alone.
    """
    before, after = (
        np.log(np.maximum(p, 1e-30)) for p in (method.before, method.after)
    )
    order = np.random.default_rng(seed).permutation(len(before))
    return (before + (after - before)[order]).argmax(1)


def reference(run: Run) -> Iterator[Step]:
    """Fitted methods with references of several sizes."""
    for question in (q for q in run.questions.values() if q.name in ALONE):
        for name, adapter in run.fitted_ones.items():
            for size in (n for n in SIZES if n <= run.reference):
                step = partial(
                    _reference, run, question, adapter, partial(Pictures.first, n=size)
                )
                yield f"{question.name}/{name}/{size}", step


def skew(run: Run) -> Iterator[Step]:
    """Fitted methods with references whose groups are not those of the test pictures."""
    for question in (q for q in run.questions.values() if q.name in ALONE):
        for name, adapter in run.fitted_ones.items():
            for skew_name, mix in skews(question).items():
                mixed_pictures = partial(
                    Pictures.mixed, mix=mix, n=3 * run.reference // 10
                )
                step = partial(_reference, run, question, adapter, mixed_pictures)
                yield f"{question.name}/{name}/{skew_name}", step


def skews(question: Question) -> dict[str, Mix]:
    """Ninety to ten: target with its usual value, against it, and one value most of the time."""
    task, (attribute,) = question.task, question.attributes
    at = 1 + list(task.sensitive).index(attribute)
    targets, values = list(task.targets), list(task.sensitive[attribute])

    def usual(group: tuple[str, ...]) -> bool:
        return targets.index(group[0]) == values.index(group[at])

    return {
        "goes along": {g: 9.0 if usual(g) else 1.0 for g in task.groups},
        "goes against": {g: 1.0 if usual(g) else 9.0 for g in task.groups},
        "one value": {g: 9.0 if g[at] == values[0] else 1.0 for g in task.groups},
    }


def _reference(run: Run, question: Question, adapter, some_of: Callable) -> dict:
    """The figures of all seeds together, and how the change varies between references."""
    pictures, clf = run.tested(question), question.classifier()
    all_answers = [
        answers(clf, fitted(adapter, clf, some_of(reference)), tested)
        for reference, tested in zip(run.references(question), pictures, strict=True)
    ]
    figures = changes(question, together(pictures), *concatenated(all_answers).labels)
    separate_figures = [
        changes(question, p, *a.labels)
        for p, a in zip(pictures, all_answers, strict=True)
    ]
    return figures | {"between": mean_of(separate_figures)}


def tradeoff(run: Run) -> Iterator[Step]:
    """`LogitBalance` over its two settings where one class is rare, and rarely answered."""
    if "badges" in run.questions:
        yield (
            "badges, square rare",
            partial(_tradeoff, run, run.questions["badges"], "square"),
        )


def _tradeoff(run: Run, question: Question, rare: str) -> dict:
    mix = {g: 1.0 if g[0] == rare else 9.0 for g in question.task.groups}
    usual = (
        len(question.task.targets) - 1 + 1 / 9
    )  # of as many classes there is everything
    share = usual / len(question.task.targets)
    clf = question.classifier()
    pictures = [p.mixed(mix, round(len(p) * share)) for p in run.tested(question)]
    fits = [
        fitted(LogitBalance(), clf, reference.mixed(mix, round(len(reference) * share)))
        for reference in run.references(question)
    ]
    points = {}
    for strength in (0.0, *STRENGTHS):
        for share in SHARES if strength else (1.0,):
            all_answers = [
                answers(clf, replace(fit, strength=strength, keep_prior=share), tested)
                for fit, tested in zip(fits, pictures, strict=True)
            ]
            figures = changes(
                question, together(pictures), *concatenated(all_answers).labels
            )
            points[f"{strength:g}/{share:g}"] = figures
    return points
