"""``fair-tta predict``: classify images."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from fair_tta._io import printable, write_row
from fair_tta.errors import FairTTAError
from fair_tta.lab.cli import _options as options
from fair_tta.lab.cli._console import LEFT_OUT, exits, log, usage

if TYPE_CHECKING:
    from fair_tta.prediction import Prediction

UNREADABLE = "unreadable"

Answered: TypeAlias = "Sequence[tuple[str, Prediction | str]]"
"""Paths of images with their predictions, or why there is none."""

Names = Sequence[str]


def print_json(answered: Answered, targets: Names, attributes: Names, is_first: bool) -> None:
    """An object per line: ``image``, ``error`` (or null) and the fields of `Prediction`."""
    import json  # help does not wait for it

    lines = []
    for path, answer in answered:
        fields = {} if isinstance(answer, str) else dataclasses.asdict(answer)
        error = answer if isinstance(answer, str) else None
        row = {"image": path, "error": error, **fields}
        lines.append(json.dumps(row, allow_nan=False) + "\n")
    _write("".join(lines))


def print_csv(answered: Answered, targets: Names, attributes: Names, is_first: bool) -> None:
    """A row per image, with a column for the probability of each target."""
    text = io.StringIO(newline="")
    if is_first:
        write_row(
            text,
            ["image", "label", "zero-shot label", *(f"p: {target}" for target in targets)]
            + [f"sensitive entropy: {attribute}" for attribute in attributes]
            + ["certified unchanged", "warnings", "error"],
        )
    for path, answer in answered:
        if isinstance(answer, str):
            write_row(text, [path, *[""] * (len(targets) + len(attributes) + 4), answer])
        else:
            write_row(
                text,
                [path, answer.label, _zero_shot(answer)]
                + [answer.probabilities[target] for target in targets]
                + [answer.sensitive_entropy[attribute] for attribute in attributes]
                + [str(answer.certified_unchanged).lower(), "; ".join(answer.warnings), ""],
            )
    _write(text.getvalue())


def print_table(answered: Answered, targets: Names, attributes: Names, is_first: bool) -> None:
    """Columns whose width does not depend on the rows, which are shown before all are known."""
    from rich.text import Text

    from fair_tta.lab._terminal import NarrowTable, show

    wide = min(24, max(len(UNREADABLE), *(len(printable(t)) for t in targets)))
    titles = ["image", "answer", "p", "zero-shot", *(f"entropy of {a}" for a in attributes), ""]
    rows = []
    for path, answer in answered:
        if isinstance(answer, str):
            cells = [Text(UNREADABLE, style="red"), *(Text() for _ in titles[2:])]
        else:
            before, after = answer.sensitive_entropy_zero_shot, answer.sensitive_entropy
            texts = [answer.label, f"{answer.probabilities[answer.label]:.3f}", _zero_shot(answer)]
            texts += [f"{before[a]:.2f} -> {after[a]:.2f}" for a in attributes]
            cells = [*map(Text, texts), Text("changed" if answer.flipped else "")]
        rows.append([Text(path), *cells])
    widths = [sys.maxsize, wide, 5, wide, *(12 for _ in attributes), 7]
    show(NarrowTable(titles, rows, "", (0, 1, 3, len(titles) - 1), is_first, widths))


def _zero_shot(answer: Prediction) -> str:
    return max(answer.zero_shot, key=answer.zero_shot.__getitem__)


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def predict_command(
    context: typer.Context,
    *,
    images: options.Images = [],  # noqa: B006
    targets: options.TargetsOption,
    sensitive: options.SensitiveOption = [],  # noqa: B006
    template: options.Template = None,
    model: options.Model = "miniature",
    adapter: options.OneAdapter = None,
    reference: options.ReferenceDir = None,
    reference_is_data: options.ReferenceIsData = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per image and line.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A CSV table.")] = False,
    null: options.Null = False,
    features: options.Features = None,
    id_column: options.IdColumn = None,
    text_features: options.TextFeatures = None,
    scale: options.Scale = None,
    seed: options.Seed = 0,
    views: options.ViewCount = 64,
    batch_size: options.BatchSize = 16,
    device: options.Device = None,
    dtype: options.Precision = None,
    limit: options.Limit = None,
    sample: options.Sample = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of finished answers: the same command goes on after a stop.",
            show_default="keep none",
        ),
    ] = None,
    restart: options.Restart = False,
    workers: options.Workers = 1,
    progress: options.ShowProgress = None,
) -> None:
    """Classify images: a table, or --json or --csv on stdout.

    Answers appear batch by batch; with --out they are kept and not computed again. An image or
    folder that cannot be read is listed and does not stop the others; the exit code is then 4.
    """
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv.", param_hint="--json, --csv")
    options.refuse_idle(context)

    def stopped() -> str:
        on = "" if out is None else f" {options.GOES_ON}"
        return f"Stopped; {done} images are answered.{on}"

    done = failed = 0
    with exits(context, stopped):
        from fair_tta.lab._terminal import progress_bars
        from fair_tta.lab._unlabelled import NO_IMAGE, image_sources, predict_images
        from fair_tta.lab.runs._local import Local
        from fair_tta.lab.runs._reference import fit_adapters
        from fair_tta.lab.runs._runner import batched
        from fair_tta.methods._registry import parse_adapter, short_name

        if adapter is None:
            adapter = "association-correction" if sensitive else "zero-shot"
        method = usage("--adapter", parse_adapter, adapter)
        named = {short_name(adapter): method}
        options.check_methods(context, "--adapter", named, reference, in_folds=False)
        classifier = options.make_classifier(context, adapter=method)
        batch_size = classifier._batch_size
        names = classifier.targets, tuple(classifier.sensitive)
        show = print_json if as_json else print_csv if as_csv else print_table
        chosen = options.chosen_images(context, is_read_twice=reference is not None)
        if reference is not None:
            with progress_bars(progress) as bars:
                fitted = fit_adapters(
                    classifier,
                    named,
                    reference,
                    lambda: image_sources(chosen()),
                    reference_is_data=reference_is_data,
                    progress=bars("reference images"),
                )
            options.log_fitted(fitted)
            (method,) = fitted.adapters.values()
            classifier = classifier.with_adapter(method)
        answered = predict_images(
            classifier,
            [classifier.adapter],
            chosen(),
            out,
            engine=Local(workers),
            model=None if text_features else model,
            restart=restart,
            read_ahead="-" not in images,  # whoever types waits for answers
        )
        counted = "-" not in images and (sys.stderr.isatty() if progress is None else progress)
        total = sum(1 for _ in chosen()) if counted else None
        with progress_bars(progress) as bars:
            update = bars("images")
            update(0, total)
            for some in batched(answered, batch_size):
                reasons = [found for _, found in some if isinstance(found, str)]
                for reason in reasons if show is print_table else ():
                    log(reason)  # the others have a place for it
                rows = [
                    (path, found if isinstance(found, str) else found[0]) for path, found in some
                ]
                show(rows, *names, not done)
                done, failed = done + len(some), failed + len(reasons)
                update(done, total)
        if not done:
            show([], *names, True)
            raise FairTTAError(NO_IMAGE)
    if failed:
        log(f"{failed} of {done} images could not be used.")
        raise typer.Exit(LEFT_OUT)
