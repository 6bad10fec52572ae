"""The Markdown block for a model card: the same facts, shorter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fair_tta.auditing import Audit
from fair_tta.report import facts, words
from fair_tta.report.rendering import environment

ROWS = 24
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
    document = facts.document_of(audit)
    cells = _cells(document)
    return (
        environment()
        .get_template("card.md.jinja")
        .render(
            title=facts.clean(title) if title else facts.title(document),
            document=document,
            summary=facts.summary(document),
            changes=facts.changes(document),
            limits=[
                (name, text.split(". ")[0].rstrip(".")) for name, text in words.limits(document)
            ],
            cells=cells[:ROWS],
            left_out=max(0, len(cells) - ROWS),
        )
    )


def _cells(document: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Each class in each group, with its figures in every run; the worst come first if many."""
    runs = document["runs"]
    cells = [
        [
            {"sensitive": group["sensitive"], **cell}
            for run in runs
            for cell in [run["groups"][g]["classes"][c]]
        ]
        for g, group in enumerate(runs[0]["groups"])
        for c in range(len(group["classes"]))
    ]
    if len(cells) <= ROWS:
        return cells

    def rank(cell: list[dict[str, Any]]) -> float:
        value = cell[0]["true_positive_rate"]["value"]
        return 2.0 if value is None else float(value)

    return sorted(cells, key=rank)
