"""Images, methods and a classifier from options."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fair_tta._io import UnlistedFolder, find_image_files
from fair_tta.lab.cli._console import log, parse_option
from fair_tta.lab.cli._options import (
    DEFAULT_VIEWS,
    EncoderOptions,
    ImageOptions,
    ParsedPrompts,
    ViewEncoderOptions,
)

if TYPE_CHECKING:
    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.lab._unlabelled import ImageEntry
    from fair_tta.lab.runs._reference import FittedAdapters
    from fair_tta.methods._base import Adapter

RESUME_HINT = "The same command resumes from there."
"""Added to messages if finished predictions are saved."""

MINIATURE_NOTE = (
    "no --model: the embedded miniature model, which knows drawn images only"
)

_CLIP_SCALE = 100.0  # the logit scale that CLIP was trained to, if a file has none
_STORED_BATCH_SIZE = 1024  # stored features take little memory
_STDIN_BYTES = 1 << 16  # read at a time


def walk_images(
    paths: Iterable[str], *, null: bool = False
) -> Iterator[str | UnlistedFolder]:
    """Yield paths of images one at a time, and folders that cannot be listed.

    The path ``-`` stands for paths on stdin, separated by lines or by null characters.
    """
    separator = b"\0" if null else b"\n"
    for argument in paths:
        expanded = _read_paths(separator) if argument == "-" else [argument]
        for path in expanded:
            if os.path.isdir(path):
                yield from find_image_files(path)
            else:
                yield path


def _read_paths(separator: bytes) -> Iterator[str]:
    """Yield paths from stdin as soon as they are complete."""
    incomplete = b""
    while chunk := sys.stdin.buffer.read1(_STDIN_BYTES):  # type: ignore[union-attr]
        *paths, incomplete = (incomplete + chunk).split(separator)
        for path in paths:
            if path:
                yield _decode_path(path)
    if incomplete:
        yield _decode_path(incomplete)


def _decode_path(path: bytes) -> str:
    path = path.removesuffix(b"\r")
    try:
        return os.fsdecode(path)
    except UnicodeDecodeError:
        # Consoles of Windows write in their own code page
        return path.decode("oem", "replace")


def image_lister(
    options: ImageOptions, encoder: ViewEncoderOptions, *, is_read_twice: bool
) -> Callable[[], Iterable[ImageEntry]]:
    """Return a function that lists the images: all, the first --limit or a --sample.

    Paths on stdin can be read only once. They are kept if images are read twice, as to fit methods.
    """
    from fair_tta.datasets._records import choose_sample
    from fair_tta.images._stored import ImageSource

    def group_of(entry: ImageEntry) -> str | None:
        # Without labels all images are one group; folders that cannot be listed stay in
        return None if isinstance(entry, UnlistedFolder) else ""

    def key_of(entry: ImageEntry) -> str:
        if isinstance(entry, ImageSource):
            return entry.name
        return os.path.normpath(str(entry))

    def list_images() -> Iterable[ImageEntry]:
        entries: Iterable[ImageEntry]
        if encoder.stored is None:
            entries = walk_images(options.images, null=options.null)
        else:
            entries = map(encoder.stored.source, encoder.stored.row_of_id)
        return choose_sample(
            entries,
            options.limit,
            options.sample,
            encoder.seed,
            key=key_of,
            group=group_of,
        )

    if not (options.has_stdin and is_read_twice):
        return list_images
    kept = list(list_images())
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
        option: the option that lists the methods.
        methods: the methods by their names.
        features: stored features, on which methods that need images or views do not work.
        reference: images to fit methods on.
        in_folds: cross-fit methods on the images if there is no reference.
        has_labels: the images have classes.
    """
    from fair_tta.lab.runs._reference import check_fittable

    # Stored features have one view and no pixels
    if features is not None:
        for name, method in methods.items():
            if method.needs.views or method.needs.pixels:
                raise typer.BadParameter(
                    f"{name!r} needs images or their views, and stored features have neither: "
                    "choose a method such as association-correction or logit-balance.",
                    param_hint=option,
                )
    # Methods are fitted on the reference, or cross-fitted on the images
    if reference is not None or in_folds:
        hint = option if reference is None else "--reference"
        parse_option(hint, check_fittable, methods, reference is not None, has_labels)
        return
    for name, method in methods.items():
        if not method.is_fitted:
            raise typer.BadParameter(
                f"{name!r} must be fitted: name a folder of images with --reference, or write "
                f"'{name.partition(':')[0]}:reference=FILE' with a file written by `fair-tta fit`.",
                param_hint=option,
            )


def log_fitted(fitted: FittedAdapters) -> None:
    """Log the images that could not be used, and notes on the fits."""
    for sentence in (*fitted.left_out, *fitted.notes):
        log(sentence)


def run_notes(encoder: EncoderOptions) -> list[str]:
    """Return notes on a default model and on stored features, for the report."""
    notes = []
    if encoder.model is None and encoder.text_features is None:
        notes.append(MINIATURE_NOTE)
    if encoder.features is not None:
        notes.append(
            f"stored features, {encoder.features.name}: no image was read, and the cost is that "
            "of the methods without encoding"
        )
    return notes


def make_classifier(
    prompts: ParsedPrompts,
    encoder: EncoderOptions,
    *,
    adapter: Adapter | None = None,
    seed: int = 0,
    views: int | None = 1,
) -> FairTPTClassifier:
    """Return the classifier that options describe; zero-shot until its method is fitted."""
    from transformers.utils import logging

    from fair_tta.classifier import FairTPTClassifier
    from fair_tta.datasets._feature_files import read_text_features
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

    # The text side is a model, or a table of prompts and their features
    stored = encoder.stored
    model: str | TextTable = encoder.model_name
    scale = None
    if encoder.text_features is not None:
        table, scale_of_file = read_text_features(encoder.text_features)
        scale = encoder.scale
        if scale is None:
            scale = _CLIP_SCALE if scale_of_file is None else scale_of_file
        model = TextTable(table, scale)

    # Without images there is nothing to decode or to encode, so batches may be large
    batch_size = encoder.batch_size
    n_views = views or DEFAULT_VIEWS
    if stored is not None:
        n_views = 1
        batch_size = max(batch_size, _STORED_BATCH_SIZE)
    sensitive = {name: dict(phrases) for name, phrases in prompts.sensitive.items()}
    classifier = FairTPTClassifier(
        model,
        prompts.targets,
        sensitive or None,
        prompts.templates,
        adapter=adapter if adapter is not None and adapter.is_fitted else ZeroShot(),
        views=AugMix(n_views),
        seed=seed,
        batch_size=batch_size,
        scale=scale,
        device=encoder.device,
        dtype=encoder.dtype,
    )
    if MINIATURE_NOTE in run_notes(encoder):
        log(MINIATURE_NOTE)

    # Features of another model are noticed before any work is done: `_unit` raises if they
    # have another dimension
    if stored is not None:
        stored.features[:1]._unit(classifier._task.target_features)
        warn_if_other_model(stored.features, classifier._task)
    return classifier
