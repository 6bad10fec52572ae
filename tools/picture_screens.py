"""What a terminal and a browser show: the commands themselves are run, on drawn pictures."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from fair_tta import miniature
from fair_tta.miniature._world import MiniatureTask
from headless import resize
from picture_world import changed, save_png

_THEME = TerminalTheme(
    (22, 27, 34), (230, 237, 243),
    [(22, 27, 34), (255, 123, 114), (86, 211, 154), (227, 179, 65), (121, 192, 255),
     (210, 168, 255), (86, 212, 221), (230, 237, 243)],
    [(139, 148, 158), (255, 161, 152), (124, 231, 180), (240, 200, 100), (165, 214, 255),
     (226, 197, 255), (130, 230, 238), (255, 255, 255)],
)  # fmt: skip


def shoot(driver: Any, page: Path, path: Path, width: int, height: int) -> None:
    """The first screen of a page."""
    resize(driver, width, height)
    driver.get(page.resolve().as_uri())
    image = Image.open(BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    save_png(image, path, 256)


def run(folder: Path, *arguments: str, columns: int = 104) -> str:
    """What a command prints on a terminal so wide, with its colours."""
    environment = {
        **os.environ, "FORCE_COLOR": "1", "COLUMNS": str(columns), "HF_HUB_OFFLINE": "1",
        "TERM": "xterm-256color",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "fair_tta", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"fair-tta {' '.join(arguments)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def terminal(path: Path, command: str, output: str, columns: int = 104) -> None:
    """A terminal session as SVG, without fonts from another host."""
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True)
    for k, line in enumerate(command.splitlines()):
        console.print(Text.assemble(("$ " if k == 0 else "    ", "bold green"), line))
    console.print(Text.from_ansi(output.rstrip()))
    svg = console.export_svg(title="fair-tta", theme=_THEME, unique_id=path.stem)
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = svg.replace(
        "Fira Code, monospace", "ui-monospace, Menlo, DejaVu Sans Mono, monospace"
    )
    svg = re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL)
    svg = "\n".join(line.rstrip() for line in svg.splitlines() if line.strip())
    path.write_text(svg + "\n", "utf-8")


def drawn_folder(
    folder: Path, task: MiniatureTask, n: int, **drawing_options: Any
) -> None:
    """Pictures of a task as files, and their labels."""
    folder.mkdir()
    with (folder.parent / f"{folder.name}.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["file", "target", *task.sensitive])
        for k, drawn in enumerate(task.draw(n, **drawing_options)):
            drawn.image.save(folder / f"{k:03}.png")
            rows.writerow([f"{k:03}.png", drawn.target, *drawn.sensitive.values()])


BIRDS = (
    "--model", "miniature", "--targets", "water bird=of a water bird",
    "--targets", "land bird=of a land bird",
    "--sensitive", "background: water=on water", "--sensitive", "background: land=on land",
    "--template", "This is a picture {target} {sensitive}.",
)  # fmt: skip
SHORT = "--model miniature --targets ... --sensitive ..."
METHODS = "zero-shot,association-correction,logit-balance"


@contextmanager
def session() -> Iterator[Path]:
    """A folder with drawn birds, their labels and a reference without labels."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        drawn_folder(folder / "photos", miniature.BIRDS, 1000)
        drawn_folder(folder / "reference", miniature.BIRDS, 300, split="validation")
        yield folder


def predict(path: Path, folder: Path) -> None:
    """Six answers."""
    output = run(folder, "predict", "photos", "--limit", "6", *BIRDS, "--adapter", "logit-balance",
                 "--reference", "reference")  # fmt: skip
    command = f"fair-tta predict photos --limit 6 {SHORT} \\\n"
    terminal(path, command + "--adapter logit-balance --reference reference", output)


def audit(path: Path, folder: Path) -> None:
    """An audit of three methods; what it writes is for the pictures of its report."""
    labels = (
        "--labels", "photos.csv", "--target-column", "target", "--sensitive-column", "background"
    )  # fmt: skip
    output = run(folder, "audit", "--images", "photos", *labels, *BIRDS, "--adapters", METHODS,
                 "--reference", "reference", "--out", "audit")  # fmt: skip
    command = (
        f"fair-tta audit --images photos {' '.join(labels[:4])} \\\n"
        f"{' '.join(labels[4:])} {SHORT} \\\n"
        f"--adapters {METHODS} \\\n--reference reference --out audit"
    )
    terminal(path, command, output)


def examine(folder: Path) -> Path:
    """The page of an examination."""
    run(folder, "examine", "photos", *BIRDS, "--adapters", METHODS.partition(",")[2],
        "--reference", "reference", "--out", "look")  # fmt: skip
    return folder / "look" / "examine.html"


def notebook(folder: Path) -> Path:
    """A page with what a notebook shows of a prediction."""
    picture, prediction = changed(miniature.BIRDS)
    buffer = BytesIO()
    picture.resize((160, 160), Image.Resampling.NEAREST).save(buffer, "png")
    source = b64encode(buffer.getvalue()).decode()
    page = folder / "notebook.html"
    page.write_text(
        "<!doctype html><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<style>body { font: 15px system-ui, DejaVu Sans; margin: 12px; } pre { background: "
        "#f3f5f7; border: 1px solid #c3ccd4; padding: 8px; margin: 0 0 12px; font-size: 14px; } "
        "section { display: flex; gap: 28px; } p { margin: 0 0 8px; } td, th { "
        "white-space: nowrap; text-align: left; padding: 3px 14px 3px 0; font-weight: 400; } "
        "th { color: #4d5863; }</style>"
        f"<pre>image\nclf.predict(image)</pre><section><img src='data:image/png;base64,{source}' "
        f"width=160 height=160><div>{prediction._repr_html_()}</div></section>",
        "utf-8",
    )
    return page
