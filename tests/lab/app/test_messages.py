"""What goes wrong is reported in terms of the page, escaped, without paths and tracebacks."""

from __future__ import annotations

import logging

import pytest
from internals import alert_html, guarded, without_folders

from fair_tta import FairTTAError


def failing(error: Exception) -> str:
    def act() -> str:
        raise error

    return guarded(act, str, "/srv/secret")


def test_errors_of_the_library_are_shown_with_the_names_of_fields() -> None:
    text = failing(
        FairTTAError("`targets` should name at least two values (got ['<b>']).")
    )
    assert text == alert_html(
        "`Classes` should name at least two values (got ['<b>'])."
    )
    assert "<b>" not in text
    assert 'role="alert"' in text


def test_folders_of_the_server_are_not_told() -> None:
    text = failing(
        FairTTAError("cannot read '/srv/secret/uploads/12ab/my cat.png': damaged")
    )
    assert "&#x27;my cat.png&#x27;" in text
    assert "secret" not in text
    assert "uploads" not in text
    text = failing(PermissionError(13, "Permission denied", "/srv/elsewhere/a.png"))
    assert "Permission denied" in text
    assert "elsewhere" not in text


@pytest.mark.parametrize("folder", ["/srv/secret", r"C:\Users\me\secret"])
def test_folders_are_not_told_however_paths_are_written(folder: str) -> None:
    path = ("\\" if "\\" in folder else "/").join(
        (folder, "uploads", "12ab", "my cat.png")
    )
    for text in (f"cannot read {path!r}: damaged", f"cannot read '{path}': damaged"):
        assert without_folders(text, folder) == "cannot read 'my cat.png': damaged"


def test_an_error_of_ours_is_logged_and_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        text = failing(ZeroDivisionError("division by zero"))
    assert "Internal error in fair-tta" in text
    assert "division" not in text
    assert "ZeroDivisionError" in caplog.text
