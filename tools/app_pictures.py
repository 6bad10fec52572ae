"""Take the pictures of the app for its documentation, in Chromium, on drawn pictures.

    python tools/app_pictures.py [folder] [width]

writes ``app-try.png``, ``app-examine.png`` and ``app-audit.png`` into `docs`, 1280 pixels wide.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from app_browser import AppPage, running_app
from headless import browser, missing


def take_pictures(page: AppPage, folder: Path, width: int, height: int = 900) -> None:
    """One of each tab, with results."""
    page.open(width, height)
    page.find(".fair-tta-image img")
    page.press(".fair-tta-run")
    page.result("section")
    if width < 600:
        page.scroll(".fair-tta-answers")
    page.picture(folder / "app-try.png")
    for tab in ("Examine", "Audit"):
        page.tab(tab)
        page.press(".fair-tta-take")
        page.uploaded(".fair-tta-images")
        page.press(".fair-tta-run")
        page.result("iframe")
        page.scroll(".fair-tta-result iframe")
        page.picture(folder / f"app-{tab.lower()}.png")


def main(folder: Path, width: int) -> None:
    """Start the app and look at it."""
    if missing():
        sys.exit(missing())
    with tempfile.TemporaryDirectory() as logs:
        command = ["-m", "fair_tta", "app", "--no-open"]
        with running_app(command, Path(logs) / "log") as (url, _), browser() as driver:
            take_pictures(AppPage(driver, url), folder, width)


if __name__ == "__main__":
    arguments = [*sys.argv[1:], *["docs", "1280"][len(sys.argv) - 1 :]]
    main(Path(arguments[0]), int(arguments[1]))
