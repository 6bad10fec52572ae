"""Options that several commands share, and the classifier that they describe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fair_tta._prompts.templates import Templates, default_template
from fair_tta.lab._cli.console import progress_bar, say, usage
from fair_tta.lab._cli.paths import image_sources

if TYPE_CHECKING:
    from fair_tta._io import Unlisted
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.lab._runs.reference import FittedAdapters
    from fair_tta.lab._runs.runner import Engine
    from fair_tta.methods._base import Adapter


GOES_ON = "The same command goes on from there."
"""What to say of finished answers that are kept."""


def complete_adapters(incomplete: str) -> list[str]:
    """What a shell may offer for a list that is being written."""
    from fair_tta.methods._registry import ADAPTERS

    before, comma, _ = incomplete.rpartition(",")
    offers = [f"{before}{comma}{name}" for name in ADAPTERS]
    return [offer for offer in offers if offer.startswith(incomplete)]


Pictures = Annotated[
    list[str],
    typer.Argument(
        metavar="IMAGE",
        help="Pictures, folders of pictures (with subfolders), or - to read paths from stdin.",
    ),
]
Null = Annotated[
    bool, typer.Option("--null", "-0", help="Paths on stdin end with a null character.")
]
TargetsOption = Annotated[
    list[str],
    typer.Option(
        "--targets",
        metavar="NAMES",
        help="Classes: 'cat,dog', or repeated 'cat=of a cat' where the sentence says other words.",
        show_default=False,
    ),
]
SensitiveOption = Annotated[
    list[str],
    typer.Option(
        "--sensitive",
        metavar="NAMES",
        help="What should not matter: 'water,land', repeated 'water=on water', or with the name "
        "of an attribute first, 'place: water,land'.",
        show_default=False,
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        "--template",
        metavar="TEXT",
        help="Sentence with the slots {target} and {sensitive}.",
        show_default="'a photo of a {sensitive} {target}.'",
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="'miniature' (embedded, offline), the folder or hub id of a transformers model, or "
        "'open_clip:NAME/TAG'.",
    ),
]
OneAdapter = Annotated[
    str | None,
    typer.Option(
        "--adapter",
        metavar="METHOD",
        help="Method, such as 'fair-tpt:lam=10' (see `fair-tta adapters`), or of a file of your "
        "own, which is run: 'my_file.py:MyMethod'.",
        show_default="fair-tpt with --sensitive, else zero-shot",
        autocompletion=complete_adapters,
    ),
]
Adapters = Annotated[
    list[str],
    typer.Option(
        "--adapters",
        metavar="METHODS",
        help="Methods with commas between them, written as for `fair-tta predict --adapter`; the "
        "first is what others are compared with.",
        autocompletion=complete_adapters,
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seeds the views of each picture.")]
ViewCount = Annotated[
    int, typer.Option("--views", min=1, help="How many views of each picture, itself included.")
]
BatchSize = Annotated[
    int, typer.Option("--batch-size", min=1, help="How many pictures at once: speed and memory.")
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        help="Such as 'cuda'; 'auto' for an accelerator if there is one.",
        show_default="the CPU",
    ),
]
Precision = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help="Such as 'bfloat16'; 'auto' for what the device is fast in.",
        show_default="that of the weights' file",
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="The first so many only.", show_default="all")
]
Sample = Annotated[
    int | None,
    typer.Option(
        "--sample",
        min=1,
        help="So many only, chosen by --seed; of each group its share and at least one.",
        show_default="all",
    ),
]


class EngineName(str, Enum):
    """Who does the work."""

    LOCAL = "local"
    RAY = "ray"


WhichEngine = Annotated[EngineName, typer.Option("--engine", help="Who does the work.")]
Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Processes (local), or actors at most (ray).",
        show_default="1 (local), one per GPU or core (ray)",
    ),
]
Cores = Annotated[int, typer.Option("--cores", min=1, help="For each actor (ray).")]
Address = Annotated[
    str | None,
    typer.Option(
        "--address", help="Of a Ray cluster; 'auto' finds one.", show_default="start one here"
    ),
]
Restart = Annotated[
    bool, typer.Option("--restart", help="Throw away the finished answers in --out.")
]
ReferenceDir = Annotated[
    Path | None,
    typer.Option(
        "--reference",
        metavar="DIR",
        help="Folder of pictures without labels, on which methods that need a reference are "
        "fitted first.",
        show_default="none",
    ),
]
ReferenceIsData = Annotated[
    bool,
    typer.Option(
        "--reference-is-data", help="Allow --reference to have pictures that are answered."
    ),
]
ShowProgress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress", help="Progress on stderr.", show_default="on a terminal"
    ),
]


def make_engine(name: EngineName, workers: int | None, cores: int, address: str | None) -> Engine:
    """The engine that the options describe."""
    from fair_tta.lab._runs.local import Local
    from fair_tta.lab._runs.ray import OnRay

    if name is EngineName.RAY:
        return OnRay(address, workers, cores)
    return Local(workers or 1)


def refuse_idle(context: typer.Context, idle: Mapping[str, str]) -> None:
    """A usage error if an option was given that has nothing to act on.

    Args:
        context: of the command.
        idle: the parameters that have nothing to act on, and why.
    """
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in idle and source is not None and source.name == "COMMANDLINE":
            raise typer.BadParameter(idle[parameter.name], param_hint=parameter.opts[0])


def idle_without(
    *,
    engine: EngineName,
    reference: object = True,
    out: object = True,
    images: Sequence[str] = ("-",),
) -> dict[str, str]:
    """Parameters that have nothing to act on, for `refuse_idle`, and why.

    Args:
        engine: who does the work.
        reference: none of it if false, likewise the others.
        out: where finished answers go.
        images: what was named, ``-`` for paths on stdin.
    """
    idle: dict[str, str] = {}
    if engine is not EngineName.RAY:
        idle |= dict.fromkeys(("cores", "address"), "it is for --engine ray.")
    if not reference:
        idle["reference_is_data"] = "there is no --reference."
    if not out:
        idle["restart"] = "there is nothing to throw away without --out."
        idle["no_pictures"] = "there is no page without --out."
    if "-" not in images:
        idle["null"] = "no paths are read from stdin: name - as IMAGE."
    return idle


def option_names(context: typer.Context, **others: str) -> dict[str, str]:
    """What arguments of functions are called on the command line.

    Args:
        context: of a command, whose options have the names of these arguments.
        others: arguments whose names differ.
    """
    own = {p.name: p.opts[0] for p in context.command.params if p.name and p.opts[0][:2] == "--"}
    return {**own, **others}


def read_adapter(text: str | None) -> Adapter | None:
    """The adapter of `OneAdapter`."""
    from fair_tta.methods._registry import parse_adapter

    return None if text is None else usage("--adapter", parse_adapter, text)


def read_adapters(texts: list[str]) -> dict[str, Adapter]:
    """The adapters of `Adapters`."""
    from fair_tta.methods._registry import parse_adapters

    return usage("--adapters", parse_adapters, texts)


def check_reference(option: str, methods: Mapping[str, Adapter], reference: Path | None) -> None:
    """A usage error if a method is to be fitted and there is no reference, or the other way."""
    from fair_tta.lab._runs.reference import check_fittable

    if reference is not None:
        usage("--reference", check_fittable, methods)
        return
    for name, adapter in methods.items():
        if not adapter.is_fitted:
            raise typer.BadParameter(
                f"{name!r} has to be fitted: name a folder of pictures with --reference, or write "
                f"'{name.partition(':')[0]}:reference=FILE' with a file of `fair-tta fit`.",
                param_hint=option,
            )


def fit_on(
    reference: Path | None,
    classifier: FairTPTClassifier,
    methods: Mapping[str, Adapter],
    chosen: Callable[[], Iterable[str | Unlisted]],
    reference_is_data: bool,
    progress: bool | None,
) -> FittedAdapters:
    """The methods, fitted on the pictures of --reference if there are any; says what came of it."""
    from fair_tta.lab._runs.reference import fit_adapters

    with progress_bar(progress, "reference pictures") as tell:
        fitted = fit_adapters(
            classifier,
            methods,
            reference,
            lambda: image_sources(chosen()),
            reference_is_data=reference_is_data,
            progress=tell,
        )
    say_fitted(fitted)
    return fitted


def say_fitted(fitted: FittedAdapters) -> None:
    """What methods were fitted on, and what could not be used of it."""
    from fair_tta._io import printable

    for sentence in (*fitted.left_out, *fitted.notes):
        say(printable(sentence))


def make_classifier(
    model: str,
    targets: Mapping[str, str],
    sensitive: Mapping[str, Mapping[str, str]],
    template: str | None,
    *,
    adapter: Adapter | None = None,
    seed: int,
    views: int,
    batch_size: int,
    device: str | None,
    dtype: str | None = None,
) -> FairTPTClassifier:
    """The classifier that the options describe; an adapter is left out until it is fitted."""
    from transformers.utils import logging

    from fair_tta._images.views import AugMix
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.methods import ZeroShot

    templates = default_template(bool(sensitive))
    if template is not None:
        templates = usage("--template", Templates.from_sentence, template)
    logging.disable_progress_bar()  # of loading weights
    if adapter is not None and adapter.needs.sensitive and not sensitive:
        raise typer.BadParameter(
            "it needs to know what should not matter: name that with --sensitive.",
            param_hint="--adapter",
        )
    return FairTPTClassifier(
        model,
        targets,
        {attribute: dict(names) for attribute, names in sensitive.items()} or None,
        templates,
        adapter=adapter if adapter is None or adapter.is_fitted else ZeroShot(),
        views=AugMix(views),
        seed=seed,
        batch_size=batch_size,
        device=device,
        dtype=dtype,
    )
