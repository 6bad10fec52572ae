"""TIE, EpisodicTIE and TIE*: images without the prompt of their attribute value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fair_tta._linalg import is_rounding, project_out, unit_features
from fair_tta.errors import FairTTAError
from fair_tta.methods._base import (
    IMAGE_LOST,
    Needs,
    Outcome,
    TextFeatures,
    UsesTexts,
    fall_back_to_zero_shot,
    probabilities,
)
from fair_tta.methods._fitting import FittedMethod, ReferenceBatch
from fair_tta.methods._reference import Reference
from fair_tta.prompts._task import Task


@dataclass(frozen=True)
class TIE(FittedMethod):
    """Subtract the prompt of an image's true value, scaled by its mean similarity to such images.

    ``v' = norm(v - lam_s z_s)`` with z_s the prompt of the image's *true* value s and ``lam_s`` the
    mean of ``<v, z_s>`` over the reference images of s. The terms of several attributes are added.
    The classes' prompts are unchanged. Nothing is tuned and one view is enough.

    It has to know the true value, of reference images and of those to classify:
    ``tie.knowing("woman")`` is the method for images of women, with several attributes
    ``tie.knowing("woman", "old")`` in the order of the classifier's. An audit knows the values:
    ``clf.audit(images, labels, values, adapter=tie)``. Audits of the command line do not use them,
    because stored rows must not depend on labels. Where values are not known, use `TIEStar`.

    Lu et al., 2025; public code: lu876/TIE.

    Differences from the reference implementation: sensitive prompts come from your template. As in
    the public code the mean is over all reference images, once; the paper speaks of a batch.

    Args:
        known: the value that the images to come have, of each attribute; `knowing` sets it.
        reference: what `FairTPTClassifier.fit` learned; without it images are refused.

    Example:
        >>> TIE().knowing("woman")
        TIE(known=('woman',), reference=None)
    """

    known: tuple[str, ...] | None = None
    reference: Reference | None = None
    needs = Needs(sensitive=True, reference=True, reference_sensitive=True, values=True)

    def knowing(self, *values: str) -> TIE:
        """Return the method for images whose values are known.

        Args:
            values: the name of the value of each attribute, in the order of the classifier's.
        """
        return replace(self, known=values)

    def _check_task(self, task: Task) -> None:
        # `fit` and `audit` work without it: they know the values themselves.
        if self.known is not None:
            self._value_indices(task, self.known)

    def _check_ready(self) -> None:
        super()._check_ready()
        self._known()

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        """Return the scales of `mean_scales`."""
        return mean_scales(task, ((batch.features, batch.values) for batch in batches))

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        known = self._value_indices(task, self._known())
        value_indices = {
            attribute: torch.full((len(features),), index, device=features.device)
            for attribute, index in known.items()
        }
        return subtract_and_compare(task, features, self._prepared(task), value_indices)

    def _known(self) -> tuple[str, ...]:
        """Return the known value of each attribute, or raise if none is known."""
        if self.known is None:
            raise FairTTAError(
                "TIE needs the true sensitive value of each image: use `tie.knowing(value)` for "
                "images of that value, `clf.audit(..., adapter=tie)`, which knows the values, or "
                "TIEStar(), which perceives them.",
                argument="knowing",
            )
        return self.known

    def _value_indices(self, task: Task, known: tuple[str, ...]) -> dict[str, int]:
        """Return the index of the known value of each attribute."""
        names = {
            attribute: list(values) for attribute, values in task.sensitive.items()
        }
        indices = {}
        # Lengths may differ: the error below says so.
        for attribute, value in zip(names, known, strict=False):
            if value in names[attribute]:
                indices[attribute] = names[attribute].index(value)
        if len(known) != len(names) or len(indices) != len(names):
            raise FairTTAError(
                f"TIE should know a value of each attribute, in the order of {names} (got "
                f"{list(known)})."
            )
        return indices


def mean_scales(
    task: Task, batches: Iterator[tuple[Tensor, Mapping[str, Tensor]]]
) -> dict[str, Tensor]:
    """Return ``lam_s`` by attribute, ``[values]``; 0 for a value that no image has.

    Args:
        task: has the sensitive prompts.
        batches: unit features ``[images, dim]``, and ``{attribute: [images]}``, the index of the
            value of each.
    """
    # Sums over batches in float64: there may be millions of reference images.
    cosine_sums = {}
    counts = {}
    for attribute, names in task.sensitive.items():
        cosine_sums[attribute] = torch.zeros(
            len(names), dtype=torch.float64, device="cpu"
        )
        counts[attribute] = torch.zeros_like(cosine_sums[attribute])
    for images, value_indices in batches:
        for attribute, indices in value_indices.items():
            prompts = task.sensitive_features[attribute].to(images)[indices]
            cosines = (images * prompts).sum(-1)
            cosine_sums[attribute].index_add_(0, indices, cosines)
            counts[attribute].index_add_(0, indices, torch.ones_like(cosines))
    return {
        attribute: cosine_sums[attribute] / counts[attribute].clamp(min=1)
        for attribute in task.sensitive
    }


def subtract_and_compare(
    task: Task,
    features: Tensor,
    scales: Mapping[str, Tensor],
    value_indices: Mapping[str, Tensor],
) -> Outcome:
    """Return the answer for ``norm(v - sum lam_s z_s)``.

    Args:
        task: has the prompts.
        features: ``[images, views, dim]``, of which view 0 counts.
        scales: ``{attribute: [values]}``
        value_indices: ``{attribute: [images]}``, the value that is subtracted from each image.
    """
    # Prompts of several attributes are subtracted one after the other, each with its own scale.
    image = features[:, :1]
    rest = image
    for attribute, indices in value_indices.items():
        scaled_prompts = scales[attribute].unsqueeze(-1)
        scaled_prompts = scaled_prompts * task.sensitive_features[attribute]
        rest = rest - scaled_prompts[indices].unsqueeze(1)
    return fall_back_to_zero_shot(
        task,
        features,
        probabilities(task, unit_features(rest), task.target_features),
        {IMAGE_LOST: is_rounding(rest, image, task.image_floor)},
    )


@dataclass(frozen=True)
class EpisodicTIE(UsesTexts):
    """Make each image orthogonal to the nearest sensitive prompt.

    ``v' = norm(v - <v, z> z)`` with z the sensitive prompt nearest to v: `TIEStar` with the image's
    own scale instead of the mean over reference images, so it needs none. With several
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

    needs = Needs(sensitive=True)

    def adapt_texts(self, task: Task, features: Tensor, texts: TextFeatures) -> Outcome:
        image = features[:, :1]
        # Together, and not one by one, so that the order of attributes does not matter.
        nearest_prompts = []
        for values in texts.sensitive.values():
            _, prompt = nearest_value(image, values)
            nearest_prompts.append(prompt)
        rest = project_out(image, torch.cat(nearest_prompts, 1))
        return fall_back_to_zero_shot(
            task,
            features,
            probabilities(task, unit_features(rest).to(features), texts.target),
            {IMAGE_LOST: is_rounding(rest, image, task.image_floor)},
        )


def nearest_value(image: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Return index ``[images]`` and feature ``[images, 1, dim]`` of the nearest prompt.

    Args:
        image: ``[images, 1, dim]``
        values: features of the sensitive prompts, ``[(images,) values, dim]``.
    """
    index = (image @ values.mT).squeeze(1).argmax(-1)
    values_by_image = values.expand(len(image), *values.shape[-2:])
    return index, values_by_image.take_along_dim(index[:, None, None], 1)


@dataclass(frozen=True)
class TIEStar(FittedMethod):
    """Subtract the nearest attribute prompt, scaled by its mean similarity to reference images.

    ``v' = norm(v - lam_s z_s)`` with z_s the sensitive prompt nearest to v and ``lam_s`` the mean
    of ``<v, z_s>`` over the reference images whose nearest prompt it is; 0 if there is none, so
    such images are unchanged. The terms of several attributes are added. It is `TIE` without
    labels; `EpisodicTIE` needs no reference either. Nothing is tuned and one view is enough.

    Lu et al., 2025; public code: lu876/TIE.

    Differences from the reference implementation: sensitive prompts come from your template. As in
    the public code the mean is over all reference images, once; the paper speaks of a batch.

    Args:
        reference: what `FairTPTClassifier.fit` learned; without it images are refused.

    Example:
        >>> TIEStar()
        TIEStar(reference=None)
    """

    reference: Reference | None = None
    needs = Needs(sensitive=True, reference=True)

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        """Return the scales of `mean_scales`."""
        perceived_batches = (
            (batch.features, _perceived_indices(task, batch.features))
            for batch in batches
        )
        return mean_scales(task, perceived_batches)

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        perceived = _perceived_indices(task, features[:, 0])
        return subtract_and_compare(task, features, self._prepared(task), perceived)


def _perceived_indices(task: Task, images: Tensor) -> dict[str, Tensor]:
    """Return the index of the nearest value of each attribute, from ``[images, dim]``."""
    perceived = {}
    for attribute, values in task.sensitive_features.items():
        index, _ = nearest_value(images.unsqueeze(1), values.to(images))
        perceived[attribute] = index
    return perceived
