"""The reference of a fitted method: what it has learned, and the file that keeps it."""

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
from fair_tta.models._loading import backend_name
from fair_tta.models._model_lock import computed_once, eval_mode_no_grad
from fair_tta.models._stored_text import sees_images
from fair_tta.prompts._task import Task

# Features of the same weights in bfloat16 or on another device have a larger cosine than this,
# those of other weights a smaller one.
_MIN_COSINE_OF_SAME_MODEL = 0.999
# Relative: bfloat16 rounds a temperature by up to 0.4 %.
_SCALE_TOLERANCE = 0.01

_FORMAT = "fair-tta/reference/1"
_TENSOR_PREFIX = "learnt."  # of a method's own tensors in the file


@dataclass(frozen=True, eq=False)
class TaskIdentity:
    """A model's features of some prompts and of a probe image, to recognise both again.

    Attributes:
        model: the model's name in messages; the same weights may have other names.
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
    def from_task(cls, task: Task) -> TaskIdentity:
        """Return the identity of a task."""
        sentences = task.templates.sentences
        prompts = {
            "targets": task.targets,
            "sensitive": task.sensitive,
            "template": {
                "target": sentences["target"],
                "sensitive": sentences["sensitive"],
            },
        }
        features = [task.target_features, *task.sensitive_features.values()]
        if sees_images(task.backend):
            with eval_mode_no_grad(task.backend):
                features.append(
                    unit_features(task.backend.encode_images([probe_image()]))
                )
        rows = torch.cat(features).to("cpu", torch.float32)
        return cls(backend_name(task.backend), task.scale, prompts, rows)

    def check(self, task: Task, title: str) -> None:
        """Raise unless a task has the same prompts and the same model.

        Args:
            task: the task of the classifier.
            title: of the object that was fitted; begins the message.
        """
        present = task.remember(TaskIdentity, lambda: TaskIdentity.from_task(task))
        difference = self._difference(present)
        if difference is not None:
            what_differs, fitted, got = difference
            raise FairTTAError(
                f"{title} was fitted with another {what_differs}, {fitted} (got {got}): fit it "
                "again."
            )

    def _difference(self, present: TaskIdentity) -> tuple[str, str, str] | None:
        """Return what differs, as it was and as it is now; None if nothing differs."""
        for name, prompts in self.prompts.items():
            present_prompts = present.prompts.get(name)
            # As JSON, because dicts are equal in any order, but the order of names counts.
            if json.dumps(prompts) != json.dumps(present_prompts):
                return f"`{name}`", reprlib.repr(prompts), reprlib.repr(present_prompts)

        # One of them may lack the probe image, which comes last.
        rows = min(len(self.features), len(present.features))
        features = self.features[:rows]
        present_features = present.features[:rows]
        is_same_model = (
            features.shape == present_features.shape
            and cosine_similarity(features, present_features).min()
            >= _MIN_COSINE_OF_SAME_MODEL
        )
        if not is_same_model:
            return "model or other weights", self.model, present.model

        if not math.isclose(self.scale, present.scale, rel_tol=_SCALE_TOLERANCE):
            return "`scale`", f"{self.scale:g}", f"{present.scale:g}"
        return None


@dataclass(frozen=True, eq=False, repr=False)
class Reference:
    """The result of fitting a method on reference images with some model and prompts.

    References of equal content are equal.

    Attributes:
        method: the name of the method's class.
        images: the number of reference images.
        identity: model and prompts.
        tensors: what the method has learned, by names of its choice; on the CPU.
        settings: those settings of the method that a fit depends on.
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
        return _reference_digest(self._description(self.settings), self._all_tensors())

    def _identity_settings(self) -> dict[str, Any]:
        """Return the JSON by which `fair_tta._identity.describe` knows a reference."""
        return {"images": self.images, "sha256": self.digest}

    def _save(self, path: str | os.PathLike[str], settings: Mapping[str, Any]) -> None:
        """Write a safetensors file, with a description in its metadata: whole or not at all.

        Args:
            path: of the file.
            settings: all settings of the method.
        """
        about = self._description(settings)
        tensors = self._all_tensors()
        about["sha256"] = _reference_digest(about, tensors)
        write_atomically(path, save(tensors, {"about": _to_json(about)}))

    @classmethod
    def _read(
        cls, path: str | os.PathLike[str], fit_settings: Mapping[str, tuple[str, ...]]
    ) -> tuple[Reference, dict[str, Any]]:
        """Return the reference in a saved file, and all settings of the method. Runs no code.

        Args:
            path: of the file.
            fit_settings: ``{method: names of settings that a fit depends on}``, of all methods
                that may be read.

        Raises:
            FairTTAError: there is no such file, it is damaged, it was not written by `_save`, or
                it holds another method.
        """
        if not os.path.isfile(path):  # False for a name that is too long, too
            raise FairTTAError(f"there is no file {os.fspath(path)!r}: check the path.")
        try:
            about, tensors = _read_checked(path)
            identity = TaskIdentity(
                about["model"],
                about["scale"],
                about["prompts"],
                tensors.pop("identity"),
            )
            learned = {}
            for name, tensor in tensors.items():
                learned[name.removeprefix(_TENSOR_PREFIX)] = tensor
            settings = {}
            for name, setting in about["settings"].items():
                settings[name] = _with_tuples(setting)
            method = about["method"]
            names = fit_settings.get(method, ())
            reference = cls(
                method,
                about["images"],
                identity,
                learned,
                {name: settings[name] for name in names},
            )
        except Exception as error:  # a file of unknown origin may be wrong in any way
            raise FairTTAError(
                f"{os.fspath(path)!r} is not a file that a fitted method has saved, or it is "
                "damaged: fit again."
            ) from error
        if method not in fit_settings:
            raise FairTTAError(
                f"{os.fspath(path)!r} is of the method {method}, not of "
                f"{' or '.join(sorted(fit_settings))}."
            )
        return reference, settings

    @staticmethod
    def _is_in(path: str | os.PathLike[str]) -> bool:
        """Return whether a file was written by `_save`, for any method."""
        try:
            with safe_open(path, "pt") as file:
                return "about" in (file.metadata() or {})
        except (SafetensorError, OSError):
            return False

    def _check(self, method: str, settings: Mapping[str, Any]) -> None:
        """Raise unless this is the reference of a method with these settings."""
        if self.method != method:
            raise FairTTAError(
                f"the reference was fitted by {self.method}, and {method} cannot use it: fit again."
            )
        for name, fitted in self.settings.items():
            if settings[name] != fitted:
                raise FairTTAError(
                    f"this {method} was fitted with {name}={fitted!r} (got {settings[name]!r}): "
                    "fit it again."
                )

    def _description(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "method": self.method,
            "settings": dict(settings),
            "images": self.images,
            "model": self.identity.model,
            "scale": self.identity.scale,
            "prompts": self.identity.prompts,
        }

    def _all_tensors(self) -> dict[str, Tensor]:
        tensors = {"identity": self.identity.features}
        for name, tensor in self.tensors.items():
            tensors[_TENSOR_PREFIX + name] = tensor.contiguous()
        return tensors

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reference) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Reference(images={self.images}, sha256={self.digest[:16]!r})"


def _read_checked(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the description and all tensors of a file; raise if anything is wrong with it."""
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["about"])
        if about["format"] != _FORMAT:
            raise ValueError(f"another format, {about['format']}")
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if about.pop("sha256") != _reference_digest(about, tensors):
        raise ValueError("damaged")

    # A checksum proves that a file is unchanged, not who wrote it.
    types: dict[str, Any] = {
        "method": str,
        "settings": dict,
        "images": int,
        "model": str,
        "scale": int | float,
        "prompts": dict,
    }
    for key, expected_type in types.items():
        if not isinstance(about[key], expected_type):
            raise TypeError(f"{key} of another type")
    if not tensors["identity"].is_floating_point():
        raise TypeError("features of another type")
    return about, tensors


def _reference_digest(about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    content = sha256(_to_json(about).encode())
    for name, tensor in sorted(tensors.items()):
        shape = [name, str(tensor.dtype), list(tensor.shape)]
        content.update(_to_json(shape).encode())
        content.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return content.hexdigest()


def _with_tuples(setting: Any) -> Any:
    """Return a setting with tuples instead of the lists that JSON makes of them."""
    if isinstance(setting, list):
        return tuple(_with_tuples(element) for element in setting)
    return setting


def _to_json(value: Any) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError) as error:
        raise FairTTAError(
            "settings of a method that is saved should be numbers, texts or lists of them (got: "
            f"{error})."
        ) from error
