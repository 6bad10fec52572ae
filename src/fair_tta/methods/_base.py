"""The base classes of methods: frozen strategies that turn image features into probabilities."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
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
    """The probabilities that an adapter computed for a batch of images, and how it did.

    Attributes:
        probabilities: ``[images, targets]``; the label is the first of the largest.
        sensitive: ``{attribute: [images, values]}``; an attribute that is left out keeps its
            zero-shot probabilities.
        learning_rate: ``[images]``, None if nothing was tuned.
        relative_step: ``[images]``, None if nothing was tuned.
        views_kept: how many views were used, a number for all images or ``[images]``; None if
            none were.
        warnings: for each image the sentences that the user should read; empty if there are none.
        flags: the same as ``{sentence: [images] of bool}``, so that nothing has to wait for a
            device before the whole outcome is fetched.
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
        setting: a setting without a default, such as a file.
        other_images: the other images of a batch, on which a prediction then depends. Finished
            predictions of such a method are used again only for the same images in the same
            batches.
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
        either = {
            need.name: getattr(self, need.name) or getattr(other, need.name)
            for need in fields(Needs)
        }
        return Needs(**either)


class Adapter(ABC):
    """A method. Subclasses hold hyper-parameters only: state is passed and returned, never stored.

    A subclass is a frozen dataclass that defines `adapt`, and declares in `needs` its requirements
    beyond the features of the images.
    """

    needs: ClassVar[Needs] = Needs()
    """Requirements, which the classifier checks before it does any work."""
    reference: Any = None
    """The result of fitting on reference images, for a method that needs them."""

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
        """Raise unless the method can classify; a classifier may hold one that cannot yet."""
        self._check_fitted()

    @property
    def is_fitted(self) -> bool:
        """True unless the method lacks a reference that it needs."""
        return not self.needs.reference or self.reference is not None

    @property
    def parts(self) -> tuple[Adapter, ...]:
        """The method itself, or the two methods of a chain."""
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
            f"{type(self).__name__} needs the images themselves: pass them to `predict` instead of "
            "features."
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
    """Return the error for features of a model that are not finite."""
    return ModelError(
        f"{task.backend.name} returns features that are not finite; if it runs in half precision, "
        "try float32."
    )


def softmax(logits: Tensor) -> Tensor:
    """Return probabilities of logits: ``[images, 1, k] -> [images, k]``."""
    # The exponential of `log_softmax`, which zero-shot takes too, so that both agree to the bit.
    return logits.log_softmax(-1).exp().squeeze(1)


def probabilities(task: Task, features: Tensor, texts: Tensor) -> Tensor:
    """Return probabilities of view 0.

    ``[images, views, dim], [(images,) k, dim] -> [images, k]``
    """
    return softmax(task.logits(features[:, :1], texts))


IMAGE_LOST = (
    "the projection leaves only rounding of the image; this is the zero-shot answer"
)
CLASS_LOST = "the projection leaves only rounding of a class's prompt; this is the zero-shot answer"


def fall_back_to_zero_shot(
    task: Task, features: Tensor, adapted: Tensor, lost: Mapping[str, Tensor]
) -> Outcome:
    """Return an outcome with zero-shot's answer, and a warning, where a projection left nothing.

    Args:
        task: the text side.
        features: ``[images, views, dim]``.
        adapted: probabilities of the method, ``[images, targets]``.
        lost: ``{sentence: [images, features]}``, or ``[features]`` if all images have the same:
            the features that are only rounding after the projection; one is enough.
    """
    zero_shot = probabilities(task, features, task.target_features)
    flags = {}
    for sentence, is_lost in lost.items():
        # The largest of 0 and 1 instead of `any`, which the export to ONNX does not know.
        any_lost = is_lost.to(adapted).amax(-1, keepdim=True) > 0
        adapted = torch.where(any_lost, zero_shot, adapted)
        flags[sentence] = any_lost.expand(len(features), 1).squeeze(1)
    return Outcome(adapted, flags=flags)


def check_non_negative(method: Adapter, *names: str) -> None:
    """Raise unless these settings are numbers >= 0."""
    for name in names:
        value = getattr(method, name)
        check_number(name, value, "be a number >= 0", lambda x: 0 <= x < math.inf)


@dataclass(frozen=True, eq=False)
class TextFeatures:
    """Unit features of prompts: the task's, or those that a first method has tuned.

    Attributes:
        target: ``[(images,) targets, dim]``
        sensitive: ``{attribute: [(images,) values, dim]}``
        joint: function of an attribute that computes the features of all (target, value) pairs,
            target by target: ``[(images,) targets * values, dim]``.
    """

    target: Tensor
    sensitive: dict[str, Tensor]
    joint: Callable[[str], Tensor] = field(repr=False)


def original_text_features(task: Task) -> TextFeatures:
    """Return the task's own features of its prompts."""

    def joint(attribute: str) -> Tensor:
        return task.own_features(task.joint_prompts(attribute))

    return TextFeatures(task.target_features, task.sensitive_features, joint)


class FindsTexts(Adapter):
    """A method that can come first in a chain: it finds features of prompts for each image."""

    @abstractmethod
    def find_texts(self, task: Task, features: Tensor) -> tuple[TextFeatures, Outcome]:
        """Return features of prompts for each image, and the method's own outcome with them.

        Args:
            task: the text side.
            features: ``[images, views, dim]``, as in `Adapter.adapt`.
        """

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Return the outcome of `find_texts`."""
        return self.find_texts(task, features)[1]

    def __rshift__(self, then: UsesTexts) -> Chained:
        return Chained(self, then)


class UsesTexts(Adapter):
    """A method that can come second in a chain: it works with any features of prompts."""

    @abstractmethod
    def adapt_texts(self, task: Task, features: Tensor, texts: TextFeatures) -> Outcome:
        """Do the same as `Adapter.adapt`, with these features of prompts."""

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Return the outcome with the task's own features of prompts."""
        return self.adapt_texts(task, features, original_text_features(task))


@dataclass(frozen=True)
class Chained(Adapter):
    """``first >> then``: the first finds features of prompts for each image, the second uses them.

    ``FairTPT() >> OrthCali(lam=0)`` is the paper's combination: the sensitive (and joint) features
    that define the projection are those after tuning. Sensitive probabilities, rate, step, views
    and warnings that the second leaves out of its outcome come from the first.

    Args:
        first: a method that `FindsTexts`: the ones that tune prompts.
        then: a method that `UsesTexts`.
    """

    first: FindsTexts
    then: UsesTexts

    def __post_init__(self) -> None:
        if isinstance(self.first, Chained):
            raise FairTTAError(
                f"a chain has two methods, not three (got {self.then!r} after {self.first!r}): "
                "leave one out."
            )
        self._check_part("first", self.first, FindsTexts, "TPT()")
        self._check_part("second", self.then, UsesTexts, "OrthCali()")

    @staticmethod
    def _check_part(position: str, method: Any, base: type[Any], example: str) -> None:
        if not isinstance(method, base):
            raise FairTTAError(
                f"the {position} method of a chain should be a {base.__name__}, such as {example} "
                f"(got {method!r})."
            )

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """The needs of either method."""
        return self.first.needs | self.then.needs

    @property
    def is_fitted(self) -> bool:
        """True if both methods are."""
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

    def __rshift__(self, then: Any) -> Chained:
        """Raise an error: a chain has two methods."""
        return Chained(self, then)  # type: ignore[arg-type]

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Return the outcome of the second, completed by that of the first."""
        texts, first = self.first.find_texts(task, features)
        second = self.then.adapt_texts(task, features, texts)
        notes = zip_longest(first.warnings, second.warnings, fillvalue=())
        # The second knows nothing of the tuning, but it may count views of its own.
        completed = {}
        for name in ("learning_rate", "relative_step", "views_kept"):
            if getattr(second, name) is None:
                completed[name] = getattr(first, name)
        return replace(
            second,
            sensitive={**first.sensitive, **second.sensitive},
            warnings=tuple((*of_first, *of_second) for of_first, of_second in notes),
            flags={**first.flags, **second.flags},
            **completed,
        )


def check_instance(adapter: Any) -> Adapter:
    """Raise unless this is an adapter."""
    if isinstance(adapter, Adapter):
        return adapter
    # A class that looks like a method lacks only the base; a method's class lacks its brackets.
    advice = ""
    if hasattr(adapter, "adapt") and not isinstance(adapter, type):
        advice = ": its class should inherit from fair_tta.extend.Adapter"
    raise FairTTAError(
        "`adapter` should be an instance of a method, such as ZeroShot() (got "
        f"{adapter!r}){advice}.",
        argument="adapter",
    )


def check_sensitive(adapter: Adapter, task: Task) -> None:
    """Raise if a method needs names of attribute values that the task does not have."""
    # Also to be fitted: values of reference images are looked up among the names.
    needs_names = adapter.needs.sensitive or adapter.needs.reference_sensitive
    if needs_names and not task.sensitive:
        raise PromptError(
            f"{type(adapter).__name__} needs sensitive attribute values: pass `sensitive=[...]`."
        )


def check_adapter(adapter: Any, task: Task) -> Adapter:
    """Return an adapter; raise before any work is done if it cannot work with a task."""
    checked = check_instance(adapter)
    name = type(adapter).__name__
    if checked.needs.pixels != isinstance(checked, PixelAdapter):
        raise FairTTAError(
            f"`{name}.needs` should have pixels=True if and only if it is a PixelAdapter.",
            argument=name,
        )
    check_sensitive(checked, task)
    # Stored text features have no image encoder beside them.
    if not sees_images(task.backend) and (checked.needs.views or checked.needs.pixels):
        missing = "further views of an image"
        if checked.needs.pixels:
            missing = "the images themselves"
        raise ModelError(
            f"{name} needs {missing}, and there is no image encoder: choose a method that works on "
            "features, such as AssociationCorrection(), LogitBalance() or ZeroShot()."
        )
    if checked.needs.prompt_gradient:
        _check_tunable_prompt(name, task)
    # One that is not fitted may be held, and is refused when it should classify.
    if checked.is_fitted:
        checked._check_fitted(task)
    checked._check_task(task)
    return checked


def _check_tunable_prompt(name: str, task: Task) -> None:
    """Raise unless the task has one template, and a model whose prompt can be tuned."""
    if task.templates._further:
        raise PromptError(
            f"{name} tunes the words of one template (got {1 + len(task.templates._further)}): "
            "pass one sentence as `template`, or choose a method that does not tune the prompt."
        )
    try:
        # Embedding the context shows whether the text tower lets its embeddings be replaced.
        _ = task.context
    except TowerError as error:
        raise TowerError(
            f"{name} tunes the prompt, but {error}. Choose a method that does not, such as "
            "AssociationCorrection(), LogitBalance(), OrthCali() or ZeroShot()."
        ) from error
