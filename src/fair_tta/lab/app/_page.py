"""The page: a heading and three tabs."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping
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
    fields_of,
)
from fair_tta.lab.app._questions import (
    FIELDS,
    Classifiers,
    Fields,
    chosen_methods,
    guarded,
    need_reference,
    sandboxed,
    why_not,
)
from fair_tta.lab.app._server import UPLOADS
from fair_tta.lab.app._uploads import (
    UploadedFile,
    audit_uploads,
    examine_uploads,
    guessed,
    header,
    images_among,
    staged_reference,
)
from fair_tta.lab.runs._reference import fit_on_folder
from fair_tta.lab.runs._runner import Progress
from fair_tta.methods._registry import ADAPTERS
from fair_tta.miniature import BADGES, FOLDER
from fair_tta.models._loading import backend_name

T = TypeVar("T")

EMBEDDED = "the embedded miniature model, which knows drawn images only"
_START = '<p class="fair-tta-empty">{}</p>'
_TRY = _START.format("Drop an image or take a drawn one, then press <b>Answer</b>.")
_EXAMINE = _START.format(
    "What the model perceives, and what methods would change: no labels."
)
_AUDIT = _START.format(
    "How large is the gap, and how do methods change it? With labels."
)
_HERE = "Images stay on this machine and are deleted at the end."
_THERE = "Images go to the machine that runs this app, and are deleted an hour after the upload."
_QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
_LOUD: dict[str, Any] = {"api_visibility": "private"}
"""Events are for the page, not for programs."""


@dataclass(frozen=True)
class AppContext:
    """What the tabs share: gradio, the classifiers of a model, and the folder of the app.

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
        """In place of Gradio's own `preprocess`, which leaves a file behind for each file.

        Gradio lets some paths pass that nobody uploaded, such as those of streams.
        """
        files: Any = getattr(payload, "root", payload) or []
        files = files if isinstance(files, list) else [files]
        uploads = os.path.realpath(self.folder / UPLOADS)
        if not all(
            Path(os.path.realpath(file.path)).is_relative_to(uploads) for file in files
        ):
            raise self.gr.Error("This was not uploaded.", print_exception=False)
        return [
            UploadedFile(file.path, file.orig_name or Path(file.path).name)
            for file in files
        ]

    def local(self, process: Callable[..., Any]) -> Any:
        """`preprocess_data` of Gradio, which would fetch what begins with http, for any component;
        a component that an event has updated is a new one, so they are not the place for this."""

        async def checked(event: Any, inputs: Any, *more: Any, **options: Any) -> Any:
            left = [inputs]
            while left:
                one = left.pop()
                if isinstance(one, dict):
                    left += one.values()
                    if str(one.get("path")).lower().startswith(("http:", "https:")):
                        raise self.gr.Error(
                            "This was not uploaded.", print_exception=False
                        )
                elif isinstance(one, list):
                    left += one
            return await process(event, inputs, *more, **options)

        return checked

    def runs(
        self,
        name: str,
        make: Callable[..., list[Path]],
        asked: list[Any],
        results: list[Any],
    ) -> None:
        """Make files of what was asked when a button is pressed, until another cancels that.

        Args:
            name: of the button.
            make: makes the files of images, methods, other parts, a folder and common arguments.
                The first is shown inside the page, all can be downloaded.
            asked: parts of the page: images, methods, references, others.
            results: parts for the first file or a message, and for all files.
        """
        gr, downloads = self.gr, results[1]
        embed = gr.Checkbox(
            False, label="Show some images, with their names, in the report"
        )
        with gr.Row():
            start = gr.Button(name, variant="primary", elem_classes="fair-tta-run")
            cancel = gr.Button("Cancel", elem_classes="fair-tta-cancel")

        def work(count: Progress, inputs: tuple[Any, ...]) -> tuple[str, Any]:
            def act() -> tuple[str, list[str] | None]:
                embed_images, files, methods, references, *others = inputs
                with tempfile.TemporaryDirectory(dir=self.folder) as folder:
                    made = make(
                        self.images(files),
                        methods,
                        *others,
                        out=Path(folder) / "run",
                        reference=self.images(references) if references else [],
                        notes=[f"This is {EMBEDDED}."] if self.is_embedded else [],
                        embed_images=embed_images,
                        progress=count,
                    )
                    page = sandboxed(made[0].read_text("utf-8"), name)
                    kept = [
                        downloads.move_resource_to_block_cache(str(file))
                        for file in made
                    ]
                    return page, kept

            page, found = self.guarded(act, lambda text: (text, None))
            return page, gr.File(found, visible=found is not None)

        async def run(progress: Any = gr.Progress(), *inputs: Any) -> tuple[str, Any]:  # noqa: B008
            stop = Event()

            def count(done: int, total: int) -> None:
                if stop.is_set():
                    raise FairTTAError("cancelled.")
                progress((done, total), unit="images")

            try:
                return await asyncio.to_thread(work, count, inputs)
            finally:
                stop.set()  # Gradio cancels this task; a thread has to be asked

        event = start.click(run, [embed, *asked], results, **_LOUD)
        cancelled = _START.format("Cancelled."), gr.File(None, visible=False)
        cancel.click(lambda: cancelled, None, results, cancels=[event], **_QUIET)

    def images(self, files: list[UploadedFile]) -> list[UploadedFile]:
        """The images of an upload, neither none nor too many."""
        found = images_among(files)
        if not found:
            raise FairTTAError(
                "there are no images yet: drop some, or use the drawn ones."
            )
        self.classifiers.limits.check("images", files=len(found))
        return found

    def draw_badges(self, box: Any) -> tuple[list[str], str]:
        """Drawn images and their labels, as uploads of a box."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            drawings, labels = draw_folder(Path(folder))
            cached = [
                box.move_resource_to_block_cache(path) for path in (*drawings, labels)
            ]
        return cached[:-1], cached[-1]


def build_interface(
    classifiers: Classifiers, folder: Path, *, embedded: bool, local: bool = True
) -> Any:
    """The page as Gradio's `Blocks`, which delete uploads and results after an hour.

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
        delete_cache=(60, 3600),
    ) as blocks:
        gr.HTML(_heading(classifiers, embedded, local), padding=False)
        with gr.Tab("Try"):
            try_tab(context, examples)
        with gr.Tab("Examine"):
            examine_tab(context)
        with gr.Tab("Audit"):
            audit_tab(context)
    for block in blocks.blocks.values():
        if isinstance(block, gr.Image | gr.File | gr.UploadButton):
            block.preprocess = context.uploaded
    blocks.preprocess_data = context.local(blocks.preprocess_data)
    return blocks.queue(max_size=classifiers.limits.jobs)


def try_tab(context: AppContext, examples: Mapping[str, Fields]) -> None:
    """Build the tab of one image; `examples` are paths of drawn ones."""
    gr, paths = context.gr, list(examples)
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
            answers = gr.HTML(_TRY, padding=False, elem_classes="fair-tta-result")

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
            classifier = context.classifiers.of(Fields(targets, sensitive, template))
            chosen, some = (
                chosen_methods(names),
                references and context.images(references),
            )
            with tempfile.TemporaryDirectory(dir=context.folder) as folder:
                if found := staged_reference(chosen, some, Path(folder)):
                    chosen = dict(fit_on_folder(classifier, chosen, found).adapters)
                return answers_html(classifier, chosen, files[0].path)

        return context.guarded(act, str)

    def take(place: int) -> list[str]:
        return [paths[place], *examples[paths[place]]]

    asked = [image, *boxes, methods, reference]
    button.click(answer, asked, answers, **_LOUD)
    drawn.click(take, drawn, [image, *boxes], **_QUIET).then(
        answer, asked, answers, **_LOUD
    )


def examine_tab(context: AppContext) -> None:
    """Build the tab of images without labels."""
    gr, results = context.gr, _results(context, _EXAMINE)

    def examine(
        files: list[UploadedFile], names: list[str], *fields: str, **common: Any
    ) -> list[Path]:
        classifier = context.classifiers.of(Fields(*fields))
        return examine_uploads(classifier, chosen_methods(names), files, **common)

    with gr.Row():
        with gr.Column(min_width=300):
            images, drawn = _images(context)
        with gr.Column(min_width=300):
            boxes = _fields(context)
            methods = _methods(context, "association-correction")
            context.runs("Examine", examine, [images, *methods, *boxes], results)
    for result in results:
        result.render()

    def take() -> list[Any]:
        return [context.draw_badges(images)[0], *fields_of(BADGES)]

    drawn.click(take, None, [images, *boxes], **_QUIET)


def audit_tab(context: AppContext) -> None:
    """Build the tab of images with labels."""
    gr, limits = context.gr, context.classifiers.limits
    results = _results(context, _AUDIT)

    def audit(
        files: list[UploadedFile],
        names: list[str],
        csv: list[UploadedFile],
        target: str | None,
        attributes: list[str] | None,
        where: str | None,
        *fields: str,
        out: Path,
        **common: Any,
    ) -> list[Path]:
        if not csv:
            raise FairTTAError(
                "there is no CSV file yet: drop one, or take the drawn badges."
            )
        columns = target or "", tuple(attributes or ()), where or None
        labels = Labels(out / "images", Path(csv[0].path), *columns)
        methods = chosen_methods(names, has_labels=True)
        return audit_uploads(
            context.classifiers, methods, files, labels, Fields(*fields), out, **common
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
            context.runs("Audit", audit, [images, *methods, *table, *boxes], results)
    for result in results:
        result.render()

    def columns(csv: list[UploadedFile]) -> tuple[Any, Any, Any, str]:
        """What the file has, chosen as far as it can be guessed."""

        def act() -> tuple[Any, Any, Any, str]:
            found = header(csv[0].path, limits) if csv else []
            where, classes, left = guessed(found)
            others = [name for name in found if name != where]
            return (
                gr.Dropdown(choices=others, value=classes),
                gr.Dropdown(choices=others, value=left),
                gr.Dropdown(choices=found, value=where),
                _AUDIT,
            )

        none, nothing = (
            gr.Dropdown(choices=[], value=None),
            gr.Dropdown(choices=[], value=[]),
        )
        return context.guarded(act, lambda text: (none, nothing, none, text))

    def take() -> list[Any]:
        drawings, file = context.draw_badges(images)
        return [
            drawings,
            file,
            *columns([UploadedFile(file, file)])[:3],
            *fields_of(BADGES),
        ]

    labels.upload(columns, labels, [*table[1:], results[0]], **_QUIET)
    drawn.click(take, None, [images, *table, *boxes], **_QUIET)


def _fields(context: AppContext, *, optional: bool = False) -> list[Any]:
    """Three text boxes; with the embedded model those of the drawn badges, unless optional."""
    start = fields_of(BADGES) if context.is_embedded and not optional else Fields("")
    hint = "Empty: the values of the column. " if optional else ""
    box, several = context.gr.Textbox, {"lines": 2, "max_lines": 8}
    return [
        box(
            start.targets,
            label=FIELDS["targets"],
            info=f"{hint}One name per line, or 'name = words in the sentence'.",
            placeholder="water bird = of a water bird\nland bird = of a land bird",
            elem_classes="fair-tta-classes",
            **several,
        ),
        box(
            start.sensitive,
            label=FIELDS["sensitive"],
            info=f"{hint}Likewise; 'attribute: name' if there are several attributes.",
            placeholder="background: water = on water\nbackground: land = on land",
            elem_classes="fair-tta-sensitive",
            **several,
        ),
        box(
            start.template,
            label=FIELDS["template"],
            info="With {target} and {sensitive}. Empty: a photo of a {sensitive} {target}.",
            placeholder="This is a picture {target} {sensitive}.",
            elem_classes="fair-tta-sentence",
        ),
    ]


def _methods(
    context: AppContext, *chosen: str, has_labels: bool = False
) -> tuple[Any, Any]:
    """Methods to choose, and a place for images on which some of them are fitted."""
    gr, reasons = context.gr, {name: why_not(name, has_labels) for name in ADAPTERS}
    methods = gr.Dropdown(
        [
            (f"{name} (not here: {why})" if why else name, name)
            for name, why in reasons.items()
        ],
        value=list(chosen),
        multiselect=True,
        label="Methods",
        elem_classes="fair-tta-methods",
    )
    with gr.Column(
        visible=False
    ) as place:  # a box that were hidden itself would be made anew
        reference = gr.File(
            label="Reference images for methods that are fitted; no labels",
            file_count="multiple",
            height=110,
            elem_classes="fair-tta-reference",
        )

    def shown(names: list[str]) -> Any:
        usable = [name for name in names if not reasons.get(name, "unknown")]
        return gr.Column(visible=need_reference(chosen_methods(usable, has_labels)))

    methods.change(shown, methods, place, **_QUIET)
    return methods, reference


def _images(context: AppContext) -> tuple[Any, Any]:
    """A place for several images, and a button for drawn ones; one for a folder is beside it."""
    gr, limits, count = context.gr, context.classifiers.limits, "multiple"
    box = gr.File(
        label=f"Images: at most {limits.files:,}, {limits.file_bytes >> 20} MB each",
        file_count=count,
        height=180,
        elem_classes="fair-tta-images",
    )
    with gr.Row():
        folder = gr.UploadButton(
            "Take a whole folder", file_count="directory", size="sm"
        )
        drawn = gr.Button("Take drawn badges", size="sm", elem_classes="fair-tta-take")
    only_images = lambda files: [file.path for file in images_among(files)]  # noqa: E731
    folder.upload(only_images, folder, box, **_QUIET)
    return box, drawn


def _results(context: AppContext, start: str) -> list[Any]:
    """A place for a report, and one for files to keep, hidden as long as there are none."""
    kept = {"label": "To keep", "interactive": False, "visible": False}
    return [
        context.gr.HTML(
            start, padding=False, elem_classes="fair-tta-result", render=False
        ),
        context.gr.File(**kept, elem_classes="fair-tta-downloads", render=False),
    ]


def is_embedded(model: object) -> bool:
    """Whether this is the embedded model."""
    return model == "miniature" or str(model) == str(FOLDER)


def _heading(classifiers: Classifiers, embedded: bool, local: bool) -> str:
    model = EMBEDDED if embedded else backend_name(classifiers.backend)
    return (
        '<div class="fair-tta-head"><h1>fair-tta</h1>'
        "<p>Zero-shot answers that lean less on an attribute you name, and what is left of the gap."
        f"</p><p>Model: {escape(model)}. {_HERE if local else _THERE}</p></div>"
    )
