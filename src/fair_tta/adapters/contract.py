"""What an adapter is: a frozen strategy that turns image features into probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from PIL.Image import Image
from torch import Tensor

from fair_tta.errors import FairTTAError
from fair_tta.text.task import Task
from fair_tta.vision.features import Vision


@dataclass(frozen=True)
class Outcome:
    """What an adapter found for a batch of images.

    Attributes:
        probabilities: ``[images, targets]``; the answer is the first of the largest.
        sensitive: ``{attribute: [images, values]}``; what is left out stays as zero-shot has it.
        learning_rate: ``[images]``, None if nothing was tuned.
        relative_step: ``[images]``, None if nothing was tuned.
        views_kept: how many views were used, of all images or ``[images]``; None if none.
        warnings: for each image what the user should know, empty if there is nothing.
        flags: the same as ``{sentence: [images] of bool}``: nothing has to wait for a device before
            the whole outcome is fetched.
    """

    probabilities: Tensor
    sensitive: Mapping[str, Tensor] = field(default_factory=dict)
    learning_rate: Tensor | None = None
    relative_step: Tensor | None = None
    views_kept: int | Tensor | None = None
    warnings: tuple[tuple[str, ...], ...] = ()
    flags: Mapping[str, Tensor] = field(default_factory=dict)


@runtime_checkable
class Adapter(Protocol):
    """A method. Hyper-parameters only: state is passed and returned, never stored.

    The classifier checks the three markers before it does any work; most methods have them as
    ``ClassVar[bool]``. Further ones mean False where they are absent: ``needs_reference``, the
    method has to be fitted on reference images, and its ``reference`` is None until then;
    ``needs_labels``, it has to know the sensitive values of these; ``needs_values``, it has to know
    those of the images to classify too, and ``knowing(*values)`` is the method for such. A method
    that needs more of a task, joint prompts or sentences of its own, may have
    ``check_task(task)``, which raises a `PromptError` and is called then too.
    """

    @property
    def needs_sensitive(self) -> bool:
        """Whether the method is meaningless without sensitive names."""
        ...

    @property
    def needs_prompt_gradient(self) -> bool:
        """Whether the text tower must let its token embeddings be replaced."""
        ...

    @property
    def needs_views(self) -> bool:
        """Whether the method looks at more than the image itself."""
        ...

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Classify each image on its own.

        Args:
            task: the text side.
            features: ``[images, views, dim]`` unit features; view 0 is the image itself.
        """
        ...


@runtime_checkable
class AdaptsPixels(Adapter, Protocol):
    """A method that works on the pictures themselves, because features of views are not enough.

    It may look at other pictures than the views, or change the vision tower. `adapt` of it says in
    an error that features will not do, so `predict_encoded` and features on disk are not for it.
    """

    @property
    def needs_pixels(self) -> bool:
        """True: `adapt_pixels` is called in place of `adapt`."""
        ...

    def check_task(self, task: Task) -> None:
        """Raise `TowerError` if the model cannot do what the method needs of it."""
        ...

    def adapt_pixels(self, task: Task, vision: Vision, images: Sequence[Image]) -> Outcome:
        """Classify each image on its own.

        Args:
            task: the text side.
            vision: makes views, their pixels and their features.
            images: RGB pictures.
        """
        ...


def needs_pixels(adapter: Adapter | type[Adapter]) -> bool:
    """Whether a method wants the pictures; most do not mention it."""
    return bool(getattr(adapter, "needs_pixels", False))


def features_will_not_do(adapter: Adapter) -> FairTTAError:
    """What to raise when such a method is handed features."""
    return FairTTAError(
        f"{type(adapter).__name__} works on the pictures themselves, features of views are not "
        "enough for it: use `predict`, not `predict_encoded`."
    )


def check_markers(adapter: Any) -> None:
    """Raise unless this is an adapter; name what it lacks."""
    if not getattr(adapter, "episodic", True):
        raise FairTTAError(
            f"{type(adapter).__name__} is not episodic, its answers depend on the images before: "
            "call its own `predict`."
        )
    if isinstance(adapter, type) or not callable(getattr(adapter, "adapt", None)):
        raise FairTTAError(
            "`adapter` should be an instance with a method `adapt`, such as ZeroShot() (got "
            f"{adapter!r})."
        )
    markers = ("needs_sensitive", "needs_prompt_gradient", "needs_views")
    missing = [name for name in markers if not hasattr(adapter, name)]
    if missing:
        raise FairTTAError(
            f"`adapter` should say what it needs: {type(adapter).__name__} lacks "
            f"{', '.join(missing)} (True or False, in the class)."
        )
    if needs_pixels(adapter) and not isinstance(adapter, AdaptsPixels):
        raise FairTTAError(
            f"{type(adapter).__name__} has `needs_pixels`, so it should have the methods "
            "`check_task` and `adapt_pixels` too."
        )


def softmax(logits: Tensor) -> Tensor:
    """As zero-shot has it, to the last bit: ``[images, 1, k] -> [images, k]``."""
    return logits.log_softmax(-1).exp().squeeze(1)


def probabilities(task: Task, features: Tensor, texts: Tensor) -> Tensor:
    """Probabilities of view 0: ``[images, views, dim], [(images,) k, dim] -> [images, k]``."""
    return softmax(task.logits(features[:, :1], texts))
