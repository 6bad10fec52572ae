"""What is asked, in a form that any process can take: the job, and units of pictures."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch

from fair_tta._cache import Cache
from fair_tta._identity import plain, version
from fair_tta._images.views import AugMix
from fair_tta._models import Backend, resolve
from fair_tta._models.load import find_device, load, move
from fair_tta._prompts.templates import Templates
from fair_tta.classifier import FairTPTClassifier
from fair_tta.errors import FairTTAError
from fair_tta.lab._runs.bank import AskedPicture, identity
from fair_tta.methods import ZeroShot
from fair_tta.methods._base import Adapter


@dataclass(frozen=True)
class Wording:
    """What is to be told apart, in words.

    Attributes:
        targets: ``{label: phrase}``
        sensitive: ``{attribute: {label: phrase}}``
        template: of `FairTPTClassifier`.
        scale: inverse temperature, the model's own if None.
    """

    targets: Mapping[str, str]
    sensitive: Mapping[str, Mapping[str, str]]
    template: str | Templates
    scale: float | None = None


@dataclass(frozen=True)
class WorkUnit:
    """A few pictures, which are worked on together, and what is asked about them.

    Attributes:
        pictures: the pictures.
        seed: of their views.
        questions: ``(task, setting)``, places in `Job.tasks` and `Job.settings`.
        open: for each picture the questions that it has no answer to yet; None for all. What is
            open for a picture that can be read is asked about all of them.
    """

    pictures: tuple[AskedPicture, ...]
    seed: int
    questions: tuple[tuple[int, int], ...]
    open: tuple[frozenset[tuple[int, int]], ...] | None = None


@dataclass(frozen=True)
class Job:
    """What every worker must know.

    Attributes:
        model: what `FairTPTClassifier` takes; other processes load it themselves.
        tasks: what is asked.
        settings: the methods.
        views: how views are made.
        device: where to move the model, None to leave it where it is.
        dtype: in which precision, None for its own.
        bank: the folder of features (`fair_tta.lab._runs.bank`), None to keep none.
        alone: settings share no work, so that the cost of each is its own.
        threads: of torch for every worker, None to leave them.
        costs: the circumstances of the work, as JSON, if its cost is what is measured.
        is_kept: whether answers are to be found again; if not, nobody needs to know the weights.
    """

    model: Any
    tasks: tuple[Wording, ...]
    settings: tuple[Adapter, ...]
    views: Any = AugMix()
    device: str | torch.device | None = None
    dtype: str | torch.dtype | None = None
    bank: str | None = None
    alone: bool = False
    threads: int | None = None
    costs: Mapping[str, Any] = field(default_factory=dict)
    is_kept: bool = True

    @cached_property
    def backend(self) -> Backend:
        """The model, loaded in this process."""
        return load_backend(self.model, self.device, self.dtype)

    @cached_property
    def facts(self) -> dict[str, Any]:
        """All that features depend on besides picture and seed, as JSON."""
        return {**identity(self.backend, self.views), **self.costs}

    @cached_property
    def digests(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """Of model and views, tasks, and settings, for `Key`.

        A tokenizer is known by what it makes of the prompts, and a text tower that keeps its
        weights to itself by their features.
        """
        if not self.is_kept:
            return "", ("",) * len(self.tasks), ("",) * len(self.settings)
        rounded = self.bank is not None
        return (
            _digest({"fair_tta": version("fair-tta"), "rounded": rounded, **self.facts}),
            tuple(map(self._task_digest, range(len(self.tasks)))),
            tuple(_digest(plain(setting)) for setting in self.settings),
        )

    def _task_digest(self, place: int) -> str:
        task = self.classifier(place).task
        sets = [task.target_prompts, *task.sensitive_prompts.values()]
        seen: list[Any] = [prompts.tokens.ids.tolist() for prompts in sets]
        if self.facts["architecture"] is None:
            features = [task.target_features, *task.sensitive_features.values()]
            seen.append([plain(of.half()) for of in features])
        return _digest([plain(self.tasks[place]), seen])

    def __getstate__(self) -> dict[str, Any]:
        """Without the loaded model: each process has its own."""
        if self.is_kept:
            self.facts, self.digests  # noqa: B018 - the driver's, for workers to compare with
        return {name: value for name, value in self.__dict__.items() if name != "backend"}

    def load_here(self, device: str | None = None) -> None:
        """Load the model in another process than the driver's.

        Args:
            device: where, unless the job says.

        Raises:
            FairTTAError: it is not the driver's model.
        """
        self.__dict__["backend"] = load_backend(self.model, self.device or device, self.dtype)
        if not self.is_kept:
            return
        found, expected = identity(self.backend, self.views), self.facts
        # preprocessing may round differently on another machine
        other = [
            name for name in found if name != "preprocessing" and found[name] != expected[name]
        ]
        if other:
            raise FairTTAError(
                f"it loaded another model than the driver: {found} is not {expected}."
            )

    def with_settings(self, settings: Iterable[Adapter]) -> Job:
        """The same job, its model loaded, with other methods."""
        other = replace(self, settings=tuple(settings))
        other.__dict__["backend"] = self.backend
        return other

    def questions(self, task: int = 0) -> tuple[tuple[int, int], ...]:
        """All settings on one task."""
        return tuple((task, setting) for setting in range(len(self.settings)))

    def classifier(self, task: int, cache: Cache | None = None) -> FairTPTClassifier:
        """A classifier that is asked about a task; its adapter does not matter."""
        asked = self.tasks[task]
        return FairTPTClassifier(
            self.backend,
            dict(asked.targets),
            {attribute: dict(names) for attribute, names in asked.sensitive.items()} or None,
            asked.template,
            scale=asked.scale,
            adapter=ZeroShot(),
            views=self.views,
            cache=cache,
        )


def load_backend(
    model: Any,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Backend:
    """The model, on this device; here an object is moved too, but keeps its precision."""
    if isinstance(model, str | Path) or dtype is not None or device is None:
        return load(model, device=device, dtype=dtype)
    backend = resolve(model)
    move(backend, find_device(device))
    return backend


def job_of(
    classifier: FairTPTClassifier, settings: Iterable[Adapter], model: Any = None, **others: Any
) -> Job:
    """A job with the model, names and views of a classifier.

    Args:
        classifier: its adapter does not matter.
        settings: the methods.
        model: how other processes load the model; if None it is sent to them.
        others: of `Job`.
    """
    task = classifier.task
    wording = Wording(task.targets, task.sensitive, task.templates, task.scale)
    placed: dict[str, Any] = {}
    if model is not None:
        placed["device"], placed["dtype"] = classifier.loaded_as
    job = Job(
        classifier.backend if model is None else model,
        (wording,),
        tuple(settings),
        classifier.vision.views,
        **placed,
        **others,
    )
    job.__dict__["backend"] = classifier.backend
    return job


def _digest(value: Any) -> str:
    text = json.dumps(value)  # in their order: that of names is the one of an answer's numbers
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
