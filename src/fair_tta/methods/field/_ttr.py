"""TTR: classifies the segment of an image that shows its subject."""

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

# As in the public code: singular vectors along which patches are compared.
_COMPONENTS = 3
# Of k-means; the best of them counts.
_STARTS = 10
NOT_EPISODIC = (
    "not episodic: this answer depends on the images that came with it (queue)"
)


@dataclass(frozen=True)
class TTR(PixelAdapter):
    """Cut out the segment of an image that shows its subject, and classify that.

    With P the features of the image's patches through the projection, ``[patches, dim]``: the
    patches' coordinates along the 3 first right singular vectors of P, smoothed along the rows of
    patches, are grouped by k-means; of the segments the one whose mean patch has the *smallest*
    inner product with the general prompt, the target sentence with `subject` in its slot, is kept
    (CLIP's patches point away from what they show); all other pixels are set to zero, the mean
    colour after normalisation, and the result is encoded and compared with the prompts of the
    classes. It names no attribute, tunes nothing, and passes two images through the vision tower,
    which has to be a vision transformer.

    Lu et al., *TTR*, 2025; public code: lu876/TTR.

    Differences from the reference implementation: that groups the patches of a queue of images
    together (28, for CelebA 12): at first those of the first images of the stream, so it looks
    ahead, and later those of the images before. Here each image is on its own unless `queue` is
    larger, and then a batch is cut into queues that do not overlap. Images are preprocessed as the
    model requires; the public code for UrbanCars squashes them to 224 x 224 and takes the
    statistics of ImageNet. The decomposition is exact, not randomised; the best of ten starts of
    k-means counts, not the first; a segment without patches cannot be chosen, where that code gives
    it the features (10, 10, ...).

    Args:
        subject: a phrase for what all classes are kinds of, for the target slot of the template;
            required, such as ``"bird"``, or ``"of a bird"`` in "This is a picture {target}".
        segments: the number of parts an image is cut into.
        sigma: width in patches of the Gaussian that smooths along the patches; 0 for none.
        queue: the number of successive images of a batch that are grouped together. With more than
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
        # Encodes a probe, so that a tower without patches is refused before the first image.
        task.remember(
            "patches",
            lambda: backend.encode_patches(backend.preprocess([probe_image()])),
        )
        self._general_feature(task)

    def _general_feature(self, task: Task) -> Tensor:
        """Return the feature of the general prompt, ``[dim]``."""
        return task.remember(
            ("general", self.subject), lambda: task._phrase_features([self.subject])[0]
        )

    def adapt_pixels(
        self, task: Task, vision: Vision, images: Sequence[Image]
    ) -> Outcome:
        backend: Any = vision.backend
        general = self._general_feature(task)
        # One by one: rounding must not depend on the batch, or a patch between two segments would
        # fall to one in one batch and to the other in another.
        pixels = [backend.preprocess([image]) for image in images]
        patches = [backend.encode_patches(image)[0] for image in pixels]
        segments: list[Tensor] = []
        for start in range(0, len(images), self.queue):
            queue = slice(start, start + self.queue)
            queue_pixels = [image[0] for image in pixels[queue]]
            segments += self._cut_segments(queue_pixels, patches[queue], general)
        encoded = backend.encode_pixels(torch.stack(segments))
        features = unit_features(encoded).unsqueeze(1).to(general)
        p = probabilities(task, features, task.target_features)
        depends_on_others = torch.full(
            (len(images),), self.needs.other_images, device=p.device
        )
        return Outcome(p, flags={NOT_EPISODIC: depends_on_others})

    def _cut_segments(
        self, pixels: Sequence[Tensor], patches: Sequence[Tensor], general: Tensor
    ) -> list[Tensor]:
        """Return pixels ``[3, height, width]`` with all but the chosen segment set to zero.

        Args:
            pixels: images that are grouped together, as the model takes them.
            patches: features of their patches, row by row, ``[patches, dim]``.
            general: feature of the general prompt, ``[dim]``.
        """
        # Float64: k-means compares distances that may be nearly equal.
        all_patches = torch.cat(list(patches)).to("cpu", torch.float64)
        sizes = [len(image_patches) for image_patches in patches]
        segments = self._segment_patches(all_patches).split(sizes)
        scores = (all_patches @ general.to(all_patches)).split(sizes)
        return [
            self._keep_lowest_segment(*image)
            for image in zip(pixels, segments, scores, strict=True)
        ]

    def _segment_patches(self, patches: Tensor) -> Tensor:
        """Return the segment of each patch, ``[patches]``, from their features."""
        _, _, directions = torch.linalg.svd(patches, full_matrices=False)
        points = patches @ directions[:_COMPONENTS].mT
        if self.sigma:
            smooth = gaussian_filter1d(points.numpy(), self.sigma, axis=0)
            points = torch.from_numpy(smooth)
        return nearest_centre(points, k_means(points, self.segments, _STARTS))

    def _keep_lowest_segment(
        self, pixels: Tensor, segments: Tensor, scores: Tensor
    ) -> Tensor:
        """Return pixels with zeros outside the segment with the smallest mean score."""
        means = [scores[segments == segment].mean() for segment in range(self.segments)]
        # The mean of a segment without patches is NaN: it must not be chosen.
        chosen = torch.stack(means).nan_to_num(math.inf).argmin()
        height, width = pixels.shape[-2:]
        # Patches are square, so their number and the shape of the image give the grid.
        rows = round(math.sqrt(len(segments) * height / width))
        mask = (segments == chosen).to(pixels).reshape(1, 1, rows, -1)
        return pixels * interpolate(mask, (height, width))[0]
