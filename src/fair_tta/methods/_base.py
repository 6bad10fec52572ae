"""What a method is: a frozen strategy that turns image features into probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

from PIL.Image import Image
from torch import Tensor

from fair_tta._images.vision import Vision
from fair_tta._prompts.task import Task
from fair_tta.errors import FairTTAError


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


@dataclass(frozen=True, eq=False)
class Texts:
    """Unit features of prompts, as they are or as a first method has made them.

    Attributes:
        target: ``[(images,) targets, dim]``
        sensitive: ``{attribute: [(images,) values, dim]}``
        joint: the features of all (target, value) pairs of an attribute, target by target:
            ``[(images,) targets * values, dim]``, computed when they are asked for.
    """

    target: Tensor
    sensitive: dict[str, Tensor]
    joint: Callable[[str], Tensor] = field(repr=False)


def own_texts(task: Task) -> Texts:
    """The features of the prompts as they are."""

    def joint(attribute: str) -> Tensor:
        return task.own_features(task.joint_prompts(attribute))

    return Texts(task.target_features, task.sensitive_features, joint)


class FindsTexts(Adapter, Protocol):
    """A method that can come first."""

    def find_texts(self, task: Task, features: Tensor) -> tuple[Texts, Outcome]:
        """Features of prompts for each image, and the method's own outcome with them.

        Args:
            task: the text side.
            features: ``[images, views, dim]``, as in `Adapter.adapt`.
        """
        ...


class UsesTexts(Adapter, Protocol):
    """A method that can come second."""

    def adapt_texts(self, task: Task, features: Tensor, texts: Texts) -> Outcome:
        """As `Adapter.adapt`, with these features of prompts in place of the task's own."""
        ...


class Chains:
    """Gives a method that `FindsTexts` the operator ``>>``."""

    def __rshift__(self, then: UsesTexts) -> Chained:
        first: Any = self
        return Chained(first, then)


@dataclass(frozen=True)
class Chained:
    """``first >> then``: the first finds features of prompts for each image, the second uses them.

    ``FairTPT() >> OrthCali(lam=0)`` is the paper's combination: the sensitive (and joint) features
    that define the projection are those after tuning. What the second leaves out of its outcome is
    the first's: sensitive probabilities, rate, step, views and warnings.

    Args:
        first: a method that `FindsTexts`: the ones that tune prompts.
        then: a method that `UsesTexts`.
    """

    first: FindsTexts
    then: UsesTexts

    def __post_init__(self) -> None:
        if not hasattr(self.first, "find_texts"):
            raise FairTTAError(
                f"what comes first should find features of prompts, as TPT() does (got "
                f"{self.first!r}, which has no `find_texts`)."
            )
        if not hasattr(self.then, "adapt_texts"):
            raise FairTTAError(
                f"what comes second should use features of prompts, as OrthCali() does (got "
                f"{self.then!r}, which has no `adapt_texts`)."
            )
        check_markers(self.first)
        check_markers(self.then)

    @property
    def needs_sensitive(self) -> bool:
        """If either does."""
        return self.first.needs_sensitive or self.then.needs_sensitive

    @property
    def needs_prompt_gradient(self) -> bool:
        """If either does."""
        return self.first.needs_prompt_gradient or self.then.needs_prompt_gradient

    @property
    def needs_views(self) -> bool:
        """If either does."""
        return self.first.needs_views or self.then.needs_views

    @property
    def needs_reference(self) -> bool:
        """If either does."""
        return any(getattr(part, "needs_reference", False) for part in (self.first, self.then))

    @property
    def needs_labels(self) -> bool:
        """If either does."""
        return any(getattr(part, "needs_labels", False) for part in (self.first, self.then))

    def __rshift__(self, then: object) -> Chained:
        raise FairTTAError(
            f"two methods can follow one another, not three (got {then!r} after {self!r}): leave "
            "one out."
        )

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """See `Adapter.adapt`."""
        texts, before = self.first.find_texts(task, features)
        after = self.then.adapt_texts(task, features, texts)
        warnings = after.warnings or before.warnings
        if after.warnings and before.warnings:
            pairs = zip(before.warnings, after.warnings, strict=True)
            warnings = tuple(one + two for one, two in pairs)
        return replace(
            after,
            sensitive={**before.sensitive, **after.sensitive},
            learning_rate=_or(after.learning_rate, before.learning_rate),
            relative_step=_or(after.relative_step, before.relative_step),
            views_kept=before.views_kept if after.views_kept is None else after.views_kept,
            warnings=warnings,
            flags={**before.flags, **after.flags},
        )


def _or(value: Tensor | None, other: Tensor | None) -> Tensor | None:
    return other if value is None else value


class PixelMethod:
    """The part of `AdaptsPixels` that is the same for all; a subclass says `adapt_pixels`."""

    needs_sensitive: ClassVar[bool] = False
    needs_views: ClassVar[bool] = True
    needs_pixels: ClassVar[bool] = True
    needs_prompt_gradient: ClassVar[bool]

    def check_task(self, task: Task) -> None:
        """See `AdaptsPixels.check_task`: any model will do."""

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Raises an error: see `AdaptsPixels`."""
        raise features_will_not_do(self)
