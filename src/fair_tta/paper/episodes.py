"""Run several methods on the same drawn pictures."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from fair_tta.adapters import (
    TPT,
    Adapter,
    AssociationCorrection,
    FairTPT,
    FairTPTMO,
    LogitBalance,
    OrthCali,
    ViewControl,
    Zero,
    ZeroShot,
)
from fair_tta.auditing.columns import Columns
from fair_tta.backends import Backend, resolve
from fair_tta.classifier import FairTPTClassifier
from fair_tta.data import Record
from fair_tta.data.sampling import choose
from fair_tta.miniature.world import DrawnPicture, MiniatureTask, WorldSplit
from fair_tta.paper.cells import measure
from fair_tta.prediction import Prediction
from fair_tta.runs.answer import Answer, to_prediction
from fair_tta.runs.job import Job, Wording, WorkUnit
from fair_tta.runs.local import Local
from fair_tta.runs.picture_files import AskedPicture
from fair_tta.runs.runner import Runner, batched

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

REFERENCE_PICTURES = 300
REFERENCE_SEED = 3000
"""What `LogitBalance` is fitted on: drawn from the validation split, never test pictures."""


@dataclass(frozen=True)
class Episode:
    """The answers of one method, as it was fitted, on the pictures of one seed of one task."""

    task: MiniatureTask
    seed: int
    method: str
    adapter: Adapter
    pictures: list[DrawnPicture]
    answers: list[Answer]

    @property
    def predictions(self) -> list[Prediction]:
        """What the method says of each picture."""
        return [to_prediction(a, self.task.targets, self.task.sensitive) for a in self.answers]

    @property
    def seconds(self) -> float:
        """What it took, views included."""
        return sum(answer.seconds for answer in self.answers)

    @property
    def rows(self) -> Iterator[tuple[Record, Answer]]:
        """The answers with what is true."""
        for picture, answer in zip(self.pictures, self.answers, strict=True):
            yield Record(Path(), picture.target, picture.sensitive, answer.image), answer

    @property
    def metrics(self) -> dict[str, float]:
        """See `fair_tta.paper.cells.measure`."""
        return measure(Columns.of(self.task.targets, self.rows))


def run_episodes(
    tasks: Iterable[MiniatureTask],
    methods: Mapping[str, Adapter] = METHODS,
    *,
    seeds: Iterable[int] = range(5),
    pictures: int = 120,
    limit: int | None = None,
    sample: int | None = None,
    split: WorldSplit = WorldSplit.TEST,
    model: Any = "miniature",
) -> Iterator[Episode]:
    """Every method on every task and seed; the views of a picture are encoded once for all.

    Args:
        tasks: of `fair_tta.miniature.TASKS`.
        methods: ``{name: adapter}``; one that is not fitted yet is fitted for each task.
        seeds: of pictures and of their views.
        pictures: how many for each seed.
        limit: the first so many of them only.
        sample: so many of them only, of each group its share.
        split: `WorldSplit.TEST` to report, `WorldSplit.VALIDATION` to choose.
        model: what `FairTPTClassifier` takes.
    """
    backend = resolve(model)  # once for all tasks
    for task in tasks:
        wording = Wording(task.targets, task.sensitive, task.template)
        fitted = {name: _fitted(adapter, task, backend) for name, adapter in methods.items()}
        job = Job(backend, (wording,), tuple(fitted.values()), is_kept=False)
        drawn = {
            seed: _chosen(task.draw(pictures, seed, split=split), limit, sample, seed)
            for seed in seeds
        }
        units = [
            WorkUnit(tuple(map(_picture, some)), seed, job.questions())
            for seed, every in drawn.items()
            for some in batched(every, _AT_ONCE)
        ]
        answered = Runner(job, Local()).run([units[0], *units])
        next(answered)  # once without a clock: some things are made for all pictures
        for seed, every in drawn.items():
            found = [of for _ in batched(every, _AT_ONCE) for of in next(answered)[1]]
            for place, (name, adapter) in enumerate(fitted.items()):
                answers = [of[place] for of in found if not isinstance(of, str)]
                yield Episode(task, seed, name, adapter, every, answers)


def _fitted(adapter: Adapter, task: MiniatureTask, backend: Backend) -> Adapter:
    if not isinstance(adapter, LogitBalance) or adapter.reference is not None:
        return adapter
    clf = FairTPTClassifier(backend, task.targets, task.sensitive, task.template)
    drawn = task.draw(REFERENCE_PICTURES, REFERENCE_SEED, split=WorldSplit.VALIDATION)
    return adapter.fit(clf, [picture.image for picture in drawn])


def _chosen(
    drawn: list[DrawnPicture], limit: int | None, sample: int | None, seed: int
) -> list[DrawnPicture]:
    def group(one: tuple[int, DrawnPicture]) -> tuple[str, ...]:
        return (one[1].target, *one[1].sensitive.values())

    numbered = enumerate(drawn)
    some = choose(numbered, limit, sample, seed, key=lambda one: str(one[0]), group=group)
    return [picture for _, picture in some]


def _picture(drawn: DrawnPicture) -> AskedPicture:
    file = BytesIO()
    drawn.image.save(file, "PNG")
    return AskedPicture("drawn", file.getvalue())
