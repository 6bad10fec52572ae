"""Make every image that the documentation shows, and check the pages that show them.

    python tools/pictures.py                  all of them, some minutes
    python tools/pictures.py --only world     one, or several
    python tools/pictures.py --check          none: is each shown, with alt text, and small?

All are drawn by this repository from its own world, figures and commands. Screens of pages need
Chromium, chromedriver and selenium; without them their images stay as they are.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
LARGEST, ALTOGETHER = 150_000, 1_500_000
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
"""Alt text and address, in Markdown."""

DRAWN = {
    "what-it-does": "svg", "world": "png", "views": "png", "renderers": "png", "effect": "svg",
    "groups": "svg", "associations": "svg", "harm": "svg", "choose": "svg", "field": "svg",
    "speed": "svg", "claims": "svg", "scaling": "svg", "architecture": "svg", "parts": "svg",
    "soak": "svg",
}  # fmt: skip
COMMANDS = ("predict-terminal", "audit-terminal")
SCREENS = ("report", "report-phone", "examine", "notebook")
EVERY = (*DRAWN, *COMMANDS, *SCREENS, "app")


def main(arguments: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=EVERY, default=EVERY, metavar="NAME",
                        help=", ".join(EVERY))  # fmt: skip
    parser.add_argument(
        "--check", action="store_true", help="make none, look at what is there"
    )
    options = parser.parse_args(arguments)
    if not options.check:
        make(options.only)
    found_problems = problems(DOCS)
    print(
        "\n".join(found_problems)
        or "images: every one is shown, has alt text and is small"
    )
    sys.exit(bool(found_problems))


def make(names: tuple[str, ...]) -> None:
    """Write these images into docs/."""
    for name in DRAWN:
        if name in names:
            print(name, flush=True)
            _drawing(name)()
    if set(names) & {*COMMANDS, *SCREENS}:
        _sessions(names)
    if "app" in names:
        print("app", flush=True)
        subprocess.run(
            [sys.executable, str(Path(__file__).parent / "app_pictures.py")], check=True
        )


def _drawing(name: str) -> Callable[[], None]:
    import picture_charts
    import picture_house
    import picture_world

    path = DOCS / f"{name}.{DRAWN[name]}"
    if name == "effect":
        return lambda: picture_charts.effect(DOCS)
    if name == "what-it-does":
        return lambda: picture_world.what_it_does(path, DOCS / "effect.json")
    for module in (picture_charts, picture_house, picture_world):
        if hasattr(module, name):
            return lambda: getattr(module, name)(path)
    raise AssertionError(name)


def _sessions(names: tuple[str, ...]) -> None:
    """Commands in a folder of drawn images, and the pages that they write."""
    import headless
    import picture_screens as screens

    why = headless.missing()
    with screens.session() as folder:
        if {"audit-terminal", "report", "report-phone"} & set(names):
            print("audit", flush=True)
            screens.audit(DOCS / "audit-terminal.svg", folder)
        if "predict-terminal" in names:
            print("predict", flush=True)
            screens.predict(DOCS / "predict-terminal.svg", folder)
        wanted_screens = [name for name in SCREENS if name in names]
        if why and wanted_screens:
            print(f"left as they are, for {why}: {', '.join(wanted_screens)}")
        elif wanted_screens:
            with headless.browser() as driver:
                for name in wanted_screens:
                    print(name, flush=True)
                    page, width, height = _page(name, folder)
                    screens.shoot(driver, page, DOCS / f"{name}.png", width, height)


def _page(name: str, folder: Path) -> tuple[Path, int, int]:
    import picture_screens as screens

    if name == "examine":
        return screens.examine(folder), 1280, 900
    if name == "notebook":
        return screens.notebook(folder), 740, 270
    width, height = (390, 844) if name == "report-phone" else (1280, 900)
    return folder / "audit" / "report.html", width, height


def problems(docs: Path) -> list[str]:
    """What is wrong with the images of these pages, a line each."""
    problem_texts, shown_images = [], set()
    readme = docs.parent / "README.md"
    for page in [*sorted(docs.glob("*.md")), *([readme] if readme.exists() else [])]:
        text = re.sub(
            r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL
        )
        for alt, address in PICTURE.findall(text):
            path = page.parent / address
            shown_images.add(path.resolve())
            if not path.is_file():
                problem_texts.append(f"{page.name}: there is no {address}")
            if len(alt.split()) < 3:
                problem_texts.append(
                    f"{page.name}: {address} should have alt text (got {alt!r})"
                )
    files = [
        p
        for p in sorted(docs.iterdir())
        if p.suffix in (".svg", ".png", ".webp", ".jpg")
    ]
    for path in files:
        size = path.stat().st_size
        if path.resolve() not in shown_images:
            problem_texts.append(f"{path.name}: no page shows it")
        if size > LARGEST:
            problem_texts.append(f"{path.name}: {size:,} bytes, more than {LARGEST:,}")
    together = sum(path.stat().st_size for path in files)
    if together > ALTOGETHER:
        problem_texts.append(
            f"all images: {together:,} bytes, more than {ALTOGETHER:,}"
        )
    return problem_texts


if __name__ == "__main__":
    main()
