"""The work of a run in a form that any process can receive: a job and units of images."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import torch

from fair_tta._cache import Cache
from fair_tta._identity import feature_identity, fingerprint, lasting_name, version
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.images._stored import ImageSource
from fair_tta.images._views import AugMix
from fair_tta.lab.runs._store import RowKey
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter
from fair_tta.methods._user_files import PackedWithUserFiles
from fair_tta.models import Backend, resolve
from fair_tta.models._loading import find_device, load, move
from fair_tta.prompts._templates import Templates


@dataclass(frozen=True)
class QuestionSpec:
    """The prompts of one question, as the arguments of `FairTPTClassifier`."""

    targets: Mapping[str, str]
    sensitive: Mapping[str, Mapping[str, str]]
    template: str | Templates
    scale: float | None = None


class Query(NamedTuple):
    """A question and a method, as positions in `Job.questions` and `Job.adapters`."""

    question: int
    adapter: int


@dataclass(frozen=True)
class WorkUnit:
    """A few images that are processed together.

    Attributes:
        seed: of the views.
        queries: what to compute for every image.
        missing: for each image the queries without a stored row; None for all queries. If any
            readable image lacks a row, the whole unit is computed.
        contents: digests of the images for `Job.key`, empty for a file that cannot be read; no
            digests without a store.
    """

    images: tuple[ImageSource, ...]
    seed: int
    queries: tuple[Query, ...]
    missing: tuple[frozenset[Query], ...] | None = None
    contents: tuple[str, ...] = ()


class JobDigests(NamedTuple):
    """Digests for `RowKey`; empty if no rows are stored.

    Attributes:
        model: of model and views.
        questions: of each question.
        methods: of each method.
    """

    model: str
    questions: tuple[str, ...]
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """The model, questions and methods that every worker needs.

    Attributes:
        model: the argument of `FairTPTClassifier`; other processes load it themselves.
        device: the device to move the model to; None to leave it in place.
        dtype: the precision to convert it to; None for its own.
        stores_rows: rows are stored under a key; otherwise the weights are not hashed.
    """

    model: Any
    questions: tuple[QuestionSpec, ...]
    adapters: tuple[Adapter, ...]
    views: Any = AugMix()
    device: str | torch.device | None = None
    dtype: str | torch.dtype | None = None
    stores_rows: bool = True

    @cached_property
    def backend(self) -> Backend:
        """The model, loaded in this process."""
        return load_backend(self.model, self.device, self.dtype)

    @cached_property
    def feature_identity(self) -> dict[str, Any]:
        """Everything that features depend on besides image and seed, as JSON."""
        identity = feature_identity(self.backend, self.views)
        # Views that cannot be recognised may differ in a later run, which must not reuse rows.
        if fingerprint(self.views) is None:
            identity["once"] = _single_use_digest(self.views)
        return identity

    @cached_property
    def digests(self) -> JobDigests:
        """Digests of model and views, of each question and of each method."""
        if not self.stores_rows:
            # Hashing the weights takes time, and there is no row to find.
            return JobDigests(
                "", ("",) * len(self.questions), ("",) * len(self.adapters)
            )
        model = {"fair_tta": version("fair-tta"), **self.feature_identity}
        questions = map(self._question_digest, range(len(self.questions)))
        methods = [
            fingerprint(adapter) or _single_use_digest(adapter)
            for adapter in self.adapters
        ]
        return JobDigests(str(fingerprint(model)), tuple(questions), tuple(methods))

    def key(self, unit: WorkUnit, query: Query, position: int, content: str) -> RowKey:
        """Return the key of the row for the image with this content and position in the unit.

        Where the answer depends on the other images of the batch, the images of the unit and the
        position are part of the key: another batch size or another selection of images finds no
        row.
        """
        digests = self.digests
        method = digests.methods[query.adapter]
        if self.adapters[query.adapter].needs.other_images:
            method = str(fingerprint([method, unit.contents, position]))
        question = digests.questions[query.question]
        return RowKey(content, digests.model, question, method, unit.seed)

    def depends_on_batch(self, unit: WorkUnit) -> bool:
        """Return whether any requested answer depends on the other images of the unit."""
        adapters = (self.adapters[query.adapter] for query in unit.queries)
        return any(adapter.needs.other_images for adapter in adapters)

    def _question_digest(self, question: int) -> str:
        """Return the digest of a question, with what tokenizer and text tower make of it.

        The output identifies them: a tokenizer by the token ids of the prompts, and a text tower
        whose weights cannot be read by the features of the prompts.
        """
        task = self.classifier(question)._task
        prompt_sets = [task.target_prompts, *task.sensitive_prompts.values()]
        outputs: list[Any] = [prompts.tokens.ids.tolist() for prompts in prompt_sets]
        if self.feature_identity["architecture"] is None:
            feature_sets = [task.target_features, *task.sensitive_features.values()]
            outputs.append([features.half() for features in feature_sets])
        return str(fingerprint([self.questions[question], outputs]))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the loaded model: each process loads its own."""
        if self.stores_rows:
            # Computed here, in the driver, so that workers can compare theirs with it.
            self.feature_identity, self.digests  # noqa: B018
        state = dict(self.__dict__)
        state.pop("backend", None)
        state["adapters"] = PackedWithUserFiles(self.adapters)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Unpacking runs the user's files, which must define the classes before they are read.
        self.__dict__.update(state, adapters=state["adapters"].unpack())

    def load_here(self) -> None:
        """Load the model in a worker process.

        Raises:
            FairTTAError: it is not the model of the driver.
        """
        self.__dict__["backend"] = load_backend(self.model, self.device, self.dtype)
        if not self.stores_rows:
            return
        loaded = feature_identity(self.backend, self.views)
        expected = self.feature_identity
        for name in loaded:
            # Preprocessing may round differently on another machine.
            if name != "preprocessing" and loaded[name] != expected[name]:
                raise FairTTAError(
                    f"it loaded another model than the driver: {loaded} is not {expected}."
                )

    def queries(self, question: int = 0) -> tuple[Query, ...]:
        """Return the queries of all methods on one question."""
        return tuple(Query(question, adapter) for adapter in range(len(self.adapters)))

    def classifier(
        self, question: int, cache: Cache | None = None
    ) -> FairTPTClassifier:
        """Return a zero-shot classifier for a question."""
        prompts = self.questions[question]
        sensitive = {
            attribute: dict(names) for attribute, names in prompts.sensitive.items()
        }
        return FairTPTClassifier(
            self.backend,
            dict(prompts.targets),
            sensitive or None,
            prompts.template,
            scale=prompts.scale,
            adapter=ZeroShot(),
            views=self.views,
            cache=cache,
        )


def _single_use_digest(value: Any) -> str:
    """Return a digest that no other run has, with a warning."""
    warnings.warn(
        f"{lasting_name(value)} cannot be recognised by a later run, which will compute its rows "
        "again: make it a frozen dataclass, or define it in a file.",
        stacklevel=4,
    )
    return uuid4().hex


def load_backend(
    model: Any,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Backend:
    """Load a model onto this device. A model object is moved too, but keeps its precision."""
    if isinstance(model, str | Path) or dtype is not None or device is None:
        return load(model, device=device, dtype=dtype)
    backend = resolve(model)
    move(backend, find_device(device))
    return backend


def make_job(
    classifier: FairTPTClassifier,
    adapters: Iterable[Adapter],
    model: Any = None,
    *,
    stores_rows: bool = True,
) -> Job:
    """Return a job with the model, names and views of a classifier.

    Args:
        model: for other processes to load; None sends them the classifier's own.
    """
    task = classifier._task
    question = QuestionSpec(task.targets, task.sensitive, task.templates, task.scale)
    device, dtype = (None, None) if model is None else classifier._loaded_as
    job = Job(
        classifier._backend if model is None else model,
        (question,),
        tuple(adapters),
        classifier._vision.views,
        device,
        dtype,
        stores_rows,
    )
    job.__dict__["backend"] = classifier._backend
    return job
