"""Parts of the page that several tabs have, and what the tabs share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fair_tta.lab.app._answers import fields_of
from fair_tta.lab.app._questions import METHODS, Classifiers, Fields, sandboxed, told
from fair_tta.lab.app._uploads import UploadedFile, pictures_among
from fair_tta.miniature import BIRDS

DEFAULT_METHODS = ("fair-tpt", "association-correction")
NOTHING_YET = '<p class="fair-tta-empty">{}</p>'


@dataclass(frozen=True)
class Desk:
    """What the tabs share.

    Attributes:
        gr: the package gradio.
        classifiers: of the model.
        folder: for what runs write; a part of it may be downloaded.
        notes: sentences that reports begin their warnings with.
        is_embedded: whether the model is the embedded one, which knows drawn pictures only.
    """

    gr: Any
    classifiers: Classifiers
    folder: Path
    notes: Sequence[str]
    is_embedded: bool

    @property
    def hidden(self) -> tuple[str, ...]:
        """Folders that messages should not name."""
        return str(self.folder), str(self.folder.parent)

    def new_folder(self) -> Path:
        """A place for one, where nobody can guess it."""
        return Path(tempfile.mkdtemp(dir=self.folder)) / "run"


def fields_boxes(desk: Desk, *, optional: bool = False) -> list[Any]:
    """The three fields; of the drawn birds with the embedded model, else empty.

    Args:
        desk: of all tabs.
        optional: whether names may be left out, and are then.
    """
    start = fields_of(BIRDS) if desk.is_embedded and not optional else Fields("")
    hint = "Empty: the values of the column. " if optional else ""
    return [
        desk.gr.Textbox(
            start.targets,
            label="Classes",
            info=f"{hint}One name per line, or 'name = words in the sentence'.",
            placeholder="water bird = of a water bird\nland bird = of a land bird",
            lines=2,
            max_lines=8,
            elem_classes="fair-tta-classes",
        ),
        desk.gr.Textbox(
            start.sensitive,
            label="What should not matter",
            info=f"{hint}Likewise; 'attribute: name' if there are several attributes.",
            placeholder="background: water = on water\nbackground: land = on land",
            lines=2,
            max_lines=8,
            elem_classes="fair-tta-sensitive",
        ),
        desk.gr.Textbox(
            start.template,
            label="Sentence",
            info="With {target} and {sensitive}. Empty: a photo of a {sensitive} {target}.",
            placeholder="This is a picture {target} {sensitive}.",
            elem_classes="fair-tta-sentence",
        ),
    ]


def methods_box(desk: Desk, chosen: Sequence[str] = DEFAULT_METHODS) -> Any:
    """Methods to choose from; no settings and no files of anybody's own."""
    return desk.gr.Dropdown(
        list(METHODS),
        value=list(chosen),
        multiselect=True,
        label="Methods",
        elem_classes="fair-tta-methods",
    )


def pictures_box(desk: Desk) -> tuple[Any, Any]:
    """A place for several pictures, and a button for drawn ones; one for a folder is beside it."""
    limits, count = desk.classifiers.limits, "multiple"
    box = desk.gr.File(
        label=f"Pictures: at most {limits.files:,}, {limits.file_bytes >> 20} MB each",
        file_count=count,
        height=180,
        elem_classes="fair-tta-pictures",
    )
    box.preprocess = read_files
    with desk.gr.Row():
        folder = desk.gr.UploadButton("Take a whole folder", file_count="directory", size="sm")
        drawn = desk.gr.Button("Take drawn birds", size="sm", elem_classes="fair-tta-take")
    folder.preprocess = read_files
    folder.upload(_only_pictures, folder, box, **QUIETLY)
    return box, drawn


def read_files(payload: Any) -> list[UploadedFile]:
    """In the place of Gradio's own `preprocess`, which leaves a file behind for each file."""
    if payload is None:
        return []
    files = getattr(payload, "root", payload)
    files = files if isinstance(files, list) else [files]
    return [UploadedFile(file.path, file.orig_name or Path(file.path).name) for file in files]


def report_frame(files: Sequence[Path], title: str) -> tuple[str, list[str]]:
    """The first file inside the page, and all of them to download."""
    return sandboxed(files[0].read_text("utf-8"), title), [str(file) for file in files]


def run_report(desk: Desk, title: str, make: Callable[[Path], list[Path]]) -> tuple[str, Any]:
    """Make files in a new folder; the report and the downloads, or a message and none."""

    def act() -> tuple[str, list[str] | None]:
        return report_frame(make(desk.new_folder()), title)

    page, files = told(act, lambda text: (text, None), *desk.hidden)
    return page, desk.gr.File(files, visible=files is not None)


def downloads_box(desk: Desk) -> Any:
    """A place for files to keep; not there as long as there are none."""
    return desk.gr.File(
        label="To keep", interactive=False, visible=False, elem_classes="fair-tta-downloads"
    )


def progress_of(progress: Any, unit: str) -> Callable[[int, int], None]:
    """Gradio's progress bar as our own functions tell it."""
    return lambda done, total: progress((done, total), unit=unit)


QUIETLY: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
LOUDLY: dict[str, Any] = {"api_visibility": "private"}
"""Events are for the page, not for programs."""


def _only_pictures(files: list[UploadedFile]) -> list[str]:
    return [file.path for file in pictures_among(files)]
