"""The page: a heading and three tabs."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from fair_tta._models.load import model_name
from fair_tta.errors import FairTTAError, require
from fair_tta.lab.app._answers import (
    DrawnExample,
    answers_html,
    draw_examples,
    draw_folder,
    fields_of,
)
from fair_tta.lab.app._parts import (
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
from fair_tta.lab.app._questions import Classifiers, Fields, chosen_methods, told
from fair_tta.lab.app._uploads import (
    LabelColumns,
    UploadedFile,
    audit_uploads,
    examine_uploads,
    header,
    path_column,
    pictures_among,
)
from fair_tta.miniature import BIRDS, FOLDER

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


_EXAMINE_START = NOTHING_YET.format(
    "What the model perceives, and what methods would change: no labels."
)


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


_AUDIT_START = NOTHING_YET.format(
    "How large is the gap, and what do methods make of it? With labels."
)


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


EMBEDDED = "the embedded miniature model, which knows drawn pictures only"
_HERE = "Pictures stay on this machine and are deleted at the end."
_THERE = (
    "Pictures go to the machine that runs this app, and are deleted an hour after their last use."
)

STYLE = (files("fair_tta.lab.app") / "app.css").read_text("utf-8")


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
    with gr.Blocks(title="fair-tta", analytics_enabled=False, fill_width=False) as blocks:
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
