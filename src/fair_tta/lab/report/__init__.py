"""Pages, pictures, cards and terminal tables of audits; no figure is computed here."""

from fair_tta.lab.report._examination import examination_html
from fair_tta.lab.report._page import Overview, Picture, html, html_many, markdown, write_report

__all__ = [
    "Overview",
    "Picture",
    "examination_html",
    "html",
    "html_many",
    "markdown",
    "write_report",
]
