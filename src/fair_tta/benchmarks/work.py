"""The work of a benchmark, cut into units that any process can do on its own.

A unit is a few images with all that is to be found out about them. The images are encoded once;
then every setting of every task answers from the features. Units are cut the same way whoever does
them and however often a run was stopped, so the answers are the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from fair_tta.adapters import Adapter, ZeroShot
from fair_tta.backends import Backend, resolve
from fair_tta.benchmarks.bank import Bank, file_digest, identity, read_picture
from fair_tta.benchmarks.data import Part
from fair_tta.benchmarks.datasets import BenchmarkTask, Record
from fair_tta.benchmarks.grids import Grid, Setting
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError, ImageError
from fair_tta.images import load_image
from fair_tta.prediction import Prediction
from fair_tta.provenance import adapter_settings
from fair_tta.views import AugMix

Line = dict[str, Any]
"""The answers of one setting on the images of a unit, as JSON: a line of the journal."""


@dataclass(frozen=True)
class Question:
    """What to find out: the answers of a setting on a task.

    Attributes:
        task: its place in `Job.tasks`.
        setting: its place in `Job.adapters`.
        key: tells the line from all others.
    """

    task: int
    setting: int
    key: str


@dataclass(frozen=True)
class Unit:
    """Some images and the questions about them.

    Attributes:
        seed: of the views.
        paths: where the images are.
        contents: the digests of their files, empty for one that is not there.
        questions: what to find out.
    """

    seed: int
    paths: tuple[str, ...]
    contents: tuple[str, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Job:
    """What every worker must know.

    Attributes:
        model: what `FairTPTClassifier` takes.
        device: where to move it, None to leave it where it is.
        facts: of `fair_tta.benchmarks.bank.identity`, to be sure that all have the same model; and
            the circumstances of the work, if its cost is measured.
        views: how views are made.
        bank: the folder of features.
        tasks: the tasks.
        adapters: the settings.
        alone: whether settings should not share work.
        threads: of torch for every worker, None to leave it.
    """

    model: Any
    device: str | None
    facts: dict[str, Any]
    views: AugMix
    bank: str
    tasks: tuple[BenchmarkTask, ...]
    adapters: tuple[Adapter, ...]
    alone: bool = False
    threads: int | None = None


@dataclass(frozen=True)
class Chunk:
    """Some images of a sample of a task, and the keys of their lines, one per setting.

    A key has the names and the contents of the images in it, so no answer is taken for that of
    another picture.
    """

    task: int
    seed: int
    records: tuple[Record, ...]
    contents: tuple[str, ...]
    keys: tuple[str, ...]


def chunks(grid: Grid, parts: Sequence[Part], batch: int) -> Iterator[Chunk]:
    """All samples of all tasks, cut up: the order of rows in results."""
    settings = [setting_digest(setting) for setting in grid.settings]
    for task, part in enumerate(parts):
        for seed, records in part.samples.items():
            for start in range(0, len(records), batch):
                some = records[start : start + batch]
                contents = tuple(part.contents[record.path] for record in some)
                names = _digest("\0".join([*(record.key for record in some), *contents]))
                keys = tuple(f"{part.digest}-{seed}-{setting}-{names}" for setting in settings)
                yield Chunk(task, seed, some, contents, keys)


def cut(grid: Grid, parts: Sequence[Part], batch: int) -> list[Unit]:
    """All units of a table. Tasks that ask about the same images share units."""
    found: dict[tuple[int, tuple[str, ...], tuple[str, ...]], list[Question]] = {}
    for chunk in chunks(grid, parts, batch):
        paths = tuple(str(record.path) for record in chunk.records)
        questions = found.setdefault((chunk.seed, paths, chunk.contents), [])
        questions += [Question(chunk.task, i, key) for i, key in enumerate(chunk.keys)]
    return [Unit(*images, tuple(asked)) for images, asked in found.items()]


def setting_digest(setting: Setting) -> str:
    """Of the method and its hyper-parameters, whatever they are called."""
    return _digest(json.dumps(adapter_settings(setting.adapter), sort_keys=True))


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def load_backend(model: Any, device: str | None = None) -> Backend:
    """The model, on this device."""
    backend = resolve(model)
    if device is not None:
        try:
            backend.model.to(device)  # type: ignore[attr-defined]
        except (AttributeError, RuntimeError, AssertionError) as error:
            raise FairTTAError(f"`device` {device!r} cannot be used: {error}") from error
    return backend


class Worker:
    """Does units, one after another.

    Args:
        job: what is common to all units.
        backend: the model, if it is loaded already.
    """

    def __init__(self, job: Job, backend: Backend | None = None) -> None:
        self._job = job
        if backend is None:
            backend = load_backend(job.model, job.device)
            found = identity(backend, job.views)
            compared = [name for name in found if name != "preprocessing"]
            if any(found[name] != job.facts[name] for name in compared):
                raise FairTTAError(
                    f"a worker loaded another model than the driver: {found} is not {job.facts}."
                )
        self._backend = backend
        self._banks: dict[int, Bank] = {}
        self._classifiers: dict[tuple[int, int], FairTPTClassifier] = {}

    def __call__(self, unit: Unit) -> list[Line]:
        """Answer all questions of a unit. Pictures that cannot be read are left out and named.

        Raises:
            FairTTAError: a file is not the one that the unit was made for.
        """
        bank = self._banks.get(unit.seed)
        if bank is None:
            bank = self._banks[unit.seed] = Bank(self._job.bank, self._job.facts, unit.seed)
        digests, pictures, unreadable = {}, {}, {}
        for place, (path, digest) in enumerate(zip(unit.paths, unit.contents, strict=True)):
            data = read_picture(path)
            if digest != ("" if data is None else file_digest(data)):
                raise FairTTAError(
                    f"{path!r} was changed while the table was run: run the same command again."
                )
            if data is None:
                unreadable[path] = "there is no such file"
                continue
            try:
                if digest not in bank:
                    pictures[place] = load_image(data)
                digests[place] = digest
            except ImageError as error:
                unreadable[path] = str(error)
        common: Line = {"images": list(digests), "unreadable": unreadable, "vision_seconds": 0.0}
        if not digests:
            return [{"key": q.key, **common, "seconds": 0.0} for q in unit.questions]
        clf = self._classifier(unit.questions[0]).with_views(self._job.views, unit.seed)
        places = list(digests)

        def encode(missing: list[int]) -> Tensor:
            wanted = [places[i] for i in missing]
            return clf.encode([pictures.get(i) or unit.paths[i] for i in wanted])

        banked = bank.get(list(digests.values()), encode)
        features = banked.features.to(self._backend.device)
        common["vision_seconds"] = sum(banked.seconds)
        return [{"key": q.key, **common, **self._answer(q, features)} for q in unit.questions]

    def _answer(self, question: Question, features: Tensor) -> Line:
        clf = self._classifier(question).with_adapter(self._job.adapters[question.setting])
        start = time.perf_counter()
        predictions = clf.predict_encoded(features)
        return {"seconds": time.perf_counter() - start, **_columns(predictions)}

    def _classifier(self, question: Question) -> FairTPTClassifier:
        key = question.task, question.setting if self._job.alone else 0
        if key not in self._classifiers:
            arguments: dict[str, Any] = self._job.tasks[question.task].arguments()
            self._classifiers[key] = FairTPTClassifier(
                self._backend, **arguments, adapter=ZeroShot(), views=self._job.views
            )
        return self._classifiers[key]


class Started:
    """A worker of another process. What keeps it from starting is told when it is asked to work:
    raised before, it would be lost.
    """

    def __init__(self, job: Job) -> None:
        self._worker: Worker | None = None
        self._reason = ""
        try:
            torch.set_num_threads(job.threads or torch.get_num_threads())
            self._worker = Worker(job)
        except FairTTAError as error:
            self._reason = str(error)
        except Exception as error:
            self._reason = f"{type(error).__name__}: {error}"

    def __call__(self, unit: Unit) -> list[Line]:
        """As `Worker`."""
        if self._worker is None:
            raise FairTTAError(f"a worker process cannot start: {self._reason}")
        return self._worker(unit)


def _columns(predictions: list[Prediction]) -> Line:
    attributes = predictions[0].sensitive
    return {
        "label": [p.label for p in predictions],
        "probabilities": [_rounded(p.probabilities.values()) for p in predictions],
        "sensitive": {a: [_rounded(p.sensitive[a].values()) for p in predictions]
                      for a in attributes},
        "entropy": _rounded(p.entropy for p in predictions),
        "sensitive_entropy": {a: _rounded(p.sensitive_entropy[a] for p in predictions)
                              for a in attributes},
        "learning_rate": _rounded(p.learning_rate for p in predictions),
        "relative_step": _rounded(p.relative_step for p in predictions),
        "warnings": [list(p.warnings) for p in predictions],
    }  # fmt: skip


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    """As many digits as a float32 has."""
    return [None if v is None else float(f"{v:.9g}") for v in values]
