"""RoboShot: removes some directions between sentences from images, and doubles others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from fair_tta._linalg import (
    is_near_duplicate,
    is_rounding,
    pair_differences,
    project_onto,
    project_out,
    unit_features,
)
from fair_tta.errors import FairTTAError
from fair_tta.methods._base import (
    CLASS_LOST,
    IMAGE_LOST,
    Needs,
    Outcome,
    TextFeatures,
    UsesTexts,
    fall_back_to_zero_shot,
    probabilities,
)
from fair_tta.prompts._task import Task

# Pairs of sentences; their difference is a direction.
Pairs = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class RoboShot(UsesTexts):
    """Remove the directions between rejected sentences from images, and double accepted ones.

    ``v' = norm((I + Qa Qa')(I - Qs Qs') v)``: the columns of Qs are an orthonormal basis of the
    differences of the reject pairs, those of Qa of the accept pairs. The classes' prompts are
    unchanged. Unless pairs are given, those to reject are all pairs of values of each sensitive
    attribute, of all attributes together, and none is accepted. Nothing is tuned.

    Adila et al.; public code: SprocketLab/roboshot.
    ``FairTPT() >> RoboShot()`` rejects pairs of tuned sensitive prompts; your own sentences are
    not tuned.

    Differences from the reference implementation: pairs come from you instead of a language model;
    features of sentences have length one before the difference, as the public code has it for
    transformers models (for open_clip models it leaves their lengths); pairs that depend on one
    another span fewer directions, where a QR decomposition adds some that no pair has;
    one projection replaces the sequence of steps, with the same result.

    Args:
        reject: pairs of sentences whose difference should not count; pairs of the sensitive prompts
            if None.
        accept: pairs of sentences whose difference should count more.

    Example:
        >>> RoboShot(reject=[("a photo of water", "a photo of land")]).needs.sensitive
        False
    """

    reject: Pairs | None = None
    accept: Pairs | None = None

    def __post_init__(self) -> None:
        for name in ("reject", "accept"):
            pairs = getattr(self, name)
            if pairs is not None:
                object.__setattr__(self, name, _check_pairs(name, pairs))

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """Sensitive attribute values, unless there are pairs to reject."""
        return Needs(sensitive=self.reject is None)

    def _check_task(self, task: Task) -> None:
        for pairs in (self.reject, self.accept):
            if pairs:
                task.sentence_prompts(list(chain.from_iterable(pairs)))

    def adapt_texts(self, task: Task, features: Tensor, texts: TextFeatures) -> Outcome:
        if self.reject is None:
            differences = [pair_differences(z) for z in texts.sensitive.values()]
            rejected = torch.cat(differences, -2)
        else:
            rejected = _directions(task, self.reject)
        accepted = _directions(task, self.accept or ())
        image = features[:, :1]
        # Rejected directions go first: an accepted one must not bring them back.
        projected = project_out(image, rejected)
        steered = unit_features(projected + project_onto(projected, accepted))
        return fall_back_to_zero_shot(
            task,
            features,
            probabilities(task, steered.to(features), texts.target),
            {
                IMAGE_LOST: is_rounding(projected, image, task.image_floor),
                CLASS_LOST: self._indistinct_classes(task, texts, rejected),
            },
        )

    def _indistinct_classes(
        self, task: Task, texts: TextFeatures, rejected: Tensor
    ) -> Tensor:
        """Return which classes differ from another by rejected directions alone.

        Their scores of a projected image differ only by rounding, which would decide the label.
        """

        def compare() -> Tensor:
            projected = project_out(texts.target, rejected)
            is_indistinct = is_near_duplicate(projected, task.text_floor)
            return is_indistinct.to(texts.target.device)

        # Tuned prompts differ from image to image; the original ones are compared once.
        if texts.target is task.target_features:
            return task.remember(("indistinct classes", self), compare)
        return compare()


def _directions(task: Task, pairs: Pairs) -> Tensor:
    """Return the differences of the sentences of each pair, ``[pairs, dim]``."""
    if not pairs:
        return task.target_features[:0]

    def differences() -> Tensor:
        sentences = list(chain.from_iterable(pairs))
        features = task.own_features(task.sentence_prompts(sentences))
        return features[0::2] - features[1::2]  # firsts and seconds alternate

    return task.remember(("pairs", tuple(pairs)), differences)


def _check_pairs(name: str, pairs: Any) -> Pairs:
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise FairTTAError(
            f"`{name}` should be a list of pairs of sentences (got {pairs!r}).",
            argument=name,
        )
    for pair in pairs:
        sentences = pair if isinstance(pair, tuple | list) else ()
        # A set: a pair of equal sentences has no direction.
        texts = {text for text in sentences if isinstance(text, str) and text.strip()}
        if len(sentences) != 2 or len(texts) != 2:
            raise FairTTAError(
                f"`{name}` should hold pairs of two sentences (got {pair!r}).",
                argument=name,
            )
    return tuple((first, second) for first, second in pairs)
