"""Mean logits of reference images by what the model perceives of them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fair_tta.adapters.association_correction import centred
from fair_tta.adapters.task_identity import TaskIdentity
from fair_tta.errors import FairTTAError, ModelError
from fair_tta.text.task import Task

_FORMAT = "fair-tta/logit-balance/1"
_SETTINGS = ("strength", "keep_prior")


@runtime_checkable
class EncodesImages(Protocol):
    """What fitting needs of a classifier."""

    batch_size: int

    @property
    def task(self) -> Task:
        """The text side."""
        ...

    def encode(self, images: Any, *, views: bool = ...) -> Tensor:
        """Unit features ``[images, views, dim]``."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class ReferenceLogits:
    """Mean logits of reference images by perceived value, and with which model and prompts.

    Equal are those that would write the same file.

    Attributes:
        images: how many images.
        identity: model and prompts.
        means: ``{attribute: [values, targets]}``, class-centred logits of the images perceived
            with a value, each perceived class counting the same.
        shares: ``{attribute: [values]}``, how probable a value is on the whole.
    """

    images: int
    identity: TaskIdentity
    means: Mapping[str, Tensor]
    shares: Mapping[str, Tensor]

    @classmethod
    def of(cls, classifier: EncodesImages, batches: Iterable[Tensor]) -> ReferenceLogits:
        """Of features ``[images, views, dim]`` in batches, none of which is kept.

        Sums are taken in float64 and on the CPU, so that they depend neither on the batches nor on
        the device.
        """
        images = 0
        weights: dict[str, Tensor] = {}
        sums: dict[str, Tensor] = {}
        for batch in batches:
            task = classifier.task  # of the weights that have made the batch
            if batch.shape[1:2] == (0,) or batch.shape[2:] != task.target_features.shape[1:]:
                raise FairTTAError(
                    "`features` should be what `encode` gives, [images, views, "
                    f"{task.target_features.shape[1]}] (got {list(batch.shape)})."
                )
            v = batch[:, 0].detach().to("cpu", torch.float64)
            u = centred(task.logits(v, task.target_features.to(v)), -1)
            q = u.softmax(-1)
            images += len(v)
            for name, values in task.sensitive_features.items():
                w = task.logits(v, values.to(v)).softmax(-1)
                weights[name] = weights.get(name, 0) + torch.einsum("ns,ny->sy", w, q)
                sums[name] = sums.get(name, 0) + torch.einsum("ns,ny,nc->syc", w, q, u)
        if not images:
            raise FairTTAError("`images` should be reference images, 300 or more (got none).")
        tiny = torch.finfo(torch.float64).tiny
        means = {a: (s / weights[a][..., None].clamp(min=tiny)).mean(1) for a, s in sums.items()}
        if not all(bool(mean.isfinite().all()) for mean in means.values()):
            raise ModelError(
                f"{task.backend.name} gives features that are not finite; if it runs in half "
                "precision, try float32."
            )
        shares = {name: weight.sum(1) / images for name, weight in weights.items()}
        return cls(images, TaskIdentity.of(task), means, shares)

    def to_bytes(self, **settings: float) -> bytes:
        """As a safetensors file, whose metadata say in JSON what it is."""
        own = self.identity
        about = {
            "format": _FORMAT,
            "settings": settings,
            "images": self.images,
            "model": own.model,
            "scale": own.scale,
            "prompts": own.prompts,
        }
        tensors = {"features": own.features}
        for place, (mean, share) in enumerate(
            zip(self.means.values(), self.shares.values(), strict=True)
        ):
            tensors |= {f"means.{place}": mean, f"shares.{place}": share}
        return save(tensors, {"about": json.dumps(about, ensure_ascii=False)})

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> tuple[ReferenceLogits, dict[str, float]]:
        """What `to_bytes` has written, and the settings."""
        if not Path(path).is_file():
            raise FairTTAError(f"there is no file {os.fspath(path)!r}: check the path.")
        try:
            with safe_open(path, "pt") as file:
                about = json.loads(file.metadata()["about"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            settings = {name: float(about["settings"][name]) for name in _SETTINGS}
            return cls._read(about, tensors), settings
        except (SafetensorError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise FairTTAError(
                f"{os.fspath(path)!r} is no file that `LogitBalance.save` has written: fit again."
            ) from error

    @classmethod
    def _read(cls, about: dict[str, Any], tensors: dict[str, Tensor]) -> ReferenceLogits:
        prompts = about["prompts"]
        means, shares = {}, {}
        for place, (name, values) in enumerate(prompts["sensitive"].items()):
            means[name], shares[name] = tensors[f"means.{place}"], tensors[f"shares.{place}"]
            shape = [len(values), len(prompts["targets"])]
            if [*means[name].shape] != shape or [*shares[name].shape] != shape[:1]:
                raise ValueError(f"tables of {name!r} should be {shape}")
        if about["format"] != _FORMAT:
            raise ValueError(f"another format, {about['format']}")
        identity = TaskIdentity(
            str(about["model"]), float(about["scale"]), prompts, tensors["features"]
        )
        return cls(int(about["images"]), identity, means, shares)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what it says."""
        return sha256(self.to_bytes()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReferenceLogits) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"ReferenceLogits(images={self.images}, sha256={self.digest[:16]!r})"
