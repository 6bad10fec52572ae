"""The image side of a classifier: views of an image and their features, computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fair_tta.backends.protocol import Backend
from fair_tta.errors import FairTTAError
from fair_tta.text.cache import Cache
from fair_tta.text.encoder import unit
from fair_tta.vision.enlarging import MOST_ENLARGED, check_enlarged, enlarged_pixels
from fair_tta.vision.images import ImageInput, load_image
from fair_tta.vision.pixel_spec import PixelSpec
from fair_tta.vision.views import Views, content_generator

CustomViews = Callable[[Image.Image, np.random.Generator], Iterable[Any]]
"""Views of one's own: an image and a random generator in, more images (of any kind) out."""

_PIXELS_AT_ONCE = 32 * 3 * 224 * 224
_SIZE = (224, 224)  # of views for a model that does not say its own
_EDGE = 512  # of such a model, at most
_LARGEST_EDGE = 1024  # of any model


class Vision:
    """Features of images and of their views.

    Args:
        backend: the model.
        views: a strategy, a function, or a tensor or list of images to use as views.
        seed: with the content of an image it seeds the image's views.
        cache: where features are kept. Whoever hands it over clears it when weights change.
    """

    def __init__(self, backend: Backend, views: Any, seed: int, cache: Cache) -> None:
        if not isinstance(seed, int):
            raise FairTTAError(f"`seed` should be a whole number (got {seed!r}).")
        self.backend = backend
        self.views: Views | CustomViews = _parse_views(views)
        self.seed = seed
        self.cache = cache
        self._owner = object()  # of its entries in the cache

    def load(self, image: ImageInput) -> Image.Image:
        """`load_image`, then `check`."""
        picture = load_image(image)
        self.check(picture, image)
        return picture

    def check(self, picture: Image.Image, image: ImageInput) -> None:
        """Refuse what the model's preprocessing would blow up; `image` is for the message."""
        if enlarged_pixels(picture, _LARGEST_EDGE) > MOST_ENLARGED:  # else any model will do
            spec = self._pixel_spec
            check_enlarged(picture, _EDGE if spec is None else max(spec.size), image)

    def features(self, images: Sequence[Image.Image], with_views: bool) -> Tensor:
        """Unit features ``[images, views, dim]``; view 0 is the image itself.

        Those in the cache are not made again, so that another method on the same images costs no
        second pass through the vision tower.
        """
        keys = [(_digest(image), with_views) for image in images]
        known = {key: self.cache.find(self._owner, key) for key in keys}
        found = {key: features for key, features in known.items() if features is not None}
        new = {key: image for key, image in zip(keys, images, strict=True) if key not in found}
        for key, features in zip(new, self._encode(list(new.values()), with_views), strict=True):
            found[key] = features
            self.cache.keep(self._owner, key, features, features.nbytes)
        counts = {len(found[key]) for key in keys}
        if len(counts) > 1:
            raise FairTTAError(
                "`views` should give as many views of each image of a batch (got "
                f"{' and '.join(map(str, sorted(counts)))} counting the image): use batch_size=1."
            )
        return torch.stack([found[key] for key in keys])

    @property
    def count(self) -> int | None:
        """How many views an image has, with itself; None if only a function of yours knows."""
        if isinstance(self.views, Views):
            return self.views.n
        if isinstance(self.views, partial) and self.views.func is _fixed:
            return 1 + len(self.views.args[0])
        return None

    def forget(self) -> None:
        """Let go of the features of images that are kept."""
        self.cache.clear(self._owner)

    def _encode(self, images: list[Image.Image], with_views: bool) -> list[Tensor]:
        if not images:
            return []
        if not with_views:
            return list(unit(self.backend.encode_images(images)).unsqueeze(1))
        spec = self._pixel_spec if isinstance(self.views, Views) else None
        if spec is None:
            return [unit(self._encode_one_by_one(image)) for image in images]
        return self._encode_in_bulk(images, spec)

    def _encode_in_bulk(self, images: list[Image.Image], spec: PixelSpec) -> list[Tensor]:
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
            pictures = [image, *map(self.load, self.views(image, generator))]
        parts = [pictures[i : i + 32] for i in range(0, len(pictures), 32)]
        return torch.cat([self.backend.encode_images(part) for part in parts])

    @cached_property
    def _pixel_spec(self) -> PixelSpec | None:
        return PixelSpec.of(self.backend)


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
