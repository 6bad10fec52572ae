"""Pages and cards of audits and examinations; no figure is computed here."""

from fair_tta.lab.report._examination import examination_html
from fair_tta.lab.report._page import (
    GalleryImage,
    Overview,
    html,
    html_many,
    markdown,
    write_report,
)

__all__ = [
    "GalleryImage",
    "Overview",
    "examination_html",
    "html",
    "html_many",
    "markdown",
    "write_report",
]
