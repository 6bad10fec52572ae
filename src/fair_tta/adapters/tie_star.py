"""TIE*: TIE with the values that the model perceives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fair_tta.adapters.contract import Outcome
from fair_tta.adapters.episodic_tie import nearest
from fair_tta.adapters.fitting import FitsImages
from fair_tta.adapters.reference import Reference
from fair_tta.adapters.reference_batches import ReferenceBatch
from fair_tta.adapters.tie import answer_without, mean_scales
from fair_tta.text.task import Task


@dataclass(frozen=True)
class TIEStar(FitsImages):
    """Takes from each image as much of its seeming value's prompt as images that seem so have.

    ``v' = norm(v - lam_s z_s)`` with z_s the sensitive prompt nearest to v and ``lam_s`` the mean
    of ``<v, z_s>`` over the reference images whose nearest prompt it is; 0 if there is none, so
    that such images stay as they are. What several attributes take is added up. It is `TIE`
    without labels; `EpisodicTIE` needs no reference either. Nothing is tuned and one view is
    enough.

    Lu et al., 2025; public code: lu876/TIE.

    Differences from the reference implementation: sensitive prompts come from your template. As in
    the public code the mean is over all reference images, once; the paper speaks of a batch.

    Args:
        reference: what `fit` or `load` has found; without it nothing can be answered.

    Example:
        >>> TIEStar()
        TIEStar(reference=None)
    """

    reference: Reference | None = None
    needs_sensitive: ClassVar[bool] = True
    needs_prompt_gradient: ClassVar[bool] = False
    needs_views: ClassVar[bool] = False

    def learn(self, task: Task, batches: Iterator[ReferenceBatch]) -> Mapping[str, Tensor]:
        """See `mean_scales`."""
        return mean_scales(task, ((b.features, _perceived(task, b.features)) for b in batches))

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """See `Adapter.adapt`.

        Raises:
            FairTTAError: it is not fitted, or with another model or other prompts.
        """
        scales = self.prepared(task)
        return answer_without(task, features, scales, _perceived(task, features[:, 0]))


def _perceived(task: Task, images: Tensor) -> dict[str, Tensor]:
    """Of ``[images, dim]`` the nearest value of each attribute, ``[images]``."""
    every = task.sensitive_features.items()
    return {name: nearest(images.unsqueeze(1), values.to(images))[0] for name, values in every}
