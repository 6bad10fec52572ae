"""The Markdown block for a model card: the same facts, shorter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fair_tta.auditing import Audit, AuditDocument
from fair_tta.auditing.document import ClassInGroup
from fair_tta.report import meanings, sentences
from fair_tta.report.numbers import group_name
from fair_tta.report.templating import jinja_environment
from fair_tta.report.verdict import headline

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
