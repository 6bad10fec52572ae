"""A hook of mkdocs: pages that version 0.2 had lead to where their content is now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

MOVED = {
    "backends": "extending/#a-backend",
    "claims": "reproducing/#the-papers-claims-on-the-drawn-world",
    "clip-bias": "metrics/#harm-sets",
    "devices": "models/#devices-and-precision",
    "field": "methods/#the-field",
    "for-auditors": "#if-you-have-a-report-to-write",
    "for-engineers": "#if-you-run-a-model-in-production",
    "for-researchers": "#if-you-compare-methods",
    "miniature": "effect/#the-drawn-world",
    "scaling": "speed/#many-images",
}
PAGE = """<!doctype html>
<meta charset="utf-8"><title>Moved</title><meta http-equiv="refresh" content="0; url={to}">
<p>This page has moved: <a href="{to}">{to}</a></p>
"""


def on_post_build(config: Any, **_: Any) -> None:
    """Write one small page per old address."""
    for old, to in MOVED.items():
        page = Path(config["site_dir"], old, "index.html")
        page.parent.mkdir(exist_ok=True)
        page.write_text(PAGE.format(to=f"../{to}"), "utf-8")
