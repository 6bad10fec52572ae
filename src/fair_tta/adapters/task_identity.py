"""Which model and prompts something was fitted with, so that it is not used with others."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from fair_tta.backends.guard import borrowed
from fair_tta.backends.naming import model_name
from fair_tta.errors import FairTTAError
from fair_tta.text.encoder import unit
from fair_tta.text.task import Task
from fair_tta.vision.probe import probe_picture

_ALIKE = 0.999  # least cosine: bfloat16 and other devices are above it, other weights below
_SAME_SCALE = 0.01  # in relation to its size


@dataclass(frozen=True, eq=False)
class TaskIdentity:
    """What a model makes of some prompts and of a probe picture.

    Attributes:
        model: what the model is called in messages; the same weights may have other names.
        scale: inverse temperature.
        prompts: names and sentences, as JSON has them.
        features: ``[prompts + 1, dim]`` of the prompts and the probe, in float32 on the CPU.
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
            "template": {"target": sentences["target"], "sensitive": sentences["sensitive"]},
        }
        with borrowed(task.backend):
            probe = unit(task.backend.encode_images([probe_picture()]))
        every = [task.target_features, *task.sensitive_features.values(), probe]
        features = torch.cat(every).to("cpu", torch.float32)
        return cls(model_name(task.backend), task.scale, prompts, features)

    def check(self, task: Task, what: str) -> None:
        """Raise unless a task has the same prompts and the same model.

        Args:
            task: where it is to be used.
            what: is to be used; begins the message.
        """
        other = task.remember(TaskIdentity, lambda: TaskIdentity.of(task))
        for name, own in self.prompts.items():
            if _in_order(own) != _in_order(other.prompts.get(name)):
                raise FairTTAError(
                    f"{what} was fitted with another `{name}`, {reprlib.repr(own)} (got "
                    f"{reprlib.repr(other.prompts.get(name))}): fit it again."
                )
        same_shape = self.features.shape == other.features.shape
        if not same_shape or cosine_similarity(self.features, other.features).min() < _ALIKE:
            raise FairTTAError(
                f"{what} was fitted with another model or other weights, {self.model} (got "
                f"{other.model}): fit it again."
            )
        if not math.isclose(self.scale, other.scale, rel_tol=_SAME_SCALE):
            raise FairTTAError(
                f"{what} was fitted with another `scale`, {self.scale:g} (got {other.scale:g}): "
                "fit it again."
            )


def _in_order(value: Any) -> Any:
    """Mappings as lists, because the order of names counts."""
    if isinstance(value, Mapping):
        return [(key, _in_order(item)) for key, item in value.items()]
    return value
