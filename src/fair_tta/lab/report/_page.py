"""The HTML page and the Markdown card of an audit: single files without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from fair_tta._io import write_atomically
from fair_tta.auditing import Audit
from fair_tta.auditing._document import AuditDocument, ClassInGroup
from fair_tta.errors import FairTTAError
from fair_tta.lab.report import _legends as legends
from fair_tta.lab.report._drawings import (
    MAX_SWEEPS,
    before_and_after,
    dot_plot,
    tradeoff_charts,
)
from fair_tta.lab.report._first_screen import FirstScreen, first_screen
from fair_tta.lab.report._numbers import group_name, image_count, percent, subtitle
from fair_tta.lab.report._settings import sweeps
from fair_tta.lab.report._templates import embedded_image, render
from fair_tta.lab.report._verdict import (
    audit_title,
    title_of_tasks,
)

MAX_CARD_GROUPS = 24
"""Groups of a card; with more of them only the worst of the first run are listed."""


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
    document = _document_of(audit)
    section = _section("audit", None, document, gallery)
    return _render_page(audit_title(document, title), [section], [document], full=full)


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
    sections = []
    for number, (heading, audit, gallery) in enumerate(audits, start=1):
        document = _document_of(audit)
        sections.append(_section(f"audit-{number}", heading, document, gallery))
    whole_tasks = [(name, audit.document) for name, audit in tasks]
    if not tasks:
        whole_tasks = [(part["heading"], part["document"]) for part in sections]
    # The first screen of a single audit is that of the page
    if len(sections) == 1:
        sections[0]["screen"] = None
    screen = first_screen(whole_tasks)
    return _render_page(
        title_of_tasks(whole_tasks, title),
        sections,
        [document for _, document in whole_tasks],
        many=True,
        screen=screen,
        drawing=_draw(screen, {}),
        intro=[part for part in intro.split("\n\n") if part.strip()],
        overviews=overviews,
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
    document = _document_of(audit)
    cells = _cells_of_runs(document)
    n_left_out = max(0, len(cells) - MAX_CARD_GROUPS)
    if n_left_out:
        cells.sort(key=_accuracy_before)
    # A card has room for the first sentence of each limit
    limits = {}
    for name, text in legends.limits(document).items():
        limits[name] = legends.first_sentence(text)
    return render(
        "card.md.jinja",
        title=audit_title(document, title),
        document=document,
        screen=first_screen([("", document)]),
        limits=limits,
        cells=cells[:MAX_CARD_GROUPS],
        n_left_out=n_left_out,
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


def _document_of(audit: Audit | Mapping[str, Any]) -> AuditDocument:
    if isinstance(audit, Audit):
        return audit.document
    if isinstance(audit, Mapping):
        return Audit.from_dict(audit).document
    raise FairTTAError(
        f"`audit` should be an Audit or its document (got {audit!r}).", argument="audit"
    )


def _render_page(
    title: str,
    sections: list[dict[str, Any]],
    documents: Sequence[AuditDocument],
    **values: Any,
) -> str:
    """Fill in the template; the subtitle is about the documents."""
    # Several tasks have different groups and classes
    first = documents[0]
    n_groups = len(first.runs[0].groups)
    n_classes = len(first.data.targets)
    tasks = f"{n_groups} groups \N{MULTIPLICATION SIGN} {n_classes} classes"
    if len(documents) > 1:
        tasks = f"{len(documents)} tasks"
    n_images = sum(document.data.n for document in documents)
    defaults = {"many": False, "full": False}
    return render(
        "page.html.jinja",
        title=title,
        subtitle=subtitle(first.origin, image_count(n_images), tasks),
        sections=sections,
        limits=legends.limits_of_all(section["document"] for section in sections),
        **defaults | values,
    )


def _section(
    name: str, heading: str | None, document: AuditDocument, gallery: Gallery
) -> dict[str, Any]:
    """Return what the template of one audit needs; `name` begins the ids of its parts."""
    images_by_group: dict[str, list[dict[str, Any]]] = {}
    for gallery_image in gallery:
        image = GalleryImage(*gallery_image)
        images_by_group.setdefault(image.group, []).append(_figure_of(image))
    image_groups = []
    links = {}
    for number, (group, images) in enumerate(images_by_group.items(), start=1):
        image_groups.append((f"{name}-images-{number}", group, images))
        links[group] = f"#{name}-images-{number}"

    # The rows of the chart lead to the images of their group
    screen = first_screen([("", document)])
    found_sweeps = sweeps(document)
    drawn_sweeps = []
    for sweep in found_sweeps[:MAX_SWEEPS]:
        drawn_sweeps.append((sweep, tradeoff_charts(sweep, document.runs[0])))
    return {
        "screen": screen,
        "drawing": _draw(screen, links),
        "id": name,
        "heading": heading,
        "level": 2 if heading is None else 3,
        "document": document,
        "sweeps": drawn_sweeps,
        "more_sweeps": len(found_sweeps[MAX_SWEEPS:]),
        "gallery": image_groups,
    }


def _draw(screen: FirstScreen, links: Mapping[str, str]) -> str:
    """Return the chart of a first screen as SVG, empty if it has none.

    Args:
        screen: the first screen.
        links: to the images of a group, by its name.
    """
    chart = screen.chart
    if chart is None:
        return ""
    if chart.rows:
        rows = [row._replace(link=links.get(row.name, "")) for row in chart.rows]
        return before_and_after(rows, chart.heading, chart.reach)
    dots = [dot._replace(link=links.get(dot.name, "")) for dot in chart.dots]
    return dot_plot(dots, chart.heading, chart.reach)


def _figure_of(image: GalleryImage) -> dict[str, Any]:
    """Return what the template needs of an image of a gallery."""
    before = f"{image.before} ({percent(float(image.before_probability))} %)"
    after = f"{image.after} ({percent(float(image.after_probability))} %)"
    was_right = "right" if image.before == image.truth else "wrong"
    is_right = "right" if image.after == image.truth else "wrong"
    outcome = f"From {was_right} to {is_right}"
    if image.before == image.after:
        outcome = f"Unchanged, {is_right}"
    text = (
        f"{image.caption}. Before: {before}. After: {after}. Truth: {image.truth}. "
        f"{outcome}."
    )
    return {
        "image": embedded_image(image.image),
        "alt": f"{image.group}: {text}" if image.group else text,
        "lines": (
            f"before: {before}",
            f"after: {after}",
            f"truth: {image.truth}",
            outcome,
        ),
        "caption": image.caption,
    }


def _cells_of_runs(
    document: AuditDocument,
) -> list[tuple[str, list[ClassInGroup]]]:
    """Return each class in each group with its figures in every run."""
    # All runs have the groups and classes of the first, in its order
    rows = []
    for group_index, group in enumerate(document.runs[0].groups):
        for class_index, cell in enumerate(group.classes):
            cells = []
            for run in document.runs:
                cells.append(run.groups[group_index].classes[class_index])
            rows.append((group_name(group.sensitive, cell.target), cells))
    return rows


def _accuracy_before(row: tuple[str, list[ClassInGroup]]) -> float:
    """Return the accuracy of the reference; groups without images come last."""
    rate = row[1][0].true_positive_rate.value
    return 2.0 if rate is None else rate
