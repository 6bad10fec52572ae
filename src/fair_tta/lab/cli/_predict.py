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
from fair_tta.lab.cli._expand import reject_unused_options, with_shared_options
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

UNREADABLE = "unreadable"
_ANSWER_WIDTH = 14  # two of them leave room for a path in 80 columns

Answered: TypeAlias = "Sequence[tuple[str, Prediction | str]]"
"""Paths of images with their predictions, or why there is none."""

NameSequence = Sequence[str]
Printer: TypeAlias = "Callable[[Answered, NameSequence, NameSequence, bool], None]"


def print_json(
    answered: Answered, targets: NameSequence, attributes: NameSequence, is_first: bool
) -> None:
    """An object per line: ``image``, ``error`` (or null) and the fields of `Prediction`."""
    import json  # help does not wait for it

    lines = []
    for path, answer in answered:
        fields = {} if isinstance(answer, str) else dataclasses.asdict(answer)
        error = answer if isinstance(answer, str) else None
        row = {"image": path, "error": error, **fields}
        lines.append(json.dumps(row, allow_nan=False) + "\n")
    _write("".join(lines))


def print_csv(
    answered: Answered, targets: NameSequence, attributes: NameSequence, is_first: bool
) -> None:
    """A row per image, with a column for the probability of each target."""
    text = io.StringIO(newline="")
    if is_first:
        header = ["image", "label", "zero-shot label"]
        header += [f"p: {target}" for target in targets]
        header += [f"sensitive entropy: {attribute}" for attribute in attributes]
        write_csv_row(text, [*header, "certified unchanged", "warnings", "error"])
    for path, answer in answered:
        if isinstance(answer, str):
            n_empty = len(targets) + len(attributes) + 4
            write_csv_row(text, [path, *[""] * n_empty, answer])
            continue
        cells: list[object] = [path, answer.label, _zero_shot_label(answer)]
        cells += [answer.probabilities[target] for target in targets]
        cells += [answer.sensitive_entropy[attribute] for attribute in attributes]
        cells += [
            str(answer.certified_unchanged).lower(),
            "; ".join(answer.warnings),
            "",
        ]
        write_csv_row(text, cells)
    _write(text.getvalue())


def print_table(
    answered: Answered, targets: NameSequence, attributes: NameSequence, is_first: bool
) -> None:
    """Columns whose width does not depend on the rows, which are shown before all are known."""
    from rich import box
    from rich.table import Column, Table
    from rich.text import Text

    from fair_tta.lab._terminal import print_rich_table

    longest = max(len(UNREADABLE), *(len(printable(target)) for target in targets))
    answer_width = min(_ANSWER_WIDTH, longest)
    columns = [
        Column("image", ratio=1, overflow="fold"),
        Column("answer", width=answer_width, overflow="fold"),
        Column("p", width=len("0.123"), justify="right"),
        Column("zero-shot", width=answer_width, overflow="fold"),
    ]
    if attributes:
        title = (
            f"entropy of {printable(attributes[0])}"
            if len(attributes) == 1
            else "entropy of"
        )
        width = len("0.00 -> 1.00")
        columns.append(
            Column(Text(title), width=width, justify="right", overflow="fold")
        )
    columns.append(Column("", width=len("changed")))
    table = Table(
        *columns, box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False, expand=True,
        show_header=is_first,
    )  # fmt: skip
    for path, answer in answered:
        if isinstance(answer, str):
            table.add_row(Text(printable(path)), Text(UNREADABLE, style="red"))
            continue
        cells = [
            printable(path),
            printable(answer.label),
            f"{answer.probabilities[answer.label]:.3f}",
            printable(_zero_shot_label(answer)),
        ]
        if attributes:
            cells.append(_entropy_cell(answer, attributes))
        cells.append("changed" if answer.flipped else "")
        table.add_row(*[Text(cell) for cell in cells])
    print_rich_table(table)


def _entropy_cell(answer: Prediction, attributes: NameSequence) -> str:
    """Return the entropy of each attribute before and after, with names if there are several."""
    lines = []
    for attribute in attributes:
        if len(attributes) > 1:
            lines.append(printable(attribute))
        before = answer.sensitive_entropy_zero_shot[attribute]
        after = answer.sensitive_entropy[attribute]
        lines.append(f"{before:.2f} -> {after:.2f}")
    return "\n".join(lines)


def _zero_shot_label(answer: Prediction) -> str:
    """Return the label of the zero-shot answer."""
    return max(answer.zero_shot, key=answer.zero_shot.__getitem__)


def _write(text: str) -> None:
    """Write to stdout at once, with the ends of lines that the text has."""
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


@with_shared_options
def predict_command(
    context: typer.Context,
    *,
    images: ImageOptions,
    prompts: PromptOptions,
    adapter: PredictionMethodOption = None,
    reference_set: ReferenceOptions,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per image and line.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A CSV table.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of finished answers: the same command goes on after a stop.",
            show_default="keep none",
        ),
    ] = None,
    encoder: ViewEncoderOptions,
    run: RunOptions,
) -> None:
    """Classify images: a table, or --json or --csv on stdout.

    Answers appear batch by batch; with --out they are kept and not computed again. An image or
    folder that cannot be read is listed and does not stop the others; the exit code is then 4.
    """
    if as_json and as_csv:
        raise typer.BadParameter(
            "choose one of --json and --csv.", param_hint="--json, --csv"
        )
    reject_unused_options(
        context,
        encoder.unused(bool(images.images)),
        reference_set.unused(),
        run.unused(out),
        images.unused(),
    )
    n_done = 0
    n_failed = 0

    def stopped() -> str:
        text = f"Stopped; {n_done} images are answered."
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
            context,
            prompts.read(),
            encoder,
            adapter=method,
            seed=encoder.seed,
            views=encoder.views,
        )

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

        answers = predict_images(
            classifier,
            [classifier.adapter],
            list_images(),
            out,
            engine=Local(run.workers),
            model=encoder.loadable_model,
            restart=run.restart,
            read_ahead=not images.has_stdin,  # people who type wait for answers
        )
        print_answers: Printer = print_table
        if as_json:
            print_answers = print_json
        elif as_csv:
            print_answers = print_csv
        attributes = tuple(classifier.sensitive)

        # Counting all images first is worth it only if somebody sees the total
        shows_progress = sys.stderr.isatty() if run.progress is None else run.progress
        total = None
        if shows_progress and not images.has_stdin:
            total = sum(1 for _ in list_images())
        with progress_bars(run.progress) as bars:
            update = bars("images")
            update(0, total)
            for batch in batched(answers, classifier._batch_size):
                answered: list[tuple[str, Prediction | str]] = []
                for path, answer in batch:
                    if not isinstance(answer, str):
                        answered.append((path, answer[0]))
                        continue
                    n_failed += 1
                    answered.append((path, answer))
                    if print_answers is print_table:
                        log(answer)  # the other formats have a field for it
                print_answers(answered, classifier.targets, attributes, n_done == 0)
                n_done += len(batch)
                update(n_done, total)
        if n_done == 0:
            print_answers([], classifier.targets, attributes, True)
            raise FairTTAError(NO_IMAGE_FOUND)
    if n_failed:
        log(f"{n_failed} of {n_done} images could not be used.")
    if n_failed or encoder.has_left_out:
        raise typer.Exit(EXIT_LEFT_OUT)
