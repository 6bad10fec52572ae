"""The small commands: app, demo, fit, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fair_tta.errors import FairTTAError
from fair_tta.lab.cli._console import (
    EXIT_LEFT_OUT,
    errors_as_exit_codes,
    log,
    parse_option,
)
from fair_tta.lab.cli._expand import reject_unused_options, with_shared_options
from fair_tta.lab.cli._inputs import log_fitted, make_classifier
from fair_tta.lab.cli._methods import FittedMethodOption
from fair_tta.lab.cli._options import (
    EncoderOptions,
    ModelOptions,
    PromptOptions,
    SampleOptions,
    ShowProgress,
    ViewCount,
)


@with_shared_options
def app_command(
    context: typer.Context,
    *,
    model: ModelOptions,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Of this machine.",
            show_default="a free one from 7860",
        ),
    ] = None,
    share: Annotated[
        bool,
        typer.Option(
            "--share",
            help="A public link through Gradio's servers: whoever knows it gets in.",
        ),
    ] = False,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = True,
    views: ViewCount = 64,
) -> None:
    """Try, examine and audit in a browser, on this machine; Ctrl-C ends it.

    Nothing is sent anywhere. What is uploaded lies in a temporary folder and is deleted at the end.
    """
    with errors_as_exit_codes(context):
        from fair_tta.lab import serve

        def ready(url: str) -> None:
            log(f"{url}  (Ctrl-C ends it and deletes what was uploaded)")
            if share and "127.0.0.1" in url:
                log("No public link could be made: the app is on this machine only.")
            elif share:
                log("This link is public: whoever knows it may use the app.")

        serve(
            model.model,
            port=port,
            share=share,
            open_browser=open_browser,
            views=views,
            device=model.device,
            dtype=model.dtype,
            ready=ready,
        )


@with_shared_options
def demo_command(
    context: typer.Context,
    *,
    out: Annotated[Path, typer.Option(help="HTML file for the report.")] = Path(
        "demo.html"
    ),
    seeds: Annotated[int, typer.Option(min=1, help="How many, >= 0.")] = 1,
    one_view: Annotated[
        int,
        typer.Option(
            min=1, help="Images for each seed and task, for methods with one view."
        ),
    ] = 2000,
    pictures: Annotated[
        int,
        typer.Option(
            min=1,
            help="For each seed, of birds, for methods with views: they take longer.",
        ),
    ] = 32,
    images: SampleOptions,
) -> None:
    """Run every method on the miniature world, offline, and write a report.

    The same numbers come out each time, but for the cost.
    """
    from fair_tta.lab._terminal import print_rich_table, print_text, progress_bars

    with errors_as_exit_codes(context), progress_bars(None) as bars:
        _check_file(out)
        from transformers.utils import logging

        from fair_tta._io import write_atomically
        from fair_tta.lab import _demo as demo
        from fair_tta.lab.cli._tables import print_verdict
        from fair_tta.miniature import BIRDS
        from fair_tta.miniature._world import TASKS

        logging.disable_progress_bar()  # one bar is enough

        def play(
            tasks: Any, methods: Any, n_images: int, unit: str
        ) -> list[demo.Episode]:
            episodes = demo.run_episodes(
                tasks,
                methods,
                seeds=range(seeds),
                images=n_images,
                limit=images.limit,
                sample=images.sample,
                progress=bars(unit),
            )
            return list(episodes)

        with demo.one_thread():
            episodes = play(TASKS.values(), demo.ONE_VIEW_METHODS, one_view, "images")
            few = play([BIRDS], demo.VIEW_METHODS, pictures, "images with 64 views")
        audits = demo.audits_by_task(episodes)
        with_views = demo.audits_by_task(few)
        table = demo.demo_table([*audits.items(), *with_views.items()])
        write_atomically(
            out, demo.demo_page(episodes, audits, with_views, table).encode()
        )
        print_rich_table(demo.terminal_table(table))
        print_text(demo.DEMO_LEGEND + "\n")
        print_verdict([(name, audit.document) for name, audit in audits.items()])
        print_text(f"The report is in {out}: open it in a browser.")


def _check_file(out: Path) -> None:
    """Raise `FairTTAError` if a file cannot be written there."""
    if not out.parent.is_dir():
        raise FairTTAError(
            f"`out` should be in a folder that exists (got {str(out)!r}).",
            argument="out",
        )
    if out.is_dir():
        raise FairTTAError(
            f"`out` should be a file, not a folder (got {str(out)!r}).", argument="out"
        )


@with_shared_options
def fit_command(
    context: typer.Context,
    *,
    adapter: FittedMethodOption,
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the reference images.", show_default=False
        ),
    ] = None,
    prompts: PromptOptions,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")],
    encoder: EncoderOptions,
    progress: ShowProgress = None,
) -> None:
    """Fit a method on reference images without labels and write it to a file.

    The file is used as --adapter 'METHOD:reference=FILE', with the same model and the same names.
    An image that cannot be read is listed and does not stop the others; the exit code is then 4.
    """
    reject_unused_options(context, encoder.unused(images is not None))
    with errors_as_exit_codes(context, reference="--images"):
        from fair_tta.lab._terminal import progress_bars
        from fair_tta.lab.runs._reference import check_fittable, fit_on_folder
        from fair_tta.methods._reference import Reference
        from fair_tta.methods._registry import parse_adapter

        # Wrong options are refused before the model is loaded
        _check_file(out)
        if out.is_file() and out.stat().st_size and not Reference._is_in(out):
            raise FairTTAError(
                f"`out` should be a new file, or one of `fair-tta fit` (got {str(out)!r}, which is "
                "something else): choose another name.",
                argument="out",
            )
        method = parse_option("--adapter", parse_adapter, adapter)
        methods = {adapter: method}
        parse_option("--adapter", check_fittable, methods)

        classifier = make_classifier(context, prompts.read(), encoder, adapter=method)
        reference: Any = encoder.stored or images
        with progress_bars(progress) as bars:
            fitted = fit_on_folder(
                classifier, methods, reference, progress=bars("images")
            )
        (fitted_method,) = fitted.adapters.values()
        classifier.with_adapter(fitted_method).save(out)
        log_fitted(fitted)
        log(f"Written: {str(out)!r}.")
    if fitted.left_out:
        raise typer.Exit(EXIT_LEFT_OUT)


def report_command(
    audit: Annotated[
        Path, typer.Argument(metavar="AUDIT.JSON", help="What an audit has written.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to: .html for a page, .md for a block of a model card.",
            show_default="beside the audit, .html",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Open all sections that are folded otherwise."),
    ] = False,
) -> None:
    """Write the report of an audit; to embed images, repeat `fair-tta audit` with --embed-images.

    Printed, a page is complete in either case.
    """
    with errors_as_exit_codes(path="--out"):
        from fair_tta.auditing import Audit
        from fair_tta.lab._terminal import print_text
        from fair_tta.lab.report import write_report

        try:
            found = Audit.load(audit)
        except FairTTAError as error:
            raise FairTTAError(
                f"{str(audit)!r} is not what an audit has written: {error}"
            ) from None
        path = audit.with_suffix(".html") if out is None else out
        if path.resolve() == audit.resolve():
            raise FairTTAError(
                f"`--out` should be another file than the audit (got {str(path)!r})."
            )
        write_report(found, path, full=full)
        print_text(f"Written to {path}", wrap=False)
