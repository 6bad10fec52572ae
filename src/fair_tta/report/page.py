"""The HTML page: one file, no scripts, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fair_tta.auditing import Audit, AuditDocument
from fair_tta.errors import FairTTAError
from fair_tta.report import charts, meanings, sentences
from fair_tta.report.first_screen import first_screen
from fair_tta.report.pictures import Picture, shown_pictures
from fair_tta.report.templating import jinja_environment
from fair_tta.report.tradeoff import MOST_DRAWN, sweeps, tradeoff_chart
from fair_tta.report.verdict import headline

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
    return _render(sentences.clean(title) if title else headline(document), [section], "")


def html_many(
    title: str,
    audits: Sequence[tuple[str, Audit | Mapping[str, Any], Gallery]],
    *,
    intro: str = "",
    overviews: Sequence[Overview] = (),
) -> str:
    """Several audits on one HTML page with a table of contents.

    Args:
        title: what to call it.
        audits: for each its heading, the audit and its gallery, which may be empty.
        intro: plain text for the top; an empty line begins a new paragraph.
        overviews: tables that come before the audits.
    """
    if not audits:
        raise FairTTAError("`audits` should have at least one entry (got none).")
    sections = [
        _section(f"audit-{i}", sentences.clean(heading), sentences.document_of(audit), gallery)
        for i, (heading, audit, gallery) in enumerate(audits, start=1)
    ]
    return _render(sentences.clean(title), sections, intro, overviews)


def _section(
    name: str, heading: str | None, document: AuditDocument, gallery: Gallery
) -> dict[str, Any]:
    found = sweeps(document)
    return {
        "screen": first_screen(document),
        "id": name,
        "heading": heading,
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


def _render(
    title: str,
    sections: list[dict[str, Any]],
    intro: str,
    overviews: Sequence[Overview] = (),
) -> str:
    paragraphs = [sentences.clean(part) for part in intro.split("\n\n") if part.strip()]
    documents = [section["document"] for section in sections]
    return (
        jinja_environment()
        .get_template("page.html.jinja")
        .render(
            title=title,
            sections=sections,
            intro=paragraphs,
            overviews=overviews,
            many=sections[0]["heading"] is not None,
            limits=meanings.every_limit(documents),
        )
    )
