"""Two methods, one after the other: the first finds features of prompts, the second uses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from torch import Tensor

from fair_tta.adapters.contract import Adapter, Outcome, check_markers
from fair_tta.errors import FairTTAError
from fair_tta.text.task import Task


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
