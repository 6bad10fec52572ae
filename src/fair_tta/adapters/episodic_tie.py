"""EpisodicTIE: each image without the prompt of the value that it seems to have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from fair_tta.adapters.chain import Texts, own_texts
from fair_tta.adapters.contract import Outcome, probabilities
from fair_tta.adapters.subspaces import project_out
from fair_tta.text.encoder import unit
from fair_tta.text.task import Task


@dataclass(frozen=True)
class EpisodicTIE:
    """Makes each image orthogonal to the prompt of the sensitive value that it seems to have.

    ``v' = norm(v - <v, z> z)`` with z the sensitive prompt nearest to v: `TIEStar` with the image's
    own scale in place of the mean over a reference, so that it needs none. With several
    attributes v' is orthogonal to the nearest prompt of each. Nothing is tuned and one view is
    enough.

    A strictly episodic variant of TIE* (Lu et al., 2025) that is not in their paper.
    ``FairTPT() >> EpisodicTIE()`` takes the tuned sensitive prompts.

    Differences from the reference implementation: the scale, as above; sensitive prompts
    come from your template.

    Example:
        >>> EpisodicTIE()
        EpisodicTIE()
    """

    needs_sensitive: ClassVar[bool] = True
    needs_prompt_gradient: ClassVar[bool] = False
    needs_views: ClassVar[bool] = False

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        """See `Adapter.adapt`."""
        return self.adapt_texts(task, features, own_texts(task))

    def adapt_texts(self, task: Task, features: Tensor, texts: Texts) -> Outcome:
        """See `UsesTexts.adapt_texts`."""
        image = features[:, :1]
        perceived = [nearest(image, values)[1] for values in texts.sensitive.values()]
        rest = unit(project_out(image, torch.cat(perceived, 1))).to(features)
        return Outcome(probabilities(task, rest, texts.target))


def nearest(image: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The value whose prompt is nearest: its index ``[images]`` and feature ``[images, 1, dim]``.

    Args:
        image: ``[images, 1, dim]``
        values: ``[(images,) values, dim]``
    """
    index = (image @ values.mT).squeeze(1).argmax(-1)
    of_images = values.expand(len(image), *values.shape[-2:])
    return index, of_images[torch.arange(len(image), device=image.device), index].unsqueeze(1)
