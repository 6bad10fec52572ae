"""UMFC: clusters of images lose their mean logits, prompts the direction between clusters."""

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

_ROUNDING = 1e-6


@dataclass(frozen=True)
class UMFC(FittedMethod):
    """Takes from each image the mean logits of its cluster, from prompts what sets clusters apart.

    ``logit_y = tau <v, T'_y> - alpha tau <m_k, T_y>`` with m_k the mean feature of the reference
    images of v's cluster k, ``T' = norm(T - beta t)``, ``t = norm(sum_k norm(m - m_k))`` and m the
    mean of all. Clusters come from k-means, and an image belongs to the nearest. With `perceived` a
    cluster is what seems to have one sensitive value; of several attributes the mean logits are
    averaged, and t is over the groups of all. A value that no reference image seems to have has m
    as its mean. With ``alpha=0, beta=0`` it is the zero-shot answer.

    arXiv 2411.06921, NeurIPS 2024; public code: GIT-LJc/UMFC.

    Differences from the reference implementation: we follow the code, which takes a cluster's
    mean *logits*, where the abstract speaks of features; its scripts choose alpha and beta by test
    accuracy, here they are its defaults; k-means has a fixed seed; there is no streaming form.
    With two groups the two summands of t cancel: t is nothing then, and not, as in the code, the
    direction of a rounding error. Perceived groups are not in the paper: `LogitBalance` is their
    relative. Features of all reference images are held while it is fitted.

    Args:
        alpha: how much of the cluster's mean logits is taken.
        beta: how much of t is taken from the prompts.
        clusters: how many; not used with `perceived`.
        perceived: group by the perceived sensitive values in place of k-means.
        reference: what `FairTPTClassifier.fit` has found; without it nothing can be answered.

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
        """``mean``, ``[dim]``, and ``centres`` or ``centres.ATTRIBUTE``, ``[groups, dim]``."""
        v, _ = gather_batches(batches)
        mean = v.mean(0)
        if self.perceived:
            learnt = {"mean": mean}
            for name, values in task.sensitive_features.items():
                group = (v @ values.to(v).mT).argmax(-1)
                of_groups = (v[group == place] for place in range(len(values)))
                means = [of.mean(0) if len(of) else mean for of in of_groups]
                learnt[f"centres.{name}"] = torch.stack(means)
            return learnt
        if len(v) < self.clusters:
            raise FairTTAError(
                f"`clusters` should be at most the number of reference images, {len(v)} (got "
                f"{self.clusters}).",
                argument="clusters",
            )
        return {"mean": mean, "centres": k_means(v, self.clusters)}

    def _prepare(
        self, task: Task, learnt: Mapping[str, Tensor]
    ) -> Mapping[str, Tensor]:
        """``texts``, T'; centres, and with ``taken`` before their names what is taken in each."""
        centres = {name: of for name, of in learnt.items() if name != "mean"}
        target = task.target_features.to(learnt["mean"])
        apart = [_direction(learnt["mean"] - of) for of in centres.values()]
        away = _direction(torch.cat(apart).sum(0))
        share = self.alpha / len(centres)
        taken = {
            f"taken {name}": share * task.logits(of, target)
            for name, of in centres.items()
        }
        rest = target - self.beta * away
        lost = is_rounding(rest, target, task.text_floor)
        return {"texts": unit_features(rest), "lost": lost, **centres, **taken}

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        made = self._prepared(task)
        image = features[:, :1]
        logits = task.logits(image, made["texts"])
        if self.perceived:
            for name, values in task.sensitive_features.items():
                logits = (
                    logits
                    - made[f"taken centres.{name}"][(image @ values.mT).argmax(-1)]
                )
        else:
            logits = (
                logits - made["taken centres"][nearest_centre(image, made["centres"])]
            )
        return fall_back_to_zero_shot(
            task, features, softmax(logits), {CLASS_LOST: made["lost"]}
        )


def _direction(difference: Tensor) -> Tensor:
    """Of length one, or nothing where there is nothing but rounding."""
    return unit_features(
        torch.where(difference.norm(dim=-1, keepdim=True) > _ROUNDING, difference, 0)
    )
