"""The image side of a classifier: views of an image and their features, computed once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from fair_tta.backends.base import Backend
from fair_tta.errors import FairTTAError
from fair_tta.images import load_image
from fair_tta.task import unit
from fair_tta.views import Views, content_generator

CustomViews = Callable[[Image.Image, np.random.Generator], Iterable[Any]]
"""Views of one's own: an image and a random generator in, more images (of any kind) out."""

_PIXELS_AT_ONCE = 32 * 3 * 224 * 224
_SIZE = (224, 224)  # of views for a model that does not say its own
_CACHE_BYTES = 256 * 2**20
_ENTRY_BYTES = 1024  # what Python needs for an entry besides its numbers


class Vision:
    """Features of images and of their views.

    Args:
        backend: the model.
        views: a strategy, a function, or a tensor or list of images to use as views.
        seed: with the content of an image it seeds the image's views.
    """

    def __init__(self, backend: Backend, views: Any, seed: int) -> None:
        if not isinstance(seed, int):
            raise FairTTAError(f"`seed` should be a whole number (got {seed!r}).")
        self.backend = backend
        self.views: Views | CustomViews = _parse_views(views)
        self.seed = seed
        self._spec: _PixelSpec | bool | None = False  # not looked at yet
        self._kept: OrderedDict[Any, Tensor] = OrderedDict()

    def features(self, images: Sequence[Image.Image], with_views: bool) -> Tensor:
        """Unit features ``[images, views, dim]``; view 0 is the image itself.

        The most recent features are kept, so that another method on the same images costs no
        second pass through the vision tower.
        """
        keys = [(_digest(image), with_views) for image in images]
        found = {key: self._kept[key] for key in keys if key in self._kept}
        new = {key: image for key, image in zip(keys, images, strict=True) if key not in found}
        found |= zip(new, self._encode(list(new.values()), with_views), strict=True)
        for key in keys:
            self._kept[key] = found[key]
            self._kept.move_to_end(key)
        size = _ENTRY_BYTES + (next(iter(found.values())).nbytes if found else 0)
        while len(self._kept) * size > _CACHE_BYTES:
            self._kept.popitem(last=False)
        counts = {len(found[key]) for key in keys}
        if len(counts) > 1:
            raise FairTTAError(
                "`views` should give as many views of each image of a batch (got "
                f"{' and '.join(map(str, sorted(counts)))} counting the image): use batch_size=1."
            )
        return torch.stack([found[key] for key in keys])

    def forget(self) -> None:
        """Let go of the features that are kept."""
        self._kept.clear()

    def _encode(self, images: list[Image.Image], with_views: bool) -> list[Tensor]:
        if not images:
            return []
        if not with_views:
            return list(unit(self.backend.encode_images(images)).unsqueeze(1))
        spec = self._pixel_spec() if isinstance(self.views, Views) else None
        if spec is None:
            return [unit(self._encode_one_by_one(image)) for image in images]
        return self._encode_in_bulk(images, spec)

    def _encode_in_bulk(self, images: list[Image.Image], spec: _PixelSpec) -> list[Tensor]:
        """Views as arrays at the model's own size, several images at once if these are small."""
        views: Any = self.views
        backend: Any = self.backend
        limit = max(1, _PIXELS_AT_ONCE // (3 * spec.size[0] * spec.size[1]))
        step = max(1, limit // views.n)
        features: list[Tensor] = []
        for start in range(0, len(images), step):
            some = images[start : start + step]
            pixels = torch.empty(len(some), views.n, 3, *spec.size)
            pixels[:, 0] = backend.preprocess(some)
            for image, own in zip(some, pixels, strict=True):
                arrays = views(image, spec.size, content_generator(image, self.seed))
                wanted = [views.n - 1, *spec.size, 3]
                if list(arrays.shape) != wanted:
                    raise FairTTAError(
                        f"`views` should give an array {wanted}, all views but the image itself "
                        f"(got {list(arrays.shape)})."
                    )
                spec.normalise(arrays, out=own[1:])
            features += map(backend.encode_pixels, pixels.flatten(0, 1).split(limit))
        return list(unit(torch.cat(features)).reshape(len(images), views.n, -1))

    def _encode_one_by_one(self, image: Image.Image) -> Tensor:
        """Views as pictures, each through the model's own preprocessing."""
        generator = content_generator(image, self.seed)
        if isinstance(self.views, Views):
            arrays = self.views(image, _SIZE, generator).round().astype(np.uint8)
            pictures = [image, *map(Image.fromarray, arrays)]
        else:
            pictures = [image, *map(load_image, self.views(image, generator))]
        parts = [pictures[i : i + 32] for i in range(0, len(pictures), 32)]
        return torch.cat([self.backend.encode_images(part) for part in parts])

    def _pixel_spec(self) -> _PixelSpec | None:
        if isinstance(self._spec, bool):
            self._spec = _PixelSpec.of(self.backend)
        return self._spec


class _PixelSpec:
    """Size and normalisation of a model's input, read off what its own preprocessing does."""

    def __init__(self, size: tuple[int, int], gain: Tensor, shift: Tensor) -> None:
        self.size = size
        self._gain = gain
        self._shift = shift

    @classmethod
    def of(cls, backend: Any) -> _PixelSpec | None:
        """None if the model has no fixed size or does not normalise channel by channel."""
        preprocess = getattr(backend, "preprocess", None)
        if preprocess is None or not hasattr(backend, "encode_pixels"):
            return None
        black, white, wide = (
            preprocess([Image.new("RGB", size, colour)])
            for size, colour in (((96, 96), "black"), ((96, 96), "white"), ((96, 64), "black"))
        )
        if black is None or black.shape != wide.shape:
            return None
        low, high = black[0].float().flatten(1), white[0].float().flatten(1)
        if float((low - low[:, :1]).abs().max() + (high - high[:, :1]).abs().max()) > 1e-4:
            return None
        height, width = black.shape[-2:]
        return cls((height, width), (high[:, 0] - low[:, 0]) / 255, low[:, 0])

    def normalise(self, arrays: npt.NDArray[np.float32], out: Tensor) -> None:
        """``[..., height, width, 3]`` from 0 to 255 -> ``[..., 3, height, width]``."""
        pixels = torch.from_numpy(arrays).movedim(-1, -3)
        torch.addcmul(self._shift[:, None, None], pixels, self._gain[:, None, None], out=out)


def _digest(image: Image.Image) -> tuple[Any, ...]:
    return image.size, blake2b(image.tobytes(), digest_size=16).digest()


def _fixed(
    pictures: list[Image.Image], _image: Image.Image, _generator: np.random.Generator
) -> list[Image.Image]:
    return pictures


def _parse_views(views: Any) -> Views | CustomViews:
    if isinstance(views, Views) and not isinstance(views, type):
        return views
    if isinstance(views, Tensor | np.ndarray | list | tuple):
        return partial(_fixed, [load_image(view) for view in views])
    if callable(views) and not isinstance(views, type):
        custom: CustomViews = views
        return custom
    raise FairTTAError(
        "`views` should be a strategy such as AugMix(64), a function of an image and a random "
        f"generator, or a tensor of views (got {views!r})."
    )
