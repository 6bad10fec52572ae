"""Templates, and what they can call."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from fair_tta.auditing.label_plans import HALF_WIDTH
from fair_tta.data.csv_rows import printable
from fair_tta.report import meanings, numbers, sentences

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def jinja_environment() -> Environment:
    """Templates that escape what they are given (those of HTML) and fail on what they lack."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("fair_tta.report", "templates"),
        autoescape=lambda name: name is not None and name.endswith(".html.jinja"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters |= {
        "percent": numbers.percent,
        "interval": numbers.interval,
        "p_value": numbers.p_value,
        "duration": numbers.duration,
        "count": numbers.count,
        "md": for_markdown,
    }
    made.globals |= {
        "comparison_of": sentences.comparison_of,
        "flat": sentences.flat,
        "group_name": numbers.group_name,
        "verdict": meanings.verdict,
        "METRICS": meanings.METRICS,
        "MARKS": meanings.MARKS,
        "INDIFFERENCE": meanings.INDIFFERENCE,
        "PERCEIVED": meanings.PERCEIVED,
        "EVIDENCE": meanings.EVIDENCE,
        "NO_CLAIM": meanings.NO_CLAIM,
        "HALF_WIDTH": HALF_WIDTH,
    }
    return made


def for_markdown(text: object) -> str:
    """Names on one line as they are, whatever signs mean something in Markdown or HTML."""
    line = printable(" ".join(str(text).split()))
    signs = re.sub(r"([\\`*_\[\]|~#!$])", r"\\\1", line)
    signs = signs.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # attributes of some dialects, and templates of some sites
    signs = signs.replace("{", "&#123;").replace("}", "&#125;")
    # a bare address would become a link
    signs = re.sub(r"(?i)(www)\.", r"\1&#46;", signs)
    return signs.replace("://", ":&#47;/").replace("@", "&#64;")
