"""Options that several commands share, each declared once.

A command takes a group of options as one parameter, whose type is a dataclass of this module;
`with_shared_options` declares an option for each field. An option that has no effect without
another one is None or False by default, so that it can be refused if it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fair_tta._io import printable
from fair_tta.errors import PromptError
from fair_tta.lab.cli._console import log, parse_option
from fair_tta.lab.cli._expand import reject_ineffective_options
from fair_tta.lab.cli._names import parse_sensitive_texts, parse_target_texts
from fair_tta.prompts._templates import Templates, parse_template

if TYPE_CHECKING:
    from fair_tta.datasets._feature_files import FeatureFile


@dataclass(frozen=True)
class ParsedPrompts:
    """Names with their phrases, and the sentences to insert them into."""

    targets: Mapping[str, str]
    sensitive: Mapping[str, Mapping[str, str]]
    templates: Templates


MINIATURE = "miniature"
"""The default of --model."""

DEFAULT_VIEWS = 64  # as in the paper

# Prompts

TargetNames = Annotated[
    list[str],
    typer.Option(
        metavar="NAMES",
        help="Classes, such as 'cat,dog'. If the prompt uses other words, repeat the option: "
        "'cat=of a cat'.",
    ),
]
SensitiveNames = Annotated[
    list[str],
    typer.Option(
        metavar="NAMES",
        help="Attribute values that should not matter, such as 'water,land' or, repeated, "
        "'water=on water'. Several attributes need names: 'place: water,land'.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    """Options for the names and sentences of prompts."""

    targets: TargetNames
    sensitive: SensitiveNames = field(default_factory=list)
    template: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="Sentence with the slots {target} and {sensitive}. Several are averaged: repeat "
            "the option, or write '@FILE' for a file with one sentence per line.",
            show_default="'a photo of a {sensitive} {target}.'",
        ),
    ] = None

    def parse(self) -> ParsedPrompts:
        """Parse all options, or raise a usage error."""
        targets = parse_option("--targets", parse_target_texts, self.targets)
        sensitive = parse_option(
            "--sensitive", parse_sensitive_texts, self.sensitive, "sensitive"
        )
        return ParsedPrompts(targets, sensitive, self.parse_templates(bool(sensitive)))

    def parse_templates(self, has_sensitive: bool) -> Templates:
        """Parse the sentences, or raise a usage error."""
        texts = self.template or []
        return parse_option("--template", _parse_templates, texts, has_sensitive)


@dataclass(frozen=True, kw_only=True)
class AttributePromptOptions(PromptOptions):
    """Options for prompts, where attribute values are required."""

    sensitive: SensitiveNames = field()


@dataclass(frozen=True, kw_only=True)
class LabelPromptOptions(PromptOptions):
    """Options for prompts, where labels provide the names that are missing."""

    targets: TargetNames = field(default_factory=list)


def _parse_templates(texts: list[str], has_sensitive: bool) -> Templates:
    """Return the sentences of an option and of the files that it names."""
    sentences: list[str] = []
    for text in texts:
        if text.startswith("@"):
            sentences += _lines_of_file(text[1:])
        elif text.strip():
            sentences.append(text)
    templates = parse_template(sentences if texts else None, has_sensitive)
    if has_sensitive:
        # Raises if a sentence has no slot for attribute values
        templates._sensitive_prompts({"": ""})
    return templates


def _lines_of_file(path: str) -> list[str]:
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", error)
        raise PromptError(f"{path!r} could not be read: {reason}.") from None
    return [line for line in lines if line.strip()]


# Models, and features that replace images or models


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options for the model and its device."""

    # None if it was not given: reports note that the embedded model was used
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="'miniature' (embedded, offline), a folder or hub id of a transformers model, or "
            "'open_clip:NAME/TAG'.",
            show_default=MINIATURE,
        ),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Such as 'cuda'. 'auto' uses an accelerator if there is one.",
            show_default="the CPU",
        ),
    ] = None
    dtype: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Such as 'bfloat16'. 'auto' chooses a precision that is fast on the device.",
            show_default="as in the file of the weights",
        ),
    ] = None

    @property
    def model_name(self) -> str:
        """The model that was named, or the embedded one."""
        return MINIATURE if self.model is None else self.model


@dataclass(frozen=True, kw_only=True)
class EncoderOptions(ModelOptions):
    """Options for the source of features: a model, or files of stored features."""

    batch_size: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Images per batch. Larger batches are faster and need more memory.",
        ),
    ] = 16
    features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Stored features, used instead of images: .npy, .npz, .safetensors or .parquet.",
        ),
    ] = None
    text_features: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Stored prompts with their features, used instead of a model.",
        ),
    ] = None
    scale: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Logit scale for --text-features.",
            show_default="in the file, else 100",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.text_features is None:
            reject_ineffective_options("without --text-features", scale=self.scale)
        else:
            reject_ineffective_options(
                "with --text-features",
                model=self.model,
                device=self.device,
                dtype=self.dtype,
            )
        if self.features is None:
            reject_ineffective_options(
                "without --features", text_features=self.text_features
            )

    def require_one_source(self, images: object) -> None:
        """Raise a usage error unless there are either images or stored features."""
        if bool(images) == (self.features is not None):
            raise typer.BadParameter(
                "name either images or --features FILE.", param_hint="--features"
            )

    @property
    def loadable_model(self) -> str | None:
        """The model as other processes load it; None with --text-features."""
        return None if self.text_features else self.model_name

    @cached_property
    def stored(self) -> FeatureFile | None:
        """The stored features, read once."""
        return self._read_features(id_column=None)

    @property
    def has_left_out(self) -> bool:
        """True if some of the stored features were left out, which is logged on reading."""
        return self.stored is not None and bool(self.stored.missing)

    def _read_features(self, id_column: str | None) -> FeatureFile | None:
        if self.features is None:
            return None
        from fair_tta.datasets._feature_files import read_features
        from fair_tta.datasets._image_paths import summarize_names

        # The message about rows without a vector appears once, as `stored` is cached
        stored = read_features(self.features, id_column=id_column)
        if stored.missing:
            names = summarize_names([printable(name) for name in stored.missing])
            log(
                f"Left out, because {str(stored.path)!r} has no vectors for them: {names}."
            )
        return stored


@dataclass(frozen=True, kw_only=True)
class ImageEncoderOptions(EncoderOptions):
    """Options for the features of images that have names."""

    id_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the ids in --features.",
            show_default="found by its name",
        ),
    ] = None
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of all random choices.")
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features is None:
            reject_ineffective_options("without --features", id_column=self.id_column)

    @cached_property
    def stored(self) -> FeatureFile | None:
        """The stored features, read once."""
        return self._read_features(self.id_column)


ViewCount = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Views of each image, including the image itself.",
        show_default=str(DEFAULT_VIEWS),
    ),
]


@dataclass(frozen=True, kw_only=True)
class ViewEncoderOptions(ImageEncoderOptions):
    """Options for the features of images and of their views."""

    # None if it was not given, because stored features refuse it
    views: ViewCount = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.features is not None:
            reject_ineffective_options(
                "with --features, which has one view", views=self.views
            )


# Images


@dataclass(frozen=True, kw_only=True)
class SampleOptions:
    """Options that choose some of the images."""

    limit: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Use only the first N images.", show_default="all"
        ),
    ] = None
    sample: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Use only N images, chosen at random: each group keeps its share and at least "
            "one image.",
            show_default="all",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ImageOptions(SampleOptions):
    """Options for images without labels."""

    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE",
            help="Images, folders of images (with subfolders), or - to read paths from stdin. "
            "Leave it out with --features.",
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

    def __post_init__(self) -> None:
        if not self.has_stdin:
            reject_ineffective_options(
                "unless IMAGE is -, for paths on stdin", null=self.null
            )


@dataclass(frozen=True, kw_only=True)
class ReferenceOptions:
    """Options for the images that methods are fitted on."""

    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder of images without labels, or file of features, on which methods that "
            "need a reference are fitted first.",
        ),
    ] = None
    reference_is_data: Annotated[
        bool,
        typer.Option(
            "--reference-is-data",
            help="Allow --reference to contain images that are classified.",
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.reference is None:
            reject_ineffective_options(
                "without --reference", reference_is_data=self.reference_is_data
            )


# Runs

ShowProgress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress",
        help="Show progress on stderr.",
        show_default="on a terminal",
    ),
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options for processes, progress and saved predictions."""

    restart: Annotated[
        bool,
        typer.Option("--restart", help="Delete the saved predictions in --out."),
    ] = False
    workers: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Processes that share the work; each loads the model.",
        ),
    ] = 1
    progress: ShowProgress = None

    def require_out(self, out: Path | None) -> None:
        """Raise a usage error if an option was given that has no effect without --out."""
        if out is None:
            reject_ineffective_options("without --out", restart=self.restart)


@dataclass(frozen=True, kw_only=True)
class ReportRunOptions(RunOptions):
    """Options of a run that writes a report."""

    embed_images: Annotated[
        bool,
        typer.Option(
            "--embed-images/--no-embed-images",
            help="Show some images and their names in the report.",
        ),
    ] = False

    def require_out(self, out: Path | None) -> None:
        """Raise a usage error if an option was given that has no effect without --out."""
        super().require_out(out)
        if out is None:
            reject_ineffective_options("without --out", embed_images=self.embed_images)


# Labels


def _label_file(default: str) -> Any:
    return typer.Option(
        metavar="FILE",
        help="Label file with a header: CSV, TSV, JSON lines, Excel or parquet.",
        show_default=default,
    )


SensitiveColumns = Annotated[
    list[str],
    typer.Option(
        metavar="COLUMN",
        help="Column of a sensitive attribute. Repeat it for several attributes: groups are then "
        "their intersections.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """Options for a label file and its columns."""

    labels: Annotated[
        Path | None, _label_file("names of folders: CLASS/VALUE/image.jpg")
    ] = None
    sensitive_column: SensitiveColumns
    target_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the classes.")
    ] = "class"
    path_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the paths.",
            show_default="found automatically",
        ),
    ] = None
    cluster_column: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the person or source of an image, if several images share one: "
            "intervals allow for that. An empty cell is a person or source with one image.",
            show_default="images are independent",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class FileColumnOptions(ColumnOptions):
    """Options for labels that may be in the first file of predictions."""

    labels: Annotated[Path | None, _label_file("columns of the first FILE")] = None


@dataclass(frozen=True, kw_only=True)
class LabelOptions(ColumnOptions):
    """Options for the labels of images, from a file or from the names of folders."""

    rename: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help="Replace a value of the label file: 'column: value=label'.",
        ),
    ] = field(default_factory=list)
    skip_unknown: Annotated[
        bool,
        typer.Option(
            "--skip-unknown", help="Leave out rows whose values have no name."
        ),
    ] = False
    by_position: Annotated[
        bool,
        typer.Option(
            "--by-position",
            help="Match --features without ids to the rows of --labels by their order, although "
            "the rows have paths.",
        ),
    ] = False

    def __post_init__(self) -> None:
        if self.labels is None:
            reject_ineffective_options(
                "without --labels: the folders are the labels",
                path_column=self.path_column,
                cluster_column=self.cluster_column,
            )


@dataclass(frozen=True, kw_only=True)
class MitigationLabelOptions(LabelOptions):
    """Options for labels, where the command explains why sensitive columns are needed."""

    sensitive_column: SensitiveColumns = field(default_factory=list)


# Thresholds


def _fail_on(default: str) -> Any:
    return typer.Option(
        metavar="NAME",
        help="Method or file that --fail-if applies to.",
        show_default=default,
    )


@dataclass(frozen=True, kw_only=True)
class ThresholdOptions:
    """Options for thresholds that fail an audit."""

    fail_if: Annotated[
        list[str],
        typer.Option(
            metavar="TEXT",
            help="Threshold in points, such as 'typical_gap > 10' or 'wga < 60': the exit code is "
            "5 if the whole interval of the metric lies beyond it. Can be repeated.",
        ),
    ] = field(default_factory=list)
    fail_on: Annotated[str | None, _fail_on("zero-shot")] = None

    def __post_init__(self) -> None:
        if not self.fail_if:
            reject_ineffective_options("without --fail-if", fail_on=self.fail_on)


@dataclass(frozen=True, kw_only=True)
class FileThresholdOptions(ThresholdOptions):
    """Options for thresholds that fail a comparison of files."""

    fail_on: Annotated[str | None, _fail_on("the last FILE")] = None
