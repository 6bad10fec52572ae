"""The page: a heading and three tabs."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from fair_tta.datasets._labels import Labels
from fair_tta.errors import FairTTAError, require
from fair_tta.lab.app._answers import (
    answers_html,
    draw_examples,
    draw_folder,
    form_fields_of,
)
from fair_tta.lab.app._questions import (
    FIELD_NAMES,
    Classifiers,
    FormFields,
    chosen_methods,
    guarded,
    need_reference,
    sandboxed,
    why_unusable,
)
from fair_tta.lab.app._server import UPLOADS
from fair_tta.lab.app._uploads import (
    UploadedFile,
    audit_uploads,
    examine_uploads,
    guess_columns,
    only_images,
    read_header,
    staged_reference,
)
from fair_tta.lab.runs._reference import fit_on_folder
from fair_tta.lab.runs._runner import Progress
from fair_tta.methods._registry import ADAPTERS
from fair_tta.miniature import BADGES, FOLDER
from fair_tta.models._loading import backend_name

T = TypeVar("T")

_EMBEDDED_MODEL = "the embedded miniature model, which knows drawn images only"

# What stands in the place of results before there are any
_START = '<p class="fair-tta-empty">{}</p>'
_START_TRY = _START.format(
    "Drop an image or take a drawn one, then press <b>Answer</b>."
)
_START_EXAMINE = _START.format(
    "What the model perceives, and what methods would change: no labels."
)
_START_AUDIT = _START.format(
    "How large is the gap, and how do methods change it? With labels."
)
_STAY = "Images stay on this machine and are deleted at the end."
_LEAVE = "Images go to the machine that runs this app, and are deleted an hour after the upload."

# Events are for the page, not for programs; those that take no time show no progress
_EVENT: dict[str, Any] = {"api_visibility": "private"}
_INSTANT_EVENT: dict[str, Any] = {**_EVENT, "show_progress": "hidden"}

# Seconds: every minute Gradio deletes files that are an hour old
_DELETE_CACHE = (60, 3600)


@dataclass(frozen=True)
class AppContext:
    """Gradio, the classifiers of a model and the folder of the app, which the tabs share.

    A run deletes its files when Gradio has copies of the results.
    """

    gr: Any
    classifiers: Classifiers
    folder: Path
    is_embedded: bool

    def guarded(self, act: Callable[[], T], failed: Callable[[str], T]) -> T:
        """See `guarded`; messages do not name folders of the app."""
        return guarded(act, failed, str(self.folder))

    def uploaded(self, payload: Any) -> list[UploadedFile]:
        """Replace Gradio's own `preprocess`, which leaves a file behind for each file.

        Gradio lets some paths pass that were not uploaded, such as those of streams.
        """
        files: Any = getattr(payload, "root", payload) or []
        files = files if isinstance(files, list) else [files]
        folder = os.path.realpath(self.folder / UPLOADS)
        uploads = []
        for file in files:
            if not Path(os.path.realpath(file.path)).is_relative_to(folder):
                raise self._not_uploaded()
            name = file.orig_name or Path(file.path).name
            uploads.append(UploadedFile(file.path, name))
        return uploads

    def refusing_urls(self, process: Callable[..., Any]) -> Any:
        """Return Gradio's `preprocess_data` for inputs without URLs, which it would fetch.

        Components are not the place for this: one that an event has updated is a new one.
        """

        async def checked(event: Any, inputs: Any, *args: Any, **options: Any) -> Any:
            # Inputs may be nested in any way, also in ways that the page does not send
            pending = [inputs]
            while pending:
                value = pending.pop()
                if isinstance(value, list):
                    pending += value
                elif isinstance(value, dict):
                    pending += value.values()
                    if str(value.get("path")).lower().startswith(("http:", "https:")):
                        raise self._not_uploaded()
            return await process(event, inputs, *args, **options)

        return checked

    def _not_uploaded(self) -> Exception:
        error: Exception = self.gr.Error(
            "This was not uploaded.", print_exception=False
        )
        return error

    def add_run(
        self,
        name: str,
        make: Callable[..., list[Path]],
        inputs: list[Any],
        results: list[Any],
    ) -> None:
        """Add a button that makes files of the inputs, and one that cancels that.

        Args:
            name: of the button.
            make: makes the files of images, methods, other parts, a folder and common arguments.
                The first is shown inside the page, all can be downloaded.
            inputs: parts of the page: images, methods, references, others.
            results: parts for the first file or a message, and for all files.
        """
        gr = self.gr
        downloads = results[1]
        embed = gr.Checkbox(
            False, label="Show some images, with their names, in the report"
        )
        with gr.Row():
            start = gr.Button(name, variant="primary", elem_classes="fair-tta-run")
            cancel = gr.Button("Cancel", elem_classes="fair-tta-cancel")

        # Runs in a thread, so that the server can answer others meanwhile
        def work(progress: Progress, values: tuple[Any, ...]) -> tuple[str, Any]:
            def act() -> tuple[str, list[str] | None]:
                embed_images, files, methods, references, *fields = values
                # Gradio keeps copies of the results, so the folder can go at once
                with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                    paths = make(
                        self.checked_images(files),
                        methods,
                        *fields,
                        out=Path(folder) / "run",
                        reference=self.checked_images(references) if references else [],
                        notes=[f"This is {_EMBEDDED_MODEL}."]
                        if self.is_embedded
                        else [],
                        embed_images=embed_images,
                        progress=progress,
                    )
                    page = sandboxed(paths[0].read_text("utf-8"), name)
                    return page, _move_to_cache(downloads, paths)

            page, cached = self.guarded(act, lambda message: (message, None))
            return page, gr.File(cached, visible=cached is not None)

        # Gradio recognises its progress by this default
        async def run(progress: Any = gr.Progress(), *values: Any) -> tuple[str, Any]:  # noqa: B008
            stop = Event()

            def report(done: int, total: int) -> None:
                if stop.is_set():
                    raise FairTTAError("cancelled.")
                progress((done, total), unit="images")

            try:
                return await asyncio.to_thread(work, report, values)
            finally:
                # Gradio cancels this task, but a thread must be asked to stop
                stop.set()

        event = start.click(run, [embed, *inputs], results, **_EVENT)
        cancelled = (_START.format("Cancelled."), gr.File(None, visible=False))
        cancel.click(
            lambda: cancelled, None, results, cancels=[event], **_INSTANT_EVENT
        )

    def checked_images(self, files: list[UploadedFile]) -> list[UploadedFile]:
        """Return the images of an upload; raise if there are none or too many."""
        images = only_images(files)
        if not images:
            raise FairTTAError(
                "there are no images yet: drop some, or use the drawn ones."
            )
        self.classifiers.limits.check("images", files=len(images))
        return images

    def draw_badges(self, box: Any) -> tuple[list[str], str]:
        """Return drawn images and their labels, as uploads of a box."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            images, labels = draw_folder(Path(folder))
            return _move_to_cache(box, images), _move_to_cache(box, [labels])[0]


def _move_to_cache(component: Any, paths: Sequence[str | Path]) -> list[str]:
    """Return files that Gradio serves and deletes."""
    return [component.move_resource_to_block_cache(str(path)) for path in paths]


def build_interface(
    classifiers: Classifiers, folder: Path, *, embedded: bool, local: bool = True
) -> Any:
    """Return the page as Gradio's `Blocks`, which delete uploads and results after an hour.

    Examples and runs are written to `folder`. The page of an app that is not local says that
    images go to another machine.
    """
    gr = require("gradio", "app")
    context = AppContext(gr, classifiers, folder, embedded)
    examples = draw_examples(folder / "examples")
    with gr.Blocks(
        title="fair-tta",
        analytics_enabled=False,
        fill_width=False,
        delete_cache=_DELETE_CACHE,
    ) as blocks:
        gr.HTML(_heading(classifiers, embedded, local), padding=False)
        with gr.Tab("Try"):
            try_tab(context, examples)
        with gr.Tab("Examine"):
            examine_tab(context)
        with gr.Tab("Audit"):
            audit_tab(context)
    for block in blocks.blocks.values():
        # Only uploads may be read, and under the names that visitors gave them
        if isinstance(block, gr.Image | gr.File | gr.UploadButton):
            block.preprocess = context.uploaded
    blocks.preprocess_data = context.refusing_urls(blocks.preprocess_data)
    return blocks.queue(max_size=classifiers.limits.jobs)


def try_tab(context: AppContext, examples: Mapping[str, FormFields]) -> None:
    """Build the tab of one image; `examples` has the paths of drawn images."""
    gr = context.gr
    paths = list(examples)
    with gr.Row():
        with gr.Column(scale=2, min_width=300):
            with gr.Row():
                with gr.Column(min_width=200):
                    image = gr.Image(
                        paths[0] if context.is_embedded else None,
                        label="Image",
                        type="filepath",
                        sources=["upload", "clipboard"],
                        height=200,
                        buttons=[],
                        elem_classes="fair-tta-image",
                    )
                with gr.Column(min_width=200):
                    drawn = gr.Dataset(
                        components=[gr.Image(visible=False)],
                        samples=[[path] for path in paths],
                        type="index",
                        label="Drawn images",
                        samples_per_page=len(paths),
                        elem_classes="fair-tta-drawn",
                    )
            boxes = _fields(context)
            methods, reference = _methods(context, "association-correction")
            button = gr.Button("Answer", variant="primary", elem_classes="fair-tta-run")
        with gr.Column(scale=3, min_width=300):
            answers = gr.HTML(_START_TRY, padding=False, elem_classes="fair-tta-result")

    def answer(
        files: list[UploadedFile],
        targets: str,
        sensitive: str,
        template: str,
        names: Any,
        references: list[UploadedFile],
    ) -> str:
        def act() -> str:
            if not files:
                raise FairTTAError(
                    "there is no image yet: drop one, or take a drawn one."
                )
            fields = FormFields(targets, sensitive, template)
            classifier = context.classifiers.get(fields)
            chosen = chosen_methods(names)
            images = context.checked_images(references) if references else []
            with tempfile.TemporaryDirectory(dir=context.folder) as folder:
                reference = staged_reference(chosen, images, Path(folder))
                if reference is not None:
                    fitted = fit_on_folder(classifier, chosen, reference)
                    chosen = dict(fitted.adapters)
                return answers_html(classifier, chosen, files[0].path)

        return context.guarded(act, str)

    # A drawn image comes with its question, and is answered at once
    def take(index: int) -> list[str]:
        return [paths[index], *examples[paths[index]]]

    inputs = [image, *boxes, methods, reference]
    button.click(answer, inputs, answers, **_EVENT)
    drawn.click(take, drawn, [image, *boxes], **_INSTANT_EVENT).then(
        answer, inputs, answers, **_EVENT
    )


def examine_tab(context: AppContext) -> None:
    """Build the tab of images without labels."""
    gr = context.gr
    # Results stand below everything, but the buttons must know them
    results = _results(context, _START_EXAMINE)

    def examine(
        files: list[UploadedFile], names: list[str], *fields: str, **common: Any
    ) -> list[Path]:
        classifier = context.classifiers.get(FormFields(*fields))
        return examine_uploads(classifier, chosen_methods(names), files, **common)

    with gr.Row():
        with gr.Column(min_width=300):
            images, drawn = _images(context)
        with gr.Column(min_width=300):
            boxes = _fields(context)
            methods = _methods(context, "association-correction")
            context.add_run("Examine", examine, [images, *methods, *boxes], results)
    for result in results:
        result.render()

    def take() -> list[Any]:
        return [context.draw_badges(images)[0], *form_fields_of(BADGES)]

    drawn.click(take, None, [images, *boxes], **_INSTANT_EVENT)


def audit_tab(context: AppContext) -> None:
    """Build the tab of images with labels."""
    gr = context.gr
    limits = context.classifiers.limits
    results = _results(context, _START_AUDIT)

    def audit(
        files: list[UploadedFile],
        names: list[str],
        csv: list[UploadedFile],
        target: str | None,
        attributes: list[str] | None,
        path_column: str | None,
        *fields: str,
        out: Path,
        **common: Any,
    ) -> list[Path]:
        if not csv:
            raise FairTTAError(
                "there is no CSV file yet: drop one, or take the drawn badges."
            )
        labels = Labels(
            out / "images",
            Path(csv[0].path),
            target or "",
            tuple(attributes or ()),
            path_column or None,
        )
        methods = chosen_methods(names, has_labels=True)
        written = FormFields(*fields)
        return audit_uploads(
            context.classifiers, methods, files, labels, written, out, **common
        )

    with gr.Row():
        with gr.Column(min_width=300):
            images, drawn = _images(context)
            labels = gr.File(
                label=f"CSV file of labels: at most {limits.rows:,} rows",
                file_count="single",
                height=110,
                elem_classes="fair-tta-csv",
            )
            target = gr.Dropdown(
                [], label="Column of classes", elem_classes="fair-tta-target"
            )
            sensitive = gr.Dropdown(
                [],
                label="Columns that should not matter",
                multiselect=True,
                elem_classes="fair-tta-attributes",
            )
            paths = gr.Dropdown(
                [], label="Column of paths", elem_classes="fair-tta-paths"
            )
        with gr.Column(min_width=300):
            boxes = _fields(context, optional=True)
            methods = _methods(
                context, "zero-shot", "association-correction", has_labels=True
            )
            table = [labels, target, sensitive, paths]
            context.add_run("Audit", audit, [images, *methods, *table, *boxes], results)
    for result in results:
        result.render()

    def columns(csv: list[UploadedFile]) -> tuple[Any, Any, Any, str]:
        """Return the columns of the file, chosen as far as they can be guessed."""

        def act() -> tuple[Any, Any, Any, str]:
            header = read_header(csv[0].path, limits) if csv else []
            path_column, target, sensitive = guess_columns(header)
            choices = [name for name in header if name != path_column]
            return (
                gr.Dropdown(choices=choices, value=target),
                gr.Dropdown(choices=choices, value=sensitive),
                gr.Dropdown(choices=header, value=path_column),
                _START_AUDIT,
            )

        # After an error nothing can be chosen: columns of an earlier file would mislead
        empty = gr.Dropdown(choices=[], value=None)
        empty_list = gr.Dropdown(choices=[], value=[])
        return context.guarded(act, lambda text: (empty, empty_list, empty, text))

    def take() -> list[Any]:
        drawings, file = context.draw_badges(images)
        chosen = columns([UploadedFile(file, file)])[:3]
        return [drawings, file, *chosen, *form_fields_of(BADGES)]

    labels.upload(columns, labels, [*table[1:], results[0]], **_INSTANT_EVENT)
    drawn.click(take, None, [images, *table, *boxes], **_INSTANT_EVENT)


def _fields(context: AppContext, *, optional: bool = False) -> list[Any]:
    """Return three text boxes; unless optional they begin with the drawn badges, if embedded."""
    start = FormFields("")
    if context.is_embedded and not optional:
        start = form_fields_of(BADGES)
    # Names may be left to the columns of an audit
    hint = "Empty: the values of the column. " if optional else ""
    box = context.gr.Textbox
    size = {"lines": 2, "max_lines": 8}
    return [
        box(
            start.targets,
            label=FIELD_NAMES["targets"],
            info=f"{hint}One name per line, or 'name = words in the sentence'.",
            placeholder="water bird = of a water bird\nland bird = of a land bird",
            elem_classes="fair-tta-classes",
            **size,
        ),
        box(
            start.sensitive,
            label=FIELD_NAMES["sensitive"],
            info=f"{hint}Likewise; 'attribute: name' if there are several attributes.",
            placeholder="background: water = on water\nbackground: land = on land",
            elem_classes="fair-tta-sensitive",
            **size,
        ),
        box(
            start.template,
            label=FIELD_NAMES["template"],
            info="With {target} and {sensitive}. Empty: a photo of a {sensitive} {target}.",
            placeholder="This is a picture {target} {sensitive}.",
            elem_classes="fair-tta-sentence",
        ),
    ]


def _methods(
    context: AppContext, *chosen: str, has_labels: bool = False
) -> tuple[Any, Any]:
    """Return methods to choose, and a box for images on which some of them are fitted."""
    gr = context.gr
    # Methods that cannot be used here are listed with the reason
    choices = []
    for name in ADAPTERS:
        reason = why_unusable(name, has_labels)
        choices.append((f"{name} (not here: {reason})" if reason else name, name))
    methods = gr.Dropdown(
        choices,
        value=list(chosen),
        multiselect=True,
        label="Methods",
        elem_classes="fair-tta-methods",
    )
    # Gradio would make a box that is hidden itself anew
    with gr.Column(visible=False) as column:
        reference = gr.File(
            label="Reference images for methods that are fitted; no labels",
            file_count="multiple",
            height=110,
            elem_classes="fair-tta-reference",
        )

    def show_reference(names: list[str]) -> Any:
        usable = []
        for name in names:
            if name in ADAPTERS and not why_unusable(name, has_labels):
                usable.append(name)
        return gr.Column(visible=need_reference(chosen_methods(usable, has_labels)))

    methods.change(show_reference, methods, column, **_INSTANT_EVENT)
    return methods, reference


def _images(context: AppContext) -> tuple[Any, Any]:
    """Return a box for several images, and a button for drawn ones; another takes a folder."""
    gr = context.gr
    limits = context.classifiers.limits
    box = gr.File(
        label=f"Images: at most {limits.files:,}, {limits.file_bytes >> 20} MB each",
        file_count="multiple",
        height=180,
        elem_classes="fair-tta-images",
    )
    with gr.Row():
        folder = gr.UploadButton(
            "Take a whole folder", file_count="directory", size="sm"
        )
        drawn = gr.Button("Take drawn badges", size="sm", elem_classes="fair-tta-take")

    def image_paths(files: list[UploadedFile]) -> list[str]:
        return [file.path for file in only_images(files)]

    folder.upload(image_paths, folder, box, **_INSTANT_EVENT)
    return box, drawn


def _results(context: AppContext, start: str) -> list[Any]:
    """Return a box for a report, and one for files to keep, hidden as long as there are none."""
    kept = {"label": "To keep", "interactive": False, "visible": False}
    return [
        context.gr.HTML(
            start, padding=False, elem_classes="fair-tta-result", render=False
        ),
        context.gr.File(**kept, elem_classes="fair-tta-downloads", render=False),
    ]


def is_embedded_model(model: object) -> bool:
    """Return True for the name and for the folder of the embedded model."""
    return model == "miniature" or str(model) == str(FOLDER)


def _heading(classifiers: Classifiers, embedded: bool, local: bool) -> str:
    model = _EMBEDDED_MODEL if embedded else backend_name(classifiers.backend)
    return (
        '<div class="fair-tta-head"><h1>fair-tta</h1>'
        "<p>Zero-shot answers that lean less on an attribute you name, and what is left of the gap."
        f"</p><p>Model: {escape(model)}. {_STAY if local else _LEAVE}</p></div>"
    )
