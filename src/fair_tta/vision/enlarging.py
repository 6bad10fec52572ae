"""Pictures that a model's preprocessing would blow up."""

from __future__ import annotations

from PIL import Image

from fair_tta.errors import ImageError
from fair_tta.vision.complaints import describe

MOST_ENLARGED = 2**24
"""Pixels that preprocessing may make of a picture by enlarging it: as many as a photo has."""


def check_enlarged(picture: Image.Image, edge: int, image: object) -> None:
    """Refuse a picture that is so long and narrow that enlarging it would take gigabytes.

    Models enlarge the short edge of a picture to the size of their input and cut out the middle
    afterwards, so a file of a hundred bytes with 12,000 x 1 pixels would become 2,688,000 x 224.

    Args:
        picture: of `load_image`.
        edge: the short edge that preprocessing makes.
        image: what the picture was loaded from, for the message.
    """
    if enlarged_pixels(picture, edge) > MOST_ENLARGED:
        short, long = sorted(picture.size)
        raise ImageError(
            f"cannot use {describe(image)}: {picture.width} x {picture.height} pixels are too "
            f"long and narrow. Enlarging the short edge to {edge}, as the model's preprocessing "
            f"may do, would give {edge} x {round(edge * long / short)} pixels, more than "
            f"{MOST_ENLARGED}. Cut out the part that matters"
        )


def enlarged_pixels(picture: Image.Image, edge: int) -> float:
    """How many pixels there are once the short edge is enlarged, 0 if it is as large already."""
    short, long = sorted(picture.size)
    return edge * edge * long / short if short < edge else 0.0
