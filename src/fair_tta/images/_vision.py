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
from fair_tta.images._draw import Renderer, render_batch
from fair_tta.images._load import check_enlarged, load_image, pixel_digest
from fair_tta.images._stored import StoredFeature
from fair_tta.images._views import AugMix, Views, check_arrays, content_generator
from fair_tta.models._backend import Backend
from fair_tta.models._model_lock import computed_once
from fair_tta.models._stored_text import refuse_images, sees_images

_PROBE_EDGE = 96  # of the images that show what preprocessing does
_HALVES = (((200, 30, 60), (20, 180, 90)), ((128, 128, 128), (60, 60, 220)))
"""Colours of left and right halves, which distinguish channels and shades."""


class PixelSpec:
    """Size and normalisation of a model's input, read off what its own preprocessing does."""

    def __init__(self, size: tuple[int, int], gain: Tensor, shift: Tensor) -> None:
        self.size = size
        self._gain = gain
        self._shift = shift

    @classmethod
    def from_backend(cls, backend: Any) -> PixelSpec | None:
        """None if the model has no fixed size or does not normalise channel by channel."""
        preprocess = getattr(backend, "preprocess", None)
        if preprocess is None or not hasattr(backend, "encode_pixels"):
            return None
        square, flat = (_PROBE_EDGE, _PROBE_EDGE), (_PROBE_EDGE, _PROBE_EDGE * 2 // 3)
        black, white, wide = (
            preprocess([Image.new("RGB", size, colour)])
            for size, colour in ((square, "black"), (square, "white"), (flat, "black"))
        )
        if black is None or black.shape != wide.shape:
            return None
        low, high = black[0].float().flatten(1), white[0].float().flatten(1)
        if (
            float((low - low[:, :1]).abs().max() + (high - high[:, :1]).abs().max())
            > 1e-4
        ):
            return None
        height, width = black.shape[-2:]
        spec = cls((height, width), (high[:, 0] - low[:, 0]) / 255, low[:, 0])
        return spec if spec._fits(preprocess(list(map(_halves, _HALVES)))) else None

    def _fits(self, seen: Tensor) -> bool:
        """Whether the outer columns of images of two halves have the colours they should have.

        They have not where channels are mixed or swapped, or shades bent.
        """
        colours = torch.tensor(
            _HALVES, dtype=torch.float32, device=seen.device
        )  # [images, 2, 3]
        expected = self._shift + colours * self._gain
        outer = seen.float()[..., [0, -1]].permute(0, 2, 3, 1)  # [images, height, 2, 3]
        a_quarter_of_a_shade = self._gain.abs().max() / 4
        return bool(((outer - expected[:, None]).abs() <= a_quarter_of_a_shade).all())

    def normalise(self, levels: Tensor, out: Tensor | None = None) -> Tensor:
        """Levels ``[..., 3, height, width]`` from 0 to 255, on any device, as the model's input."""
        shift, gain = torch.stack([self._shift, self._gain])[..., None, None].to(
            levels.device
        )
        return torch.addcmul(shift, levels, gain, out=out)


def _halves(colours: tuple[tuple[int, int, int], ...]) -> Image.Image:
    image = Image.new("RGB", (_PROBE_EDGE, _PROBE_EDGE), colours[0])
    image.paste(colours[1], (_PROBE_EDGE // 2, 0, _PROBE_EDGE, _PROBE_EDGE))
    return image


def probe_image() -> Image.Image:
    """Neither square nor smooth, so that sizes, crops and filters show."""
    y, x = np.mgrid[:171, :230]
    pixels = np.stack([x, y, (7 * x + 13 * y) % 251], -1).astype(np.uint8)
    return Image.fromarray(pixels)


_REFUSALS = (ValueError, TypeError, LookupError, ArithmeticError)


@contextmanager
def takes_images(backend: Backend) -> Iterator[None]:
    """Raise `ModelError` if the model takes no image at all; an error about one image stays."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "allocate memory" not in str(error):
            raise
        raise ModelError(
            f"there is not enough memory for these images in {backend.name}: try a smaller "
            "`batch_size`, and look at the sizes in its image processor."
        ) from error
    except _REFUSALS as error:
        if isinstance(error, FairTTAError):
            raise
        try:
            backend.encode_images([probe_image()])
        except _REFUSALS:
            raise ModelError(
                f"{backend.name} takes no images ({type(error).__name__}: {error}): its image "
                "processor may be damaged or of another model; pass the right one (`processor`)."
            ) from error
        raise


CustomViews = Callable[[Image.Image, np.random.Generator], Iterable[Any]]
"""User-defined views: an image and a random generator in, more images (of any kind) out."""

PixelChange = Callable[[Tensor, np.random.Generator], Tensor]
"""Other pixels from those of all views of an image, ``[views, 3, height, width]``; hashable, with
a repr that identifies it, which seeds the generator."""

_SIZE = (224, 224)  # of views for a model without a fixed size
_VIEWS_AT_ONCE = 32  # of that size, through the vision tower on a CPU
_VIEWS_THERE = (
    256  # on a device, where they need some 1.5 GB; fewer would launch more kernels
)
_EDGE = 512  # of such a model, at most
_ANY_MODEL = 16  # times as long as wide, and no model has an edge that is too much


class Vision:
    """Features of images and of their views, which seed and content of an image determine.

    `views` is a strategy, a function, or a tensor or list of images to use as views. Whoever hands
    over the cache clears it when weights change.
    """

    def __init__(self, backend: Backend, views: Any, seed: int, cache: Cache) -> None:
        if not isinstance(seed, int):
            raise FairTTAError(
                f"`seed` should be a whole number (got {seed!r}).", argument="seed"
            )
        self.backend = backend
        self.views: Views | CustomViews = _parse_views(views)
        self.seed = seed
        self.cache = cache
        self._owner = object()  # of its entries in the cache

    def load(self, image: Any) -> Any:
        """`load_image`, but refuse what the model's preprocessing would blow up.

        A stored feature stays as it is.
        """
        if isinstance(image, StoredFeature):
            return image
        if not sees_images(self.backend):
            refuse_images()
        loaded = load_image(image)
        if max(loaded.size) > _ANY_MODEL * min(loaded.size):
            spec = self._pixel_spec
            check_enlarged(loaded, _EDGE if spec is None else max(spec.size), image)
        return loaded

    def features(
        self,
        images: Sequence[Image.Image],
        with_views: bool,
        auxiliary: Views | CustomViews | None = None,
    ) -> Tensor:
        """Unit features ``[images, views, dim]``; view 0 is the image itself.

        Those in the cache are not made again, so that another method on the same images costs no
        second pass through the vision tower. `auxiliary` are views that a method brings along, in
        place of the classifier's.
        """
        views = auxiliary or (self.views if with_views else None)
        return self._kept(
            images, auxiliary or with_views, lambda new: self._encode(new, views)
        )

    def changed_features(
        self, images: Sequence[Image.Image], change: PixelChange
    ) -> Tensor:
        """Unit features ``[images, n, dim]`` of what `change` makes of the pixels of all views."""

        def encode(image: Image.Image) -> Tensor:
            generator = content_generator(image, self.seed, repr(change))
            return self._encode_pixels(change(self.pixels(image), generator))

        return self._kept(
            images, change, lambda new: [unit_features(encode(image)) for image in new]
        )

    def pixels(self, image: Image.Image) -> Tensor:
        """An image and its views as the model takes them, ``[views, 3, height, width]``."""
        if isinstance(self.views, Views) and (spec := self._pixel_spec) is not None:
            return self._bulk([image], self.views, spec)[0]
        backend: Any = self.backend
        pixels: Tensor = backend.preprocess(self._as_images(image, self.views))
        return pixels

    def _kept(
        self,
        images: Sequence[Image.Image],
        what: object,
        encode: Callable[[list[Image.Image]], list[Tensor]],
    ) -> Tensor:
        """What the cache has of each image, and what it has not, made now."""
        since = self.cache.times_cleared
        is_kept = self.cache.limit > 0
        keys = [
            (image_digest(im) if is_kept else place, what)
            for place, im in enumerate(images)
        ]
        known = {key: self.cache._find(self._owner, key) for key in keys}
        found = {
            key: features for key, features in known.items() if features is not None
        }
        new = {
            key: image
            for key, image in zip(keys, images, strict=True)
            if key not in found
        }
        with takes_images(self.backend):
            made = encode(list(new.values()))
        for key, features in zip(new, made, strict=True):
            found[key] = own = (
                features.clone()
            )  # a part of a batch would keep the batch alive
            self.cache._keep(self._owner, key, own, own.nbytes, since)
        counts = {len(found[key]) for key in keys}
        if len(counts) > 1:
            name = "views" if what is True else "auxiliary"
            raise FairTTAError(
                f"`{name}` should give as many views of each image of a batch (got "
                f"{' and '.join(map(str, sorted(counts)))} counting the image): use batch_size=1.",
                argument=name,
            )
        return torch.stack([found[key] for key in keys])

    @property
    def count(self) -> int | None:
        """How many views an image has, with itself; None if only a user-defined function knows."""
        if isinstance(self.views, Views):
            return self.views.n
        if isinstance(self.views, partial) and self.views.func is _fixed:
            return 1 + len(self.views.args[0])
        return None

    def forget(self) -> None:
        """Drop the kept features of images."""
        self.cache.clear(self._owner)

    def _encode(
        self, images: list[Image.Image], views: Views | CustomViews | None
    ) -> list[Tensor]:
        if not images:
            return []
        if views is None:
            return list(unit_features(self._encode_images(images)).unsqueeze(1))
        if not isinstance(views, Views) or (spec := self._pixel_spec) is None:
            return [
                unit_features(self._encode_images(self._as_images(image, views)))
                for image in images
            ]
        step = max(1, views_per_pass(spec.size, self.backend.device) // views.n)
        parts = [
            self._encode_pixels(
                self._bulk(images[i : i + step], views, spec).flatten(0, 1)
            )
            for i in range(0, len(images), step)
        ]
        return list(unit_features(torch.cat(parts)).reshape(len(images), views.n, -1))

    def _bulk(self, images: list[Image.Image], views: Views, spec: PixelSpec) -> Tensor:
        """Images and views at the model's own size: ``[images, views, 3, height, width]``."""
        backend: Any = self.backend
        first: Tensor = backend.preprocess(images).unsqueeze(1)
        if isinstance(views, AugMix) and Renderer(views.render).uses_tensors(
            backend.device
        ):
            if views.n == 1:
                return first
            # made where the model is: images go there, not their views
            recipes = [
                views._draw_recipes(i, spec.size, content_generator(i, self.seed))
                for i in images
            ]
            levels = render_batch(images, spec.size, recipes, backend.device)
            return torch.cat([first.to(levels), spec.normalise(levels)], 1)
        pixels = torch.empty(len(images), views.n, 3, *spec.size, device="cpu")
        pixels[:, :1] = first
        for image, own in zip(images, pixels, strict=True):
            arrays = self._arrays(image, views, spec.size)
            spec.normalise(torch.from_numpy(arrays).movedim(-1, -3), out=own[1:])
        return pixels

    def _as_images(
        self, image: Image.Image, views: Views | CustomViews
    ) -> list[Image.Image]:
        """Views as images, each for the model's own preprocessing."""
        if isinstance(views, Views):
            arrays = (
                self._arrays(image, views, _SIZE).round().clip(0, 255).astype(np.uint8)
            )
            return [image, *map(Image.fromarray, arrays)]
        name = self._name(views)
        made = views(image, content_generator(image, self.seed))
        if isinstance(made, str | bytes | Mapping) or not isinstance(made, Iterable):
            raise FairTTAError(
                f"`{name}` should return images, such as [image.rotate(90)] (got "
                f"{type(made).__name__}).",
                argument=name,
            )
        try:
            return [image, *map(self.load, made)]
        except ImageError as error:
            raise ImageError(
                f"`{name}` did not return an image: {error}", argument=name
            ) from error

    def _arrays(
        self, image: Image.Image, views: Views, size: tuple[int, int]
    ) -> npt.NDArray[np.float32]:
        arrays = views(image, size, content_generator(image, self.seed))
        return check_arrays(self._name(views), views, arrays, size)

    def _name(self, views: Views | CustomViews) -> str:
        return "views" if views is self.views else "auxiliary"

    def _encode_images(self, images: list[Image.Image]) -> Tensor:
        step = views_per_pass(_SIZE, self.backend.device)
        parts = [images[i : i + step] for i in range(0, len(images), step)]
        return torch.cat([self.backend.encode_images(part) for part in parts])

    def _encode_pixels(self, pixels: Tensor) -> Tensor:
        backend: Any = self.backend
        parts = pixels.split(views_per_pass(pixels.shape[-2:], self.backend.device))
        return torch.cat([backend.encode_pixels(part) for part in parts])

    @property
    @computed_once
    def _pixel_spec(self) -> PixelSpec | None:
        return PixelSpec.from_backend(self.backend)


def views_per_pass(size: Sequence[int], device: torch.device | None = None) -> int:
    """How many views of a size go through the tower at once; more on a device than on a CPU."""
    most = _VIEWS_AT_ONCE if device is None or device.type == "cpu" else _VIEWS_THERE
    return max(1, most * _SIZE[0] * _SIZE[1] // (size[0] * size[1]))


def image_digest(image: Image.Image | StoredFeature) -> str:
    """By which the content of a loaded image, or of a stored feature, is known."""
    if isinstance(image, StoredFeature):
        return blake2b(b"feature" + image.tobytes(), digest_size=16).hexdigest()
    return pixel_digest(image, repr(image.size)).hex()


def _fixed(
    views: list[Image.Image], _image: Image.Image, _generator: np.random.Generator
) -> list[Image.Image]:
    return views


def _parse_views(views: Any) -> Views | CustomViews:
    if isinstance(views, int) and not isinstance(views, bool):
        return AugMix(views)
    if isinstance(views, Views) and not isinstance(views, type):
        check_count("views.n", views.n)
        return views
    if isinstance(views, Tensor) and views.is_nested:  # it has no shape
        views = views.unbind()
    is_array = isinstance(views, Tensor | np.ndarray) and views.ndim > 0
    if is_array and views.ndim == 3 and {*views.shape[::2]} & {1, 3, 4}:
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
