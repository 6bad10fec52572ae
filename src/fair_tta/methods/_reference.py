"""What a method has learnt from reference images, and the file it is kept in."""

from __future__ import annotations

import json
import math
import os
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fair_tta._io import write_atomically
from fair_tta._linalg import unit_features
from fair_tta.errors import FairTTAError
from fair_tta.images._vision import probe_image
from fair_tta.models._loading import model_name
from fair_tta.models._model_lock import computed_once, eval_mode_no_grad
from fair_tta.models._stored_text import sees_images
from fair_tta.prompts._task import Task

_ALIKE = (
    0.999  # least cosine: bfloat16 and other devices are above it, other weights below
)
_SAME_SCALE = 0.01  # in relation to its size


@dataclass(frozen=True, eq=False)
class TaskIdentity:
    """What a model makes of some prompts and of a probe image.

    Attributes:
        model: what the model is called in messages; the same weights may have other names.
        scale: inverse temperature.
        prompts: names and sentences, as JSON has them.
        features: ``[prompts + 1, dim]`` of the prompts and the probe, in float32 on the CPU;
            without the probe if there is no image encoder.
    """

    model: str
    scale: float
    prompts: Mapping[str, Any]
    features: Tensor = field(repr=False)

    @classmethod
    def of(cls, task: Task) -> TaskIdentity:
        """That of a task."""
        sentences = task.templates.sentences
        prompts = {
            "targets": task.targets,
            "sensitive": task.sensitive,
            "template": {
                "target": sentences["target"],
                "sensitive": sentences["sensitive"],
            },
        }
        every = [task.target_features, *task.sensitive_features.values()]
        if sees_images(task.backend):
            with eval_mode_no_grad(task.backend):
                every.append(unit_features(task.backend.encode_images([probe_image()])))
        features = torch.cat(every).to("cpu", torch.float32)
        return cls(model_name(task.backend), task.scale, prompts, features)

    def check(self, task: Task, what: str) -> None:
        """Raise unless a task has the same prompts and the same model.

        Args:
            task: where it is to be used.
            what: is to be used; begins the message.
        """
        other = task.remember(TaskIdentity, lambda: TaskIdentity.of(task))
        differences = [
            (
                f"another `{name}`",
                reprlib.repr(own),
                reprlib.repr(other.prompts.get(name)),
            )
            for name, own in self.prompts.items()
            if json.dumps(own)
            != json.dumps(other.prompts.get(name))  # the order of names counts
        ]
        rows = min(len(self.features), len(other.features))  # one may lack the probe
        own, here = self.features[:rows], other.features[:rows]
        if own.shape != here.shape or cosine_similarity(own, here).min() < _ALIKE:
            differences.append(
                ("another model or other weights", self.model, other.model)
            )
        if not math.isclose(self.scale, other.scale, rel_tol=_SAME_SCALE):
            differences.append(
                ("another `scale`", f"{self.scale:g}", f"{other.scale:g}")
            )
        for kind, fitted, now in differences[:1]:
            raise FairTTAError(
                f"{what} was fitted with {kind}, {fitted} (got {now}): fit it again."
            )


_FORMAT = "fair-tta/reference/1"


@dataclass(frozen=True, eq=False, repr=False)
class Reference:
    """What a method has learnt from reference images, and with which model and prompts.

    Equal are those of equal content.

    Attributes:
        method: the name of the method's class.
        images: how many images.
        identity: model and prompts.
        tensors: what was learnt, by names of the method's choice; on the CPU.
        settings: those of the method's settings without which it would have learnt something else.
    """

    method: str
    images: int
    identity: TaskIdentity
    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    @computed_once
    def digest(self) -> str:
        """SHA-256 of the content."""
        return _reference_digest(self._about(self.settings), self._every_tensor())

    def _identity_settings(self) -> dict[str, Any]:
        """For `fair_tta._identity.describe`."""
        return {"images": self.images, "sha256": self.digest}

    def _save(self, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        """Write a safetensors file, with a description in its metadata: whole or not at all.

        Args:
            path: of the file.
            settings: all settings of the method.
        """
        about, tensors = self._about(settings), self._every_tensor()
        about["sha256"] = _reference_digest(about, tensors)
        write_atomically(path, save(tensors, {"about": _json(about)}))

    @classmethod
    def _read(
        cls, path: str | os.PathLike[str], learnt_with: Mapping[str, tuple[str, ...]]
    ) -> tuple[Reference, dict[str, Any]]:
        """What `save` has written, and all settings of the method. No code is run.

        Args:
            path: of the file.
            learnt_with: the methods that it may be of; of each the settings that go with what was
                learnt.

        Raises:
            FairTTAError: there is no such file, it is damaged or another's, or of another method.
        """
        if not os.path.isfile(path):  # False too of a name that is too long
            raise FairTTAError(f"there is no file {os.fspath(path)!r}: check the path.")
        try:
            with safe_open(path, "pt") as file:
                about = json.loads(file.metadata()["about"])
                if about["format"] != _FORMAT:
                    raise ValueError(f"another format, {about['format']}")
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if about.pop("sha256") != _reference_digest(about, tensors):
                raise ValueError("damaged")
            _check_types(about, tensors["identity"])
            identity = TaskIdentity(
                about["model"],
                about["scale"],
                about["prompts"],
                tensors.pop("identity"),
            )
            method = about["method"]
            settings = {
                name: _frozen(value) for name, value in about["settings"].items()
            }
            tensors = {
                name.removeprefix("learnt."): value for name, value in tensors.items()
            }
            shaping = {name: settings[name] for name in learnt_with.get(method, ())}
            reference = cls(method, about["images"], identity, tensors, shaping)
        except Exception as error:  # another's file may be wrong in any way
            raise FairTTAError(
                f"{os.fspath(path)!r} is not a file that a fitted method has saved, or it is "
                "damaged: fit again."
            ) from error
        if method not in learnt_with:
            raise FairTTAError(
                f"{os.fspath(path)!r} is of the method {method}, not of "
                f"{' or '.join(sorted(learnt_with))}."
            )
        return reference, settings

    @staticmethod
    def _is_in(path: str | os.PathLike[str]) -> bool:
        """Whether a file is one that `save` has written, of any method."""
        try:
            with safe_open(path, "pt") as file:
                return "about" in (file.metadata() or {})
        except (SafetensorError, OSError):
            return False

    def _check(self, method: str, settings: Mapping[str, Any]) -> None:
        """Raise unless it is of a method with these settings."""
        if self.method != method:
            raise FairTTAError(
                f"this is what {self.method} has learnt: {method} cannot use it, fit again."
            )
        for name, value in self.settings.items():
            if settings[name] != value:
                raise FairTTAError(
                    f"this {method} was fitted with {name}={value!r} (got {settings[name]!r}): fit "
                    "it again."
                )

    def _about(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "method": self.method,
            "settings": dict(settings),
            "images": self.images,
            "model": self.identity.model,
            "scale": self.identity.scale,
            "prompts": self.identity.prompts,
        }

    def _every_tensor(self) -> dict[str, Tensor]:
        learnt = {
            f"learnt.{name}": value.contiguous() for name, value in self.tensors.items()
        }
        return {"identity": self.identity.features, **learnt}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Reference(images={self.images}, sha256={self.digest[:16]!r})"


def _reference_digest(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    content = sha256(_json(about).encode())
    for name, value in sorted(tensors.items()):
        content.update(_json([name, str(value.dtype), list(value.shape)]).encode())
        content.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def _frozen(value: Any) -> Any:
    """JSON makes lists of tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _check_types(about: Mapping[str, Any], features: Tensor) -> None:
    """A checksum proves that a file is as it was written, not by whom."""
    kinds = {
        "method": str,
        "settings": dict,
        "images": int,
        "model": str,
        "prompts": dict,
    }
    wrong = [key for key, kind in kinds.items() if not isinstance(about[key], kind)]
    if (
        wrong
        or not isinstance(about["scale"], int | float)
        or not features.is_floating_point()
    ):
        raise TypeError(f"{wrong or 'scale or features'} of another type")


def _json(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise FairTTAError(
            f"settings of a method that is saved should be numbers, texts or lists of them: {error}"
        ) from error
