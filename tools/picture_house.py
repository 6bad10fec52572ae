"""Diagrams: the two storeys of the package, and the parts of a method."""

from __future__ import annotations

from pathlib import Path

from picture_canvas import INK, LINE, MUTED, PALE, TEAL, Canvas

ROOT = Path(__file__).parents[1]
LAB = {
    "cli | app": "commands; the same in a browser",
    "report": "pages, cards and charts of audits",
    "runs": "work units, stored rows, processes",
}
CORE = {
    "auditing | datasets": "answers + labels → figures; label files",
    "classifier | pipeline": "the front door",
    "methods": "one file each; losses, directions, rates",
    "images | prompts": "views and features; context and text",
    "models": "a model behind one protocol",
    "metrics": "estimates with their intervals",
}
PATH = {
    "images | prompts": "1. load, augment into views",
    "models": "2. encode once, without gradients",
    "methods": "3. adapt: probabilities of the method",
    "classifier | pipeline": "4. Prediction, beside zero-shot",
}
"""The path of an image through the core."""


def architecture(path: Path) -> None:
    """Both storeys from the outside in, and the path of an image."""
    canvas = Canvas(
        830,
        130 + 38 * len({**LAB, **CORE}),
        "The lab and the core of fair-tta, from the outside in",
    )
    top = 32
    for title, packages in (
        ("fair_tta.lab: folders, runs, reports, command line, app", LAB),
        ("fair_tta, the core: wrap, adapt, measure. It never imports the lab", CORE),
    ):
        canvas.text(20, top, title, font_weight=600)
        if packages is CORE:
            canvas.text(530, top, "the path of an image", font_weight=600)
        top += 14
        for name, purpose in packages.items():
            is_door = name.startswith("classifier")
            ink, fill = ("#ffffff", TEAL) if is_door else ("#004d40", PALE)
            canvas.rect(20, top, 470, 30, rx=5, fill=fill, stroke=TEAL)
            canvas.text(
                32, top + 20, name.replace(" | ", " · "), fill=ink, font_weight=600
            )
            canvas.text(478, top + 20, purpose, anchor="end", fill=ink, font_size=13)
            if name in PATH:
                canvas.line(
                    490, top + 15, 516, top + 15, stroke=TEAL, stroke_dasharray="4 3"
                )
                canvas.dot(516, top + 15, 4, fill=TEAL)
                canvas.text(530, top + 20, PATH[name])
            top += 38
        top += 32
    canvas.save(path)


def parts(path: Path) -> None:
    """The parts of a method that users can replace."""
    boxes = [
        ("Backend", "a model: features", "of prompts and", "of images"),
        ("Views", "one image", "becomes many"),
        ("Loss", "what to make", "certain, and what", "uncertain"),
        ("Direction", "several gradients", "become one"),
        ("RatePolicy", "how far to step"),
    ]
    canvas = Canvas(
        720, 236, "An adapter is made of views, a loss, a direction and a rate policy"
    )
    canvas.rect(10, 10, 700, 180, rx=8, fill="#ffffff", stroke=LINE, stroke_width=2)
    canvas.text(
        26,
        38,
        "Adapter: a method. Prompt tuning is made of these parts:",
        font_weight=600,
    )
    for k, (name, *lines) in enumerate(boxes):
        x = 26 + 136 * k
        canvas.rect(x, 56, 124, 118, rx=6, fill=PALE, stroke=TEAL)
        canvas.text(x + 10, 80, name, font_weight=600, fill="#004d40")
        for i, line in enumerate(lines):
            canvas.text(x + 10, 106 + 20 * i, line, font_size=12.5, fill=INK)
    canvas.text(26, 218, "A method that tunes nothing has none of the last three: features in, "
                "probabilities out.", fill=MUTED)  # fmt: skip
    canvas.save(path)
