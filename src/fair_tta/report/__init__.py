"""Pages, pictures, cards and terminal tables of audits; no figure is computed here."""

from fair_tta.report.card import markdown
from fair_tta.report.examination_page import examination_html
from fair_tta.report.page import Overview, html, html_many
from fair_tta.report.pictures import Picture
from fair_tta.report.writing import write_report

__all__ = [
    "Overview",
    "Picture",
    "examination_html",
    "html",
    "html_many",
    "markdown",
    "write_report",
]
