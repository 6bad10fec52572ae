"""A page inside the app's page: without scripts, forms, or anything of the page around it."""

from __future__ import annotations

from html import escape


def sandboxed(page: str, title: str) -> str:
    """A report as a frame that may do nothing but be looked at.

    Args:
        page: a whole HTML page; its own policy forbids scripts too.
        title: for screen readers.
    """
    return (
        f'<iframe class="fair-tta-report" sandbox="" referrerpolicy="no-referrer" '
        f'title="{escape(title)}" srcdoc="{escape(page)}"></iframe>'
    )
