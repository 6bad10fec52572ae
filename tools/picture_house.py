"""Diagrams: the rooms of the package after their contract, and the parts of a method."""

from __future__ import annotations

import re
from pathlib import Path

from picture_canvas import INK, LINE, MUTED, PALE, TEAL, Canvas

ROOT = Path(__file__).parents[1]
ROOMS = {
    "cli": "commands for people",
    "app": "the same in a browser",
    "folders": "audits of folders",
    "paper": "grids, tables, demo",
    "report": "pages, pictures, cards",
    "auditing": "rows + labels → figures",
    "runs": "records, settings → rows",
    "data": "records and their problems",
    "pipeline": "in place of a pipeline",
    "classifier": "the front door",
    "adapters": "methods, one file each",
    "tuning": "losses, directions, rates, loop",
    "vision": "pictures, views, features",
    "text": "prompts, context, features",
    "backends": "a model behind one protocol",
    "miniature | metrics | prediction": "",
    "errors | files": "what we raise, how we write",
}
WAY = {
    "vision": "1. read, checked, made into views",
    "backends": "2. encoded once, without gradients",
    "text": "3. compared with the prompts",
    "tuning": "4. the context is tuned, or not",
    "adapters": "5. probabilities of the method",
    "classifier": "6. Prediction, beside zero-shot",
}


def layers() -> list[str]:
    """Rooms from the outside in, as import-linter holds them."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    found = re.search(r"^layers = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit("pyproject.toml has no contract of layers any more.")
    return re.findall(r'"([^"]+)"', found[1])


def architecture(path: Path) -> None:
    """The rooms from the outside in, and the way of a picture through them."""
    rooms = layers()
    canvas = Canvas(
        830, 74 + 38 * len(rooms), "The rooms of fair-tta from the outside in, and a picture's way"
    )
    canvas.text(20, 32, "rooms: each imports from those below it only", font_weight=600)
    canvas.text(530, 32, "the way of a picture", font_weight=600)
    for k, room in enumerate(rooms):
        top = 50 + 38 * k
        ink = "#004d40"
        fill = PALE
        if room in ("classifier", "pipeline"):
            ink, fill = "#ffffff", TEAL
        canvas.rect(20, top, 470, 30, rx=5, fill=fill, stroke=TEAL)
        canvas.text(32, top + 20, room.replace(" | ", " · "), fill=ink, font_weight=600)
        canvas.text(478, top + 20, ROOMS.get(room, ""), anchor="end", fill=ink, font_size=13)
        if room in WAY:
            canvas.line(490, top + 15, 516, top + 15, stroke=TEAL, stroke_dasharray="4 3")
            canvas.dot(516, top + 15, 4, fill=TEAL)
            canvas.text(530, top + 20, WAY[room])
    canvas.save(path)


def parts(path: Path) -> None:
    """The parts of a method that can be one's own."""
    boxes = [
        ("Backend", "a model: features", "of prompts and", "of pictures"),
        ("Views", "one picture", "becomes many"),
        ("Loss", "what to make", "certain, and what", "uncertain"),
        ("Direction", "several gradients", "become one"),
        ("RatePolicy", "how far to step"),
    ]
    canvas = Canvas(720, 236, "An adapter is made of views, a loss, a direction and a rate policy")
    canvas.rect(10, 10, 700, 180, rx=8, fill="#ffffff", stroke=LINE, stroke_width=2)
    canvas.text(26, 38, "Adapter: a method. Prompt tuning is made of these parts:", font_weight=600)
    for k, (name, *lines) in enumerate(boxes):
        left = 26 + 136 * k
        canvas.rect(left, 56, 124, 118, rx=6, fill=PALE, stroke=TEAL)
        canvas.text(left + 10, 80, name, font_weight=600, fill="#004d40")
        for i, line in enumerate(lines):
            canvas.text(left + 10, 106 + 20 * i, line, font_size=12.5, fill=INK)
    canvas.text(26, 218, "A method that tunes nothing has none of the last three: features in, "
                "probabilities out.", fill=MUTED)  # fmt: skip
    canvas.save(path)
