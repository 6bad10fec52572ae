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

from fair_tta._io import printable, write_whole
from fair_tta.auditing import Audit, AuditDocument
from fair_tta.auditing._document import ClassInGroup
from fair_tta.auditing._examine import HALF_WIDTH
from fair_tta.errors import FairTTAError
from fair_tta.lab.report import _charts as charts
from fair_tta.lab.report import _glossary as meanings
from fair_tta.lab.report import _numbers as numbers
from fair_tta.lab.report import _sentences as sentences
from fair_tta.lab.report._charts import MOST_DRAWN, sweeps, tradeoff_chart
from fair_tta.lab.report._first_screen import first_screen, screen_of_many
from fair_tta.lab.report._numbers import count, group_name, percent
from fair_tta.lab.report._sentences import clean
from fair_tta.lab.report._verdict import headline, in_short

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def jinja_environment() -> Environment:
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
    made.filters |= {
        "percent": numbers.percent,
        "interval": numbers.interval,
        "p_value": numbers.p_value,
        "duration": numbers.duration,
        "count": numbers.count,
        "md": for_markdown,
    }
    made.globals |= {
        "comparison_of": sentences.comparison_of,
        "flat": sentences.flat,
        "group_name": numbers.group_name,
        "verdict": meanings.verdict,
        "METRICS": meanings.METRICS,
        "MARKS": meanings.MARKS,
        "INDIFFERENCE": meanings.INDIFFERENCE,
        "PERCEIVED": meanings.PERCEIVED,
        "EVIDENCE": meanings.EVIDENCE,
        "NO_CLAIM": meanings.NO_CLAIM,
        "HALF_WIDTH": HALF_WIDTH,
    }
    return made


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


Gallery = Sequence[Picture | tuple[object, ...]]


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
    audit: Audit | Mapping[str, Any], *, title: str | None = None, gallery: Gallery = ()
) -> str:
    """The report on an audit as one HTML page.

    The same audit gives the same text.

    Args:
        audit: an `Audit`, or its JSON document.
        title: what to call it.
        gallery: pictures whose answer changed, see `Picture`.

    Example:
        >>> from fair_tta.auditing import audit
        >>> y_true, y_pred = ["cat", "dog"] * 100, ["cat"] * 100 + ["cat", "dog"] * 50
        >>> found = audit(y_true, y_pred, ["indoors"] * 100 + ["outdoors"] * 100)
        >>> html(found, title="Cats and dogs").startswith("<!DOCTYPE html>")
        True
    """
    document = sentences.document_of(audit)
    section = _section("audit", None, document, gallery)
    return _render(sentences.clean(title) if title else headline(document), [section])


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
        title: what to call it.
        audits: for each its heading, the audit and its gallery, which may be empty.
        intro: plain text below the overviews; an empty line begins a new paragraph.
        overviews: tables that come before the audits, folded.
        tasks: what the first screen speaks of, if it is not `audits`, because these are parts.
    """
    if not audits:
        raise FairTTAError("`audits` should have at least one entry (got none).")
    sections = [
        _section(f"audit-{i}", sentences.clean(heading), sentences.document_of(audit), gallery)
        for i, (heading, audit, gallery) in enumerate(audits, start=1)
    ]
    whole = [(section["heading"], section["document"]) for section in sections]
    if tasks:
        whole = [(sentences.clean(name), sentences.document_of(audit)) for name, audit in tasks]
    if len(sections) == 1:
        sections[0]["screen"] = None  # the page's own
    return _render(
        sentences.clean(title),
        sections,
        many=True,
        screen=screen_of_many(whole),
        sub=_sub([document for _, document in whole]),
        intro=[sentences.clean(part) for part in intro.split("\n\n") if part.strip()],
        overviews=overviews,
    )


def _sub(documents: Sequence[AuditDocument]) -> str:
    """Model, tasks, pictures, methods and day."""
    first = documents[0]
    model = first.origin.model
    name = model.name if model is not None and model.name else "Answers"
    n = sum(d.data.n for d in documents)
    methods = len({c.run for d in documents for c in d.comparisons})
    tasks = f"{len(documents)} tasks, " if len(documents) > 1 else ""
    others = f" {first.runs[0].name} against {methods} other{'s' * (methods != 1)}."
    day = first.origin.time[:10]
    return f"{name} on {tasks}{count(n)} pictures.{others if methods else ''} {day}."


def _section(
    name: str, heading: str | None, document: AuditDocument, gallery: Gallery
) -> dict[str, Any]:
    found = sweeps(document)
    return {
        "screen": first_screen(document),
        "id": name,
        "heading": heading,
        "short": in_short(document),
        "level": 2 if heading is None else 3,
        "document": document,
        "summary": sentences.summary(document),
        "changes": sentences.changes(document),
        "needs": sentences.needs(document),
        "weights": sentences.weights(document),
        "limits": meanings.limits(document),
        "plane": charts.accuracy_against_gap(document, f"{name}-plane"),
        "bars": charts.bars(document, f"{name}-bars"),
        "differences": charts.differences_chart(document, f"{name}-differences"),
        "sweeps": [
            (sweep, tradeoff_chart(sweep, document.runs[0], f"{name}-tradeoff-{i}"))
            for i, sweep in enumerate(found[:MOST_DRAWN])
        ],
        "more_sweeps": len(found[MOST_DRAWN:]),
        "gallery": shown_pictures(gallery),
    }


def _render(title: str, sections: list[dict[str, Any]], **more: Any) -> str:
    return (
        jinja_environment()
        .get_template("page.html.jinja")
        .render(
            {"many": False, "sub": "", **more},
            title=title,
            sections=sections,
            limits=meanings.every_limit([section["document"] for section in sections]),
        )
    )


CARD_ROWS = 24
"""As many groups at most; then only the worst of the first run are listed."""


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
        ## Cats and dogs
    """
    document = sentences.document_of(audit)
    cells = _cells(document)
    return (
        jinja_environment()
        .get_template("card.md.jinja")
        .render(
            title=sentences.clean(title) if title else headline(document),
            document=document,
            summary=sentences.summary(document),
            changes=sentences.changes(document),
            limits=[
                (name, text.split(". ")[0].rstrip(".")) for name, text in meanings.limits(document)
            ],
            cells=cells[:CARD_ROWS],
            left_out=max(0, len(cells) - CARD_ROWS),
        )
    )


def _cells(document: AuditDocument) -> list[tuple[str, list[ClassInGroup]]]:
    """Each class in each group, with its figures in every run; the worst come first if many."""
    runs = document.runs
    cells = [
        (group_name(group.sensitive, cell.target), [run.groups[g].classes[c] for run in runs])
        for g, group in enumerate(runs[0].groups)
        for c, cell in enumerate(group.classes)
    ]
    if len(cells) <= CARD_ROWS:
        return cells

    def rank(cell: tuple[str, list[ClassInGroup]]) -> float:
        value = cell[1][0].true_positive_rate.value
        return 2.0 if value is None else value

    return sorted(cells, key=rank)


def write_report(
    audit: Audit | Mapping[str, Any],
    path: str | PathLike[str],
    *,
    title: str | None = None,
    gallery: Gallery = (),
) -> None:
    """Write ``.html`` (one page that needs nothing else) or ``.md`` (a block for a model card).

    Args:
        audit: an `Audit`, or its JSON document.
        path: where to; the ending decides.
        title: what to call it.
        gallery: pictures whose answer changed, for HTML only.
    """
    ending = Path(path).suffix.lower()
    if ending in (".html", ".htm"):
        text = html(audit, title=title, gallery=gallery)
    elif ending == ".md":
        text = markdown(audit, title=title)
    else:
        raise FairTTAError(f"`path` should end in .html or .md (got {str(path)!r}).")
    write_whole(path, text.encode())
