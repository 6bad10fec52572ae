"""Chromium without a window, for pictures of pages and checks of pages."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()
# Selenium looks for drivers on the network and reports to its makers unless it is told not to.
os.environ |= {"SE_OFFLINE": "true", "SE_AVOID_STATS": "true"}


def missing() -> str:
    """Why no browser can be used, empty if one can."""
    for name, package in {
        "chromium": "chromium",
        "chromedriver": "chromium-driver",
    }.items():
        if shutil.which(name) is None:
            return f"{name} is not installed (apt-get install {package})"
    return "" if importlib.util.find_spec("selenium") else "selenium is not installed"


@contextmanager
def browser(*, logs: bool = False) -> Iterator[Any]:
    """Chromium without a window, closed at the end.

    Args:
        logs: keep what it asks for (``get_log("performance")``).
    """
    webdriver = importlib.import_module("selenium.webdriver")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        if logs:
            options.set_capability(
                "goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"}
            )
        options.binary_location = shutil.which("chromium")
        service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
        driver = webdriver.Chrome(options=options, service=service)
        try:
            yield driver
        finally:
            driver.quit()


def resize(driver: Any, width: int, height: int) -> None:
    """The page gets this many pixels, however narrow: a window cannot be."""
    metrics = {
        "width": width,
        "height": height,
        "deviceScaleFactor": 1,
        "mobile": width < 600,
    }
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
