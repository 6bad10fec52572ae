"""Pages and cards of audits and examinations; no figure is computed here."""

from fair_tta.lab.report._examination_page import examination_html as examination_html
from fair_tta.lab.report._page import GalleryImage as GalleryImage
from fair_tta.lab.report._page import Overview as Overview
from fair_tta.lab.report._page import html as html
from fair_tta.lab.report._page import html_many as html_many
from fair_tta.lab.report._page import markdown as markdown
from fair_tta.lab.report._page import write_report as write_report
