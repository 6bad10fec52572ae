"""What an adapter is: a frozen strategy that turns image features into probabilities."""

from __future__ import annotations

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
        warnings: for each image what the user should know, empty if there is nothing.
    """

    probabilities: Tensor
    sensitive: dict[str, Tensor] = field(default_factory=dict)
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

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Classify each image on its own.

        Args:
            task: the text side.
            features: ``[images, views, dim]`` unit features; view 0 is the image itself.
        """
        ...
