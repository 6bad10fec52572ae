"""The demo: every method on every miniature task, as tables in the terminal and as a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from pathlib import Path

from fair_tta._identity import classifier_provenance
from fair_tta._models import resolve
from fair_tta.auditing import Audit, compare
from fair_tta.classifier import FairTPTClassifier
from fair_tta.lab._runs.bank import ImageSource
from fair_tta.lab._runs.columns import RunColumns
from fair_tta.lab._runs.job import Job, Question, WorkUnit
from fair_tta.lab._runs.local import Local
from fair_tta.lab._runs.reference import fit_on_images
from fair_tta.lab._runs.runner import Runner
from fair_tta.lab._runs.store import StoredRow
from fair_tta.lab.bench._figures import COLUMNS, in_audit, mark, shown_figure
from fair_tta.lab.data import Record
from fair_tta.lab.data._records import choose
from fair_tta.lab.report import GalleryImage, Overview, html_many
from fair_tta.lab.report._numbers import times
from fair_tta.methods import (
    TPT,
    AssociationCorrection,
    FairTPT,
    FairTPTMO,
    LogitBalance,
    OrthCali,
    ViewControl,
    Zero,
    ZeroShot,
)
from fair_tta.methods._base import Adapter
from fair_tta.miniature._world import TASKS, DrawnImage, MiniatureTask, WorldSplit
from fair_tta.prediction import Prediction

_AT_ONCE = 32

METHODS: dict[str, Adapter] = {
    "ZeroShot": ZeroShot(),
    "Zero": Zero(),
    "TPT": TPT(),
    "OrthCali": OrthCali(),
    "FairTPT": FairTPT(),
    "FairTPT-MO": FairTPTMO(),
    "FairTPT>>Orth": FairTPT() >> OrthCali(lam=0),
    "Association": AssociationCorrection(),
    "ViewControl": ViewControl(),
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
    images: list[DrawnImage]
    answers: list[StoredRow]

    @property
    def predictions(self) -> list[Prediction]:
        """Of each image."""
        return [row.prediction for row in self.answers]

    @property
    def seconds(self) -> float:
        """Of all answers, views included."""
        return sum(answer.seconds for answer in self.answers)

    @property
    def rows(self) -> Iterator[tuple[Record, StoredRow]]:
        """The answers with the true labels."""
        for drawn, answer in zip(self.images, self.answers, strict=True):
            yield Record(Path(), drawn.target, drawn.sensitive, answer.image), answer


def run_episodes(
    tasks: Iterable[MiniatureTask],
    methods: Mapping[str, Adapter] = METHODS,
    *,
    seeds: Iterable[int] = range(5),
    images: int = 120,
    limit: int | None = None,
    sample: int | None = None,
    split: WorldSplit = WorldSplit.TEST,
) -> Iterator[Episode]:
    """Every method on every task and seed; the views of an image are encoded once for all.

    There are so many `images` for each seed. A method that is not fitted is fitted for each task.
    `WorldSplit.TEST` is there to report, `WorldSplit.VALIDATION` to choose.
    """
    backend = resolve("miniature")  # once for all tasks
    for task in tasks:
        wording = Question(task.targets, task.sensitive, task.template)
        clf = FairTPTClassifier(backend, task.targets, task.sensitive, task.template)
        reference = task.stream(REFERENCE_SEED, split=WorldSplit.VALIDATION)
        few = islice(reference, REFERENCE_IMAGES)  # drawn only if a method needs them
        fitted, _, _ = fit_on_images(clf, methods, map(_asked, few))
        job = Job(backend, (wording,), tuple(fitted.values()), is_kept=False)
        runner = Runner(job, Local())
        warm_up = map(_asked, task.draw(min(images, 4), 0, split=split))
        next(runner.run([WorkUnit(tuple(warm_up), 0, job.asked())]))  # is not timed
        for seed in seeds:
            numbered = enumerate(task.draw(images, seed, split=split))
            some = choose(
                numbered, limit, sample, seed, key=lambda one: str(one[0]),
                group=lambda one: (one[1].target, *one[1].sensitive.values()),
            )  # fmt: skip
            drawn = [one for _, one in some]
            found = [rows for _, rows in runner.stream(drawn, _asked, size=_AT_ONCE, seed=seed)]
            for place, (name, adapter) in enumerate(fitted.items()):
                answers = [rows[place] for rows in found if not isinstance(rows, str)]
                yield Episode(task, seed, name, adapter, drawn, answers)


def _asked(drawn: DrawnImage) -> ImageSource:
    file = BytesIO()
    drawn.image.save(file, "PNG")
    return ImageSource("drawn", file.getvalue())


ONE_VIEW = {name: adapter for name, adapter in METHODS.items() if not adapter.needs.views}

_SHOWN = "LogitBalance"  # whose changed answers the report shows
_IMAGES_SHOWN = 12  # for each task
SHOWN_COLUMNS = tuple(column for column in COLUMNS if column.key != "bias")  # Acc - WGA
_EFFECT_COLUMNS = tuple(column for column in COLUMNS if column.title in ("Acc", "WGA", "EOD"))

DEMO_LEGEND = (
    "Percent, of the images of all seeds together (the mean over seeds of the worst group is "
    "lower: each seed has fewer images of it); 95 % intervals in brackets. + better, - worse "
    "than zero-shot: the paired interval of the difference excludes 0, at a level that allows for "
    "all methods (Holm). Acc: accuracy; WGA: accuracy of the worst group of class and attributes; "
    "EOD: equalized-odds difference; ASI: indifference to the attributes; ATC: confidence in the "
    "target; cost: times a zero-shot answer, views included. Association is AssociationCorrection. "
    f"LogitBalance was fitted on {REFERENCE_IMAGES} reference images without labels, drawn "
    "from the validation split: none of them is a test image. The verdict is that of the "
    "tables of all methods; the table of one view has more images, and may show more."
)


def to_audits(episodes: Sequence[Episode]) -> dict[str, Audit]:
    """For each task the images of all seeds together, every method beside zero-shot."""
    model = resolve("miniature")
    found = {}
    for task in TASKS.values():
        clf = FairTPTClassifier(model, task.targets, task.sensitive, task.template)
        provenance = classifier_provenance(clf)
        audits = []
        of_task = [e for e in episodes if e.task is task]
        for method, adapter in {e.method: e.adapter for e in of_task}.items():
            rows = (row for e in of_task if e.method == method for row in e.rows)
            of_method = RunColumns(task.targets, rows)
            audits.append(
                of_method.audit(method, adapter, values=task.sensitive, provenance=provenance)
            )
        found[task.name] = compare(audits)
    return found


def demo_tables(
    episodes: Sequence[Episode], audits: Mapping[str, Audit], digits: int = 1
) -> list[Overview]:
    """The figures of each task, marked as its audit has them, and costs; intervals have so many
    digits after the point."""
    made = []
    for task in TASKS.values():
        seconds: defaultdict[str, float] = defaultdict(float)
        for e in episodes:
            seconds[e.method] += e.seconds if e.task is task else 0.0
        document = audits[task.name].document
        against = {c.run: c for c in document.comparisons}
        rows = []
        for run in document.runs:
            cells = [(run.name, 0)]
            for column in SHOWN_COLUMNS:
                figure, side = in_audit(run, column.key), 0
                if run.name in against:
                    side = mark(column, in_audit(against[run.name], column.key))
                figure = figure if column.better else replace(figure, low=None, high=None)
                cells.append((shown_figure(figure, side, digits), side))
            rows.append([*cells, (times(seconds[run.name] / seconds[document.runs[0].name]), 0)])
        title = f"{task.name}: {' / '.join(task.targets)} against {' and '.join(task.sensitive)}"
        made.append(Overview(title, ["method", *(c.title for c in SHOWN_COLUMNS), "cost"], rows))
    return made


def effect_table(audits: Mapping[str, Audit]) -> Overview:
    """What each method with one view changes from zero-shot on each task."""
    rows = []
    for name, audit in audits.items():
        for comparison in audit.document.comparisons:
            cells = [(name, 0), (comparison.run, 0)]
            for column in _EFFECT_COLUMNS:
                change = in_audit(comparison, column.key)
                side = mark(column, change)
                cells.append((shown_figure(change, side, sign="+"), side))
            rows.append(cells)
    n = next(iter(audits.values())).document.data.n
    return Overview(
        f"One view, {n:,} images of each task: change from zero-shot in points, with its "
        "paired 95 % interval",
        ["task", "method", *(column.title for column in _EFFECT_COLUMNS)],
        rows,
    )


def gallery(episodes: Sequence[Episode], task: MiniatureTask) -> list[GalleryImage]:
    """Images whose answer LogitBalance changed."""
    items = []
    for e in episodes:
        if e.task is not task or e.method != _SHOWN:
            continue
        for drawn, p in zip(e.images, e.predictions, strict=True):
            if p.flipped:
                before = max(p.zero_shot, key=p.zero_shot.__getitem__)
                labels = ", ".join(drawn.sensitive.values()), before, p.label, drawn.target
                sure = p.zero_shot[before], p.probabilities[p.label]
                items.append(GalleryImage(drawn.image, *labels, *sure))
    return items[:_IMAGES_SHOWN]


def to_html(
    episodes: Sequence[Episode], audits: Mapping[str, Audit], further: Sequence[Overview] = ()
) -> str:
    """The report: a self-contained page, with further tables below its own."""
    parts = [(task.name, audits[task.name], gallery(episodes, task)) for task in TASKS.values()]
    overviews = [*demo_tables(episodes, audits), *further]
    title = "Every method on drawn images: fair-tta demo"
    return html_many(title, parts, intro=DEMO_LEGEND, overviews=overviews)
