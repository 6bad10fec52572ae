"""The tab *Try*: one picture, several methods."""

from __future__ import annotations

from typing import Any

from fair_tta.app.answers import answers_html
from fair_tta.app.drawn import DrawnExample
from fair_tta.app.messages import told
from fair_tta.app.parts import LOUDLY, NOTHING_YET, QUIETLY, Desk, fields_boxes, methods_box
from fair_tta.app.questions import Fields, chosen_methods
from fair_tta.errors import FairTTAError

_TRY_START = NOTHING_YET.format("Drop a picture or take a drawn one, then press <b>Answer</b>.")


def try_tab(desk: Desk, examples: list[DrawnExample]) -> None:
    """Build the tab.

    Args:
        desk: of all tabs.
        examples: drawn pictures.
    """
    gr = desk.gr
    with gr.Row():
        with gr.Column(scale=2, min_width=300):
            with gr.Row():
                picture, drawn = _picture_boxes(desk, examples)
            boxes = fields_boxes(desk)
            methods = methods_box(desk)
            button = gr.Button("Answer", variant="primary", elem_classes="fair-tta-run")
        with gr.Column(scale=3, min_width=300):
            answers = gr.HTML(_TRY_START, padding=False, elem_classes="fair-tta-result")

    def answer(path: str | None, targets: str, sensitive: str, template: str, names: Any) -> str:
        def act() -> str:
            if not path:
                raise FairTTAError("there is no picture yet: drop one, or take a drawn one.")
            classifier = desk.classifiers.of(Fields(targets, sensitive, template))
            return answers_html(classifier, chosen_methods(names), path)

        return told(act, str, *desk.hidden)

    def take(place: int) -> list[str]:
        path, fields = examples[place]
        return [str(path), fields.targets, fields.sensitive, fields.template]

    asked = [picture, *boxes, methods]
    button.click(answer, asked, answers, **LOUDLY)
    drawn.click(take, drawn, [picture, *boxes], **QUIETLY).then(answer, asked, answers, **LOUDLY)


def _picture_boxes(desk: Desk, examples: list[DrawnExample]) -> tuple[Any, Any]:
    gr = desk.gr
    with gr.Column(min_width=200):
        picture = gr.Image(
            label="Picture",
            type="filepath",
            sources=["upload", "clipboard"],
            height=200,
            buttons=[],
            elem_classes="fair-tta-picture",
        )
        # The file as it is: the library reads it, with its own limits and messages.
        picture.preprocess = lambda payload: payload and payload.path
    with gr.Column(min_width=200):
        drawn = gr.Dataset(
            components=[gr.Image(visible=False)],
            samples=[[str(example.path)] for example in examples],
            type="index",
            label="Drawn pictures",
            samples_per_page=len(examples),
            elem_classes="fair-tta-drawn",
        )
    return picture, drawn
