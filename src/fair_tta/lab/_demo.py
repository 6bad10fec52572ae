"""The demo: every method on every miniature task, as a table in the terminal and as a page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Group
from rich.text import Text

from fair_tta._identity import classifier_provenance
from fair_tta.auditing import Audit, compare
from fair_tta.classifier import FairTPTClassifier
from fair_tta.datasets._records import Record, choose_sample
from fair_tta.images._stored import ImageSource
from fair_tta.lab._terminal import make_table
from fair_tta.lab.report import GalleryImage, Overview, html_many
from fair_tta.lab.report._numbers import times
from fair_tta.lab.runs._audit_rows import add_row, audit_rows
from fair_tta.lab.runs._job import Job, QuestionSpec, WorkUnit
from fair_tta.lab.runs._local import Local
from fair_tta.lab.runs._reference import fit_on_images
from fair_tta.lab.runs._runner import Progress, Runner
from fair_tta.lab.runs._store import StoredRow
from fair_tta.methods import (
    TPT,
    AssociationCorrection,
    FairTPT,
    FairTPTMO,
    LogitBalance,
    OrthCali,
    Zero,
    ZeroShot,
)
from fair_tta.methods._base import Adapter
from fair_tta.metrics._estimates import Estimate, direction
from fair_tta.metrics._scores import AnswerTableBuilder
from fair_tta.metrics.definitions import METRICS
from fair_tta.miniature._world import DrawnImage, MiniatureTask, WorldSplit
from fair_tta.models import resolve
from fair_tta.prediction import Prediction

DEMO_METHODS: dict[str, Adapter] = {
    "ZeroShot": ZeroShot(),
    "Zero": Zero(),
    "TPT": TPT(),
    "OrthCali": OrthCali(),
    "FairTPT": FairTPT(),
    "FairTPT-MO": FairTPTMO(),
    "FairTPT>>Orth": FairTPT() >> OrthCali(lam=0),
    "Association": AssociationCorrection(),
    "LogitBalance": LogitBalance(),
}
"""The methods of the paper with its hyper-parameters, and those of this library."""

REFERENCE_IMAGES = 300
REFERENCE_SEED = 3000
"""What `LogitBalance` is fitted on: drawn from the validation split, never test images."""


@dataclass(frozen=True)
class Episode:
    """The answers of one method, as it was fitted, on the images of one seed of one task."""

    task: MiniatureTask
    seed: int
    method: str
    adapter: Adapter
    provenance: Mapping[str, Any]
    images: list[DrawnImage]
    answers: list[StoredRow]

    @property
    def predictions(self) -> list[Prediction]:
        """Of each image."""
        return [row.prediction for row in self.answers]

    @property
    def rows(self) -> Iterator[tuple[Record, StoredRow]]:
        """The answers with the true labels."""
        for drawn, answer in zip(self.images, self.answers, strict=True):
            yield Record(Path(), drawn.target, drawn.sensitive, answer.image), answer


def run_episodes(
    tasks: Collection[MiniatureTask],
    methods: Mapping[str, Adapter] = DEMO_METHODS,
    *,
    seeds: Sequence[int] = range(5),
    images: int = 120,
    limit: int | None = None,
    sample: int | None = None,
    split: WorldSplit = "test",
    progress: Progress = lambda *_: None,
) -> Iterator[Episode]:
    """Every method on every task and seed; an image is drawn and encoded once for all.

    There are so many `images` for each seed. A method that is not fitted is fitted for each task.
    `"test"` is there to report, `"validation"` to choose.
    """
    backend = resolve("miniature")  # once for all tasks
    size = 32 if any(adapter.needs.views for adapter in methods.values()) else 256
    count = min(number for number in (images, limit, sample) if number is not None)
    done, total = 0, count * len(seeds) * len(tasks)
    for task in tasks:
        wording = QuestionSpec(task.targets, task.sensitive, task.template)
        clf = FairTPTClassifier(backend, task.targets, task.sensitive, task.template)
        provenance = classifier_provenance(clf)
        reference = task.stream(REFERENCE_SEED, split="validation")
        few = islice(reference, REFERENCE_IMAGES)  # drawn only if a method needs them
        fitted, _, _ = fit_on_images(clf, methods, map(_source_of_drawn, few))
        job = Job(backend, (wording,), tuple(fitted.values()), stores_rows=False)
        runner = Runner(job, Local())
        warm_up = map(_source_of_drawn, task.draw(min(images, 4), 0, split=split))
        next(runner.run([WorkUnit(tuple(warm_up), 0, job.queries())]))  # is not timed
        for seed in seeds:
            drawn, found = [], []
            some = choose_sample(
                islice(task.stream(seed, split=split), images), limit, sample, seed,
                key=lambda one: repr(one.shades),
                group=lambda one: (one.target, *one.sensitive.values()),
            )  # fmt: skip
            for one, rows in runner.stream(
                some, _source_of_drawn, size=size, seed=seed
            ):
                assert not isinstance(rows, str)
                drawn.append(one)
                found.append(rows)
                progress(done := done + 1, max(done, total))
            for place, (name, adapter) in enumerate(fitted.items()):
                answers = [rows[place] for rows in found]
                yield Episode(task, seed, name, adapter, provenance, drawn, answers)


@contextmanager
def one_thread() -> Iterator[None]:
    """For a model so small: several threads mostly wait for each other, which takes time too."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _source_of_drawn(drawn: DrawnImage) -> ImageSource:
    file = BytesIO()
    drawn.image.save(file, "PNG", compress_level=0)
    return ImageSource("drawn", file.getvalue())


ONE_VIEW_METHODS = {
    name: adapter for name, adapter in DEMO_METHODS.items() if not adapter.needs.views
}
VIEW_METHODS = {
    name: DEMO_METHODS[name]
    for name in DEMO_METHODS
    if name == "ZeroShot" or name not in ONE_VIEW_METHODS
}

_GALLERY_METHOD = "LogitBalance"  # whose changed answers the report shows
_GALLERY_IMAGES_PER_TASK = 12  # for each task
_GAP_METRIC = "typical_gap"
_OTHER_METRICS = {
    "balanced_accuracy": "Bal",
    "accuracy": "Acc",
    "worst_group_accuracy": "WGA",
}
_STYLES = {1: "green", -1: "red", 0: ""}

DEMO_LEGEND = (
    "Percent; n: images. Gap: by how much two groups of a class typically differ in accuracy; "
    "change: from zero-shot on the same images, with its 95 % CI; Bal: balanced accuracy, the mean "
    "of all groups; Acc: accuracy; WGA: accuracy of the worst group of class and attributes. + "
    "better, - worse than zero-shot: the paired interval, which allows for the number of methods, "
    "excludes 0. Cost: times a zero-shot answer, views included. Methods with 64 views take longer "
    "and were run on fewer images of birds, which show large changes only. Association is "
    f"AssociationCorrection. LogitBalance was fitted on {REFERENCE_IMAGES} other images without "
    "labels."
)


def audits_by_task(episodes: Sequence[Episode]) -> dict[str, Audit]:
    """Return for each task the images of all seeds together, every method beside zero-shot."""
    by_method: dict[tuple[str, str], list[Episode]] = {}
    for episode in episodes:
        by_method.setdefault((episode.task.name, episode.method), []).append(episode)

    audits: dict[str, list[Audit]] = {}
    for (task_name, method), seeds in by_method.items():
        table = AnswerTableBuilder(keep_beliefs=False)
        for episode in seeds:
            for record, row in episode.rows:
                add_row(table, record, row)
        first = seeds[0]
        audit = audit_rows(
            table,
            method,
            first.adapter,
            targets=first.task.targets,
            values=first.task.sensitive,
            provenance=first.provenance,
        )
        audits.setdefault(task_name, []).append(audit)
    return {name: compare(runs) for name, runs in audits.items()}


def demo_table(audits: Iterable[tuple[str, Audit]]) -> Overview:
    """The typical gap of each run of each audit, its change, accuracies, worst group and cost."""
    rows = []
    for task, audit in audits:
        document = audit.document
        against = {c.run: c for c in document.comparisons}
        for run in document.runs:
            metrics = run.metrics.by_name()
            values = {
                key: Estimate(metrics[key].value, 0)
                for key in (_GAP_METRIC, *_OTHER_METRICS)
            }
            sides = dict.fromkeys(values, 0)
            change = ""
            if run.name in against:
                differences = against[run.name].adjusted.by_name()
                sides = {key: _side(key, differences[key]) for key in values}
                change = estimate_text(
                    differences[_GAP_METRIC], sides[_GAP_METRIC], sign="+"
                )
            cells = [
                task,
                run.name,
                f"{document.data.n:,}",
                estimate_text(values[_GAP_METRIC]),
            ]
            beside = [
                (estimate_text(values[key], sides[key]), sides[key])
                for key in _OTHER_METRICS
            ]
            assert run.cost is not None
            assert document.runs[0].cost is not None
            multiple = (
                run.cost.seconds_per_image / document.runs[0].cost.seconds_per_image
            )
            first, last = [(cell, 0) for cell in cells], (times(multiple), 0)
            rows.append([*first, (change, sides[_GAP_METRIC]), *beside, last])
    header = ["task", "method", "n", "gap", "change", *_OTHER_METRICS.values(), "cost"]
    return Overview("Every method on drawn images", header, rows)


def _side(metric: str, difference: Estimate) -> int:
    """Return 1 if a paired interval shows a metric to be better than zero-shot's, -1 if worse."""
    return METRICS[metric].better * direction(difference.low, difference.high)


def estimate_text(estimate: Estimate, side: int = 0, sign: str = "") -> str:
    """Return a share in percent with its interval, and whether it is better (1) or worse (-1) than
    zero-shot's: ``62.5 [48.1, 75.0] +``. Changes have a sign, ``+``.
    """
    if estimate.value is None:
        return "n/a"
    marks = {0: "", 1: " +", -1: " -"}
    return estimate.to_text(sign, "") + marks[side]


def terminal_table(table: Overview) -> Group:
    """Return the table for the terminal."""
    rows = [[Text(text, _STYLES[side]) for text, side in row] for row in table.rows]
    words = (0, 1) if "task" in table.header else (0,)
    longest = max(len(method) for method in DEMO_METHODS)
    return make_table(table.title, table.header, rows, words, name_width=longest)


def changed_answers(episodes: Iterable[Episode], task: str) -> list[GalleryImage]:
    """Images whose answer LogitBalance changed."""
    items = []
    for e in episodes:
        if (e.task.name, e.method) != (task, _GALLERY_METHOD):
            continue
        for drawn, p in zip(e.images, e.predictions, strict=True):
            if p.flipped:
                before = max(p.zero_shot, key=p.zero_shot.__getitem__)
                labels = (
                    ", ".join(drawn.sensitive.values()),
                    before,
                    p.label,
                    drawn.target,
                )
                sure = p.zero_shot[before], p.probabilities[p.label]
                items.append(GalleryImage(drawn.image, *labels, *sure))
    return items[:_GALLERY_IMAGES_PER_TASK]


def demo_page(
    episodes: Sequence[Episode],
    audits: Mapping[str, Audit],
    with_views: Mapping[str, Audit],
    table: Overview,
) -> str:
    """The report: a self-contained page; what it begins with is about methods with one view."""
    parts: list[Any] = [
        (name, audit, changed_answers(episodes, name)) for name, audit in audits.items()
    ]
    for name, audit in with_views.items():
        parts.append(
            (f"{name}: methods with views, {audit.document.data.n} images", audit, [])
        )
    title = "Every method on drawn images: fair-tta demo"
    tasks = list(audits.items())
    return html_many(title, parts, intro=DEMO_LEGEND, overviews=[table], tasks=tasks)
