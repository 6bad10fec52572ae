"""Options that several commands share, and the classifier that they describe."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from fair_tta.cli.console import usage
from fair_tta.errors import ModelError
from fair_tta.prompts import Templates

if TYPE_CHECKING:
    from fair_tta.adapters import Adapter
    from fair_tta.classifier import FairTPTClassifier


def complete_adapters(incomplete: str) -> list[str]:
    """What a shell may offer for a list that is being written."""
    from fair_tta.adapter_text import ADAPTERS

    before, comma, _ = incomplete.rpartition(",")
    offers = [f"{before}{comma}{name}" for name in ADAPTERS]
    return [offer for offer in offers if offer.startswith(incomplete)]


Targets = Annotated[
    list[str],
    typer.Option(
        "--targets",
        metavar="NAMES",
        help="Classes: 'cat,dog', or repeated 'cat=of a cat' where the sentence says other words.",
        show_default=False,
    ),
]
Sensitive = Annotated[
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
        help="Method, such as 'fair-tpt:lam=10'; see `fair-tta adapters`.",
        show_default="fair-tpt with --sensitive, else zero-shot",
        autocompletion=complete_adapters,
    ),
]
Adapters = Annotated[
    list[str],
    typer.Option(
        "--adapters",
        metavar="METHODS",
        help="Methods with commas between them; the first is what others are compared with.",
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
    typer.Option("--device", help="Such as 'cuda'.", show_default="where the model is loaded"),
]
NAMES = {name: f"--{name}" for name in ("model", "device", "targets", "sensitive", "template")}
"""What arguments of a classifier are called on the command line."""

ShowProgress = Annotated[
    bool | None,
    typer.Option(
        "--progress/--no-progress", help="Progress on stderr.", show_default="on a terminal"
    ),
]


def read_adapter(text: str | None) -> Adapter | None:
    """The adapter of `OneAdapter`."""
    from fair_tta.adapter_text import parse_adapter

    return None if text is None else usage("--adapter", parse_adapter, text)


def read_adapters(texts: list[str]) -> dict[str, Adapter]:
    """The adapters of `Adapters`."""
    from fair_tta.adapter_text import parse_adapters

    return usage("--adapters", parse_adapters, texts)


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
) -> FairTPTClassifier:
    """The classifier that the options describe."""
    from transformers.utils import logging

    from fair_tta.backends import resolve
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.views import AugMix

    if template is None:
        template = "a photo of a {sensitive} {target}." if sensitive else "a photo of a {target}."
    templates = usage("--template", Templates.from_sentence, template)
    logging.disable_progress_bar()  # of loading weights
    backend = resolve(model)
    if device is not None:
        try:
            backend.model.to(device)  # type: ignore[attr-defined]
        except (RuntimeError, AssertionError) as error:  # torch without CUDA asserts
            raise ModelError(f"`--device {device}` cannot be used: {error}") from error
    if adapter is not None and adapter.needs_sensitive and not sensitive:
        raise typer.BadParameter(
            "it needs to know what should not matter: name that with --sensitive.",
            param_hint="--adapter",
        )
    return FairTPTClassifier(
        backend,
        targets,
        {attribute: dict(names) for attribute, names in sensitive.items()} or None,
        templates,
        adapter=adapter,
        views=AugMix(views),
        seed=seed,
        batch_size=batch_size,
    )
