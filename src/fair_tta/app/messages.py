"""What cannot be used, told in the words of the page."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from html import escape
from typing import TypeVar

from fair_tta.errors import FairTTAError

FIELDS = {
    "--targets": "Classes",
    "targets": "Classes",
    "--sensitive": "What should not matter",
    "sensitive": "What should not matter",
    "template": "Sentence",
    "labels_csv": "CSV file",
    "path_column": "Column of paths",
    "images": "Pictures",
    "images_dir": "Pictures",
}
"""What arguments are called on the page."""

_OURSELVES = "Something went wrong in fair-tta itself; the terminal that runs the app says what."

T = TypeVar("T")


def note(text: str) -> str:
    """A message as HTML, for people and for screen readers."""
    return f'<div class="fair-tta-note" role="alert">{escape(text)}</div>'


def in_fields(text: str) -> str:
    """A message of the library in the words of the page.

    Example:
        >>> in_fields("`--targets` should name at least two values (got []).")
        '`Classes` should name at least two values (got []).'
    """
    for name, field in FIELDS.items():
        text = text.replace(f"`{name}`", f"`{field}`")
    return text


def without_folders(text: str, *folders: str) -> str:
    """A message without the folders of this machine, which are nobody's business.

    Example:
        >>> without_folders("cannot read '/home/me/12ab/a.jpg'", "/home/me")
        "cannot read 'a.jpg'"
    """
    for folder in folders:
        for shown in (folder, repr(folder)[1:-1]):  # where messages have two backslashes for one
            text = re.sub(rf"{re.escape(shown)}[/\\]+(?:[^'\"/\\]+[/\\]+)*", "", text)
    return text


def told(act: Callable[[], T], failed: Callable[[str], T], *folders: str) -> T:
    """Do something; what goes wrong is told and never shown as a traceback.

    Args:
        act: what to do.
        failed: what to show for a message, which is HTML.
        folders: not to be named.
    """
    try:
        return act()
    except (FairTTAError, OSError) as error:
        return failed(note(without_folders(in_fields(_text(error)), *folders)))
    except Exception:
        logging.getLogger("fair_tta.app").exception("an error in fair-tta itself")
        return failed(note(_OURSELVES))


def _text(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"a file cannot be used: {error.strerror or 'reading failed'}."
    return str(error)
