"""``fair-tta examine``: what can be seen without labels?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from fair_tta._io import Unlisted
from fair_tta.errors import FairTTAError
from fair_tta.lab._cli import options
from fair_tta.lab._cli.console import LEFT_OUT, embedded_notes, exits, progress_bar, say, usage
from fair_tta.lab._cli.names import sensitive_option, targets_option
from fair_tta.lab._cli.paths import (
    NO_PICTURE,
    as_named,
    chosen_pictures,
    closed_folder,
    image_source,
    rows_file,
)

EXAMINATION, PAGE = "examine.json", "examine.html"


def examine_command(
    context: typer.Context,
    images: options.Pictures,
    targets: options.TargetsOption,
    sensitive: options.SensitiveOption,
    template: options.Template = None,
    model: options.Model = "miniature",
    adapters: Annotated[
        list[str],
        typer.Option(
            "--adapters",
            metavar="METHODS",
            help="Methods to try, with commas between them, written as for `fair-tta predict "
            "--adapter`; each is compared with zero-shot.",
            show_default="none, look only",
            autocompletion=options.complete_adapters,
        ),
    ] = [],  # noqa: B006
    reference: options.ReferenceDir = None,
    reference_is_data: options.ReferenceIsData = False,
    as_json: Annotated[bool, typer.Option("--json", help="The examination as JSON.")] = False,
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
            help=f"Folder for {EXAMINATION}, {PAGE} and finished answers: the same command goes on "
            "after a stop.",
            show_default="keep none",
        ),
    ] = None,
    no_pictures: Annotated[
        bool,
        typer.Option(
            "--no-pictures", help=f"No pictures, nor their names, in {PAGE}.", show_default=False
        ),
    ] = False,
    restart: options.Restart = False,
    engine: options.WhichEngine = options.EngineName.LOCAL,
    workers: options.Workers = None,
    cores: options.Cores = 1,
    address: options.Address = None,
    progress: options.ShowProgress = None,
) -> None:
    """Look at pictures without labels: what the model perceives, and what methods would change.

    It is the model's own perception, not a measurement on people. A picture or folder that cannot
    be read is listed and does not stop the others; the exit code is then 4.
    """
    idle = options.idle_without(engine=engine, reference=reference, out=out, images=images)
    options.refuse_idle(context, idle)

    def stopped() -> str:
        return "Stopped." if out is None else f"Stopped. {options.GOES_ON}"

    with exits(stopped, options.option_names(context)):
        from fair_tta._io import printable
        from fair_tta.auditing._examine import examine_answers
        from fair_tta.lab._cli.tables import print_examination
        from fair_tta.lab._runs.job import job_of
        from fair_tta.lab._runs.runner import Runner
        from fair_tta.lab._runs.store import ROWS, Store
        from fair_tta.methods import ZeroShot
        from fair_tta.prediction import Prediction

        methods = options.read_adapters(adapters) if adapters else {}
        options.check_reference("--adapters", methods, reference)
        classifier = options.make_classifier(
            model,
            usage("--targets", targets_option, targets),
            usage("--sensitive", sensitive_option, sensitive, "sensitive"),
            template,
            adapter=ZeroShot(),
            seed=seed,
            views=views,
            batch_size=batch_size,
            device=device,
            dtype=dtype,
        )
        notes = embedded_notes(context)
        for note in notes:
            say(note)
        chosen = chosen_pictures(
            images, null=null, limit=limit, sample=sample, seed=seed, often=reference is not None
        )
        fitted = options.fit_on(reference, classifier, methods, chosen, reference_is_data, progress)
        methods, notes = dict(fitted.adapters), [*notes, *fitted.notes]
        notes += [f"Not all pictures were used: {name} {number}." for name, number in
                (("the first", limit), ("a sample of", sample)) if number is not None]  # fmt: skip
        left_out: list[str] = []
        with (
            progress_bar(progress, "pictures") as tell,
            nullcontext() if out is None else Store(rows_file(out), restart=restart) as store,
        ):
            runner = Runner(
                job_of(classifier, [ZeroShot(), *methods.values()], model, is_kept=bool(out)),
                options.make_engine(engine, workers, cores, address),
                store,
            )
            answered = runner.stream(
                chosen(),
                image_source,
                size=classifier.batch_size,
                seed=seed,
                read_ahead="-" not in images,
            )

            def answers() -> Iterator[tuple[str, str, list[Prediction]]]:
                done = failed = 0
                for done, (item, found) in enumerate(answered, start=1):
                    path = item.path if isinstance(item, Unlisted) else item
                    if isinstance(item, Unlisted):
                        found = closed_folder(item)
                    if isinstance(found, str):
                        failed += 1
                        say(printable(as_named(found, path)))
                    else:
                        short_name = printable(str(Path(*Path(path).parts[-2:])))
                        yield short_name, path, [row.prediction for row in found]
                    tell(done, None)
                if failed == done:
                    raise FairTTAError("no picture could be used." if done else NO_PICTURE)
                if failed:
                    left_out.append(f"{failed} of {done} pictures could not be used.")
                    notes.extend(left_out)

            examination = examine_answers(
                classifier,
                methods,
                answers(),
                provenance={"reference": fitted.provenance} if fitted.provenance else {},
                notes=notes,
                images=out is not None and not no_pictures,
                seed=seed,
            )
        if out is not None:
            examination.save(out / EXAMINATION)
            examination.save_html(out / PAGE)
        if as_json:
            typer.echo(examination.to_json())
        else:
            print_examination(examination)
            if out is not None:
                typer.echo(f"Written to {printable(str(out))}: {EXAMINATION}, {PAGE}, {ROWS}")
    for sentence in left_out:
        say(sentence)
    if left_out:
        raise typer.Exit(LEFT_OUT)
