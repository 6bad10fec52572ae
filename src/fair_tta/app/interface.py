"""The page: a heading and three tabs. Each tab is a file of its own."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from fair_tta.app.audit_tab import audit_tab
from fair_tta.app.drawn import draw_examples
from fair_tta.app.examine_tab import examine_tab
from fair_tta.app.parts import Desk
from fair_tta.app.questions import Classifiers
from fair_tta.app.try_tab import try_tab
from fair_tta.backends.naming import model_name
from fair_tta.errors import require
from fair_tta.miniature import FOLDER

EMBEDDED = "the embedded miniature model, which knows drawn pictures only"
_HERE = "Pictures stay on this machine and are deleted at the end."
_THERE = "Pictures go to the machine that runs this app, and are deleted after an hour."
_EVERY, _OLD = 600, 3600  # seconds: how often to look for old uploads, and how old

STYLE = (files("fair_tta.app") / "app.css").read_text("utf-8")


def build_interface(
    classifiers: Classifiers, folder: Path, *, embedded: bool, local: bool = True
) -> Any:
    """The page as Gradio's `Blocks`.

    Args:
        classifiers: of the model.
        folder: where examples and runs are written.
        embedded: whether it is the embedded model, which reports should say.
        local: whether only this machine can reach the page; it says where pictures go.
    """
    gr = require("gradio", "app")
    runs = folder / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    desk = Desk(gr, classifiers, runs, [f"This is {EMBEDDED}."] if embedded else [], embedded)
    examples = draw_examples(folder / "examples")
    with gr.Blocks(
        title="fair-tta", analytics_enabled=False, delete_cache=(_EVERY, _OLD), fill_width=False
    ) as blocks:
        gr.HTML(_heading(classifiers, embedded, local), padding=False)
        with gr.Tab("Try"):
            try_tab(desk, examples)
        with gr.Tab("Examine"):
            examine_tab(desk)
        with gr.Tab("Audit"):
            audit_tab(desk)
    return blocks


def theme() -> Any:
    """Fonts that the reader's machine has: none is fetched."""
    gr = require("gradio", "app")
    base = gr.themes.Base(
        primary_hue="teal",
        neutral_hue="slate",
        font=["system-ui", "Segoe UI", "Roboto", "DejaVu Sans", "sans-serif"],
        font_mono=["ui-monospace", "Menlo", "DejaVu Sans Mono", "monospace"],
    )
    return base.set(  # what Gradio has is too pale to be read by all
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_text_color="white",
    )


def is_embedded(model: object) -> bool:
    """Whether this is how the embedded model is called."""
    return model == "miniature" or str(model) == str(FOLDER)


def _heading(classifiers: Classifiers, embedded: bool, local: bool) -> str:
    model = EMBEDDED if embedded else model_name(classifiers.backend)
    return (
        '<div class="fair-tta-head"><h1>fair-tta</h1>'
        "<p>Zero-shot answers that lean less on an attribute you name, and what is left of the gap."
        f"</p><p>Model: {escape(model)}. {_HERE if local else _THERE}</p></div>"
    )
