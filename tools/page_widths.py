"""Look at every page of the built documentation in Chromium, on a phone and on a screen.

    python tools/page_widths.py                    the pages in site/, at 380 and 1280 pixels
    python tools/page_widths.py --shots FOLDER     and a picture of each, to be looked at

A page fails if it can be scrolled sideways (code and tables scroll in boxes of their own), if a
picture is not there or not told in words, or if it asks another host for anything. Without
Chromium, chromedriver or selenium nothing is checked, and the command says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from headless import browser, missing, resize

WIDTHS = (380, 1280)
LOOK = """
const wide = [...document.querySelectorAll('body *')].filter(e => {
  const box = e.getBoundingClientRect();
  if (box.width === 0 || box.right <= arguments[0] + 1) return false;
  for (let p = e.parentElement; p; p = p.parentElement)
    if (getComputedStyle(p).overflowX !== 'visible') return false;
  return getComputedStyle(e).position !== 'fixed';
});
return {
  page: document.documentElement.scrollWidth,
  wide: wide.slice(0, 3).map(e => e.tagName + '.' + e.className),
  broken: [...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src),
  silent: [...document.images].filter(i => !i.alt).map(i => i.src),
  asked: performance.getEntriesByType('resource').map(e => e.name)
    .filter(name => !name.startsWith(location.origin) && !name.startsWith('data:')),
}
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a folder on this machine."""
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(_Quiet, directory=str(folder))
    )
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def look(site: Path, shots: Path | None = None) -> list[str]:
    """What is wrong with the pages of a folder, a line each."""
    pages = sorted(p.relative_to(site).as_posix() for p in site.rglob("*.html"))
    problems = []
    with served(site) as address, browser() as driver:
        for width in WIDTHS:
            resize(driver, width, 900)
            for page in pages:
                driver.get(f"{address}/{page}")
                page_state = driver.execute_script(LOOK, width)
                wrong = _wrong(page_state, width)
                problems += [
                    f"{page} at {width} pixels: {problem}" for problem in wrong
                ]
                if shots is not None:
                    shots.mkdir(parents=True, exist_ok=True)
                    name = (
                        page.removesuffix("index.html").strip("/").replace("/", "-")
                        or "index"
                    )
                    driver.save_screenshot(str(shots / f"{name}-{width}.png"))
    return problems


def _wrong(page_state: dict[str, Any], width: int) -> Iterator[str]:
    if page_state["page"] > width:
        causes = ", ".join(page_state["wide"]) or "nothing seen"
        yield f"it is {page_state['page']} wide, because of {causes}"
    for name in page_state["broken"]:
        yield f"the image {name} is missing"
    for name in page_state["silent"]:
        yield f"the image {name} has no alt text"
    for name in page_state["asked"]:
        yield f"it asks for {name}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("site", nargs="?", type=Path, default=Path("site"))
    parser.add_argument("--shots", type=Path)
    options = parser.parse_args()
    if not (options.site / "index.html").is_file():
        sys.exit(f"{options.site} holds no pages: run `make docs` first.")
    why = missing()
    if why:
        print(f"widths of pages: not checked, for {why}")
        return
    problems = look(options.site, options.shots)
    print(
        "\n".join(problems)
        or f"every page fits {' and '.join(map(str, WIDTHS))} pixels"
    )
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
