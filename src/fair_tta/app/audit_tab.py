"""The tab *Audit*: pictures and a CSV file of their labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fair_tta.app.drawn import draw_folder, fields_of
from fair_tta.app.messages import told
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
    read_files,
    run_report,
)
from fair_tta.app.questions import Fields, chosen_methods
from fair_tta.app.uploaded_audit import LabelColumns, audit_uploads
from fair_tta.app.uploads import UploadedFile, header, path_column, pictures_among
from fair_tta.errors import FairTTAError
from fair_tta.miniature import BIRDS

_AUDIT_START = NOTHING_YET.format("How large is the gap, and what do methods make of it? With labels.")


def audit_tab(desk: Desk) -> None:
    """Build the tab."""
    gr = desk.gr
    with gr.Row():
        with gr.Column(min_width=300):
            pictures, drawn = pictures_box(desk)
            labels = gr.File(
                label="CSV file of labels",
                file_count="single",
                height=110,
                elem_classes="fair-tta-csv",
            )
            labels.preprocess = read_files
            target = gr.Dropdown([], label="Column of classes", elem_classes="fair-tta-target")
            sensitive = gr.Dropdown(
                [],
                label="Columns that should not matter",
                multiselect=True,
                elem_classes="fair-tta-attributes",
            )
            paths = gr.Dropdown([], label="Column of paths", elem_classes="fair-tta-paths")
        with gr.Column(min_width=300):
            boxes = fields_boxes(desk, optional=True)
            methods = methods_box(desk, ("zero-shot", "association-correction"))
            button = gr.Button("Audit", variant="primary", elem_classes="fair-tta-run")
    page = gr.HTML(_AUDIT_START, padding=False, elem_classes="fair-tta-result")
    downloads = downloads_box(desk)

    def audit(
        files: list[UploadedFile],
        csv: list[UploadedFile],
        target: str | None,
        attributes: list[str] | None,
        where: str | None,
        classes: str,
        values: str,
        template: str,
        names: list[str],
        progress: Any = gr.Progress(),  # noqa: B008
    ) -> tuple[str, Any]:
        def make(out: Path) -> list[Path]:
            found = pictures_among(files)
            desk.classifiers.limits.check_files(found)
            if not csv:
                raise FairTTAError("there is no CSV file yet: drop one, or take the drawn birds.")
            return audit_uploads(
                desk.classifiers,
                chosen_methods(names),
                found,
                csv[0].path,
                LabelColumns(target or "", tuple(attributes or ()), where or None),
                Fields(classes, values, template),
                out,
                notes=desk.notes,
                progress=progress_of(progress, "rows"),
            )

        return run_report(desk, "Audit", make)

    def columns(csv: list[UploadedFile]) -> tuple[Any, Any, Any, str]:
        """What the file has, chosen as far as it can be guessed."""

        def act() -> tuple[Any, Any, Any, str]:
            found = header(csv[0].path) if csv else []
            where = path_column(found)
            others = [name for name in found if name != where]
            guess = next((n for n in others if n.lower() in ("class", "label", "target")), None)
            return (
                gr.Dropdown(choices=others, value=guess),
                gr.Dropdown(choices=others, value=[]),
                gr.Dropdown(choices=found, value=where),
                _AUDIT_START,
            )

        none = gr.Dropdown(choices=[], value=None)
        return told(
            act, lambda text: (none, gr.Dropdown(choices=[], value=[]), none, text), *desk.hidden
        )

    def take() -> list[Any]:
        drawings, file = draw_folder(desk.new_folder())
        found, fields = header(file), fields_of(BIRDS)
        return [
            drawings,
            file,
            gr.Dropdown(choices=found, value="class"),
            gr.Dropdown(choices=found, value=["background"]),
            gr.Dropdown(choices=found, value="file"),
            fields.targets,
            fields.sensitive,
            fields.template,
        ]

    chosen = [target, sensitive, paths]
    asked = [pictures, labels, *chosen, *boxes, methods]
    button.click(audit, asked, [page, downloads], **LOUDLY)
    labels.upload(columns, labels, [*chosen, page], **QUIETLY)
    drawn.click(take, None, [pictures, labels, *chosen, *boxes], **QUIETLY)
