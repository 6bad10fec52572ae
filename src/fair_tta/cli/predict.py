"""``fair-tta predict``: what is on these pictures?"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from fair_tta.cli import options
from fair_tta.cli.console import CANNOT_USE, LEFT_OUT, exits, progress_bar, say, usage
from fair_tta.cli.embedded import embedded_notes
from fair_tta.cli.names import parse_sensitive, parse_targets
from fair_tta.cli.paths import find_pictures
from fair_tta.errors import ImageError

if TYPE_CHECKING:
    from fair_tta.cli.output import Output

PIPE_CLOSED = 141
"""As the shell reports a program that SIGPIPE ended."""


def predict(
    context: typer.Context,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGE",
            help="Pictures, folders of pictures (with subfolders), or - to read paths from stdin.",
        ),
    ],
    targets: options.Targets,
    sensitive: options.Sensitive = [],  # noqa: B006
    template: options.Template = None,
    model: options.Model = "miniature",
    adapter: options.OneAdapter = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object per picture and line.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="A CSV table.")] = False,
    null: Annotated[
        bool, typer.Option("--null", "-0", help="Paths on stdin end with a null character.")
    ] = False,
    seed: options.Seed = 0,
    views: options.ViewCount = 64,
    batch_size: options.BatchSize = 16,
    device: options.Device = None,
    progress: options.ShowProgress = None,
) -> None:
    """Classify pictures: a table, or --json or --csv on stdout.

    Answers appear batch by batch. A picture that cannot be read is listed and does not stop the
    others; the exit code is then 4.
    """
    if as_json and as_csv:
        raise typer.BadParameter("choose one of --json and --csv.", param_hint="--json, --csv")
    with exits(names=options.NAMES):
        from fair_tta.cli.output import Csv, JsonLines, Table
        from fair_tta.folders.tally import shown
        from fair_tta.streaming import Answer, answer_batch, batched

        classifier = options.make_classifier(
            model,
            usage("--targets", parse_targets, targets),
            usage("--sensitive", parse_sensitive, sensitive, "sensitive"),
            template,
            adapter=options.read_adapter(adapter),
            seed=seed,
            views=views,
            batch_size=batch_size,
            device=device,
        )
        for note in embedded_notes(context):
            say(note)
        kind: type[Output] = JsonLines if as_json else Csv if as_csv else Table
        output = kind(classifier.targets, tuple(classifier.sensitive))
        done = failed = 0
        # A bar and a table on the same terminal would write over each other.
        wanted = progress if progress is not None or as_json or as_csv else False
        with progress_bar(wanted, "pictures") as tell:
            for batch in batched(find_pictures(images, null=null), classifier.batch_size):
                answers = answer_batch({"": classifier}, batch)
                for path, answer in zip(batch, answers, strict=True):
                    is_error = isinstance(answer, ImageError)
                    failed += is_error
                    if is_error and kind is Table:
                        say(shown(str(answer)))  # the others have a place for it
                    output.add(
                        path, answer.predictions[""] if isinstance(answer, Answer) else answer
                    )
                _show(output)
                done += len(batch)
                tell(done, None)
    if not done:
        say(
            "Error: no picture was found: name files, folders with files such as .jpg or .png, or "
            "- to read paths from stdin."
        )
        raise typer.Exit(CANNOT_USE)
    if failed:
        say(f"{failed} of {done} pictures could not be used.")
        raise typer.Exit(LEFT_OUT)


def _show(output: Output) -> None:
    """Stop quietly where the reader has enough, as `head` does."""
    try:
        output.flush()
    except (BrokenPipeError, SystemExit):  # rich makes the second of the first
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what Python still holds
        raise typer.Exit(PIPE_CLOSED) from None
