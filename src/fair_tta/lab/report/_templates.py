"""Templates, escaping for Markdown, and embedded images."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from fair_tta._io import printable
from fair_tta.lab.report import _examination_text as examination_text
from fair_tta.lab.report import _legends as legends
from fair_tta.lab.report import _numbers as numbers
from fair_tta.lab.report._method_sentences import change_sentences
from fair_tta.lab.report._settings import flat_settings
from fair_tta.lab.report._verdict import short_verdict
from fair_tta.metrics.definitions import METRICS

if TYPE_CHECKING:
    from jinja2 import Environment

# Pixels of the longer side: larger images are scaled down, smaller ones drawn larger
_MAX_SIDE = 256
_MIN_SIDE = 128

# Control characters, lone surrogates, and marks that turn the text after them around
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def render(template: str, **values: Any) -> str:
    """Fill in a template; characters that no file can hold are replaced."""
    text = _environment().get_template(template).render(values)
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


@cache
def _environment() -> Environment:
    """Return templates that escape values in HTML and fail on names they lack."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("fair_tta.lab.report", "templates"),
        autoescape=lambda name: name is not None and name.endswith(".html.jinja"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    # Filters write one value; the globals are functions that need more than one
    environment.filters |= {
        "count": numbers.count,
        "duration": numbers.duration,
        "interval": numbers.interval,
        "logit": numbers.logit_text,
        "md": for_markdown,
        "p_value": numbers.p_value,
        "percent": numbers.percent,
        "shown": numbers.shown_value,
        "times": numbers.times,
    }
    environment.globals |= {
        "METRICS": METRICS,
        "examination_text": examination_text,
        "change_sentences": change_sentences,
        "flat_settings": flat_settings,
        "group_name": numbers.group_name,
        "image_count": numbers.image_count,
        "legends": legends,
        "short_verdict": short_verdict,
        "table_cell": numbers.table_cell,
    }
    return environment


def for_markdown(text: object) -> str:
    """Return a name on one line, with characters escaped that Markdown or HTML would read."""
    line = printable(" ".join(str(text).split()))
    escaped = re.sub(r"([\\`*_\[\]|~#!$])", r"\\\1", line)
    escaped = escaped.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Attributes of some dialects, and templates of some sites
    escaped = escaped.replace("{", "&#123;").replace("}", "&#125;")
    # A bare address would become a link
    escaped = re.sub(r"(?i)(www)\.", r"\1&#46;", escaped)
    return escaped.replace("://", ":&#47;/").replace("@", "&#64;")


class EmbeddedImage(NamedTuple):
    """The attributes of an ``img`` element.

    Attributes:
        source: the image itself, as a data URL.
        width: in pixels of the page.
        height: in pixels of the page.
        pixelated: the browser draws it larger, pixel by pixel.
    """

    source: str
    width: int
    height: int
    pixelated: bool


def embedded_image(image: Image.Image) -> EmbeddedImage:
    """Return an image for a page: large ones are scaled down, small ones up by the browser."""
    image = image.convert("RGB")
    image.thumbnail((_MAX_SIDE, _MAX_SIDE))
    # Comments and profiles may say who made the file
    image.info = {}
    is_small = max(image.size) < _MIN_SIDE
    scale = _MIN_SIDE / max(image.size) if is_small else 1
    width, height = image.size
    buffer = BytesIO()
    if is_small:
        # Without loss, as it is drawn pixel by pixel
        image.save(buffer, "PNG", optimize=True)
        source = "data:image/png;base64,"
    else:
        image.save(buffer, "JPEG", quality=85)
        source = "data:image/jpeg;base64,"
    source += b64encode(buffer.getvalue()).decode()
    return EmbeddedImage(
        source, max(1, round(width * scale)), max(1, round(height * scale)), is_small
    )
