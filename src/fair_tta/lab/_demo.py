"""The demo: every method on the miniature tasks, as a table in the terminal and as a page."""

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
    "zero-shot": ZeroShot(),
    "zero": Zero(),
    "tpt": TPT(),
    "orthcali": OrthCali(),
    "fair-tpt": FairTPT(),
    "fair-tpt-mo": FairTPTMO(),
    "fair-tpt+orthcali:lam=0": FairTPT() >> OrthCali(lam=0),
    "association-correction": AssociationCorrection(),
    "logit-balance": LogitBalance(),
}
"""The paper's methods with its hyper-parameters, and this library's, as on the command line."""

ONE_VIEW_METHODS = {
    name: adapter for name, adapter in DEMO_METHODS.items() if not adapter.needs.views
}
VIEW_METHODS = {
    name: adapter
    for name, adapter in DEMO_METHODS.items()
    if adapter.needs.views or name == "zero-shot"
}
"""The methods that use views of an image, and zero-shot to compare them with."""

REFERENCE_IMAGES = 300  # LogitBalance warns below 300
_REFERENCE_SEED = 3000  # of the validation split, so that no image is a test image


@dataclass(frozen=True)
class Episode:
    """The predictions of one fitted method on the images of one seed of one task."""

    task: MiniatureTask
    seed: int
    method: str
    adapter: Adapter
    provenance: Mapping[str, Any]
    images: list[DrawnImage]
    answers: list[StoredRow]

    @property
    def predictions(self) -> list[Prediction]:
        """The prediction of each image."""
        return [row.prediction for row in self.answers]

    @property
    def rows(self) -> Iterator[tuple[Record, StoredRow]]:
        """The predictions with the true labels."""
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
    """Yield the predictions of every method on every task and seed.

    An image is drawn and encoded once for all methods.

    Args:
        tasks: the tasks.
        methods: adapters by their names; those that are not fitted are fitted for each task.
        seeds: the seeds.
        images: the number of images for each seed.
        limit: use only the first so many of them.
        sample: use only so many of them, with each group's share.
        split: ``"test"`` to report, ``"validation"`` to choose.
        progress: receives how many images are finished, and how many there are.
    """
    # Loaded once: its prompts' features differ by task, its weights do not.
    backend = resolve("miniature")
    needs_views = any(adapter.needs.views for adapter in methods.values())
    # Images per unit of work: fewer where each of them has 64 views.
    unit_size = 32 if needs_views else 256
    n_chosen = min(number for number in (images, limit, sample) if number is not None)
    total = n_chosen * len(seeds) * len(tasks)
    n_finished = 0
    for task in tasks:
        classifier = FairTPTClassifier(
            backend, task.targets, task.sensitive, task.template
        )
        provenance = classifier_provenance(classifier)

        # These images are drawn only if a method needs them
        reference = task.stream(_REFERENCE_SEED, split="validation")
        reference_sources = map(_image_source, islice(reference, REFERENCE_IMAGES))
        fitted, _, _ = fit_on_images(classifier, methods, reference_sources)
        prompts = QuestionSpec(task.targets, task.sensitive, task.template)
        job = Job(backend, (prompts,), tuple(fitted.values()), stores_rows=False)
        runner = Runner(job, Local())

        # The first images take longer, and are not timed
        warm_up = map(_image_source, task.draw(min(images, 4), 0, split=split))
        next(runner.run([WorkUnit(tuple(warm_up), 0, job.queries())]))
        for seed in seeds:
            # Drawn one by one; `sample` keeps the share of each group.
            chosen = choose_sample(
                islice(task.stream(seed, split=split), images),
                limit,
                sample,
                seed,
                key=lambda drawn: repr(drawn.shades),
                group=lambda drawn: (drawn.target, *drawn.sensitive.values()),
            )
            drawn_images = []
            rows_of_images = []
            for drawn, rows in runner.stream(
                chosen, _image_source, size=unit_size, seed=seed
            ):
                assert not isinstance(rows, str)  # drawn images can always be read
                drawn_images.append(drawn)
                rows_of_images.append(rows)
                n_finished += 1
                progress(n_finished, max(n_finished, total))
            # An image's rows stand in the order of the methods.
            for index, (name, adapter) in enumerate(fitted.items()):
                answers = [rows[index] for rows in rows_of_images]
                yield Episode(
                    task, seed, name, adapter, provenance, drawn_images, answers
                )


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread: for a model so small, several mostly wait for each other."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


def _image_source(drawn: DrawnImage) -> ImageSource:
    # Uncompressed, because it is read again at once; the runner takes files only.
    file = BytesIO()
    drawn.image.save(file, "PNG", compress_level=0)
    return ImageSource("drawn", file.getvalue())


_GALLERY_METHOD = "logit-balance"  # the page shows images whose answer it changed
_GALLERY_IMAGES_PER_TASK = 12
_GAP_METRIC = "typical_gap"
_OTHER_METRICS = {
    "balanced_accuracy": "Bal",
    "accuracy": "Acc",
    "worst_group_accuracy": "WGA",
}
_NAME_WIDTH = len("tpt+orthcali:lam=0")  # the longest part between hyphens
# By side: better than zero-shot, worse, neither.
_STYLES = {1: "green", -1: "red", 0: ""}

DEMO_LEGEND = (
    "Percent; n: images. Gap: by how much two groups of a class typically differ in accuracy; "
    "change: from zero-shot on the same images, with its 95 % CI; Bal: balanced accuracy, the mean "
    "of all groups; Acc: accuracy; WGA: accuracy of the worst group of class and attributes. + "
    "better, - worse than zero-shot: the paired interval, which allows for the number of methods, "
    "excludes 0. Cost: times a zero-shot answer, views included. Methods with 64 views take longer "
    "and were run on fewer images of birds, which show large changes only. logit-balance was "
    f"fitted on {REFERENCE_IMAGES} other images without labels."
)


def audits_by_task(episodes: Sequence[Episode]) -> dict[str, Audit]:
    """Return an audit per task, of the images of all seeds and of all methods."""
    by_method: dict[tuple[str, str], list[Episode]] = {}
    for episode in episodes:
        by_method.setdefault((episode.task.name, episode.method), []).append(episode)

    # The images of all seeds are measured as one set
    audits: dict[str, list[Audit]] = {}
    for (task_name, method), same_method in by_method.items():
        table = AnswerTableBuilder(keep_beliefs=False)
        for episode in same_method:
            for record, row in episode.rows:
                add_row(table, record, row)
        first = same_method[0]
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
    """Return a row per run: typical gap and its change, accuracies, worst group and cost."""
    rows = []
    for task_name, audit in audits:
        document = audit.document
        differences = {
            comparison.run: comparison.adjusted.by_name()
            for comparison in document.comparisons
        }
        # The first run of the demo is zero-shot, with which the others are compared.
        zero_shot = document.runs[0]
        for run in document.runs:
            assert run.cost is not None
            assert zero_shot.cost is not None
            # Relative to the call that a user replaces, since machines differ.
            cost = run.cost.seconds_per_image / zero_shot.cost.seconds_per_image
            cells = [
                (task_name, 0),
                (run.name, 0),
                (f"{document.data.n:,}", 0),
                *_metric_cells(run.metrics.by_name(), differences.get(run.name)),
                (times(cost), 0),
            ]
            rows.append(cells)
    header = ["task", "method", "n", "gap", "change", *_OTHER_METRICS.values(), "cost"]
    return Overview("Every method on drawn images", header, rows)


def _metric_cells(
    metrics: Mapping[str, Estimate], differences: Mapping[str, Estimate] | None
) -> list[tuple[str, int]]:
    """Return texts with their sides: 1 better than zero-shot, -1 worse, 0 neither.

    Args:
        metrics: the figures of a run.
        differences: those from zero-shot, None for zero-shot itself.
    """
    gap = Estimate(metrics[_GAP_METRIC].value, 0)  # without its interval
    cells = [(estimate_text(gap), 0)]
    # Zero-shot is not compared with itself: its cell stays empty.
    if differences is None:
        cells.append(("", 0))
    else:
        change = differences[_GAP_METRIC]
        side = _side(_GAP_METRIC, change)
        cells.append((estimate_text(change, side, sign="+"), side))
    for metric in _OTHER_METRICS:
        side = 0 if differences is None else _side(metric, differences[metric])
        figure = Estimate(metrics[metric].value, 0)
        cells.append((estimate_text(figure, side), side))
    return cells


def _side(metric: str, difference: Estimate) -> int:
    """Return 1 if a paired interval shows a metric to be better than zero-shot's, -1 if worse."""
    return METRICS[metric].better * direction(difference.low, difference.high)


def estimate_text(estimate: Estimate, side: int = 0, sign: str = "") -> str:
    """Return a share in percent with its interval, such as ``62.5 [48.1, 75.0] +``.

    Args:
        estimate: the share.
        side: 1 if it is better than zero-shot's, -1 if it is worse.
        sign: ``+`` to write the sign of changes above 0.
    """
    if estimate.value is None:
        return "n/a"
    marks = {0: "", 1: " +", -1: " -"}
    return estimate.to_text(sign, "") + marks[side]


def terminal_table(table: Overview) -> Group:
    """Return the table for the terminal."""
    rows = []
    for row in table.rows:
        rows.append([Text(text, _STYLES[side]) for text, side in row])
    name_columns = (0, 1) if "task" in table.header else (0,)
    return make_table(table.title, table.header, rows, name_columns, _NAME_WIDTH)


def changed_answers(episodes: Iterable[Episode], task: str) -> list[GalleryImage]:
    """Return images of a task whose answer `LogitBalance` changed."""
    gallery: list[GalleryImage] = []
    for episode in episodes:
        if (episode.task.name, episode.method) != (task, _GALLERY_METHOD):
            continue
        for drawn, prediction in zip(episode.images, episode.predictions, strict=True):
            if not prediction.flipped:
                continue
            # `before` is the model's own answer, whatever the method.
            zero_shot = prediction.zero_shot
            zero_shot_label = max(zero_shot, key=zero_shot.__getitem__)
            changed = GalleryImage(
                drawn.image,
                caption=", ".join(drawn.sensitive.values()),
                before=zero_shot_label,
                after=prediction.label,
                truth=drawn.target,
                before_probability=zero_shot[zero_shot_label],
                after_probability=prediction.probabilities[prediction.label],
            )
            gallery.append(changed)
    return gallery[:_GALLERY_IMAGES_PER_TASK]


def demo_page(
    episodes: Sequence[Episode],
    audits: Mapping[str, Audit],
    view_audits: Mapping[str, Audit],
    table: Overview,
) -> str:
    """Return the report, a self-contained page.

    Args:
        episodes: those of the methods with one view.
        audits: their audits by task, with which the page begins.
        view_audits: audits of the methods with views.
        table: the table of all methods.
    """
    sections: list[Any] = []
    for name, audit in audits.items():
        sections.append((name, audit, changed_answers(episodes, name)))
    for name, audit in view_audits.items():
        heading = f"{name}: methods with views, {audit.document.data.n} images"
        sections.append((heading, audit, []))
    return html_many(
        "Every method on drawn images: fair-tta demo",
        sections,
        intro=DEMO_LEGEND,
        overviews=[table],
        tasks=list(audits.items()),
    )
