"""The tab *Examine*: pictures without labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fair_tta.app.drawn import draw_folder, fields_of
from fair_tta.app.parts import (
    LOUDLY,
    NOTHING_YET,
    QUIETLY,
    Desk,
    downloads_box,
    fields_boxes,
    methods_box,
    pictures_box,
    progress_of,
    run_report,
)
from fair_tta.app.questions import Fields, chosen_methods
from fair_tta.app.uploaded_examination import examine_uploads
from fair_tta.app.uploads import UploadedFile, pictures_among
from fair_tta.miniature import BIRDS

_EXAMINE_START = NOTHING_YET.format("What the model perceives, and what methods would change: no labels.")


def examine_tab(desk: Desk) -> None:
    """Build the tab."""
    gr = desk.gr
    with gr.Row():
        with gr.Column(min_width=300):
            pictures, drawn = pictures_box(desk)
        with gr.Column(min_width=300):
            boxes = fields_boxes(desk)
            methods = methods_box(desk)
            button = gr.Button("Examine", variant="primary", elem_classes="fair-tta-run")
    page = gr.HTML(_EXAMINE_START, padding=False, elem_classes="fair-tta-result")
    downloads = downloads_box(desk)

    def examine(
        files: list[UploadedFile],
        targets: str,
        sensitive: str,
        template: str,
        names: list[str],
        progress: Any = gr.Progress(),  # noqa: B008
    ) -> tuple[str, Any]:
        def make(out: Path) -> list[Path]:
            found = pictures_among(files)
            desk.classifiers.limits.check_files(found)
            return examine_uploads(
                desk.classifiers.of(Fields(targets, sensitive, template)),
                chosen_methods(names),
                found,
                out,
                notes=desk.notes,
                progress=progress_of(progress, "pictures"),
            )

        return run_report(desk, "Examination", make)

    def take() -> list[Any]:
        paths, _ = draw_folder(desk.new_folder())
        fields = fields_of(BIRDS)
        return [paths, fields.targets, fields.sensitive, fields.template]

    button.click(examine, [pictures, *boxes, methods], [page, downloads], **LOUDLY)
    drawn.click(take, None, [pictures, *boxes], **QUIETLY)
