"""Images, methods and the classifier that options describe."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fair_tta._io import UnlistedFolder, find_image_files
from fair_tta.lab.cli._console import log, parse_option
from fair_tta.lab.cli._expand import is_on_command_line
from fair_tta.lab.cli._options import (
    EncoderOptions,
    ImageOptions,
    PromptSpec,
    ViewEncoderOptions,
)

if TYPE_CHECKING:
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.lab._unlabelled import ImageEntry
    from fair_tta.lab.runs._reference import FittedAdapters
    from fair_tta.methods._base import Adapter

RESUME_HINT = "The same command goes on from there."
"""Added to messages where finished answers are kept."""

_CLIP_SCALE = 100.0  # logit scale that CLIP was trained to, where a file names none
_STORED_BATCH_SIZE = 1024  # at least: stored features take little memory
_STDIN_BYTES = 1 << 16  # read at once


def walk_images(
    paths: Iterable[str], *, null: bool = False
) -> Iterator[str | UnlistedFolder]:
    """Yield paths of images one at a time, and folders that cannot be listed.

    The path ``-`` stands for paths on stdin, which end with a null character or a line.
    """
    end = b"\0" if null else b"\n"
    for argument in paths:
        for path in _read_paths(end) if argument == "-" else [argument]:
            if os.path.isdir(path):
                yield from find_image_files(path)
            else:
                yield path


def _read_paths(end: bytes) -> Iterator[str]:
    rest = b""
    while chunk := sys.stdin.buffer.read1(_STDIN_BYTES):  # type: ignore[union-attr]
        *whole, rest = (rest + chunk).split(end)
        for path in whole:
            if path:
                yield _decode_path(path)
    if rest:
        yield _decode_path(rest)


def _decode_path(path: bytes) -> str:
    path = path.removesuffix(b"\r")
    try:
        return os.fsdecode(path)
    except (
        UnicodeDecodeError
    ):  # on Windows, whose consoles write in a code page of their own
        return path.decode("oem", "replace")


def image_lister(
    options: ImageOptions, encoder: ViewEncoderOptions, *, is_read_twice: bool
) -> Callable[[], Iterable[ImageEntry]]:
    """Return a function that lists the images: all, the first --limit or a --sample.

    Paths on stdin are read once; they are kept for methods that are fitted, which need them twice.
    """
    from fair_tta.datasets._records import choose_sample
    from fair_tta.images._stored import ImageSource

    def group(item: ImageEntry) -> str | None:
        return (
            None if isinstance(item, UnlistedFolder) else ""
        )  # folders are reported in any case

    def key(item: ImageEntry) -> str:
        return (
            item.name if isinstance(item, ImageSource) else os.path.normpath(str(item))
        )

    def images() -> Iterable[ImageEntry]:
        items: Iterable[ImageEntry] = walk_images(options.images, null=options.null)
        if encoder.stored is not None:
            items = map(encoder.stored.source, encoder.stored.row_of_id)
        return choose_sample(
            items, options.limit, options.sample, encoder.seed, key=key, group=group
        )

    if not (options.has_stdin and is_read_twice):
        return images
    kept = list(images())
    return lambda: kept


def check_methods(
    option: str,
    methods: Mapping[str, Adapter],
    features: Path | None,
    reference: Path | None,
    *,
    in_folds: bool = True,
    has_labels: bool = False,
) -> None:
    """Raise a usage error if a method cannot be used on the images, or cannot be fitted.

    Args:
        option: that names the methods.
        methods: by their names.
        features: stored features, which methods that need images or views cannot use.
        reference: images to fit methods on.
        in_folds: whether methods are cross-fitted on the images if there is no reference.
        has_labels: whether the images have classes.
    """
    from fair_tta.lab.runs._reference import check_fittable

    if features is not None:
        for name, method in methods.items():
            if method.needs.views or method.needs.pixels:
                raise typer.BadParameter(
                    f"{name!r} needs images or views of them, which stored features do not have: "
                    "choose a method such as association-correction or logit-balance.",
                    param_hint=option,
                )
    if reference is not None or in_folds:
        hint = option if reference is None else "--reference"
        parse_option(hint, check_fittable, methods, reference is not None, has_labels)
        return
    for name, method in methods.items():
        if not method.is_fitted:
            raise typer.BadParameter(
                f"{name!r} has to be fitted: name a folder of images with --reference, or write "
                f"'{name.partition(':')[0]}:reference=FILE' with a file of `fair-tta fit`.",
                param_hint=option,
            )


def log_fitted(fitted: FittedAdapters) -> None:
    """Log what methods were fitted on, and what could not be used of it."""
    for sentence in (*fitted.left_out, *fitted.notes):
        log(sentence)


MINIATURE_NOTE = (
    "no --model: the embedded miniature model, which knows drawn images only"
)


def run_notes(context: typer.Context, encoder: EncoderOptions) -> list[str]:
    """Return what a report says about its model, if none was named, and about stored features."""
    notes = []
    if not is_on_command_line(context, "model") and encoder.text_features is None:
        notes.append(MINIATURE_NOTE)
    if encoder.features is not None:
        notes.append(
            f"stored features, {encoder.features.name}: no image was looked at, and cost is that "
            "of the methods without encoding"
        )
    return notes


def make_classifier(
    context: typer.Context,
    prompts: PromptSpec,
    encoder: EncoderOptions,
    *,
    adapter: Adapter | None = None,
    seed: int = 0,
    views: int = 1,
) -> FairTPTClassifier:
    """Return the classifier that options describe; zero-shot until its method is fitted."""
    from transformers.utils import logging

    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.datasets._features import read_text_features
    from fair_tta.images._views import AugMix
    from fair_tta.methods import ZeroShot
    from fair_tta.methods._fitting import warn_if_other_model
    from fair_tta.models._stored_text import TextTable

    if adapter is not None and adapter.needs.sensitive and not prompts.sensitive:
        raise typer.BadParameter(
            "it needs sensitive attribute values: name them with --sensitive.",
            param_hint="--adapter",
        )
    logging.disable_progress_bar()  # of loading weights

    # The text side is a model, or a table of prompts and their vectors
    stored = encoder.stored
    model: str | TextTable = encoder.model
    scale = None
    if encoder.text_features is not None:
        table, scale_of_file = read_text_features(encoder.text_features)
        scale = encoder.scale
        if scale is None:
            scale = _CLIP_SCALE if scale_of_file is None else scale_of_file
        model = TextTable(table, scale)

    has_images = stored is None
    classifier = FairTPTClassifier(
        model,
        prompts.targets,
        {attribute: dict(names) for attribute, names in prompts.sensitive.items()}
        or None,
        prompts.templates,
        adapter=adapter if adapter is not None and adapter.is_fitted else ZeroShot(),
        views=AugMix(views if has_images else 1),
        seed=seed,
        batch_size=encoder.batch_size
        if has_images
        else max(encoder.batch_size, _STORED_BATCH_SIZE),
        scale=scale,
        device=encoder.device,
        dtype=encoder.dtype,
    )
    if MINIATURE_NOTE in run_notes(context, encoder):
        log(MINIATURE_NOTE)

    # Features of another model are noticed before any work is done
    if stored is not None:
        stored.features[:1]._unit(
            classifier._task.target_features
        )  # raises if they do not fit
        warn_if_other_model(stored.features, classifier._task)
    return classifier
