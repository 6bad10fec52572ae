"""TTR: the part of an image that shows its subject, classified on its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL.Image import Image
from scipy.ndimage import gaussian_filter1d
from torch import Tensor
from torch.nn.functional import interpolate

from fair_tta._linalg import unit_features
from fair_tta.errors import FairTTAError, TowerError, check_count
from fair_tta.images._vision import Vision, probe_image
from fair_tta.methods._base import (
    Needs,
    Outcome,
    PixelAdapter,
    check_non_negative,
    probabilities,
)
from fair_tta.methods.field._clusters import k_means, nearest_centre
from fair_tta.methods.tuning._weights import check_pixels
from fair_tta.prompts._task import Task

_COMPONENTS, _STARTS = 3, 10
NOT_EPISODIC = (
    "not episodic: this answer depends on the images that came with it (queue)"
)


@dataclass(frozen=True)
class TTR(PixelAdapter):
    """Cuts the segment out of an image that shows its subject, and classifies that.

    With P the features of the image's patches through the projection, ``[patches, dim]``: the
    patches' coordinates along the 3 first right singular vectors of P, smoothed along the rows of
    patches, are grouped by k-means; of the segments the one whose mean patch has the *smallest*
    inner product with the general prompt, the target sentence with `subject` in its slot, is kept
    (patches of CLIP point the other way); all other pixels are set to zero, the mean colour after
    normalisation, and what is left is encoded and compared with the prompts of the classes. It
    names no attribute, tunes nothing, and passes two images through the vision tower, which has to
    be a vision transformer.

    Lu et al., *TTR*, 2025; public code: lu876/TTR.

    Differences from the reference implementation: that groups the patches of a queue of images
    together (28, for CelebA 12): at the start those of the first images of the stream, so that it
    looks ahead, and later those of the images before. Here each image is on its own unless `queue`
    is larger, and then a batch is cut into queues, none of which looks ahead into another. Images
    are preprocessed as the model wants them; the public code for UrbanCars squashes them to
    224 x 224 and takes the statistics of ImageNet. The
    decomposition is exact in place of randomised; of ten starts of k-means the best counts, not the
    first; a segment without patches cannot be chosen, where that code gives it the features
    (10, 10, ...).

    Args:
        subject: what all classes are kinds of, as it stands in the target slot of the template;
            required, such as ``"bird"``, or ``"of a bird"`` in "This is a picture {target}".
        segments: how many parts an image is cut into.
        sigma: of the Gaussian that smooths along the patches, in patches; 0 for none.
        queue: how many images of a batch, one after the other, are grouped together. With more than
            one an answer depends on order and batch size, and `Prediction.warnings` says so.

    Example:
        >>> TTR(subject="bird").segments
        3
    """

    subject: str = ""
    segments: int = 3
    sigma: float = 0.72
    queue: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.subject, str):
            raise FairTTAError(
                f"`subject` should be a phrase (got {self.subject!r}).",
                argument="subject",
            )
        check_count("segments", self.segments)
        check_count("queue", self.queue)
        check_non_negative(self, "sigma")

    @property
    def needs(self) -> Needs:  # type: ignore[override]
        """The images themselves, a subject, and with a queue the other images of a batch."""
        return Needs(
            pixels=True, setting=not self.subject.strip(), other_images=self.queue > 1
        )

    def _check_task(self, task: Task) -> None:
        if self.needs.setting:
            raise FairTTAError(
                "TTR needs `subject`, a phrase for what all classes are kinds of: "
                "TTR(subject='bird'), or 'ttr:subject=bird'.",
                argument="subject",
            )
        backend: Any = task.backend
        if not hasattr(backend, "encode_patches"):
            raise TowerError(
                f"TTR needs features of patches: {backend.name} has no method `encode_patches`."
            )
        check_pixels("TTR", backend)
        task.remember(
            "patches",
            lambda: backend.encode_patches(backend.preprocess([probe_image()])),
        )
        self._general(task)

    def _general(self, task: Task) -> Tensor:
        """The feature of the general prompt, ``[dim]``."""
        return task.remember(
            ("general", self.subject), lambda: task._phrase_features([self.subject])[0]
        )

    def adapt_pixels(
        self, task: Task, vision: Vision, images: Sequence[Image]
    ) -> Outcome:
        backend: Any = vision.backend
        general = self._general(task)
        # one by one: a patch between two segments should fall to the same in every batch
        pixels = [backend.preprocess([image]) for image in images]
        patches, kept = [backend.encode_patches(p)[0] for p in pixels], list[Tensor]()
        for at in range(0, len(images), self.queue):
            some = slice(at, at + self.queue)
            kept += self._segment([p[0] for p in pixels[some]], patches[some], general)
        features = unit_features(backend.encode_pixels(torch.stack(kept))).unsqueeze(1)
        found = probabilities(task, features.to(general), task.target_features)
        depends = torch.full(
            (len(images),), self.needs.other_images, device=found.device
        )
        return Outcome(found, flags={NOT_EPISODIC: depends})

    def _segment(
        self, pixels: Sequence[Tensor], patches: Sequence[Tensor], general: Tensor
    ) -> list[Tensor]:
        """Pixels ``[3, height, width]`` with all but the chosen segment set to zero.

        Args:
            pixels: of images that are grouped together, as the model takes them.
            patches: their features, row by row, ``[patches, dim]``.
            general: feature of the general prompt, ``[dim]``.
        """
        x = torch.cat([*patches]).to("cpu", torch.float64)
        _, _, directions = torch.linalg.svd(x, full_matrices=False)
        points = x @ directions[:_COMPONENTS].mT
        if self.sigma:
            points = torch.from_numpy(
                gaussian_filter1d(points.numpy(), self.sigma, axis=0)
            )
        places, kept = (
            nearest_centre(points, k_means(points, self.segments, _STARTS)),
            [],
        )
        sizes = [len(own) for own in patches]
        of_images = zip(
            pixels, places.split(sizes), (x @ general.to(x)).split(sizes), strict=True
        )
        for image, which, scores in of_images:
            means = [scores[which == place].mean() for place in range(self.segments)]
            chosen = (
                torch.stack(means).nan_to_num(math.inf).argmin()
            )  # of no patches it is NaN
            height, width = image.shape[-2:]
            rows = round(math.sqrt(len(which) * height / width))
            mask = (which == chosen).to(image).reshape(1, 1, rows, -1)
            kept.append(image * interpolate(mask, (height, width))[0])
        return kept
