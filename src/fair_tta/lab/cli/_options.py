"""Options that several commands share, and the classifier that they describe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fair_tta._io import Unlisted, images_below, printable
from fair_tta.errors import PromptError
from fair_tta.lab.cli._console import NOTE, embedded_notes, log, usage
from fair_tta.lab.cli._names import sensitive_option, targets_option
from fair_tta.prompts._templates import Templates, parse_template

if TYPE_CHECKING:
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.datasets._features import FeatureFile
    from fair_tta.lab._unlabelled import Found
    from fair_tta.lab.runs._reference import FittedAdapters
    from fair_tta.methods._base import Adapter


_SCALE = 100.0  # of CLIP
_ROWS = 1024  # of stored features at once, at least

GOES_ON = "The same command goes on from there."
"""Added to messages where finished answers are kept."""


def complete_adapters(incomplete: str) -> list[str]:
    """What a shell may offer for a list that is being written."""
    from fair_tta.methods._registry import ADAPTERS

    before, comma, _ = incomplete.rpartition(",")
    offers = [f"{before}{comma}{name}" for name in ADAPTERS]
    return [offer for offer in offers if offer.startswith(incomplete)]


Images = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGE",
        help="Images, folders of images (with subfolders), or - to read paths from stdin; none "
        "with --features.",
        show_default=False,
    ),
]
Null = Annotated[
    bool, typer.Option("--null", "-0", help="Paths on stdin end with a null character.")
]
TargetsOption = Annotated[
    list[str],
    typer.Option(
        metavar="NAMES",
        help="Classes: 'cat,dog', or repeated 'cat=of a cat' where the prompt uses other words.",
    ),
]
SensitiveOption = Annotated[
    list[str],
    typer.Option(
        metavar="NAMES",
        help="What should not matter: 'water,land', repeated 'water=on water', or with the name "
        "of an attribute first, 'place: water,land'.",
    ),
]
Template = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="Sentence with the slots {target} and {sensitive}; several, repeated or one per line "
        "of a file, '@FILE', are averaged.",
        show_default="'a photo of a {sensitive} {target}.'",
    ),
]
Model = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="'miniature' (embedded, offline), the folder or hub id of a transformers model, or "
        "'open_clip:NAME/TAG'.",
    ),
]
OneAdapter = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD",
        help="Method, such as 'fair-tpt:lam=10' (see `fair-tta adapters`), or user-defined in a "
        "file, which is run: 'my_file.py:MyMethod'.",
        show_default="association-correction with --sensitive, else zero-shot",
        autocompletion=complete_adapters,
    ),
]
Adapters = Annotated[
    list[str],
    typer.Option(
        metavar="METHODS",
        help="Methods with commas between them, written as for `fair-tta predict --adapter`; the "
        "first is what others are compared with.",
        autocompletion=complete_adapters,
    ),
]
Features = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Stored features in place of images: .npy, .npz, .safetensors or .parquet.",
        show_default="none",
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Ids in --features.", show_default="by its name"),
]
ByPosition = Annotated[
    bool,
    typer.Option(
        "--by-position",
        help="Vectors of --features without ids belong to the rows of --labels in the order of "
        "both, although these have names.",
    ),
]
TextFeatures = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Stored features of the prompts, in place of a model: prompts and their vectors.",
        show_default="of --model",
    ),
]
Scale = Annotated[
    float | None,
    typer.Option(help="Logit scale of --text-features.", show_default="in the file, else 100"),
]
Seed = Annotated[int, typer.Option(help="Seeds the views of each image.")]
ViewCount = Annotated[
    int, typer.Option(min=1, help="How many views of each image, itself included.")
]
BatchSize = Annotated[int, typer.Option(min=1, help="How many images at once: speed and memory.")]
Device = Annotated[
    str | None,
    typer.Option(
        help="Such as 'cuda'; 'auto' for an accelerator if there is one.", show_default="the CPU"
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        help="Such as 'bfloat16'; 'auto' for what the device is fast in.",
        show_default="that of the weights' file",
    ),
]
Limit = Annotated[
    int | None, typer.Option(min=1, help="The first so many only.", show_default="all")
]
Sample = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="So many only, chosen by --seed; of each group its share and at least one.",
        show_default="all",
    ),
]


Workers = Annotated[
    int, typer.Option(min=1, help="Processes that share the work; each loads the model.")
]
EmbedImages = Annotated[
    bool,
    typer.Option(
        "--embed-images/--no-embed-images",
        help="Show some images, with their names, in the report.",
    ),
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Throw away the finished answers in --out.")
]
ReferenceDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder of images without labels, or a file of features, on which methods that need "
        "a reference are fitted first.",
        show_default="none",
    ),
]
ReferenceIsData = Annotated[
    bool,
    typer.Option("--reference-is-data", help="Allow --reference to have images that are answered."),
]
ShowProgress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress", help="Progress on stderr.", show_default="on a terminal"
    ),
]


def find_images(paths: Iterable[str], *, null: bool = False) -> Iterator[str | Unlisted]:
    """Paths of images, without holding all of them in memory, and folders that are closed.

    The path ``-`` stands for paths on stdin, which end with a null character or a line.
    """
    end = b"\0" if null else b"\n"
    for given in paths:
        for path in _from_stdin(end) if given == "-" else [given]:
            if os.path.isdir(path):
                yield from images_below(path)
            else:
                yield path


def chosen_images(context: typer.Context, *, is_read_twice: bool) -> Callable[[], Iterable[Found]]:
    """The images of a command, each time it is called: all, the first --limit or a --sample.

    Paths on stdin are read once; they are kept for methods that are fitted, which need them twice.
    """
    from fair_tta.datasets._records import choose
    from fair_tta.images._stored import ImageSource

    given = context.params
    paths, seed, features = given["images"], given["seed"], stored_features(context)

    def group(item: Found) -> str | None:
        return None if isinstance(item, Unlisted) else ""  # folders are reported in any case

    def key(item: Found) -> str:
        return item.name if isinstance(item, ImageSource) else os.path.normpath(str(item))

    def found() -> Iterable[Found]:
        every: Iterable[Found] = find_images(paths, null=given["null"])
        if features is not None:
            every = map(features.source, features.places)
        return choose(every, given["limit"], given["sample"], seed, key=key, group=group)

    if "-" not in paths or not is_read_twice:
        return found
    every = list(found())
    return lambda: every


def _from_stdin(end: bytes) -> Iterator[str]:
    rest = b""
    while chunk := sys.stdin.buffer.read1(1 << 16):  # type: ignore[union-attr]
        *whole, rest = (rest + chunk).split(end)
        yield from filter(None, map(_decoded, whole))
    if rest:
        yield _decoded(rest)


def _decoded(path: bytes) -> str:
    path = path.removesuffix(b"\r")
    try:
        return os.fsdecode(path)
    except UnicodeDecodeError:  # on Windows, whose consoles write in a code page of their own
        return path.decode("oem", "replace")


def refuse_idle(context: typer.Context, **idle: str) -> None:
    """A usage error if an option was given that has nothing to act on.

    `idle` has such parameters besides those known here, and why.
    """
    given = context.params
    if "features" in given and bool(given["images"]) == (given["features"] is not None):
        hint = "--features"
        raise typer.BadParameter("name either images or --features FILE.", param_hint=hint)
    if given.get("features") is None:
        parameters = ("id_column", "by_position", "text_features")
        idle |= dict.fromkeys(parameters, "it goes with --features.")
    else:
        idle["views"] = "stored features have one view."
    if given.get("text_features") is None:
        idle["scale"] = "it goes with --text-features."
    else:
        none = "there is no model with --text-features."
        idle |= dict.fromkeys(("model", "device", "dtype"), none)
    if given.get("reference", True) is None:
        idle["reference_is_data"] = "there is no --reference."
    if "null" in given and given["out"] is None:  # of predict and examine
        idle["restart"] = "there is nothing to throw away without --out."
        idle["embed_images"] = "there is no page without --out."
    if "null" in given and "-" not in given["images"]:
        idle["null"] = "no paths are read from stdin: name - as IMAGE."
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in idle and source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(idle[parameter.name], param_hint=parameter.opts[0])


def check_methods(
    context: typer.Context,
    option: str,
    methods: Mapping[str, Adapter],
    reference: Path | None,
    *,
    in_folds: bool = True,
    has_labels: bool = False,
) -> None:
    """A usage error if a method cannot be fitted, needs more than features where there are no
    images, or a reference has none to fit."""
    from fair_tta.lab.runs._reference import check_fittable

    for name, adapter in methods.items():
        if context.params["features"] and (adapter.needs.views or adapter.needs.pixels):
            raise typer.BadParameter(
                f"{name!r} needs images or views of them, which stored features do not have: "
                "choose a method such as association-correction or logit-balance.",
                param_hint=option,
            )
    if reference is not None or in_folds:
        named = option if reference is None else "--reference"
        usage(named, check_fittable, methods, reference is not None, has_labels)
        return
    for name, adapter in methods.items():
        if not adapter.is_fitted:
            raise typer.BadParameter(
                f"{name!r} has to be fitted: name a folder of images with --reference, or write "
                f"'{name.partition(':')[0]}:reference=FILE' with a file of `fair-tta fit`.",
                param_hint=option,
            )


def log_fitted(fitted: FittedAdapters) -> None:
    """What methods were fitted on, and what could not be used of it."""
    for sentence in (*fitted.left_out, *fitted.notes):
        log(sentence)


def stored_features(context: typer.Context) -> FeatureFile | None:
    """The features that a command is given in place of images, read once."""
    given = context.params
    if given.get("features") is not None and "features" not in context.meta:
        from fair_tta.datasets._features import read_features
        from fair_tta.datasets._label_files import first_three

        found = read_features(given["features"], id_column=given.get("id_column"))
        if found.missing:
            some = first_three([*map(printable, found.missing)])
            log(f"Left out, as {str(found.path)!r} has no vector of theirs: {some}.")
        context.meta["features"] = found
    stored: FeatureFile | None = context.meta.get("features")
    return stored


def _templates(given: Iterable[str], with_sensitive: bool) -> Templates:
    """Sentences, those with an @ from the lines of a file."""
    sentences: list[str] = []
    for text in given:
        lines = [text]
        if text.startswith("@"):
            try:
                lines = Path(text[1:]).expanduser().read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise PromptError(f"{text[1:]!r} could not be read: {error}.") from None
        sentences += filter(str.strip, lines)
    templates = parse_template(sentences if given else None, with_sensitive)
    if with_sensitive:
        templates._sensitive_prompts({"": ""})  # raises if a sentence has no slot for them
    return templates


def make_classifier(
    context: typer.Context,
    targets: Mapping[str, str] | None = None,
    sensitive: Mapping[str, Mapping[str, str]] | None = None,
    *,
    adapter: Adapter | None = None,
) -> FairTPTClassifier:
    """The classifier that the options of a command describe, unless its names are given.

    It is zero-shot as long as its method has to be fitted.
    """
    from transformers.utils import logging

    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.datasets._features import read_text_features
    from fair_tta.images._views import AugMix
    from fair_tta.methods import ZeroShot
    from fair_tta.methods._fitting import compare
    from fair_tta.models._stored_text import TextTable

    given = context.params
    if targets is None:
        targets = usage("--targets", targets_option, given["targets"])
    if sensitive is None:
        sensitive = usage("--sensitive", sensitive_option, given["sensitive"], "sensitive")
    template = usage("--template", _templates, given["template"] or (), bool(sensitive))
    if adapter is not None and adapter.needs.sensitive and not sensitive:
        raise typer.BadParameter(
            "it needs sensitive attribute values: name them with --sensitive.",
            param_hint="--adapter",
        )
    logging.disable_progress_bar()  # of loading weights
    model, scale, features = given["model"], None, stored_features(context)
    if given.get("text_features") is not None:
        table, found = read_text_features(given["text_features"])
        scale = next((s for s in (given["scale"], found) if s is not None), _SCALE)
        model = TextTable(table, scale)
    classifier = FairTPTClassifier(
        model,
        targets,
        {attribute: dict(names) for attribute, names in sensitive.items()} or None,
        template,
        adapter=adapter if adapter is not None and adapter.is_fitted else ZeroShot(),
        views=AugMix(given.get("views", 1) if features is None else 1),
        seed=given.get("seed", 0),
        batch_size=max(given["batch_size"], 0 if features is None else _ROWS),
        scale=scale,
        device=given["device"],
        dtype=given["dtype"],
    )
    if NOTE in embedded_notes(context):
        log(NOTE)
    if features is not None:
        features.features[:1]._unit(classifier._task.target_features)  # raises if they do not fit
        compare(features.features, classifier._task)
    return classifier
