"""RoboShot: images without some directions between sentences, and with more of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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

Pairs = Sequence[tuple[str, str]]
"""Pairs of sentences; their difference is a direction."""


@dataclass(frozen=True)
class RoboShot(UsesTexts):
    """Takes from each image the directions between rejected sentences, and doubles accepted ones.

    ``v' = norm((I + Qa Qa')(I - Qs Qs') v)``: the columns of Qs are an orthonormal basis of the
    differences of the reject pairs, those of Qa of the accept pairs. The classes' prompts stay as
    they are. Unless pairs are given, those to reject are all pairs of values of each sensitive
    attribute, of all attributes together, and none is accepted. Nothing is tuned.

    Adila et al.; public code: SprocketLab/roboshot.
    ``FairTPT() >> RoboShot()`` rejects pairs of tuned sensitive prompts; your sentences stay
    as they are.

    Differences from the reference implementation: pairs come from you instead of a language model;
    features of sentences have length one before the difference, as the public code has it for
    transformers models (for open_clip models it leaves their lengths); pairs that depend on one
    another span only what they span, where a QR decomposition adds directions that nobody named;
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
                object.__setattr__(self, name, _checked(name, pairs))

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """Sensitive attribute values, unless there are pairs to reject."""
        return Needs(sensitive=self.reject is None)

    def _check_task(self, task: Task) -> None:
        for pairs in (self.reject, self.accept):
            if pairs:
                task.sentence_prompts([sentence for pair in pairs for sentence in pair])

    def adapt_texts(self, task: Task, features: Tensor, texts: TextFeatures) -> Outcome:
        if self.reject is None:
            rejected = torch.cat(
                [pair_differences(z) for z in texts.sensitive.values()], -2
            )
        else:
            rejected = _directions(task, self.reject)
        image = features[:, :1]
        rest = project_out(image, rejected)
        steered = unit_features(
            rest + project_onto(rest, _directions(task, self.accept or ()))
        )
        lost = {
            IMAGE_LOST: is_rounding(rest, image, task.image_floor),
            CLASS_LOST: self._alike_classes(task, texts, rejected),
        }
        found = probabilities(task, steered.to(features), texts.target)
        return fall_back_to_zero_shot(task, features, found, lost)

    def _alike_classes(
        self, task: Task, texts: TextFeatures, rejected: Tensor
    ) -> Tensor:
        """Return which classes differ from another by rejected directions alone.

        Their scores of a projected image are equal but for rounding, which would decide the label.
        """

        def compare() -> Tensor:
            rest = project_out(texts.target, rejected)
            return is_near_duplicate(rest, task.text_floor).to(texts.target.device)

        if texts.target is task.target_features:
            return task.remember(("alike classes", self), compare)
        return compare()


def _directions(task: Task, pairs: Pairs) -> Tensor:
    """Differences of the sentences of each pair: ``[pairs, dim]``."""
    if not pairs:
        return task.target_features[:0]

    def differences() -> Tensor:
        sentences = [sentence for pair in pairs for sentence in pair]
        features = task.own_features(task.sentence_prompts(sentences))
        return features[0::2] - features[1::2]

    return task.remember(("pairs", tuple(pairs)), differences)


def _checked(name: str, pairs: Any) -> Pairs:
    if isinstance(pairs, str) or not isinstance(pairs, Sequence):
        raise FairTTAError(
            f"`{name}` should be a list of pairs of sentences (got {pairs!r}).",
            argument=name,
        )
    for pair in pairs:
        sentences = pair if isinstance(pair, tuple | list) else ()
        distinct = {
            text for text in sentences if isinstance(text, str) and text.strip()
        }
        if len(sentences) != 2 or len(distinct) != 2:
            raise FairTTAError(
                f"`{name}` should hold pairs of two sentences (got {pair!r}).",
                argument=name,
            )
    return tuple((first, second) for first, second in pairs)
