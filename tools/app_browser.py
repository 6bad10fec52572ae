"""Drive the app in headless Chromium: for its tests, and for the pictures of its documentation."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image

from headless import resize
from picture_world import save_png

T = TypeVar("T")

PATIENCE = 240.0
"""Seconds: of a busy machine, not of the app."""


@contextmanager
def running_app(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of an app, once it is there, and its process; it is stopped at the end.

    Args:
        command: starts it; prints its address.
        log: gets everything that the process writes.
        environment: variables beside those of this process.
    """
    with log.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, *command],
            stdout=file,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
    try:
        url = waited(lambda: _address(log, process), "the app to start")
        yield url, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def waited(look: Callable[[], T | None], description: str) -> T:
    """What `look` gives, as soon as it gives something.

    Args:
        look: returns None as long as there is nothing.
        what: is waited for, for the error.
    """
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        answer = look()
        if answer is not None:
            return answer
        time.sleep(0.1)
    raise TimeoutError(f"waited {PATIENCE:.0f} s for {description}")


def _address(log: Path, process: subprocess.Popen[str]) -> str | None:
    text = log.read_text()
    if process.poll() is not None:
        raise RuntimeError(f"the app ended with {process.returncode}: {text}")
    return next((word for word in text.split() if word.startswith("http://")), None)


class AppPage:
    """The page of the app, as somebody uses it.

    Args:
        driver: of `browser`, which keeps logs.
        url: of the app.
    """

    def __init__(self, driver: Any, url: str) -> None:
        self.driver, self.url = driver, url

    def open(self, width: int = 1280, height: int = 900) -> None:
        """Load the page afresh in a window of this size."""
        resize(self.driver, width, height)
        self.driver.get(self.url)
        self.find(".fair-tta-run")

    def find(self, selector: str) -> Any:
        """The first element that is shown, once there is one."""
        script = (
            "return [...document.querySelectorAll(arguments[0])]"
            ".find(e => e.type === 'file' || e.offsetParent !== null) || null"
        )
        return waited(lambda: self.driver.execute_script(script, selector), selector)

    def tab(self, name: str) -> None:
        """Open a tab."""
        script = (
            "const t = [...document.querySelectorAll('button[role=tab]')]"
            ".find(e => e.textContent.trim() === arguments[0] && e.offsetParent !== null);"
            "if (t) t.click(); return t ? true : null"
        )
        waited(lambda: self.driver.execute_script(script, name), f"the tab {name}")

    def upload(self, selector: str, *files: Path) -> None:
        """Drop files on a place."""
        script = (
            "return [...document.querySelectorAll(arguments[0])]"
            ".find(e => e.offsetParent !== null)?.querySelector('input[type=file]') || null"
        )
        box = waited(lambda: self.driver.execute_script(script, selector), selector)
        box.send_keys("\n".join(str(file) for file in files))

    def write(self, selector: str, text: str) -> None:
        """Replace what a field holds."""
        box = self.find(f"{selector} textarea, {selector} input")
        self.driver.execute_script(
            "const p = Object.getPrototypeOf(arguments[0]);"
            "Object.getOwnPropertyDescriptor(p, 'value').set.call(arguments[0], arguments[1]);"
            "arguments[0].dispatchEvent(new Event('input', {bubbles: true}))",
            box,
            text,
        )

    def press(self, selector: str) -> None:
        """Press a button."""
        self.driver.execute_script("arguments[0].click()", self.find(selector))

    def choose(self, selector: str, name: str) -> None:
        """Choose an entry of a list with several choices."""
        from selenium.webdriver.common.keys import Keys

        box = self.find(f"{selector} input")
        box.click()
        box.send_keys(name, Keys.ENTER)
        box.send_keys(Keys.ESCAPE)

    def result(self, selector: str = "*") -> Any:
        """An element of the result, once it is there."""
        return self.find(f".fair-tta-result {selector}")

    def uploaded(self, selector: str) -> Any:
        """The list of files of a place, once they are there."""
        return self.find(f"{selector} .file-preview, {selector} table")

    def scroll(self, selector: str) -> None:
        """Bring an element to the top of the window."""
        self.driver.execute_script(
            "arguments[0].scrollIntoView({block: 'start', behavior: 'instant'})",
            self.find(selector),
        )

    def inside(self, frame: Any) -> str:
        """The text of a frame."""
        self.driver.switch_to.frame(frame)
        try:
            text: str = self.driver.find_element("css selector", "body").text
            return text
        finally:
            self.driver.switch_to.default_content()

    def until(self, holds: Callable[[], bool], description: str) -> None:
        """Wait for something to be true."""
        waited(lambda: holds() or None, description)

    def requests(self) -> list[str]:
        """Addresses that were asked for since the last call."""
        addresses = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                addresses.append(message["params"]["request"]["url"])
        return addresses

    def picture(self, path: Path) -> None:
        """What the window shows, as a file of few colours."""
        image = Image.open(BytesIO(self.driver.get_screenshot_as_png()))
        save_png(image, path, 128)
