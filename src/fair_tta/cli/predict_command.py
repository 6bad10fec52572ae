"""``fair-tta predict``: what is on these pictures?"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fair_tta.cli import options
from fair_tta.cli.console import CANNOT_USE, LEFT_OUT, exits, progress_bar, say, usage
from fair_tta.cli.embedded import embedded_notes
from fair_tta.cli.paths import (
    NO_PICTURE,
    as_named,
    asked_picture,
    chosen_pictures,
    closed_folder,
    rows_file,
)
from fair_tta.errors import ImageError
from fair_tta.text.written_names import sensitive_option, targets_option
from fair_tta.vision.files import Unlisted

if TYPE_CHECKING:
    from fair_tta.cli.prediction_output import Output


def predict_command(
    context: typer.Context,
    images: options.Pictures,
    targets: options.TargetsOption,
    sensitive: options.SensitiveOption = [],  # noqa: B006
    template: options.Template = None,
    model: options.Model = "miniature",
    adapter: options.OneAdapter = None,
    reference: options.ReferenceDir = None,
    reference_is_data: options.ReferenceIsData = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per picture and line.")
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
    """Classify pictures: a table, or --json or --csv on stdout.

    Answers appear batch by batch; with --out they are kept and not computed again. A picture or
    folder that cannot be read is listed and does not stop the others; the exit code is then 4.
    """
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv.", param_hint="--json, --csv")
    idle = options.idle_without(engine=engine, reference=reference, out=out, images=images)
    options.refuse_idle(context, idle)

    def stopped() -> str:
        on = "" if out is None else f" {options.GOES_ON}"
        return f"Stopped; {done} pictures are answered.{on}"

    done = failed = 0
    with exits(stopped, options.option_names(context)):
        from fair_tta.adapters.text_form import short_name
        from fair_tta.cli.prediction_output import Csv, JsonLines, PredictionTable
        from fair_tta.data.csv_rows import printable
        from fair_tta.runs.answer import to_prediction
        from fair_tta.runs.job import job_of
        from fair_tta.runs.runner import Runner
        from fair_tta.runs.store import Store

        method = options.read_adapter(adapter)
        named = {} if adapter is None or method is None else {short_name(adapter): method}
        options.check_reference("--adapter", named, reference)
        classifier = options.make_classifier(
            model,
            usage("--targets", targets_option, targets),
            usage("--sensitive", sensitive_option, sensitive, "sensitive"),
            template,
            adapter=method,
            seed=seed,
            views=views,
            batch_size=batch_size,
            device=device,
            dtype=dtype,
        )
        for note in embedded_notes(context):
            say(note)
        kind: type[Output] = JsonLines if as_json else Csv if as_csv else PredictionTable
        output = kind(classifier.targets, tuple(classifier.sensitive))
        # A bar and a table on the same terminal would write over each other.
        wanted = progress if progress is not None or as_json or as_csv else False
        chosen = chosen_pictures(
            images, null=null, limit=limit, sample=sample, seed=seed, often=reference is not None
        )
        if reference is not None:
            fitted = options.fit_on(
                reference, classifier, named, chosen, reference_is_data, progress
            )
            (method,) = fitted.adapters.values()
            classifier = classifier.with_adapter(method)
        with (
            progress_bar(wanted, "pictures") as tell,
            nullcontext() if out is None else Store(rows_file(out), restart=restart) as store,
        ):
            runner = Runner(
                job_of(classifier, [classifier.adapter], model, is_kept=out is not None),
                options.make_engine(engine, workers, cores, address),
                store,
            )
            size, is_typed = classifier.batch_size, "-" in images  # whoever types waits for answers
            answered = runner.stream(
                chosen(), asked_picture, size=size, seed=seed, read_ahead=not is_typed
            )
            for item, answers in answered:
                done += 1
                path = item.path if isinstance(item, Unlisted) else item
                if isinstance(item, Unlisted):
                    answers = closed_folder(item)
                if isinstance(answers, str):
                    answers = as_named(answers, path)
                    failed += 1
                    if kind is PredictionTable:
                        say(printable(answers))  # the others have a place for it
                    output.add(path, ImageError(answers))
                else:
                    (answer,) = answers
                    output.add(
                        path, to_prediction(answer, classifier.targets, classifier.sensitive)
                    )
                if done % size == 0:
                    output.flush()
                tell(done, None)
            output.flush()
    if not done:
        say(f"Error: {NO_PICTURE}")
        raise typer.Exit(CANNOT_USE)
    if failed:
        say(f"{failed} of {done} pictures could not be used.")
        raise typer.Exit(LEFT_OUT)
