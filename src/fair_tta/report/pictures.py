"""Pictures whose answer changed, as part of the page."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

from PIL import Image

from fair_tta.errors import FairTTAError
from fair_tta.report.numbers import percent
from fair_tta.report.sentences import clean

LARGEST = 256
SMALL_SIDE = 128


class Picture(NamedTuple):
    """One image of a gallery. A plain tuple in this order will do.

    Attributes:
        image: a PIL image.
        caption: what it shows.
        before: the answer before adaptation.
        after: the answer after adaptation.
        truth: the true label.
        before_probability: of the answer before.
        after_probability: of the answer after.
    """

    image: Image.Image
    caption: str
    before: str
    after: str
    truth: str
    before_probability: float
    after_probability: float


class Embedded(NamedTuple):
    """A picture inside a page."""

    source: str
    width: int
    height: int
    pixelated: bool


class Shown(NamedTuple):
    """A picture as the template needs it."""

    picture: Embedded
    caption: str
    before: str
    after: str
    truth: str
    outcome: str
    alt: str


def shown_pictures(pictures: Sequence[Picture | tuple[object, ...]]) -> list[Shown]:
    """Embed pictures with what is said about them."""
    return [_shown(picture) for picture in pictures]


def _shown(picture: Picture | tuple[object, ...]) -> Shown:
    if len(picture) != len(Picture._fields) or not isinstance(picture[0], Image.Image):
        raise FairTTAError(
            f"an item of `gallery` should be ({', '.join(Picture._fields)}) with a PIL image "
            f"(got {len(picture)} entries)."
        )
    image, caption, *names, p, q = picture
    assert isinstance(image, Image.Image)
    before, after, truth = (clean(str(name)) for name in names)
    was, now = (f"{percent(float(x))} %" for x in (p, q))  # type: ignore[arg-type]
    outcome = _outcome(before, after, truth)
    text = clean(str(caption))
    return Shown(
        embedded(image),
        text,
        f"{before} ({was})",
        f"{after} ({now})",
        truth,
        outcome,
        f"{text}. Before: {before} ({was}). After: {after} ({now}). Truth: {truth}. {outcome}.",
    )


def embedded(image: Image.Image) -> Embedded:
    """Large ones are scaled down, small ones up by the browser, pixel by pixel."""
    image = image.convert("RGB")
    image.thumbnail((LARGEST, LARGEST))
    small = max(image.size) < SMALL_SIDE
    scale = SMALL_SIDE / max(image.size) if small else 1
    width, height = (max(1, round(side * scale)) for side in image.size)
    return Embedded(_data_uri(image, small), width, height, small)


def _outcome(before: str, after: str, truth: str) -> str:
    if before == after:
        return "Unchanged, " + ("right" if after == truth else "wrong")
    words = ["right" if answer == truth else "wrong" for answer in (before, after)]
    return f"From {words[0]} to {words[1]}"


def _data_uri(image: Image.Image, exactly: bool) -> str:
    """Drawn pixel by pixel it must not be blurred; otherwise it should be short."""
    buffer = BytesIO()
    image.info = {}  # no comments or profiles of whoever made the file
    if exactly:
        image.save(buffer, "PNG", optimize=True)
    else:
        image.save(buffer, "JPEG", quality=85)
    kind = "png" if exactly else "jpeg"
    return f"data:image/{kind};base64," + b64encode(buffer.getvalue()).decode()
