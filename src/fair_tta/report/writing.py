"""A report as a file."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from fair_tta.auditing import Audit
from fair_tta.errors import FairTTAError
from fair_tta.files.whole_files import write_whole
from fair_tta.report.card import markdown
from fair_tta.report.page import Gallery, html


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
