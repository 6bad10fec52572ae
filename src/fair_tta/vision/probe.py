"""A picture to know a model by: what it makes of it tells it from others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image

from fair_tta.backends.protocol import Backend
from fair_tta.errors import FairTTAError, ModelError


def probe_picture() -> Image.Image:
    """Neither square nor smooth, so that sizes, crops and filters show."""
    y, x = np.mgrid[:171, :230]
    pixels = np.stack([x, y, (7 * x + 13 * y) % 251], -1).astype(np.uint8)
    return Image.fromarray(pixels)


@contextmanager
def suited(backend: Backend) -> Iterator[None]:
    """A model that takes no picture at all is a `ModelError` that says what to do.

    What is about one picture only stays what it is.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError) as error:
        if isinstance(error, FairTTAError) or _takes(backend, probe_picture()):
            raise
        raise ModelError(
            f"{backend.name} takes no pictures ({type(error).__name__}: {error}): its image "
            "processor may be damaged or of another model; pass the right one (`processor`)."
        ) from error


def _takes(backend: Backend, picture: Image.Image) -> bool:
    try:
        backend.encode_images([picture])
    except (ValueError, TypeError, LookupError):
        return False
    return True
