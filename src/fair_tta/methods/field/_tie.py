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
    """Takes from each image as much of its sensitive value's prompt as images of that value have.

    ``v' = norm(v - lam_s z_s)`` with z_s the prompt of the image's *true* value s and ``lam_s`` the
    mean of ``<v, z_s>`` over the reference images of s. What several attributes take is added up.
    The classes' prompts stay as they are. Nothing is tuned and one view is enough.

    It has to know the true value, of reference images and of those to classify:
    ``tie.knowing("woman")`` is the method for images of women, with several attributes
    ``tie.knowing("woman", "old")`` in the order of the classifier's. An audit knows the values:
    ``clf.audit(images, labels, values, adapter=tie)``. Those of the command line do not use them,
    because what they keep of an image does not depend on its labels. Where values are not known,
    take `TIEStar`.

    Lu et al., 2025; public code: lu876/TIE.

    Differences from the reference implementation: sensitive prompts come from your template. As in
    the public code the mean is over all reference images, once; the paper speaks of a batch.

    Args:
        known: the value that the images to come have, of each attribute; `knowing` sets it.
        reference: what `FairTPTClassifier.fit` has found; without it nothing can be answered.

    Example:
        >>> TIE().knowing("woman")
        TIE(known=('woman',), reference=None)
    """

    known: tuple[str, ...] | None = None
    reference: Reference | None = None
    needs = Needs(sensitive=True, reference=True, reference_sensitive=True, values=True)

    def knowing(self, *values: str) -> TIE:
        """The method for images of which this is known.

        Args:
            values: the name of the value of each attribute, in the order of the classifier's.
        """
        return replace(self, known=values)

    def _check_task(self, task: Task) -> None:
        if self.known is not None:  # without it `fit` and `audit` work
            self._places(task, self.known)

    def _check_ready(self) -> None:
        super()._check_ready()
        self._known()

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        """See `mean_scales`."""
        return mean_scales(task, ((batch.features, batch.values) for batch in batches))

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        places = {
            name: torch.full((len(features),), place, device=features.device)
            for name, place in self._places(task, self._known()).items()
        }
        return answer_without(task, features, self._prepared(task), places)

    def _known(self) -> tuple[str, ...]:
        """Return the value of each attribute that is known, or raise if none is."""
        if self.known is None:
            raise FairTTAError(
                "TIE has to know the true sensitive value of each image: use what `knowing(value)` "
                "returns for images of that value, `clf.audit(..., adapter=tie)`, which knows "
                "the values, or TIEStar(), which perceives them.",
                argument="knowing",
            )
        return self.known

    def _places(self, task: Task, known: tuple[str, ...]) -> dict[str, int]:
        """Return which value of each attribute is known."""
        names = {
            attribute: list(values) for attribute, values in task.sensitive.items()
        }
        values = dict(zip(names, known, strict=False))
        if len(known) != len(names) or any(values[a] not in names[a] for a in names):
            raise FairTTAError(
                f"TIE should know a value of each attribute, in the order of {names} (got "
                f"{list(known)})."
            )
        return {
            attribute: names[attribute].index(value)
            for attribute, value in values.items()
        }


def mean_scales(
    task: Task, batches: Iterator[tuple[Tensor, Mapping[str, Tensor]]]
) -> dict[str, Tensor]:
    """``lam_s`` by attribute, ``[values]``; 0 for a value that no image has.

    Batches are features ``[images, dim]``, and ``{attribute: [images]}`` which value each has.
    """
    sums = {
        name: torch.zeros(2, len(z), dtype=torch.float64, device="cpu")
        for name, z in task.sensitive.items()
    }
    for v, places in batches:
        for name, place in places.items():
            cosine = (v * task.sensitive_features[name].to(v)[place]).sum(-1)
            sums[name].index_add_(
                1, place, torch.stack([cosine, torch.ones_like(cosine)])
            )
    return {name: total / count.clamp(min=1) for name, (total, count) in sums.items()}


def answer_without(
    task: Task,
    features: Tensor,
    scales: Mapping[str, Tensor],
    places: Mapping[str, Tensor],
) -> Outcome:
    """The answer for ``norm(v - sum lam_s z_s)``.

    Scales are ``{attribute: [values]}``, places ``{attribute: [images]}``: which value is taken.
    """
    image = features[:, :1]
    rest = image
    for name, place in places.items():
        scaled = scales[name].unsqueeze(-1) * task.sensitive_features[name]
        rest = rest - scaled[place].unsqueeze(1)
    lost = {IMAGE_LOST: is_rounding(rest, image, task.image_floor)}
    found = probabilities(task, unit_features(rest), task.target_features)
    return fall_back_to_zero_shot(task, features, found, lost)


@dataclass(frozen=True)
class EpisodicTIE(UsesTexts):
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

    needs = Needs(sensitive=True)

    def adapt_texts(self, task: Task, features: Tensor, texts: TextFeatures) -> Outcome:
        image = features[:, :1]
        perceived = [nearest(image, values)[1] for values in texts.sensitive.values()]
        rest = project_out(image, torch.cat(perceived, 1))
        lost = {IMAGE_LOST: is_rounding(rest, image, task.image_floor)}
        found = probabilities(task, unit_features(rest).to(features), texts.target)
        return fall_back_to_zero_shot(task, features, found, lost)


def nearest(image: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The value whose prompt is nearest: its index ``[images]`` and feature ``[images, 1, dim]``.

    Images are ``[images, 1, dim]``, values ``[(images,) values, dim]``.
    """
    index = (image @ values.mT).squeeze(1).argmax(-1)
    of_images = values.expand(len(image), *values.shape[-2:])
    return index, of_images.take_along_dim(index[:, None, None], 1)


@dataclass(frozen=True)
class TIEStar(FittedMethod):
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
        reference: what `FairTPTClassifier.fit` has found; without it nothing can be answered.

    Example:
        >>> TIEStar()
        TIEStar(reference=None)
    """

    reference: Reference | None = None
    needs = Needs(sensitive=True, reference=True)

    def _learn(
        self, task: Task, batches: Iterator[ReferenceBatch]
    ) -> Mapping[str, Tensor]:
        """See `mean_scales`."""
        return mean_scales(
            task, ((b.features, _perceived(task, b.features)) for b in batches)
        )

    def adapt(self, task: Task, features: Tensor) -> Outcome:
        perceived = _perceived(task, features[:, 0])
        return answer_without(task, features, self._prepared(task), perceived)


def _perceived(task: Task, images: Tensor) -> dict[str, Tensor]:
    """Of ``[images, dim]`` the nearest value of each attribute, ``[images]``."""
    every = task.sensitive_features.items()
    return {
        name: nearest(images.unsqueeze(1), values.to(images))[0]
        for name, values in every
    }
