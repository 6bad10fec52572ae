"""The HTML page: one file, no scripts, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fair_tta.auditing import Audit, AuditDocument
from fair_tta.errors import FairTTAError
from fair_tta.report import charts, meanings, sentences
from fair_tta.report.first_screen import first_screen, screen_of_many
from fair_tta.report.numbers import count
from fair_tta.report.pictures import Picture, shown_pictures
from fair_tta.report.templating import jinja_environment
from fair_tta.report.tradeoff import MOST_DRAWN, sweeps, tradeoff_chart
from fair_tta.report.verdict import headline, in_short

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
