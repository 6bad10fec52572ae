"""What is asked, in a form that any process can take: the job, and units of images."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
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
from fair_tta.methods._registry import Packed
from fair_tta.models import Backend, resolve
from fair_tta.models._loading import find_device, load, move
from fair_tta.prompts._templates import Templates


@dataclass(frozen=True)
class PromptSpec:
    """The classes to choose from, as `FairTPTClassifier` takes them."""

    targets: Mapping[str, str]
    sensitive: Mapping[str, Mapping[str, str]]
    template: str | Templates
    scale: float | None = None


Asked = tuple[int, int]
"""A question and a method: places in `Job.questions` and `Job.adapters`."""


@dataclass(frozen=True)
class WorkUnit:
    """A few images that are processed together, the seed of their views, and what is asked.

    `missing` is for each image what is not stored yet; None for everything. What is missing for an
    image that can be read is computed for the whole unit. `contents` are the digests of the images,
    empty where a file cannot be read, for `Job.key`; without a store there are none.
    """

    images: tuple[ImageSource, ...]
    seed: int
    asked: tuple[Asked, ...]
    missing: tuple[frozenset[Asked], ...] | None = None
    contents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """What every worker must know.

    Attributes:
        model: what `FairTPTClassifier` takes; other processes load it themselves.
        device: where to move the model, None to leave it where it is.
        dtype: in which precision, None for its own.
        stores_rows: whether rows are stored; if not, nobody needs to know the weights.
    """

    model: Any
    questions: tuple[PromptSpec, ...]
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
    def facts(self) -> dict[str, Any]:
        """All that features depend on besides image and seed, as JSON."""
        facts = feature_identity(self.backend, self.views)
        is_known = fingerprint(self.views) is not None
        return facts if is_known else {**facts, "once": _once(self.views)}

    @cached_property
    def digests(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """Of model and views, questions, and methods, for `RowKey`.

        A tokenizer is known by its output for the prompts, and a text tower whose weights cannot
        be read by the features of the prompts.
        """
        if not self.stores_rows:
            return "", ("",) * len(self.questions), ("",) * len(self.adapters)
        model = {"fair_tta": version("fair-tta"), **self.facts}
        return (
            str(fingerprint(model)),
            tuple(map(self._question_digest, range(len(self.questions)))),
            tuple(fingerprint(adapter) or _once(adapter) for adapter in self.adapters),
        )

    def key(self, unit: WorkUnit, asked: Asked, position: int, content: str) -> RowKey:
        """The key of a row: of the image with this content, at this position in a unit.

        Where the answer depends on the other images of the batch, the images of the unit and the
        position of this one are part of it: after another batch size, or another selection of
        images, there is no row.
        """
        model, questions, methods = self.digests
        question, adapter = asked
        method = methods[adapter]
        if self.adapters[adapter].needs.other_images:
            method = str(fingerprint([method, unit.contents, position]))
        return RowKey(content, model, questions[question], method, unit.seed)

    def depends_on_batch(self, unit: WorkUnit) -> bool:
        """Whether an answer that is asked for depends on the other images of the unit."""
        return any(
            self.adapters[adapter].needs.other_images for _, adapter in unit.asked
        )

    def _question_digest(self, place: int) -> str:
        task = self.classifier(place)._task
        sets = [task.target_prompts, *task.sensitive_prompts.values()]
        seen: list[Any] = [prompts.tokens.ids.tolist() for prompts in sets]
        if self.facts["architecture"] is None:
            features = [task.target_features, *task.sensitive_features.values()]
            seen.append([of.half() for of in features])
        return str(fingerprint([self.questions[place], seen]))

    def __getstate__(self) -> dict[str, Any]:
        """Without the loaded model: each process has its own."""
        if self.stores_rows:
            self.facts, self.digests  # noqa: B018 - the driver's, for workers to compare with
        state = {
            name: value for name, value in self.__dict__.items() if name != "backend"
        }
        return {**state, "adapters": Packed(self.adapters)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Run user files before what they define is read."""
        self.__dict__.update(state, adapters=state["adapters"].unpack())

    def load_here(self) -> None:
        """Load the model in another process than the driver's, and check that it is the same."""
        self.__dict__["backend"] = load_backend(self.model, self.device, self.dtype)
        if not self.stores_rows:
            return
        found, expected = feature_identity(self.backend, self.views), self.facts
        # preprocessing may round differently on another machine
        if any(
            found[name] != expected[name] for name in found if name != "preprocessing"
        ):
            raise FairTTAError(
                f"it loaded another model than the driver: {found} is not {expected}."
            )

    def asked(self, question: int = 0) -> tuple[Asked, ...]:
        """All methods on one question."""
        return tuple((question, adapter) for adapter in range(len(self.adapters)))

    def classifier(self, place: int, cache: Cache | None = None) -> FairTPTClassifier:
        """A classifier for a question; its adapter does not matter."""
        question = self.questions[place]
        return FairTPTClassifier(
            self.backend,
            dict(question.targets),
            {attribute: dict(names) for attribute, names in question.sensitive.items()}
            or None,
            question.template,
            scale=question.scale,
            adapter=ZeroShot(),
            views=self.views,
            cache=cache,
        )


def _once(value: Any) -> str:
    """A digest that no other run has."""
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
    """The model, on this device; here an object is moved too, but keeps its precision."""
    if isinstance(model, str | Path) or dtype is not None or device is None:
        return load(model, device=device, dtype=dtype)
    backend = resolve(model)
    move(backend, find_device(device))
    return backend


def make_job(
    classifier: FairTPTClassifier,
    adapters: Iterable[Adapter],
    model: Any = None,
    **others: Any,
) -> Job:
    """A job with the model, names and views of a classifier, and other settings of `Job`.

    Other processes load `model`; if it is None, the classifier's is sent to them.
    """
    task = classifier._task
    question = PromptSpec(task.targets, task.sensitive, task.templates, task.scale)
    placed: dict[str, Any] = {}
    if model is not None:
        placed["device"], placed["dtype"] = classifier._loaded_as
    job = Job(
        classifier._backend if model is None else model,
        (question,),
        tuple(adapters),
        classifier._vision.views,
        **placed,
        **others,
    )
    job.__dict__["backend"] = classifier._backend
    return job
