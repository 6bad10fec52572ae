"""Every method that one view is enough for, on stored features of real CLIPs, with intervals.

    python benchmarks/real_clip.py --data DIR              six tasks on 1,000 images of CelebA
    python benchmarks/real_clip.py --data DIR --results    and writes benchmarks/results/real-clip*
    python benchmarks/real_clip.py --sem DIR               FairFace, UTKFace, CelebA, Waterbirds

--data: a folder with `celeba1000_openai_vitb32.npz` (features [n, 512], attributes, labels) and
`text_detic_openai_vitb32.npz` (tables of text features of "a NAME"), both of OpenAI's ViT-B/32.
About two minutes. --sem: the features that mardgui/SEM offers in its release v1.0, in the folders
that its README names: `CelebA/metadata.feather`, `CelebA/CLIP_ViT-B-16_embeddings.npy` and so on.
Text features come from the same checkpoints, which are downloaded unless they are there.

Methods are those of the registry. One that is fitted is cross-fitted: each image is answered by one
of five fits, none of which has seen it; labels for a fit come from the images of the other folds,
some 800.
"""

from __future__ import annotations

import argparse
import textwrap
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from result_files import (
    PAGE,
    RESULTS,
    change,
    level,
    table,
    write_blocks,
    write_results,
)

from fair_tta import FairTPTClassifier, Features, audit, compare
from fair_tta.auditing import Audit
from fair_tta.datasets import BenchmarkTask
from fair_tta.datasets._tasks import DEFAULT_AGES, PAPER_TASKS
from fair_tta.errors import FairTTAError, SmallGroupWarning, SmallReferenceWarning
from fair_tta.methods._cross_fit import FOLDS
from fair_tta.methods._registry import ADAPTERS, parse_adapter

SUMMARISED = ("association-correction", "logit-balance", "balanced-head")
VARIANTS = ("orthcali:lam=0", "umfc:perceived=true")
FIRST = "zero-shot"
INTRODUCTIONS = {
    "real-clip": """# Every method of one view on six tasks of CelebA

`python benchmarks/real_clip.py --data DIR --results` writes this file and `real-clip/`. Features of
1,000 images, OpenAI's ViT-B/32, attribute Man / Woman; percent, brackets are 95 % intervals of one
comparison alone; bold is shown to be better, "(worse)" to be worse. "Helps" and "harms" allow for
all methods compared. Sources, licences and what it says: docs/real-clip.md.""",
    "sem": """# Every method on the features that SEM's authors offer

`python benchmarks/real_clip.py --sem DIR --results` writes this file and `sem/`.""",
}
SHOWN = {  # 1 where more is better
    "accuracy": ("accuracy", 1),
    "worst_group_accuracy": ("WGA", 1),
    "typical_gap": ("typical gap", -1),
    "equalized_odds_difference": ("EOD", -1),
}
CELEBA_TASKS = {  # attribute of CelebA: prompts if it is there and if it is not
    "Eyeglasses": ("spectacles", "Human face"),
    "Wearing_Hat": ("Hat", "Human face"),
    "Wearing_Necktie": ("Tie", "Necklace"),
    "Wearing_Earrings": ("Earrings", "Human face"),
    "Wearing_Necklace": ("Necklace", "Human face"),
    "Beard": ("Human beard", "Human mouth"),  # not No_Beard
}
BACKBONES = {  # name in SEM's files: the checkpoint that has the text side
    "RN50": "open_clip:RN50-quickgelu/openai",
    "RN101": "open_clip:RN101-quickgelu/openai",
    "ViT-B-16": "openai/clip-vit-base-patch16",
    "ViT-L-14@336px": "openai/clip-vit-large-patch14-336",
}


@dataclass(frozen=True)
class Question:
    """Stored features with the truth about them, and what they are asked."""

    title: str
    classifier: FairTPTClassifier
    features: np.ndarray[Any, Any]
    truth: Sequence[str]
    values: Sequence[str]

    @property
    def attribute(self) -> str:
        return next(iter(self.classifier.sensitive))

    def cells(self) -> dict[tuple[str, str], int]:
        """Images of each class with each value."""
        n = Counter(zip(self.truth, self.values, strict=True))
        all_cells = [(t, v) for t in self.classifier.targets for v in self.names]
        return {cell: n[cell] for cell in all_cells}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.classifier.sensitive[self.attribute])

    def association(self) -> float:
        """Cramer's V of class and attribute."""
        n = np.array(list(self.cells().values()), float)
        n = n.reshape(len(self.classifier.targets), len(self.names))
        n = n[n.sum(1) > 0][:, n.sum(0) > 0]
        expected = n.sum(1, keepdims=True) * n.sum(0) / n.sum()
        return float(
            np.sqrt(
                ((n - expected) ** 2 / expected).sum() / n.sum() / (min(n.shape) - 1)
            )
        )

    def audit(self, name: str, answers: Sequence[str]) -> Audit:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)
            return audit(
                self.truth,
                answers,
                {self.attribute: self.values},
                name=name,
                targets=self.classifier.targets,
                values={self.attribute: self.names},
            )


def celeba_questions(folder: Path) -> Iterator[Question]:
    """The six tasks on CelebA."""
    images = np.load(folder / "celeba1000_openai_vitb32.npz")
    texts = np.load(folder / "text_detic_openai_vitb32.npz")
    table_of = {
        f"a {name}": vector.astype(np.float32)
        for vocabulary in ("lvis", "oid")  # of names that both have, oid's
        for name, vector in zip(
            texts[f"{vocabulary}_names"].tolist(), texts[vocabulary], strict=True
        )
    }
    names = images["attributes"].tolist()
    labels = {
        name: images["labels"][:, column_index] > 0
        for column_index, name in enumerate(names)
    }
    labels["Beard"] = ~labels["No_Beard"]
    values = np.where(labels["Male"], "Man", "Woman").tolist()
    for column, (present, absent) in CELEBA_TASKS.items():
        classifier = FairTPTClassifier.from_features(
            table_of,
            [present, absent],
            {"gender": ["Man", "Woman"]},
            "a {target} {sensitive}",
        )
        truth = np.where(labels[column], present, absent).tolist()
        yield Question(column, classifier, images["features"], truth, values)


def sem_questions(
    folder: Path,
    tasks: Sequence[BenchmarkTask],
    backbones: Mapping[str, str],
    most: int,
) -> Iterator[Question]:
    """The tasks on those data sets and backbones that the folder has, at most so many images."""
    import pandas

    for task in tasks:
        task_folder = folder / task.dataset
        if not (task_folder / "metadata.feather").exists():
            print(
                f"{task_folder / 'metadata.feather'} is not there: {task} is left out."
            )
            continue
        rows = pandas.read_feather(task_folder / "metadata.feather")
        truth, values = (sem_labels(task.dataset, column_name, rows)
                         for column_name in (task.target, *task.sensitive))  # fmt: skip
        (named,) = task.sensitive.values()
        known = [i for i, pair in enumerate(zip(truth, values, strict=True))
                 if pair[0] in task.targets and pair[1] in named]  # fmt: skip
        if len(known) > most:
            known = sorted(
                np.random.default_rng(0).choice(known, most, replace=False).tolist()
            )
        for backbone, model in backbones.items():
            file = task_folder / f"CLIP_{backbone}_embeddings.npy"
            if not file.exists():
                print(f"{file} is not there: {task} is left out.")
                continue
            stored = np.load(file, mmap_mode="r")
            if len(stored) != len(rows):
                raise SystemExit(
                    f"{file}: {len(stored)} rows, but metadata.feather has {len(rows)}."
                )
            classifier = FairTPTClassifier(model, **task.arguments(), adapter=FIRST)  # type: ignore[arg-type]
            known_columns = [[column[i] for i in known] for column in (truth, values)]
            yield Question(
                f"{task}, {backbone}",
                classifier,
                np.asarray(stored[known]),
                *known_columns,
            )


def sem_labels(dataset: str, column_name: str, rows: Any) -> list[str | None]:
    """An attribute in the words of `PAPER_TASKS`, None where it has no such value."""
    if dataset == "CelebA" and column_name != "gender":
        column, names = {
            "hair color": ("Blond_Hair", ("blond", "dark")),
            "smiling": ("Smiling", ("smiling", "not smiling")),
            "makeup": ("Heavy_Makeup", ("makeup", "no makeup")),
            "glasses": ("Eyeglasses", ("glasses", "no glasses")),
        }[column_name]
        return [names[value <= 0] for value in rows[column]]
    if column_name == "age":  # FairFace has brackets
        years = [
            int(str(age).replace("more than ", "").partition("-")[0])
            for age in rows["age"]
        ]
        return [DEFAULT_AGES.label(age) for age in years]
    if column_name == "background":
        return [str(value).removesuffix(" background") for value in rows[column_name]]
    named = [str(value).replace("_", " ") for value in rows[column_name]]
    return [name.lower() for name in named] if column_name == "gender" else list(named)


def answers_of(question: Question, name: str) -> list[str]:
    """Answers of a method, cross-fitted if it is fitted."""
    method, stored = parse_adapter(name), question.features
    if not method.needs.reference:
        return _predicted(question, method, list(range(len(stored))))
    of_fold = np.array(
        [int(sha256(row.tobytes()).hexdigest(), 16) % FOLDS for row in stored]
    )
    predicted = [""] * len(stored)
    for fold in range(FOLDS):
        reference_indices, fold_indices = (
            np.flatnonzero(of_fold != fold),
            np.flatnonzero(of_fold == fold),
        )
        labels: dict[str, Any] = {}
        if method.needs.reference_sensitive:
            labels["sensitive"] = [question.values[i] for i in reference_indices]
        if method.needs.reference_labels:
            labels["labels"] = [question.truth[i] for i in reference_indices]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallReferenceWarning)
            clf = question.classifier.with_adapter(method)
            fitted = clf.fit(Features(stored[reference_indices]), **labels).adapter
        for i, answer in zip(
            fold_indices,
            _predicted(question, fitted, fold_indices.tolist()),
            strict=True,
        ):
            predicted[i] = answer
    return predicted


def _predicted(question: Question, method: Any, indices: list[int]) -> list[str]:
    """Answers for some images; a method that has to know their true values gets them."""
    if method.needs.values and method.known is None:
        labels: dict[int, str] = {}
        for value in question.names:
            value_indices = [i for i in indices if question.values[i] == value]
            labels |= zip(
                value_indices,
                _predicted(question, method.knowing(value), value_indices),
                strict=True,
            )
        return [labels[i] for i in indices]
    if not indices:
        return []
    classifier = question.classifier.with_adapter(method)
    shares = classifier.predict_proba(Features(question.features[indices]))
    return [classifier.targets[i] for i in shares.argmax(1)]


def methods_of(question: Question) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Answers by method, and why others were not run."""
    answers, not_run = {}, {}
    for name in (*ADAPTERS, *VARIANTS):
        needs = parse_adapter(name).needs
        if needs.views or needs.pixels or needs.prompt_gradient:
            continue  # features of one view are not enough
        try:
            answers[name] = answers_of(question, name)
        except FairTTAError as error:
            not_run[name] = str(error)
    return answers, not_run


def compared(question: Question, answers: Mapping[str, list[str]]) -> Audit:
    return compare(
        [
            question.audit(name, method_answers)
            for name, method_answers in answers.items()
        ]
    )


def verdict(comparison: Audit, method: str) -> str:
    """What the figures of a method show, allowing for all methods that were compared."""
    adjusted = next(
        c for c in comparison.document.comparisons if c.run == method
    ).adjusted.by_name()
    sides = {}
    for metric, (title, better) in SHOWN.items():
        figure = adjusted[metric]
        if figure.low is not None and figure.high is not None:
            sides[title] = better * (int(figure.low > 0) - int(figure.high < 0))
    worse = [
        title for title in ("accuracy", "WGA", "typical gap") if sides.get(title) == -1
    ]
    if worse:
        return f"harms: {', '.join(worse)}"
    better_in = [
        title for title in ("typical gap", "WGA", "accuracy") if sides.get(title) == 1
    ]
    return f"helps: {', '.join(better_in)}" if better_in else "cannot tell"


def method_table(comparison: Audit) -> str:
    """A row for each method: the figure, its change and the interval of that."""
    rows = [
        [f"`{FIRST}`", *(level(comparison.estimate(metric)) for metric in SHOWN), ""]
    ]
    for name in comparison.runs[1:]:
        cells = [
            level(comparison.estimate(metric, name)).partition(" ")[0]
            + f", {change(comparison.difference(metric, name), better)}".removesuffix(
                ", -"
            )
            for metric, (_, better) in SHOWN.items()
        ]
        rows.append([f"`{name}`", *cells, verdict(comparison, name)])
    return table(
        ["method", *(title for title, _ in SHOWN.values()), "of all compared"], rows
    )


def cell_text(question: Question) -> str:
    """n of every cell, and whether one is empty."""
    cells = question.cells()
    text = "; ".join(
        f"{target} / {value} {n:,}" for (target, value), n in cells.items()
    )
    return text + "; **one class only**" * (0 in cells.values())


def overview(questions: Mapping[str, tuple[Question, Audit]]) -> str:
    """A row for each task."""
    rows = []
    for title, (question, comparison) in questions.items():
        levels = [
            f"{100 * comparison.estimate(metric).value:.1f}"
            for metric in list(SHOWN)[:3]
        ]
        cells = [
            verdict(comparison, name) if name in comparison.runs else "not run"
            for name in SUMMARISED
        ]
        rows.append(
            [
                title,
                cell_text(question),
                f"{question.association():.2f}",
                *levels,
                *cells,
            ]
        )
    head = [
        "task",
        "n of every cell",
        "Cramer's V",
        "accuracy",
        "WGA",
        "typical gap",
        *SUMMARISED,
    ]
    return table(head, rows)


def not_run_text(not_run: Mapping[str, str]) -> str:
    """Methods that were not run, and why."""
    lines = (
        f"- `{name}`: {why.partition(' (nearest')[0]}" for name, why in not_run.items()
    )
    return (
        "\n".join(textwrap.fill(line, 100, subsequent_indent="  ") for line in lines)
        or "None."
    )


def report(questions: Iterator[Question]) -> dict[str, str]:
    """Run every method on every question, print, and return the tables by name."""
    comparisons: dict[str, tuple[Question, Audit]] = {}
    blocks, not_run = {}, {}
    for question in questions:
        answers, left_out = methods_of(question)
        comparison = compared(question, answers)
        comparisons[question.title] = question, comparison
        not_run |= left_out
        counts = textwrap.fill(
            f"n = {len(question.truth):,}: {cell_text(question)}.", 100
        )
        blocks[question.title.replace("_", "-").lower()] = (
            f"{counts}\n\n{method_table(comparison)}"
        )
        print(f"## {question.title}\n\n{list(blocks.values())[-1]}\n", flush=True)
    if not comparisons:
        raise SystemExit("Nothing was found to run on.")
    blocks |= {"overview": overview(comparisons), "not-run": not_run_text(not_run)}
    for name in ("overview", "not-run"):
        print(f"## {name}\n\n{blocks[name]}\n")
    return blocks


def main() -> None:
    """Read what was asked, run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, metavar="DIR")
    source.add_argument("--sem", type=Path, metavar="DIR")
    parser.add_argument(
        "--results",
        type=Path,
        nargs="?",
        const=RESULTS,
        help="write the tables to this folder",
    )
    parser.add_argument(
        "--backbones", nargs="+", choices=BACKBONES, default=[*BACKBONES]
    )
    parser.add_argument(
        "--model", help="the text side, in place of that of the backbones"
    )
    parser.add_argument(
        "--all-tasks", action="store_true", help="the paper's 13, not its main six"
    )
    parser.add_argument(
        "--most", type=int, default=20_000, help="images of a task (20,000)"
    )
    options = parser.parse_args()
    if options.data:
        blocks = report(celeba_questions(options.data))
    else:
        models = {name: options.model or BACKBONES[name] for name in options.backbones}
        tasks = PAPER_TASKS if options.all_tasks else PAPER_TASKS[:6]
        blocks = report(sem_questions(options.sem, tasks, models, options.most))
    if options.results:
        name = "real-clip" if options.data else "sem"
        write_results(name, INTRODUCTIONS[name], blocks, options.results)
    if options.results == RESULTS and options.data:
        write_blocks("real-clip", blocks, PAGE)


if __name__ == "__main__":
    main()
