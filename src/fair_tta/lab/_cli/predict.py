"""``fair-tta predict``: classify images."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console
from rich.text import Text
from typing_extensions import override

from fair_tta._io import CsvRows, printable
from fair_tta.errors import ImageError
from fair_tta.lab._cli import options
from fair_tta.lab._cli.console import (
    CANNOT_USE,
    LEFT_OUT,
    exits,
    log,
    progress_bar,
)
from fair_tta.lab._cli.paths import chosen_images
from fair_tta.lab._terminal import NarrowTable
from fair_tta.prediction import Prediction

UNREADABLE = "unreadable"


class Output(Protocol):
    """A way to show predictions."""

    def __init__(self, targets: tuple[str, ...], attributes: tuple[str, ...]) -> None: ...

    def add(self, path: str, answer: Prediction | ImageError) -> None:
        """One more image."""

    def flush(self) -> None:
        """Show what was added."""


class JsonLines(Output):
    """An object per line: ``image``, ``error`` (or null) and the fields of `Prediction`."""

    def __init__(self, targets: tuple[str, ...], attributes: tuple[str, ...]) -> None:
        self._lines: list[str] = []

    @override
    def add(self, path: str, answer: Prediction | ImageError) -> None:
        row: dict[str, object] = {"image": path, "error": None}
        if isinstance(answer, ImageError):
            row["error"] = str(answer)
        else:
            row |= dataclasses.asdict(answer)
        self._lines.append(json.dumps(row, allow_nan=False) + "\n")

    @override
    def flush(self) -> None:
        _write("".join(self._lines))
        self._lines.clear()


class Csv(Output):
    """A row per image, with a column for the probability of each target."""

    def __init__(self, targets: tuple[str, ...], attributes: tuple[str, ...]) -> None:
        self._text = io.StringIO(newline="")
        self._rows = CsvRows(self._text)
        self._targets, self._attributes = targets, attributes
        self._rows.add(
            ["image", "label", "zero-shot label", *(f"p: {target}" for target in targets)]
            + [f"sensitive entropy: {attribute}" for attribute in attributes]
            + ["certified unchanged", "warnings", "error"]
        )

    @override
    def add(self, path: str, answer: Prediction | ImageError) -> None:
        if isinstance(answer, ImageError):
            blank = [""] * (len(self._targets) + len(self._attributes) + 4)
            self._rows.add([path, *blank, str(answer)])
            return
        self._rows.add(
            [path, answer.label, _zero_shot(answer)]
            + [answer.probabilities[target] for target in self._targets]
            + [answer.sensitive_entropy[attribute] for attribute in self._attributes]
            + [str(answer.certified_unchanged).lower(), "; ".join(answer.warnings), ""]
        )

    @override
    def flush(self) -> None:
        _write(self._text.getvalue())
        self._text.seek(0)
        self._text.truncate()


class PredictionTable(Output):
    """Columns whose width does not depend on the rows, which are shown before all are known."""

    def __init__(self, targets: tuple[str, ...], attributes: tuple[str, ...]) -> None:
        self._console = Console()
        if not self._console.is_terminal:
            self._console.width = max(self._console.width, 160)  # a file has room
        self._wide = min(24, max(len(UNREADABLE), *(len(printable(t)) for t in targets)))
        self._attributes = attributes
        self._is_first = True
        self._rows: list[list[Text]] = []

    @override
    def add(self, path: str, answer: Prediction | ImageError) -> None:
        if isinstance(answer, ImageError):
            cells = [UNREADABLE, "", "", *("" for _ in self._attributes), ""]
            self._rows.append([Text(printable(path)), *(Text(c, style="red") for c in cells)])
            return
        entropies = [
            f"{answer.sensitive_entropy_zero_shot[a]:.2f} -> {answer.sensitive_entropy[a]:.2f}"
            for a in self._attributes
        ]
        cells = [
            printable(answer.label), f"{answer.probabilities[answer.label]:.3f}",
            printable(_zero_shot(answer)), *entropies, "changed" if answer.flipped else "",
        ]  # fmt: skip
        self._rows.append([Text(printable(path)), *map(Text, cells)])

    @override
    def flush(self) -> None:
        entropies = [f"entropy of {printable(a)}" for a in self._attributes]
        titles = ["image", "answer", "p", "zero-shot", *entropies, ""]
        texts = (0, 1, 3, len(titles) - 1)
        widths = [self._console.width, self._wide, 5, self._wide, *(12 for _ in entropies), 7]
        self._console.print(NarrowTable(titles, self._rows, "", texts, self._is_first, widths))
        self._rows.clear()
        self._is_first = False


def _zero_shot(answer: Prediction) -> str:
    return max(answer.zero_shot, key=answer.zero_shot.__getitem__)


def _write(text: str) -> None:
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def predict_command(
    context: typer.Context,
    images: options.Images,
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
            "--out",
            help="Folder of finished answers: the same command goes on after a stop.",
            show_default="keep none",
        ),
    ] = None,
    restart: options.Restart = False,
    engine: options.WhichEngine = options.EngineName.LOCAL,
    workers: options.Workers = None,
    cores: options.Cores = 1,
    address: options.Address = None,
    progress: options.ShowProgress = None,
) -> None:
    """Classify images: a table, or --json or --csv on stdout.

    Answers appear batch by batch; with --out they are kept and not computed again. An image or
    folder that cannot be read is listed and does not stop the others; the exit code is then 4.
    """
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv.", param_hint="--json, --csv")
    idle = options.idle_without(engine=engine, reference=reference, out=out, images=images)
    options.refuse_idle(context, idle)

    def stopped() -> str:
        on = "" if out is None else f" {options.GOES_ON}"
        return f"Stopped; {done} images are answered.{on}"

    done = failed = 0
    with exits(context, stopped):
        from fair_tta.lab.folder import NO_IMAGE, predict_images
        from fair_tta.methods._registry import short_name

        method = options.read_adapter(adapter)
        named = {} if adapter is None or method is None else {short_name(adapter): method}
        options.check_reference("--adapter", named, reference)
        classifier = options.make_classifier(context, adapter=method)
        kind: type[Output] = JsonLines if as_json else Csv if as_csv else PredictionTable
        output = kind(classifier.targets, tuple(classifier.sensitive))
        # A bar and a table on the same terminal would write over each other.
        wanted = progress if progress is not None or as_json or as_csv else False
        chosen = chosen_images(context)
        if reference is not None:
            fitted = options.fit_on(
                reference, classifier, named, chosen, reference_is_data, progress
            )
            (method,) = fitted.adapters.values()
            classifier = classifier.with_adapter(method)
        answered = predict_images(
            classifier,
            [classifier.adapter],
            chosen(),
            out,
            engine=options.make_engine(context),
            model=model,
            restart=restart,
            read_ahead="-" not in images,  # whoever types waits for answers
        )
        with progress_bar(wanted, "images") as update:
            for path, predictions in answered:
                done += 1
                if isinstance(predictions, str):
                    failed += 1
                    if kind is PredictionTable:
                        log(printable(predictions))  # the others have a place for it
                    output.add(path, ImageError(predictions))
                else:
                    output.add(path, predictions[0])
                if done % batch_size == 0:
                    output.flush()
                update(done, None)
            output.flush()
    if not done:
        log(f"Error: {NO_IMAGE}")
        raise typer.Exit(CANNOT_USE)
    if failed:
        log(f"{failed} of {done} images could not be used.")
        raise typer.Exit(LEFT_OUT)
