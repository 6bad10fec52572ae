"""The image side of a classifier: views of an image and their features, computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from fair_tta._cache import Cache
from fair_tta._linalg import unit_features
from fair_tta.errors import FairTTAError, ImageError, ModelError, check_count
from fair_tta.images._augment import Size
from fair_tta.images._draw import Renderer
from fair_tta.images._draw_batch import render_batch
from fair_tta.images._load import check_enlarged, load_image, pixel_digest
from fair_tta.images._pixel_spec import PixelSpec
from fair_tta.images._stored import StoredFeature
from fair_tta.images._views import AugMix, Views, check_arrays, content_generator
from fair_tta.models._backend import Backend
from fair_tta.models._model_lock import computed_once
from fair_tta.models._stored_text import refuse_images, sees_images


def probe_image() -> Image.Image:
    """Return an image that is neither square nor smooth, so that any preprocessing shows."""
    y, x = np.mgrid[:171, :230]
    stripes = (7 * x + 13 * y) % 251
    pixels = np.stack([x, y, stripes], -1).astype(np.uint8)
    return Image.fromarray(pixels)


# Errors that image processors raise when they refuse an image.
_PROCESSOR_ERRORS = (ValueError, TypeError, LookupError, ArithmeticError)


@contextmanager
def takes_images(backend: Backend) -> Iterator[None]:
    """Raise `ModelError` if the model takes no image at all; an error about one image passes."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        raise ModelError(
            f"there is not enough memory for these images in {backend.name}: try a smaller "
            "`batch_size`, and look at the sizes in its image processor."
        ) from error
    except _PROCESSOR_ERRORS as error:
        if isinstance(error, FairTTAError):
            raise
        try:
            backend.encode_images([probe_image()])
        except _PROCESSOR_ERRORS:
            raise ModelError(
                f"{backend.name} takes no images ({type(error).__name__}: {error}): its image "
                "processor may be damaged or of another model; pass the right one (`processor`)."
            ) from error
        raise


CustomViews = Callable[[Image.Image, np.random.Generator], Iterable[Any]]
"""User-defined views: an image and a random generator in, more images (of any kind) out."""

PixelChange = Callable[[Tensor, np.random.Generator], Tensor]
"""A change of the pixels of all views of an image, ``[views, 3, height, width]``.

Hashable, with a repr that identifies it, which seeds the generator.
"""

_DEFAULT_SIZE = (224, 224)  # of views for a model without a fixed size
# Views of that size in one pass of the vision tower. On a device they need some 1.5 GB; fewer
# would launch more kernels.
_VIEWS_PER_PASS_ON_CPU = 32
_VIEWS_PER_PASS_ON_DEVICE = 256
# A model without a fixed size enlarges the short edge to this at most. Images that are less long
# and narrow than the ratio become too large with no model.
_MAX_DEFAULT_EDGE = 512
_MAX_SAFE_RATIO = 16


class Vision:
    """Features of images and of their views, which seed and content of an image determine.

    `views` is a strategy, a function, or a tensor or list of images to use as views. The owner of
    the cache clears it when weights change.
    """

    def __init__(self, backend: Backend, views: Any, seed: int, cache: Cache) -> None:
        if not isinstance(seed, int):
            raise FairTTAError(
                f"`seed` should be an integer (got {seed!r}).", argument="seed"
            )
        self.backend = backend
        self.views: Views | CustomViews = _parse_views(views)
        self.seed = seed
        self.cache = cache
        self._owner = object()  # of its entries in the cache

    @property
    def count(self) -> int | None:
        """Number of views of an image, including itself; None if only a custom function knows."""
        if isinstance(self.views, Views):
            return self.views.n
        if isinstance(self.views, partial) and self.views.func is _fixed:
            return 1 + len(self.views.args[0])
        return None

    def forget(self) -> None:
        """Drop the cached features of images."""
        self.cache.clear(self._owner)

    def load(self, image: Any) -> Any:
        """Return `load_image(image)`, or raise `ImageError` if preprocessing would take gigabytes.

        A stored feature is returned unchanged.
        """
        if isinstance(image, StoredFeature):
            return image
        if not sees_images(self.backend):
            refuse_images()
        loaded = load_image(image)
        if max(loaded.size) > _MAX_SAFE_RATIO * min(loaded.size):
            spec = self._pixel_spec
            edge = _MAX_DEFAULT_EDGE if spec is None else max(spec.size)
            check_enlarged(loaded, edge, image)
        return loaded

    def features(
        self,
        images: Sequence[Image.Image],
        with_views: bool,
        auxiliary: Views | CustomViews | None = None,
    ) -> Tensor:
        """Return unit features ``[images, views, dim]``; view 0 is the image itself.

        Those in the cache are not computed again, so that another method on the same images costs
        no second pass through the vision tower. `auxiliary` are views that a method brings along,
        instead of the classifier's.
        """
        views = auxiliary or (self.views if with_views else None)
        return self._cached(
            images,
            auxiliary or with_views,
            lambda new_images: self._encode(new_images, views),
        )

    def changed_features(
        self, images: Sequence[Image.Image], change: PixelChange
    ) -> Tensor:
        """Return unit features ``[images, n, dim]`` of the changed pixels of all views."""

        def encode(image: Image.Image) -> Tensor:
            generator = content_generator(image, self.seed, repr(change))
            return unit_features(
                self._encode_pixels(change(self.pixels(image), generator))
            )

        return self._cached(
            images, change, lambda new_images: [encode(image) for image in new_images]
        )

    def pixels(self, image: Image.Image) -> Tensor:
        """Return an image and its views as the model's input, ``[views, 3, height, width]``."""
        spec = self._pixel_spec if isinstance(self.views, Views) else None
        if isinstance(self.views, Views) and spec is not None:
            return self._model_inputs([image], self.views, spec)[0]
        backend: Any = self.backend
        pixels: Tensor = backend.preprocess(self._view_images(image, self.views))
        return pixels

    def _cached(
        self,
        images: Sequence[Image.Image],
        variant: object,
        encode: Callable[[list[Image.Image]], list[Tensor]],
    ) -> Tensor:
        """Return cached features ``[images, views, dim]``; `encode` computes what is missing.

        `variant` distinguishes the features of one image: its views, or a change of its pixels.
        """
        times_cleared = self.cache.times_cleared
        # Without a cache contents need no digest: positions distinguish the images.
        is_caching = self.cache.limit > 0
        keys = [
            (image_digest(image) if is_caching else index, variant)
            for index, image in enumerate(images)
        ]
        features_by_key = {}
        for key in keys:
            cached = self.cache._find(self._owner, key)
            if cached is not None:
                features_by_key[key] = cached
        missing = {
            key: image
            for key, image in zip(keys, images, strict=True)
            if key not in features_by_key
        }

        with takes_images(self.backend):
            encoded = encode(list(missing.values()))
        for key, batch_row in zip(missing, encoded, strict=True):
            features = batch_row.clone()  # a view would keep the whole batch alive
            features_by_key[key] = features
            self.cache._keep(self._owner, key, features, features.nbytes, times_cleared)

        counts = {len(features_by_key[key]) for key in keys}
        if len(counts) > 1:
            name = "views" if variant is True else "auxiliary"
            raise FairTTAError(
                f"`{name}` should return equally many views of each image of a batch (got "
                f"{' and '.join(map(str, sorted(counts)))} counting the image): use batch_size=1.",
                argument=name,
            )
        return torch.stack([features_by_key[key] for key in keys])

    def _encode(
        self, images: list[Image.Image], views: Views | CustomViews | None
    ) -> list[Tensor]:
        """Return unit features ``[views, dim]`` of each image."""
        if not images:
            return []
        if views is None:
            return list(unit_features(self._encode_images(images)).unsqueeze(1))

        # Custom views, and all views of models that take any size, go through the model's own
        # preprocessing.
        spec = self._pixel_spec if isinstance(views, Views) else None
        if not isinstance(views, Views) or spec is None:
            return [
                unit_features(self._encode_images(self._view_images(image, views)))
                for image in images
            ]
        step = max(1, views_per_pass(spec.size, self.backend.device) // views.n)
        parts = []
        for start in range(0, len(images), step):
            pixels = self._model_inputs(images[start : start + step], views, spec)
            parts.append(self._encode_pixels(pixels.flatten(0, 1)))
        features = unit_features(torch.cat(parts))
        return list(features.reshape(len(images), views.n, -1))

    def _model_inputs(
        self, images: list[Image.Image], views: Views, spec: PixelSpec
    ) -> Tensor:
        """Return images and views as the model's input: ``[images, views, 3, height, width]``."""
        backend: Any = self.backend
        view_0: Tensor = backend.preprocess(images).unsqueeze(1)

        if isinstance(views, AugMix):
            renderer = Renderer(views.render)
            if renderer.uses_tensors(backend.device):
                return self._draw_on_device(images, view_0, views, spec)
        pixels = torch.empty(len(images), views.n, 3, *spec.size, device="cpu")
        pixels[:, :1] = view_0
        for image, image_pixels in zip(images, pixels, strict=True):
            arrays = torch.from_numpy(self._arrays(image, views, spec.size))
            spec.normalise(arrays.movedim(-1, -3), out=image_pixels[1:])
        return pixels

    def _draw_on_device(
        self,
        images: list[Image.Image],
        view_0: Tensor,
        views: AugMix,
        spec: PixelSpec,
    ) -> Tensor:
        """Add views to view 0 where the model is: images are copied there, not their views."""
        if views.n == 1:
            return view_0
        recipes = [
            views._draw_recipes(image, spec.size, content_generator(image, self.seed))
            for image in images
        ]
        levels = render_batch(images, spec.size, recipes, self.backend.device)
        return torch.cat([view_0.to(levels), spec.normalise(levels)], 1)

    def _view_images(
        self, image: Image.Image, views: Views | CustomViews
    ) -> list[Image.Image]:
        """Return an image and its views as images, for the model's own preprocessing."""
        if isinstance(views, Views):
            arrays = self._arrays(image, views, _DEFAULT_SIZE)
            levels = arrays.round().clip(0, 255).astype(np.uint8)
            return [image, *(Image.fromarray(pixels) for pixels in levels)]
        name = self._argument_name(views)
        view_images = views(image, content_generator(image, self.seed))
        if isinstance(view_images, str | bytes | Mapping) or not isinstance(
            view_images, Iterable
        ):
            raise FairTTAError(
                f"`{name}` should return images, such as [image.rotate(90)] (got "
                f"{type(view_images).__name__}).",
                argument=name,
            )
        try:
            return [image, *(self.load(view) for view in view_images)]
        except ImageError as error:
            raise ImageError(
                f"`{name}` did not return an image: {error}", argument=name
            ) from error

    def _arrays(
        self, image: Image.Image, views: Views, size: Size
    ) -> npt.NDArray[np.float32]:
        """Return views 1 to n - 1, ``[n - 1, height, width, 3]``, after a check."""
        arrays = views(image, size, content_generator(image, self.seed))
        return check_arrays(self._argument_name(views), views, arrays, size)

    def _argument_name(self, views: Views | CustomViews) -> str:
        return "views" if views is self.views else "auxiliary"

    def _encode_images(self, images: list[Image.Image]) -> Tensor:
        step = views_per_pass(_DEFAULT_SIZE, self.backend.device)
        parts = [
            self.backend.encode_images(images[start : start + step])
            for start in range(0, len(images), step)
        ]
        return torch.cat(parts)

    def _encode_pixels(self, pixels: Tensor) -> Tensor:
        backend: Any = self.backend
        step = views_per_pass(pixels.shape[-2:], self.backend.device)
        parts = [backend.encode_pixels(part) for part in pixels.split(step)]
        return torch.cat(parts)

    @property
    @computed_once
    def _pixel_spec(self) -> PixelSpec | None:
        return PixelSpec.from_backend(self.backend)


def views_per_pass(size: Sequence[int], device: torch.device | None = None) -> int:
    """Return how many views of a size go through the vision tower together."""
    is_cpu = device is None or device.type == "cpu"
    count = _VIEWS_PER_PASS_ON_CPU if is_cpu else _VIEWS_PER_PASS_ON_DEVICE
    default_height, default_width = _DEFAULT_SIZE
    return max(1, count * default_height * default_width // (size[0] * size[1]))


def image_digest(image: Image.Image | StoredFeature) -> str:
    """Return the digest that identifies the content of a loaded image or of a stored feature."""
    if isinstance(image, StoredFeature):
        return blake2b(b"feature" + image.tobytes(), digest_size=16).hexdigest()
    return pixel_digest(image, repr(image.size)).hex()


# Rows of answers to fixed views are found again by the name of this function.
def _fixed(
    views: list[Image.Image], _image: Image.Image, _generator: np.random.Generator
) -> list[Image.Image]:
    return views


def _parse_views(views: Any) -> Views | CustomViews:
    """Return a strategy or a function from all that users may pass as views."""
    if isinstance(views, int) and not isinstance(views, bool):
        return AugMix(views)
    if isinstance(views, Views) and not isinstance(views, type):
        check_count("views.n", views.n)
        return views
    if isinstance(views, Tensor) and views.is_nested:  # it has no shape
        views = views.unbind()
    is_array = isinstance(views, Tensor | np.ndarray) and views.ndim > 0
    # Three dimensions are several grey images, unless one end looks like channels.
    if is_array and views.ndim == 3 and not {1, 3, 4}.isdisjoint(views.shape[::2]):
        raise FairTTAError(
            f"`views` of shape {list(views.shape)} could be one image: pass several as "
            "[views, 3, height, width] or [views, height, width, 3], or as a list.",
            argument="views",
        )
    if is_array or isinstance(views, list | tuple):
        return partial(_fixed, [load_image(view) for view in views])
    if callable(views) and not isinstance(views, type):
        custom: CustomViews = views
        return custom
    raise FairTTAError(
        "`views` should be a number of views, a strategy such as AugMix(64), a function of an "
        f"image and a random generator, or a tensor of views (got {views!r}).",
        argument="views",
    )
