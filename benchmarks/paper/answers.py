"""Answers of every setting on every image, kept on disk so that a killed run goes on.

In the folder of the results, `features` holds the views of each image, encoded once for all tables,
and `TABLE/rows` a file for each setting and task with a line of JSON for each image and seed. Names
of files and folders end in a digest of what their content depends on, so that nothing is mixed with
answers of another model, method or version.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fair_tta import FairTPTClassifier, Features, Prediction, ZeroShot, __version__
from fair_tta.datasets import BenchmarkTask
from fair_tta.errors import ImageError, SmallReferenceWarning
from fair_tta.extend import Adapter, AugMix, task_of
from paper.images import TaskImages
from paper.tables import Setting, Table

if TYPE_CHECKING:
    from fair_tta.datasets._records import Record

AnswerKey = tuple[int, str]
"""A seed and the digest of an image file."""


@dataclass(frozen=True)
class Answer:
    """What a setting says of an image.

    Attributes:
        digest: of the content of the image file.
        seconds: what it took; images and views are encoded for all settings together unless the
            table is timed, and then not part of it.
    """

    record: Record
    seed: int
    digest: str
    prediction: Prediction
    seconds: float


@dataclass(frozen=True)
class TaskImage:
    """An image while it is worked on; `features` are those of its views, where they are needed."""

    record: Record
    seed: int
    digest: str
    content: bytes
    features: torch.Tensor | None = None

    @property
    def key(self) -> AnswerKey:
        """What its answers are found by."""
        return self.seed, self.digest


@dataclass(frozen=True)
class Options:
    """How answers are made: what all settings of a run share."""

    model: Any
    views: int = 64
    batch_size: int = 16
    device: str | None = None
    dtype: str | None = None

    def identity(self) -> dict[str, Any]:
        """Return what features depend on, for JSON."""
        model = self.model if isinstance(self.model, str) else repr(type(self.model))
        return {
            "model": model,
            "views": self.views,
            "dtype": self.dtype,
            "version": __version__,
        }

    def classifier(self, task: BenchmarkTask, backend: Any = None) -> FairTPTClassifier:
        """Return a classifier of the task; a backend that is loaded already is used again."""
        is_loaded = backend is not None
        return FairTPTClassifier(
            backend if is_loaded else self.model,
            **task.arguments(),
            adapter=ZeroShot(),
            views=AugMix(self.views),
            batch_size=self.batch_size,
            device=None if is_loaded else self.device,
            dtype=None if is_loaded else self.dtype,
        )


class FeatureFiles:
    """Features of images and their views, a file for each image and seed, in half precision."""

    def __init__(self, home: Path, options: Options) -> None:
        identity = options.identity()
        self.folder = home / f"features-{digest_of(identity)}"
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(
            self.folder / "about.json", json.dumps(identity, indent=1).encode()
        )

    def read(self, key: AnswerKey) -> torch.Tensor | None:
        """Return ``[views, dim]``, or None if they are not there or not whole."""
        try:
            return torch.from_numpy(np.load(self._path(key)))
        except (OSError, ValueError, EOFError):
            return None

    def write(self, key: AnswerKey, features: torch.Tensor) -> None:
        """Keep the features of an image."""
        path = self._path(key)
        unfinished = path.with_suffix(f".{os.getpid()}.npy")
        np.save(unfinished, features.half().cpu().numpy())
        unfinished.replace(path)

    def _path(self, key: AnswerKey) -> Path:
        seed, digest = key
        return self.folder / f"{digest}-{seed}.npy"


class AnswerFile:
    """The finished answers of a setting on a task: lines of JSON, added as they are made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.predictions: dict[AnswerKey, tuple[Prediction, float]] = {}
        readable_bytes = 0  # bytes of lines that can be read
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                try:
                    row = json.loads(line)
                except ValueError:
                    break  # the run was killed while it wrote this line
                prediction = {
                    **row["prediction"],
                    "warnings": tuple(row["prediction"]["warnings"]),
                }
                key = row["seed"], row["digest"]
                self.predictions[key] = Prediction(**prediction), row["seconds"]
                readable_bytes += len(line)
            os.truncate(path, readable_bytes)

    def add(self, answers: Iterable[Answer]) -> None:
        """Write further answers."""
        lines = []
        for answer in answers:
            self.predictions[answer.seed, answer.digest] = (
                answer.prediction,
                answer.seconds,
            )
            row = {
                "image": answer.record.key,
                "truth": answer.record.target,
                "sensitive": dict(answer.record.sensitive),
                "seed": answer.seed,
                "digest": answer.digest,
                "seconds": answer.seconds,
                "prediction": asdict(answer.prediction),
            }
            lines.append(json.dumps(row) + "\n")
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(lines)


@dataclass(frozen=True)
class TaskAnswers:
    """The answers on a task: for each setting those of all its images, seed after seed.

    Attributes:
        adapters: the methods of the settings, fitted where they are fitted.
        unreadable: ``{path: reason}`` of images that were left out.
    """

    task: BenchmarkTask
    adapters: list[Adapter]
    by_setting: list[list[Answer]]
    unreadable: dict[str, str]


def answer_tasks(
    table: Table,
    parts: Sequence[TaskImages],
    options: Options,
    out: Path,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[TaskAnswers]:
    """Answer all images of each task with every setting, or read the answers that are there.

    Args:
        table: whose settings to run.
        parts: the images of each task.
        options: model, views and so on.
        out: folder of results; features in it are shared by all tables.
        progress: receives how many images are finished, and of how many.
    """
    files = FeatureFiles(out, options)
    rows = out / table.name / "rows"
    total = sum(len(records) for part in parts for records in part.samples.values())
    done = 0
    backend = None
    for part in parts:
        classifier = options.classifier(part.task, backend)
        backend = task_of(classifier).backend
        adapters = fit_settings(table.settings, part, classifier)
        work = TaskWork(table, part, options, classifier, adapters, files, rows)
        for seed, records in part.samples.items():
            for start in range(0, len(records), options.batch_size):
                batch = records[start : start + options.batch_size]
                work.answer(batch, seed)
                done += len(batch)
                progress(done, total)
        yield TaskAnswers(part.task, adapters, work.by_setting, work.unreadable)


class TaskWork:
    """Answers the images of one task, a batch at a time."""

    def __init__(
        self,
        table: Table,
        part: TaskImages,
        options: Options,
        classifier: FairTPTClassifier,
        adapters: list[Adapter],
        features: FeatureFiles,
        rows: Path,
    ) -> None:
        self.is_timed = table.timed
        self.features = features
        self.by_setting: list[list[Answer]] = [[] for _ in adapters]
        self.unreadable: dict[str, str] = {}
        self.classifiers: list[FairTPTClassifier] = []
        self.files: list[AnswerFile] = []
        self.has_warmed_up = False
        rows.mkdir(parents=True, exist_ok=True)
        reference = [record.key for record in part.reference]
        for setting, adapter in zip(table.settings, adapters, strict=True):
            identity = {
                **options.identity(),
                **part.task.arguments(),
                "method": repr(setting.adapter),
            }
            if adapter is not setting.adapter:
                identity["reference"] = reference
            if table.timed:
                # Times of another device or batch size are not mixed in, and no work is shared:
                # each classifier has a cache of its own.
                identity |= {"device": options.device, "batch": options.batch_size}
                identity |= {"threads": torch.get_num_threads()}
                reference_classifier = options.classifier(
                    part.task, task_of(classifier).backend
                )
                self.classifiers.append(reference_classifier.with_adapter(adapter))
            else:
                self.classifiers.append(classifier.with_adapter(adapter))
            name = f"{as_file_name(str(part.task))}-{as_file_name(setting.name)}"
            self.files.append(AnswerFile(rows / f"{name}-{digest_of(identity)}.jsonl"))

    def answer(self, records: Sequence[Record], seed: int) -> None:
        """Answer images with each setting that has not answered all of them."""
        images = [
            image
            for record in records
            if (image := self._read(record, seed)) is not None
        ]
        for classifier, file, answers in zip(
            self.classifiers, self.files, self.by_setting, strict=True
        ):
            missing = [image for image in images if image.key not in file.predictions]
            if missing:
                predictions, seconds = self._predict(
                    with_seed(classifier, seed), missing
                )
                file.add(
                    Answer(image.record, seed, image.digest, prediction, seconds)
                    for image, prediction in zip(missing, predictions, strict=True)
                )
            for image in images:
                prediction, seconds = file.predictions[image.key]
                answers.append(
                    Answer(image.record, seed, image.digest, prediction, seconds)
                )

    def _read(self, record: Record, seed: int) -> TaskImage | None:
        """Return an image with its features, if they are needed, or None if it cannot be read."""
        try:
            content = record.path.read_bytes()
            image = TaskImage(record, seed, sha256(content).hexdigest()[:32], content)
            if all(image.key in file.predictions for file in self.files):
                return image
            classifier = with_seed(self.classifiers[0], seed)
            if self.is_timed:
                classifier.encode(
                    [content], with_views=False
                )  # raises if it is no image
                return image
            return replace(image, features=self._features(classifier, image))
        except (OSError, ImageError) as error:
            self.unreadable[str(record.path)] = str(error)
            return None

    def _features(
        self, classifier: FairTPTClassifier, image: TaskImage
    ) -> torch.Tensor:
        kept = self.features.read(image.key)
        if kept is None:
            (features,) = classifier.encode([image.content])
            self.features.write(image.key, features)
            # Rounded now too, so that a run that goes on after a kill has the same answers.
            kept = features.half()
        return kept.cpu().float()

    def _predict(
        self, classifier: FairTPTClassifier, images: Sequence[TaskImage]
    ) -> tuple[list[Prediction], float]:
        """Return the answers, and the seconds that each image took."""
        contents = [image.content for image in images]
        if self.is_timed and not self.has_warmed_up:
            classifier.predict(
                contents
            )  # the first call of a process takes longer than others
            self.has_warmed_up = True
        start = perf_counter()
        if self.is_timed or classifier.adapter.needs.pixels:
            predictions = classifier.predict(contents)
        else:
            features = [
                image.features for image in images if image.features is not None
            ]
            predictions = classifier.predict(Features(torch.stack(features)))
        return list(predictions), (perf_counter() - start) / len(images)


def with_seed(classifier: FairTPTClassifier, seed: int) -> FairTPTClassifier:
    """Return the same classifier with the views of a seed."""
    return classifier.with_views(seed=seed)


def fit_settings(
    settings: Sequence[Setting], part: TaskImages, classifier: FairTPTClassifier
) -> list[Adapter]:
    """Return the methods, those fitted on the reference images that need some."""
    adapters: list[Any] = [setting.adapter for setting in settings]
    if all(adapter.is_fitted for adapter in adapters):
        return adapters
    if not part.reference:
        raise SystemExit(
            f"{part.task}: no images are left for methods that are fitted; ask for fewer --images."
        )
    features = classifier.encode(
        [record.path for record in part.reference], with_views=False
    )
    sensitive: Mapping[str, list[str]] = {
        attribute: [record.sensitive[attribute] for record in part.reference]
        for attribute in part.task.sensitive
    }
    classes = [record.target for record in part.reference]
    fitted = []
    for adapter in adapters:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallReferenceWarning)
            if adapter.is_fitted:
                fitted.append(adapter)
                continue
            holder = classifier.with_adapter(adapter)
            holder.fit(
                Features(features),
                classes if adapter.needs.reference_labels else None,
                sensitive if adapter.needs.reference_sensitive else None,
            )
            fitted.append(holder.adapter)
    return fitted


def digest_of(identity: Mapping[str, Any]) -> str:
    """Return a short digest of what can be written as JSON."""
    return sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]


def as_file_name(name: str) -> str:
    """Return letters, digits and dashes."""
    return "".join(c if c.isalnum() and c.isascii() else "-" for c in name)


def replace_file(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    unfinished.write_bytes(content)
    unfinished.replace(path)
