"""Options that several commands share, each declared once.

A command takes a group of options as one parameter, whose type is a dataclass of this module;
`with_shared_options` shows typer an option for each field. What `unused` methods return is refused
by `refuse_unused`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fair_tta._io import printable
from fair_tta.errors import PromptError
from fair_tta.lab.cli._console import log, parse_option
from fair_tta.lab.cli._names import parse_sensitive_texts, parse_target_texts
from fair_tta.prompts._templates import Templates, parse_template

if TYPE_CHECKING:
    from fair_tta.datasets._features import FeatureFile


@dataclass(frozen=True)
class PromptSpec:
    """Names with their phrases, and the sentences to insert them into."""

    targets: Mapping[str, str]
    sensitive: Mapping[str, Mapping[str, str]]
    templates: Templates


TargetNames = Annotated[
    list[str],
    typer.Option(
        metavar="NAMES",
        help="Classes: 'cat,dog', or repeated 'cat=of a cat' where the prompt uses other words.",
    ),
]
SensitiveNames = Annotated[
    list[str],
    typer.Option(
        metavar="NAMES",
        help="What should not matter: 'water,land', repeated 'water=on water', or with the name "
        "of an attribute first, 'place: water,land'.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """Names and sentences of prompts."""

    targets: TargetNames
    sensitive: SensitiveNames = field(default_factory=list)
    template: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Sentence with the slots {target} and {sensitive}; several, repeated or one per "
            "line of a file, '@FILE', are averaged.",
            show_default="'a photo of a {sensitive} {target}.'",
        ),
    ] = None

    def read(self) -> PromptSpec:
        """Return what the model is asked, or raise a usage error."""
        targets = parse_option("--targets", parse_target_texts, self.targets)
        sensitive = parse_option(
            "--sensitive", parse_sensitive_texts, self.sensitive, "sensitive"
        )
        return PromptSpec(targets, sensitive, self.read_templates(bool(sensitive)))

    def read_templates(self, has_sensitive: bool) -> Templates:
        """Return the sentences; those with attribute values have a slot for them."""
        return parse_option(
            "--template", _read_templates, self.template or [], has_sensitive
        )


@dataclass(frozen=True, kw_only=True)
class AttributePromptOptions(PromptOptions):
    """Names and sentences of prompts, with at least one attribute."""

    sensitive: SensitiveNames = field()


@dataclass(frozen=True, kw_only=True)
class LabelPromptOptions(PromptOptions):
    """Names and sentences of prompts, where a label file may have the names."""

    targets: TargetNames = field(default_factory=list)


def _read_templates(texts: list[str], has_sensitive: bool) -> Templates:
    sentences: list[str] = []
    for text in texts:
        if text.startswith("@"):
            sentences += _lines_of_file(text[1:])
        elif text.strip():
            sentences.append(text)
    templates = parse_template(sentences if texts else None, has_sensitive)
    if has_sensitive:
        templates._sensitive_prompts(
            {"": ""}
        )  # raises if a sentence has no slot for them
    return templates


def _lines_of_file(path: str) -> list[str]:
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{path!r} could not be read: {error}.") from None
    return [line for line in lines if line.strip()]


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The model and its device."""

    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="'miniature' (embedded, offline), the folder or hub id of a transformers model, "
            "or 'open_clip:NAME/TAG'.",
        ),
    ] = "miniature"
    device: Annotated[
        str | None,
        typer.Option(
            help="Such as 'cuda'; 'auto' for an accelerator if there is one.",
            show_default="the CPU",
        ),
    ] = None
    dtype: Annotated[
        str | None,
        typer.Option(
            help="Such as 'bfloat16'; 'auto' for what the device is fast in.",
            show_default="that of the weights' file",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EncoderOptions(ModelOptions):
    """Sources of features: a model, or files in which they are stored."""

    batch_size: Annotated[
        int, typer.Option(min=1, help="How many images at once: speed and memory.")
    ] = 16
    features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Stored features in place of images: .npy, .npz, .safetensors or .parquet.",
            show_default="none",
        ),
    ] = None
    text_features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Stored features of the prompts, in place of a model: prompts and their vectors.",
            show_default="of --model",
        ),
    ] = None
    scale: Annotated[
        float | None,
        typer.Option(
            help="Logit scale of --text-features.", show_default="in the file, else 100"
        ),
    ] = None

    @property
    def loadable_model(self) -> str | None:
        """The model as other processes load it; None if there is none to load."""
        return None if self.text_features else self.model

    @cached_property
    def stored(self) -> FeatureFile | None:
        """The stored features, read once."""
        return self._read_features(id_column=None)

    @property
    def has_left_out(self) -> bool:
        """Whether rows of the stored features have no vector, which is logged on reading."""
        return self.stored is not None and bool(self.stored.missing)

    def _read_features(self, id_column: str | None) -> FeatureFile | None:
        if self.features is None:
            return None
        from fair_tta.datasets._features import read_features
        from fair_tta.datasets._image_paths import summarize_names

        stored = read_features(self.features, id_column=id_column)
        if stored.missing:
            names = summarize_names([*map(printable, stored.missing)])
            log(f"Left out, as {str(stored.path)!r} has no vector of theirs: {names}.")
        return stored

    def unused(self, has_images: bool) -> dict[str, str]:
        """Return which options have no effect, and why.

        Raises:
            typer.BadParameter: there are both images and stored features, or neither.
        """
        if has_images == (self.features is not None):
            hint = "--features"
            raise typer.BadParameter(
                "name either images or --features FILE.", param_hint=hint
            )
        reasons = {}
        if self.features is None:
            for name in ("id_column", "by_position", "text_features"):
                reasons[name] = "it goes with --features."
        else:
            reasons["views"] = "stored features have one view."
        if self.text_features is None:
            reasons["scale"] = "it goes with --text-features."
        else:
            for name in ("model", "device", "dtype"):
                reasons[name] = "there is no model with --text-features."
        return reasons


@dataclass(frozen=True, kw_only=True)
class ImageEncoderOptions(EncoderOptions):
    """Sources of features of named images."""

    id_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Ids in --features.", show_default="by its name"
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Seeds the views of each image.")] = 0

    @cached_property
    def stored(self) -> FeatureFile | None:
        """The stored features, read once."""
        return self._read_features(self.id_column)


ViewCount = Annotated[
    int, typer.Option(min=1, help="How many views of each image, itself included.")
]


@dataclass(frozen=True, kw_only=True)
class ViewEncoderOptions(ImageEncoderOptions):
    """Sources of features of images and of views of them."""

    views: ViewCount = 64


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """A choice of images."""

    limit: Annotated[
        int | None,
        typer.Option(min=1, help="The first so many only.", show_default="all"),
    ] = None
    sample: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="So many only, chosen by --seed; of each group its share and at least one.",
            show_default="all",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ImageOptions(SampleOptions):
    """Images without labels."""

    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE",
            help="Images, folders of images (with subfolders), or - to read paths from stdin; "
            "none with --features.",
            show_default=False,
        ),
    ] = field(default_factory=list)
    null: Annotated[
        bool,
        typer.Option("--null", "-0", help="Paths on stdin end with a null character."),
    ] = False

    @property
    def has_stdin(self) -> bool:
        """True if paths are read from stdin."""
        return "-" in self.images

    def unused(self) -> dict[str, str]:
        """Return which options have no effect, and why."""
        if self.has_stdin:
            return {}
        return {"null": "no paths are read from stdin: name - as IMAGE."}


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions:
    """Images that methods are fitted on."""

    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of images without labels, or a file of features, on which methods that "
            "need a reference are fitted first.",
            show_default="none",
        ),
    ] = None
    reference_is_data: Annotated[
        bool,
        typer.Option(
            "--reference-is-data",
            help="Allow --reference to have images that are answered.",
        ),
    ] = False

    def unused(self) -> dict[str, str]:
        """Return which options have no effect, and why."""
        if self.reference is not None:
            return {}
        return {"reference_is_data": "there is no --reference."}


ShowProgress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Progress on stderr.",
        show_default="on a terminal",
    ),
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Processes, progress and finished answers."""

    restart: Annotated[
        bool,
        typer.Option("--restart", help="Throw away the finished answers in --out."),
    ] = False
    workers: Annotated[
        int,
        typer.Option(
            min=1, help="Processes that share the work; each loads the model."
        ),
    ] = 1
    progress: ShowProgress = None

    def unused(self, out: Path | None) -> dict[str, str]:
        """Return which options have no effect, and why."""
        if out is not None:
            return {}
        return {"restart": "there is nothing to throw away without --out."}


@dataclass(frozen=True, kw_only=True)
class ReportRunOptions(RunOptions):
    """Processes, progress, finished answers and images of the report."""

    embed_images: Annotated[
        bool,
        typer.Option(
            "--embed-images/--no-embed-images",
            help="Show some images, with their names, in the report.",
        ),
    ] = False

    def unused(self, out: Path | None) -> dict[str, str]:
        """Return which options have no effect, and why."""
        reasons = super().unused(out)
        if out is None:
            reasons["embed_images"] = "there is no page without --out."
        return reasons


SensitiveColumns = Annotated[
    list[str],
    typer.Option(
        metavar="COLUMN",
        help="Column of what should not matter; repeat it for several (groups are then "
        "intersections).",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Columns of a label file."""

    sensitive_column: SensitiveColumns
    target_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the classes.")
    ] = "class"
    path_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of the paths.", show_default="by its name"
        ),
    ] = None
    cluster_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the person or source that several images come from: intervals allow "
            "for images of one that agree. An empty cell is a person or source of its own.",
            show_default="images are independent",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LabelOptions(ColumnOptions):
    """Labels of images: a file and its columns, or the names of folders."""

    labels: Annotated[
        Path | None,
        typer.Option(
            help="CSV file with a header.",
            show_default="folders are labels: CLASS/VALUE/image.jpg",
        ),
    ] = None
    rename: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT", help="'column: value=label' for values of the file."
        ),
    ] = field(default_factory=list)
    skip_unknown: Annotated[
        bool,
        typer.Option("--skip-unknown", help="Leave out rows with values not named."),
    ] = False
    by_position: Annotated[
        bool,
        typer.Option(
            "--by-position",
            help="Vectors of --features without ids belong to the rows of --labels in the order "
            "of both, although these have names.",
        ),
    ] = False

    def unused(self) -> dict[str, str]:
        """Return which options have no effect, and why."""
        if self.labels is not None:
            return {}
        reason = "there is no --labels: the folders are the labels."
        return {"path_column": reason, "cluster_column": reason}


@dataclass(frozen=True, kw_only=True)
class MitigationLabelOptions(LabelOptions):
    """Labels that choose a method; the command says why the sensitive columns are needed."""

    sensitive_column: SensitiveColumns = field(default_factory=list)


FailOn = Annotated[
    str, typer.Option(metavar="NAME", help="The run that --fail-if is about.")
]


@dataclass(frozen=True, kw_only=True)
class ThresholdOptions:
    """Thresholds that fail an audit."""

    fail_if: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help="'typical_gap > 10', 'wga < 60' or another metric, in points: exit code 5 if the "
            "whole interval lies beyond it. Repeat it for several.",
        ),
    ] = field(default_factory=list)
    fail_on: FailOn = "zero-shot"

    def unused(self) -> dict[str, str]:
        """Return which options have no effect, and why."""
        return {} if self.fail_if else {"fail_on": "there is no --fail-if."}


LAST_FILE = "the last FILE"


@dataclass(frozen=True, kw_only=True)
class FileThresholdOptions(ThresholdOptions):
    """Thresholds that fail a comparison of files."""

    fail_on: FailOn = LAST_FILE
