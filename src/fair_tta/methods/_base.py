"""What a method is: a frozen strategy that turns image features into probabilities."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import zip_longest
from typing import Any, ClassVar

import torch
from PIL.Image import Image
from torch import Tensor

from fair_tta.errors import (
    FairTTAError,
    ModelError,
    PromptError,
    TowerError,
    check_number,
)
from fair_tta.images._vision import Vision
from fair_tta.models._stored_text import sees_images
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class Outcome:
    """What an adapter found for a batch of images.

    Attributes:
        probabilities: ``[images, targets]``; the label is the first of the largest.
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


@dataclass(frozen=True)
class Needs:
    """Requirements of a method besides an image and the names of the classes.

    Attributes:
        sensitive: names of sensitive attribute values, given to the classifier.
        prompt_gradient: a text tower that lets its token embeddings be replaced.
        views: further views of the image.
        pixels: the images themselves, see `PixelAdapter`.
        reference: reference images to be fitted on; `Adapter.reference` is None until then.
        reference_sensitive: attribute values of the reference images, the `sensitive` of `fit`.
        reference_labels: classes of reference images, or of some of them, the `labels` of `fit`.
        values: attribute values of the images to classify too; ``knowing(*values)`` returns the
            method for them.
        setting: a setting that has no default, such as a file.
        other_images: the other images of a batch, on which an answer then depends. Finished answers
            of such a method are used again only for the same images in the same batches.
    """

    sensitive: bool = False
    prompt_gradient: bool = False
    views: bool = False
    pixels: bool = False
    reference: bool = False
    reference_sensitive: bool = False
    reference_labels: bool = False
    values: bool = False
    setting: bool = False
    other_images: bool = False

    def __or__(self, other: Needs) -> Needs:
        return Needs(
            *(a or b for a, b in zip(astuple(self), astuple(other), strict=True))
        )


class Adapter(ABC):
    """A method. Subclasses hold hyper-parameters only: state is passed and returned, never stored.

    A subclass is a frozen dataclass that defines `adapt` and declares in `needs` what it needs
    beyond the features of the images.
    """

    needs: ClassVar[Needs] = Needs()
    """What the method needs; the classifier checks it before it does any work."""
    reference: Any = None
    """What was learnt from reference images, if the method needs them."""

    @abstractmethod
    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Classify each image on its own.

        Args:
            task: the text side.
            features: ``[images, views, dim]`` unit features; view 0 is the image itself.
        """

    def _check_task(self, task: Task) -> None:  # noqa: B027
        """Raise a `PromptError` or `TowerError` if the method cannot work with a task."""

    def _check_fitted(self, task: Task | None = None) -> None:
        """Raise unless the method is fitted, and for this task if one is given."""
        if not self.is_fitted:
            raise FairTTAError(
                f"{type(self).__name__} has not been fitted: pass one that has its `reference`."
            )

    def _check_ready(self) -> None:
        """Raise unless the method can answer; a classifier may hold one that cannot yet."""
        self._check_fitted()

    @property
    def is_fitted(self) -> bool:
        """Whether the method has the reference that it needs, if it needs one."""
        return not self.needs.reference or self.reference is not None

    @property
    def parts(self) -> tuple[Adapter, ...]:
        """The methods it is made of: itself, or the two of a chain."""
        return (self,)


class PixelAdapter(Adapter):
    """A method that works on the images themselves, because features of views are not enough.

    It may look at other images than the views, or change the vision tower. A subclass defines
    `adapt_pixels` and sets ``pixels`` in `needs`.
    """

    needs = Needs(pixels=True)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Raise an error: features are not enough."""
        raise FairTTAError(
            f"{type(self).__name__} needs the images themselves: pass them to `predict` in place "
            "of features."
        )

    @abstractmethod
    def adapt_pixels(
        self, task: Task, vision: Vision, images: Sequence[Image]
    ) -> Outcome:
        """Classify each image on its own.

        Args:
            task: the text side.
            vision: makes views, their pixels and their features.
            images: in RGB.
        """


def non_finite_error(task: Task) -> ModelError:
    """What to raise if a model's own features are not finite."""
    return ModelError(
        f"{task.backend.name} gives features that are not finite; if it runs in half precision, "
        "try float32."
    )


def softmax(logits: Tensor) -> Tensor:
    """As zero-shot has it, to the last bit: ``[images, 1, k] -> [images, k]``."""
    return logits.log_softmax(-1).exp().squeeze(1)


def probabilities(task: Task, features: Tensor, texts: Tensor) -> Tensor:
    """Probabilities of view 0: ``[images, views, dim], [(images,) k, dim] -> [images, k]``."""
    return softmax(task.logits(features[:, :1], texts))


IMAGE_LOST = (
    "the projection leaves only rounding of the image; this is the zero-shot answer"
)
CLASS_LOST = "the projection leaves only rounding of a class's prompt; this is the zero-shot answer"


def fall_back_to_zero_shot(
    task: Task, features: Tensor, found: Tensor, lost: Mapping[str, Tensor]
) -> Outcome:
    """Return an outcome with zero-shot's answer, and a warning, where a projection left nothing.

    Args:
        task: the text side.
        features: ``[images, views, dim]``.
        found: what the method answers, ``[images, targets]``.
        lost: ``{sentence: [images, features]}``, or without images if all have the same: which
            features are rounding; one is enough.
    """
    zero_shot = probabilities(task, features, task.target_features)
    flags = {}
    for sentence, is_lost in lost.items():
        # the largest of 0 and 1 and not `any`, because the export to ONNX knows this one
        any_lost = is_lost.to(found).amax(-1, keepdim=True) > 0
        found = torch.where(any_lost, zero_shot, found)
        flags[sentence] = any_lost.expand(len(features), 1).squeeze(1)
    return Outcome(found, flags=flags)


def check_non_negative(method: Adapter, *names: str) -> None:
    """Raise unless these settings are numbers >= 0."""
    for name in names:
        value = getattr(method, name)
        check_number(name, value, "be a number >= 0", lambda x: 0 <= x < math.inf)


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


def original_texts(task: Task) -> Texts:
    """The features of the prompts as they are."""

    def joint(attribute: str) -> Tensor:
        return task.own_features(task.joint_prompts(attribute))

    return Texts(task.target_features, task.sensitive_features, joint)


class FindsTexts(Adapter):
    """A method that can come first in a chain: it finds features of prompts for each image."""

    @abstractmethod
    def find_texts(self, task: Task, features: Tensor) -> tuple[Texts, Outcome]:
        """Features of prompts for each image, and the method's own outcome with them.

        Args:
            task: the text side.
            features: ``[images, views, dim]``, as in `Adapter.adapt`.
        """

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """The outcome of `find_texts`."""
        return self.find_texts(task, features)[1]

    def __rshift__(self, then: UsesTexts) -> Chained:
        return Chained(self, then)


class UsesTexts(Adapter):
    """A method that can come second in a chain: it works with any features of prompts."""

    @abstractmethod
    def adapt_texts(self, task: Task, features: Tensor, texts: Texts) -> Outcome:
        """As `Adapter.adapt`, with these features of prompts in place of the task's own."""

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """The outcome with the task's own features of prompts."""
        return self.adapt_texts(task, features, original_texts(task))


@dataclass(frozen=True)
class Chained(Adapter):
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
        kinds = ("first", FindsTexts, "TPT()"), ("second", UsesTexts, "OrthCali()")
        for part, (place, kind, example) in zip(self.parts, kinds, strict=True):
            if not isinstance(part, kind):
                raise FairTTAError(
                    f"the {place} method of a chain should be a {kind.__name__}, such as {example} "
                    f"(got {part!r})."
                )

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """What either needs."""
        return self.first.needs | self.then.needs

    @property
    def is_fitted(self) -> bool:
        """Whether both are."""
        return self.first.is_fitted and self.then.is_fitted

    @property
    def parts(self) -> tuple[Adapter, ...]:
        """Both methods."""
        return self.first, self.then

    def _check_fitted(self, task: Task | None = None) -> None:
        """Check both."""
        for part in self.parts:
            part._check_fitted(task)

    def _check_ready(self) -> None:
        """Check both."""
        for part in self.parts:
            part._check_ready()

    def _check_task(self, task: Task) -> None:
        """Check both."""
        for part in self.parts:
            part._check_task(task)

    def __rshift__(self, then: object) -> Chained:
        raise FairTTAError(
            f"a chain has two methods, not three (got {then!r} after {self!r}): leave one out."
        )

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """The outcome of the second, completed by that of the first."""
        texts, before = self.first.find_texts(task, features)
        after = self.then.adapt_texts(task, features, texts)
        notes = zip_longest(before.warnings, after.warnings, fillvalue=())
        kept = {
            name: getattr(before, name)
            for name in ("learning_rate", "relative_step", "views_kept")
            if getattr(after, name) is None
        }
        return replace(
            after,
            sensitive={**before.sensitive, **after.sensitive},
            warnings=tuple((*first, *second) for first, second in notes),
            flags={**before.flags, **after.flags},
            **kept,
        )


def check_instance(adapter: Any) -> Adapter:
    """Raise unless this is an adapter."""
    if isinstance(adapter, Adapter):
        return adapter
    is_method = hasattr(adapter, "adapt") and not isinstance(adapter, type)
    raise FairTTAError(
        f"`adapter` should be an instance of a method, such as ZeroShot() (got {adapter!r})"
        f"{': its class should inherit from fair_tta.extend.Adapter' * is_method}.",
        argument="adapter",
    )


def check_sensitive(adapter: Adapter, task: Task) -> None:
    """Raise if a method needs names of attribute values that the task does not have."""
    if (
        adapter.needs.sensitive or adapter.needs.reference_sensitive
    ) and not task.sensitive:
        raise PromptError(
            f"{type(adapter).__name__} needs sensitive attribute values: pass `sensitive=[...]`."
        )


def check_adapter(adapter: Any, task: Task) -> Adapter:
    """Refuse an adapter that cannot work with a task, before any work is done."""
    checked, name = check_instance(adapter), type(adapter).__name__
    if checked.needs.pixels != isinstance(checked, PixelAdapter):
        raise FairTTAError(
            f"`{name}.needs` should have pixels=True if it is a PixelAdapter, only.",
            argument=name,
        )
    check_sensitive(checked, task)
    if not sees_images(task.backend) and (checked.needs.views or checked.needs.pixels):
        wanted = (
            "the images themselves"
            if checked.needs.pixels
            else "further views of an image"
        )
        raise ModelError(
            f"{name} needs {wanted}, and there is no image encoder: choose a method that works on "
            "features, such as AssociationCorrection(), LogitBalance() or ZeroShot()."
        )
    if checked.needs.prompt_gradient:
        if task.templates._further:
            raise PromptError(
                f"{name} tunes the words of one template (got {1 + len(task.templates._further)}): "
                "pass one sentence as `template`, or choose a method that does not tune the prompt."
            )
        try:
            _ = task.context
        except TowerError as error:
            raise TowerError(
                f"{name} tunes the prompt, but {error}. Choose a method that does not, such as "
                "AssociationCorrection(), LogitBalance(), OrthCali() or ZeroShot()."
            ) from error
    if (
        checked.is_fitted
    ):  # one that is not may be held, and is refused when it should answer
        checked._check_fitted(task)
    checked._check_task(task)
    return checked
