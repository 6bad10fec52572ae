"""UMFC: subtracts clusters' mean logits, and the direction between clusters from prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fair_tta._linalg import is_rounding, unit_features
from fair_tta.errors import FairTTAError, check_count
from fair_tta.methods._base import (
    CLASS_LOST,
    Needs,
    Outcome,
    check_non_negative,
    fall_back_to_zero_shot,
    softmax,
)
from fair_tta.methods._fitting import FittedMethod, ReferenceBatch, gather_batches
from fair_tta.methods._reference import Reference
from fair_tta.methods.field._clusters import k_means, nearest_centre
from fair_tta.prompts._task import Task

# Features have length one and float32 has seven digits: shorter differences are rounding.
_MIN_DIRECTION_LENGTH = 1e-6


@dataclass(frozen=True)
class UMFC(FittedMethod):
    """Subtract the mean logits of an image's cluster, and what sets clusters apart from prompts.

    ``logit_y = tau <v, T'_y> - alpha tau <m_k, T_y>`` with m_k the mean feature of the reference
    images of v's cluster k, ``T' = norm(T - beta t)``, ``t = norm(sum_k norm(m - m_k))`` and m the
    mean of all. Clusters come from k-means, and an image belongs to the nearest. With `perceived`
    the images perceived to have the same sensitive value are a cluster; the mean logits of several
    attributes are averaged, and t is over the groups of all. The mean of a value that is perceived
    in no reference image is m. With ``alpha=0, beta=0`` it is the zero-shot answer.

    arXiv 2411.06921, NeurIPS 2024; public code: GIT-LJc/UMFC.

    Differences from the reference implementation: we follow the code, which takes a cluster's
    mean *logits*, where the abstract speaks of features; its scripts choose alpha and beta by test
    accuracy, here they are its defaults; k-means has a fixed seed; there is no streaming form.
    With two groups the two summands of t cancel: t is zero then, where the code takes the direction
    of a rounding error. Perceived groups are not in the paper: `LogitBalance` is their relative.
    Features of all reference images are held in memory while it is fitted.

    Args:
        alpha: the share of the cluster's mean logits that is subtracted.
        beta: the length of t that is subtracted from the prompts.
        clusters: the number of clusters; not used with `perceived`.
        perceived: group by the perceived sensitive values instead of k-means.
        reference: what `FairTPTClassifier.fit` learned; without it images are refused.

    Example:
        >>> UMFC(clusters=6)
        UMFC(alpha=0.9, beta=0.3, clusters=6, perceived=False, reference=None)
    """

    alpha: float = 0.9
    beta: float = 0.3
    clusters: int = 3
    perceived: bool = False
    reference: Reference | None = None
    _fit_settings: ClassVar[tuple[str, ...]] = ("clusters", "perceived")

    def __post_init__(self) -> None:
        check_non_negative(self, "alpha", "beta")
        check_count("clusters", self.clusters)

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """Sensitive attribute values, if it groups by perceived ones."""
        return Needs(sensitive=self.perceived, reference=True)

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        """Return ``mean`` ``[dim]``, and ``centres`` or ``centres.ATTRIBUTE`` ``[groups, dim]``."""
        images, _ = gather_batches(batches)
        mean = images.mean(0)
        if self.perceived:
            learned = {"mean": mean}
            for attribute, values in task.sensitive_features.items():
                perceived = (images @ values.to(images).mT).argmax(-1)
                centres = []
                for index in range(len(values)):
                    group = images[perceived == index]
                    # Without images a value has the overall mean, and adds nothing to t.
                    centres.append(group.mean(0) if len(group) else mean)
                learned[f"centres.{attribute}"] = torch.stack(centres)
            return learned
        if len(images) < self.clusters:
            raise FairTTAError(
                f"`clusters` should be at most the number of reference images, {len(images)} (got "
                f"{self.clusters}).",
                argument="clusters",
            )
        return {"mean": mean, "centres": k_means(images, self.clusters)}

    def _prepare(
        self, task: Task, learned: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """Return T' as ``texts``, which classes are lost, centres, and ``shift CENTRES``.

        The last are logits to subtract from images of each group, ``[groups, targets]``.
        """
        mean = learned["mean"]
        target = task.target_features.to(mean)
        all_centres = {name: c for name, c in learned.items() if name != "mean"}
        directions = []
        shifts = {}
        for name, centres in all_centres.items():
            directions.append(_direction(mean - centres))
            # Mean logits of several attributes are averaged.
            share = self.alpha / len(all_centres)
            shifts[f"shift {name}"] = share * task.logits(centres, target)
        # With two groups the summands cancel: t is zero then, not the direction of rounding.
        t = _direction(torch.cat(directions).sum(0))
        rest = target - self.beta * t
        is_lost = is_rounding(rest, target, task.text_floor)
        texts = unit_features(rest)
        return {"texts": texts, "lost": is_lost, **all_centres, **shifts}

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """Return probabilities ``[images, 1, targets]`` of view 0."""
        prepared = self._prepared(task)
        image = features[:, :1]
        logits = task.logits(image, prepared["texts"])
        if self.perceived:
            for attribute, values in task.sensitive_features.items():
                # `_prepare` has divided the shifts by the number of attributes.
                group = (image @ values.mT).argmax(-1)
                logits = logits - prepared[f"shift centres.{attribute}"][group]
        else:
            cluster = nearest_centre(image, prepared["centres"])
            logits = logits - prepared["shift centres"][cluster]
        return fall_back_to_zero_shot(
            task, features, softmax(logits), {CLASS_LOST: prepared["lost"]}
        )


def _direction(difference: Tensor) -> Tensor:
    """Return vectors of length one; zeros where only rounding is left."""
    has_direction = difference.norm(dim=-1, keepdim=True) > _MIN_DIRECTION_LENGTH
    return unit_features(torch.where(has_direction, difference, 0))
