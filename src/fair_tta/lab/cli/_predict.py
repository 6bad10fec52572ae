"""``fair-tta predict``: classify images."""

from __future__ import annotations

import dataclasses
import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from fair_tta._io import printable, write_csv_row
from fair_tta.errors import FairTTAError
from fair_tta.lab.cli._console import (
    EXIT_LEFT_OUT,
    errors_as_exit_codes,
    log,
    parse_option,
)
from fair_tta.lab.cli._expand import with_shared_options
from fair_tta.lab.cli._inputs import (
    RESUME_HINT,
    check_methods,
    image_lister,
    log_fitted,
    make_classifier,
)
from fair_tta.lab.cli._methods import PredictionMethodOption
from fair_tta.lab.cli._options import (
    ImageOptions,
    PromptOptions,
    ReferenceOptions,
    RunOptions,
    ViewEncoderOptions,
)

if TYPE_CHECKING:
    from fair_tta.prediction import Prediction

_UNREADABLE = "unreadable"
_MAX_LABEL_WIDTH = 14  # two columns of labels leave room for a path in 80 columns

Results: TypeAlias = "Sequence[tuple[str, Prediction | str]]"
"""Paths of images with their predictions, or with the reasons why there is none."""

Names: TypeAlias = Sequence[str]
ResultsPrinter: TypeAlias = "Callable[[Results, Names, Names, bool], None]"
"""A function that prints the results of a batch, for the targets and attributes; the last argument
is True for the first batch.
"""


def print_json_lines(
    results: Results, targets: Names, attributes: Names, is_first: bool
) -> None:
    """Print an object per line: ``image``, ``error`` (or null) and the fields of `Prediction`."""
    import json  # help does not wait for it

    lines = []
    for path, result in results:
        row: dict[str, object] = {"image": path, "error": None}
        if isinstance(result, str):
            row["error"] = result
        else:
            row |= dataclasses.asdict(result)
        lines.append(json.dumps(row, allow_nan=False) + "\n")
    _write("".join(lines))


def print_csv_rows(
    results: Results, targets: Names, attributes: Names, is_first: bool
) -> None:
    """Print a row per image, with a column for the probability of each target."""
    text = io.StringIO(newline="")
    if is_first:
        header = ["image", "label", "zero-shot label"]
        header += [f"p: {target}" for target in targets]
        header += [f"sensitive entropy: {attribute}" for attribute in attributes]
        write_csv_row(text, [*header, "certified unchanged", "warnings", "error"])
    for path, result in results:
        if isinstance(result, str):
            # Only the path and the error; between them label, zero-shot label, targets,
            # attributes, certificate and warnings are empty
            n_empty = len(targets) + len(attributes) + 4
            write_csv_row(text, [path, *[""] * n_empty, result])
            continue
        cells: list[object] = [path, result.label, _zero_shot_label(result)]
        cells += [result.probabilities[target] for target in targets]
        cells += [result.sensitive_entropy[attribute] for attribute in attributes]
        cells.append("true" if result.certified_unchanged else "false")
        cells.append("; ".join(result.warnings))
        cells.append("")  # no error
        write_csv_row(text, cells)
    _write(text.getvalue())


def print_table_rows(
    results: Results, targets: Names, attributes: Names, is_first: bool
) -> None:
    """Print a table whose widths do not depend on the rows, which arrive batch by batch."""
    from rich import box
    from rich.table import Column, Table
    from rich.text import Text

    from fair_tta.lab._terminal import print_rich_table

    widths = [len(printable(target)) for target in targets]
    label_width = min(_MAX_LABEL_WIDTH, max(len(_UNREADABLE), *widths))
    columns = [
        Column("image", ratio=1, overflow="fold"),
        Column("answer", width=label_width, overflow="fold"),
        Column("p", width=len("0.123"), justify="right"),
        Column("zero-shot", width=label_width, overflow="fold"),
    ]
    if attributes:
        # With several attributes their names stand in the cells
        title = "entropy of"
        if len(attributes) == 1:
            title += f" {printable(attributes[0])}"
        width = len("0.00 -> 1.00")
        columns.append(
            Column(Text(title), width=width, justify="right", overflow="fold")
        )
    # Widths are fixed, except that of paths, so that the tables of all batches line up
    columns.append(Column("", width=len("changed")))
    table = Table(
        *columns,
        box=box.SIMPLE_HEAD,
        padding=0,
        pad_edge=False,
        show_edge=False,
        expand=True,
        show_header=is_first,
    )
    for path, result in results:
        if isinstance(result, str):
            table.add_row(Text(printable(path)), Text(_UNREADABLE, style="red"))
            continue
        cells = [
            printable(path),
            printable(result.label),
            f"{result.probabilities[result.label]:.3f}",
            printable(_zero_shot_label(result)),
        ]
        if attributes:
            cells.append(_entropy_cell(result, attributes))
        cells.append("changed" if result.flipped else "")
        table.add_row(*[Text(cell) for cell in cells])
    print_rich_table(table)


def _entropy_cell(prediction: Prediction, attributes: Names) -> str:
    """Return the entropy of each attribute before and after, with names if there are several."""
    lines = []
    for attribute in attributes:
        if len(attributes) > 1:
            lines.append(printable(attribute))
        before = prediction.sensitive_entropy_zero_shot[attribute]
        after = prediction.sensitive_entropy[attribute]
        lines.append(f"{before:.2f} -> {after:.2f}")
    return "\n".join(lines)


def _zero_shot_label(prediction: Prediction) -> str:
    probabilities = prediction.zero_shot
    return max(probabilities, key=probabilities.__getitem__)


def _write(text: str) -> None:
    """Write to stdout at once, without changing the ends of lines."""
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


@with_shared_options
def predict_command(
    context: typer.Context,
    *,
    prompts: PromptOptions,
    adapter: PredictionMethodOption = None,
    reference_set: ReferenceOptions,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print a JSON object per image, on its own line."),
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for predictions; the same command resumes from there.",
            show_default="save nothing",
        ),
    ] = None,
    images: ImageOptions,
    encoder: ViewEncoderOptions,
    run: RunOptions,
) -> None:
    """Classify images and print a table, JSON or CSV.

    Predictions are printed batch by batch; with --out they are saved and not computed again. An
    image or folder that cannot be read is listed and does not stop the others; the exit code is
    then 4.
    """
    if as_json and as_csv:
        raise typer.BadParameter(
            "choose one of --json and --csv.", param_hint="--json, --csv"
        )
    encoder.require_one_source(images.images)
    run.require_out(out)
    n_done = 0
    n_failed = 0

    def stopped() -> str:
        text = f"Stopped; {n_done} images are classified."
        return text if out is None else f"{text} {RESUME_HINT}"

    with errors_as_exit_codes(context, stopped):
        from fair_tta.lab._terminal import progress_bars
        from fair_tta.lab._unlabelled import (
            NO_IMAGE_FOUND,
            image_sources,
            predict_images,
        )
        from fair_tta.lab.runs._local import Local
        from fair_tta.lab.runs._reference import fit_adapters
        from fair_tta.lab.runs._runner import batched
        from fair_tta.methods._registry import parse_adapter, short_name

        # Wrong options are refused before the model is loaded
        if adapter is None:
            adapter = "association-correction" if prompts.sensitive else "zero-shot"
        method = parse_option("--adapter", parse_adapter, adapter)
        named = {short_name(adapter): method}
        reference = reference_set.reference
        check_methods("--adapter", named, encoder.features, reference, in_folds=False)
        classifier = make_classifier(
            prompts.parse(),
            encoder,
            adapter=method,
            seed=encoder.seed,
            views=encoder.views,
        )

        # The reference is compared with the images, which are therefore read twice
        list_images = image_lister(images, encoder, is_read_twice=reference is not None)
        if reference is not None:
            with progress_bars(run.progress) as bars:
                fitted = fit_adapters(
                    classifier,
                    named,
                    reference,
                    lambda: image_sources(list_images()),
                    reference_is_data=reference_set.reference_is_data,
                    progress=bars("reference images"),
                )
            log_fitted(fitted)
            (method,) = fitted.adapters.values()
            classifier = classifier.with_adapter(method)

        # Results are printed as they arrive, and saved in --out
        answers = predict_images(
            classifier,
            [classifier.adapter],
            list_images(),
            out,
            engine=Local(run.workers),
            model=encoder.loadable_model,
            restart=run.restart,
            # People who type paths wait for the answer to each line
            read_ahead=not images.has_stdin,
        )
        print_results: ResultsPrinter = print_table_rows
        if as_json:
            print_results = print_json_lines
        elif as_csv:
            print_results = print_csv_rows
        attributes = tuple(classifier.sensitive)

        # Counting all images first is worth it only if someone sees the total
        shows_progress = sys.stderr.isatty() if run.progress is None else run.progress
        total = None
        if shows_progress and not images.has_stdin:
            total = sum(1 for _ in list_images())
        with progress_bars(run.progress) as bars:
            update = bars("images")
            update(0, total)
            for batch in batched(answers, classifier._batch_size):
                results: list[tuple[str, Prediction | str]] = []
                for path, answer in batch:
                    if isinstance(answer, str):
                        n_failed += 1
                        results.append((path, answer))
                        if print_results is print_table_rows:
                            log(answer)  # the other formats have a field for it
                    else:
                        (prediction,) = answer
                        results.append((path, prediction))
                print_results(results, classifier.targets, attributes, n_done == 0)
                n_done += len(batch)
                update(n_done, total)
        if n_done == 0:
            # Programs that read the output find its header
            print_results([], classifier.targets, attributes, True)
            raise FairTTAError(NO_IMAGE_FOUND)
    if n_failed:
        log(f"{n_failed} of {n_done} images could not be used.")
    if n_failed or encoder.has_left_out:
        raise typer.Exit(EXIT_LEFT_OUT)
