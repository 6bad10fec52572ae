"""The HTML page and the Markdown card of an audit: single files without scripts."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image

from fair_tta._io import printable, write_atomically
from fair_tta.auditing import Audit
from fair_tta.auditing._document import AuditDocument
from fair_tta.auditing._judge import label_cautions
from fair_tta.errors import FairTTAError
from fair_tta.lab.report import _drawings as charts
from fair_tta.lab.report import _numbers as numbers
from fair_tta.lab.report import _sentences as sentences
from fair_tta.lab.report._first_screen import first_screen
from fair_tta.lab.report._method_rows import changes
from fair_tta.lab.report._numbers import percent
from fair_tta.lab.report._verdict import audit_title, cards, in_short, title_of_many
from fair_tta.metrics.definitions import METRICS

if TYPE_CHECKING:
    from jinja2 import Environment

CARD_ROWS = 24
"""Groups of a card; with more of them only the worst of the first run are listed."""

_LARGEST = 256  # pixels of an embedded image
_SMALL = 128  # smaller ones are scaled up
_UNPRINTABLE = re.compile(  # some of them turn what follows around
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


@cache
def _environment() -> Environment:
    """Templates that escape what they are given (those of HTML) and fail on what they lack."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("fair_tta.lab.report", "templates"),
        autoescape=lambda name: name is not None and name.endswith(".html.jinja"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    for name in (
        "percent",
        "shown",
        "interval",
        "p_value",
        "duration",
        "count",
        "times",
        "logits",
    ):
        made.filters[name] = getattr(numbers, name)
    made.filters["md"] = for_markdown
    made.globals |= {
        "comparison_of": sentences.comparison_of,
        "flat": sentences.flat,
        "of_clusters": sentences.of_clusters,
        "of_thresholds": sentences.of_thresholds,
        "group_name": numbers.group_name,
        "verdict": sentences.verdict,
        "METRICS": METRICS,
        "MARKS": sentences.MARKS,
    }
    return made


def render(template: str, **values: Any) -> str:
    """Fill in a template; characters that no file can hold are replaced."""
    text = _environment().get_template(template).render(values)
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def for_markdown(text: object) -> str:
    """Names on one line as they are, whatever signs mean something in Markdown or HTML."""
    line = printable(" ".join(str(text).split()))
    signs = re.sub(r"([\\`*_\[\]|~#!$])", r"\\\1", line)
    signs = signs.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # attributes of some dialects, and templates of some sites
    signs = signs.replace("{", "&#123;").replace("}", "&#125;")
    # a bare address would become a link
    signs = re.sub(r"(?i)(www)\.", r"\1&#46;", signs)
    return signs.replace("://", ":&#47;/").replace("@", "&#64;")


class GalleryImage(NamedTuple):
    """One image of a gallery. A plain tuple in this order will do.

    Attributes:
        image: a PIL image.
        caption: what it shows.
        before: the answer before adaptation.
        after: the answer after adaptation.
        truth: the true label.
        before_probability: of the answer before.
        after_probability: of the answer after.
        group: its class and group, ``blond / man``: a click on their bar shows it.
    """

    image: Image.Image
    caption: str
    before: str
    after: str
    truth: str
    before_probability: float
    after_probability: float
    group: str = ""


Gallery = Sequence[GalleryImage | tuple[object, ...]]


def embedded(image: Image.Image) -> dict[str, Any]:
    """What ``img`` needs; large images are scaled down, small ones up by the browser."""
    image = image.convert("RGB")
    image.thumbnail((_LARGEST, _LARGEST))
    image.info = {}  # no comments or profiles of whoever made the file
    small = max(image.size) < _SMALL
    scale = _SMALL / max(image.size) if small else 1
    width, height = (max(1, round(side * scale)) for side in image.size)
    buffer = BytesIO()
    if small:  # without loss, as it is drawn pixel by pixel
        image.save(buffer, "PNG", optimize=True)
    else:
        image.save(buffer, "JPEG", quality=85)
    source = f"data:image/{'png' if small else 'jpeg'};base64,"
    source += b64encode(buffer.getvalue()).decode()
    return {"source": source, "width": width, "height": height, "pixelated": small}


def _in_gallery(item: GalleryImage | tuple[object, ...]) -> dict[str, Any]:
    """What the template needs of an image."""
    image, caption, before, after, truth, p, q, group = GalleryImage(*item)
    was, now = (
        f"{name} ({percent(float(x))} %)" for name, x in ((before, p), (after, q))
    )
    right = ["right" if answer == truth else "wrong" for answer in (before, after)]
    outcome = (
        f"Unchanged, {right[1]}"
        if before == after
        else f"From {right[0]} to {right[1]}"
    )
    of = f"{group}: " if group else ""
    alt = f"{of}{caption}. Before: {was}. After: {now}. Truth: {truth}. {outcome}."
    return {
        "image": embedded(image),
        "alt": alt,
        "lines": (f"before: {was}", f"after: {now}", f"truth: {truth}", outcome),
        "caption": caption,
        "group": group,
    }


class Overview(NamedTuple):
    """A table for the top of a page of several audits.

    Attributes:
        title: its caption.
        header: names of the columns.
        rows: for each row its cells: a text, and 1 if it is marked better, -1 if worse, else 0.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[tuple[str, int]]]


def html(
    audit: Audit | Mapping[str, Any],
    *,
    title: str | None = None,
    gallery: Gallery = (),
    full: bool = False,
) -> str:
    """The report on an audit as one HTML page.

    The same audit gives the same text.

    Args:
        audit: an `Audit`, or its JSON document.
        title: what to call the task; the verdict follows it.
        gallery: images to embed, see `GalleryImage`.
        full: open all sections that are folded otherwise.

    Example:
        >>> from fair_tta.auditing import audit
        >>> y_true, y_pred = ["cat", "dog"] * 100, ["cat"] * 100 + ["cat", "dog"] * 50
        >>> found = audit(y_true, y_pred, ["indoors"] * 100 + ["outdoors"] * 100)
        >>> html(found, title="Cats and dogs").startswith("<!DOCTYPE html>")
        True
    """
    document = _document(audit)
    section = _section("audit", None, document, gallery)
    return _page(
        audit_title(document, title), [section], sub=_sub([document]), full=full
    )


def html_many(
    title: str,
    audits: Sequence[tuple[str, Audit | Mapping[str, Any], Gallery]],
    *,
    intro: str = "",
    overviews: Sequence[Overview] = (),
    tasks: Sequence[tuple[str, Audit]] = (),
) -> str:
    """Several audits on one HTML page: a first screen over all of them, each folded below it.

    Args:
        title: what to call it; the verdict follows it.
        audits: for each its heading, the audit and its gallery, which may be empty.
        intro: plain text below the overviews; an empty line begins a new paragraph.
        overviews: tables that come before the audits, folded.
        tasks: what the first screen is about, if it is not `audits`, because these are parts.
    """
    if not audits:
        raise FairTTAError(
            "`audits` should have at least one entry (got none).", argument="audits"
        )
    sections = [
        _section(f"audit-{i}", heading, _document(audit), gallery)
        for i, (heading, audit, gallery) in enumerate(audits, start=1)
    ]
    whole = [(name, audit.document) for name, audit in tasks]
    whole = whole or [(section["heading"], section["document"]) for section in sections]
    if len(sections) == 1:
        sections[0]["screen"] = None  # the page's own
    return _page(
        title_of_many(whole, title),
        sections,
        many=True,
        screen=first_screen(whole, {}),
        sub=_sub([document for _, document in whole]),
        intro=[part for part in intro.split("\n\n") if part.strip()],
        overviews=overviews,
    )


def _document(audit: Audit | Mapping[str, Any]) -> AuditDocument:
    if not isinstance(audit, Audit | Mapping):
        raise FairTTAError(
            f"`audit` should be an Audit or its document (got {audit!r}).",
            argument="audit",
        )
    return (audit if isinstance(audit, Audit) else Audit.from_dict(audit)).document


def _sub(documents: Sequence[AuditDocument]) -> str:
    """Model and hash of its weights, tasks, images, groups and classes, day."""
    first = documents[0]
    groups, classes = len(first.runs[0].groups), len(first.data.targets)
    tasks = f"{groups} groups \N{MULTIPLICATION SIGN} {classes} classes"
    if len(documents) > 1:
        tasks = f"{len(documents)} tasks"
    n = sum(document.data.n for document in documents)
    return numbers.below_title(first.origin, numbers.images(n), tasks)


def _section(
    name: str, heading: str | None, document: AuditDocument, gallery: Gallery
) -> dict[str, Any]:
    sweeps = sentences.sweeps(document)
    shown: dict[str, list[dict[str, Any]]] = {}
    for item in map(_in_gallery, gallery):
        shown.setdefault(item["group"], []).append(item)
    places = {group: f"{name}-images-{i}" for i, group in enumerate(shown, start=1)}
    return {
        "screen": first_screen(
            [("", document)], {of: f"#{at}" for of, at in places.items()}
        ),
        "id": name,
        "heading": heading,
        "short": in_short(document),
        "level": 2 if heading is None else 3,
        "document": document,
        "changes": changes(document),
        "sweeps": [
            (sweep, charts.tradeoff_charts(sweep, document.runs[0]))
            for sweep in sweeps[: charts.MOST_DRAWN]
        ],
        "more_sweeps": len(sweeps[charts.MOST_DRAWN :]),
        "gallery": [(places[group], group, items) for group, items in shown.items()],
    }


def _page(title: str, sections: list[dict[str, Any]], **more: Any) -> str:
    limits = sentences.every_limit([section["document"] for section in sections])
    values = {"many": False, "full": False, **more}
    return render(
        "page.html.jinja", title=title, sections=sections, limits=limits, **values
    )


def markdown(audit: Audit | Mapping[str, Any], *, title: str | None = None) -> str:
    """A block for a model card.

    Args:
        audit: an `Audit`, or its JSON document.
        title: its heading.

    Example:
        >>> from fair_tta.auditing import audit
        >>> y_true, y_pred = ["cat", "dog"] * 100, ["cat"] * 100 + ["cat", "dog"] * 50
        >>> found = audit(y_true, y_pred, ["indoors"] * 100 + ["outdoors"] * 100)
        >>> print(markdown(found, title="Cats and dogs").splitlines()[0])
        ## Cats and dogs: a typical gap of 70.7 points between groups, at balanced accuracy 75.0
    """
    document = _document(audit)
    cells = sentences.cells_of_runs(document, CARD_ROWS)
    return render(
        "card.md.jinja",
        title=audit_title(document, title),
        document=document,
        cards=cards([("", document)]),
        not_measurable=label_cautions(document),
        changes=changes(document),
        limits=[
            (name, text.split(". ")[0].rstrip("."))
            for name, text in sentences.limits(document).items()
        ],
        cells=cells[:CARD_ROWS],
        left_out=max(0, len(cells) - CARD_ROWS),
    )


def write_report(
    audit: Audit | Mapping[str, Any],
    path: str | PathLike[str],
    *,
    title: str | None = None,
    gallery: Gallery = (),
    full: bool = False,
) -> None:
    """Write ``.html`` (one page that needs nothing else) or ``.md`` (a block for a model card).

    Args:
        audit: an `Audit`, or its JSON document.
        path: where to; the ending decides.
        title: what to call it.
        gallery: images to embed, for HTML only.
        full: open all sections, for HTML only.
    """
    ending = Path(path).suffix.lower()
    if ending in (".html", ".htm"):
        text = html(audit, title=title, gallery=gallery, full=full)
    elif ending == ".md":
        text = markdown(audit, title=title)
    else:
        raise FairTTAError(
            f"`path` should end in .html or .md (got {str(path)!r}).", argument="path"
        )
    write_atomically(path, text.encode())
