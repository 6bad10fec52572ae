"""What an adapter is: a frozen strategy that turns image features into probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor

from fair_tta.task import Task


@dataclass(frozen=True)
class Outcome:
    """What an adapter found for a batch of images.

    Attributes:
        probabilities: ``[images, targets]``
        sensitive: ``{attribute: [images, values]}``
        labels: ``[images]`` indices of targets, where the answer is not the most probable one
            (Zero breaks ties between votes).
        learning_rate: ``[images]``, None if nothing was tuned.
        relative_step: ``[images]``, None if nothing was tuned.
        views_kept: how many views were used, None if none.
        warnings: for each image what the user should know, empty if there is nothing.
    """

    probabilities: Tensor
    sensitive: Mapping[str, Tensor] = field(default_factory=dict)
    labels: Tensor | None = None
    learning_rate: Tensor | None = None
    relative_step: Tensor | None = None
    views_kept: int | None = None
    warnings: tuple[tuple[str, ...], ...] = ()


@runtime_checkable
class Adapter(Protocol):
    """A method. Hyper-parameters only: state is passed and returned, never stored.

    The classifier checks the markers before it does any work.
    """

    needs_sensitive: ClassVar[bool]
    """Whether the method is meaningless without sensitive names."""

    needs_prompt_gradient: ClassVar[bool]
    """Whether the text tower must let its token embeddings be replaced."""

    needs_views: ClassVar[bool]
    """Whether the method looks at more than the image itself."""

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Classify each image on its own.

        Args:
            task: the text side.
            features: ``[images, views, dim]`` unit features; view 0 is the image itself.
        """
        ...


def probabilities(task: Task, features: Tensor, texts: Tensor) -> Tensor:
    """Probabilities of view 0: ``[images, views, dim], [(images,) k, dim] -> [images, k]``."""
    return task.log_probabilities(features[:, :1], texts).exp().squeeze(1)
