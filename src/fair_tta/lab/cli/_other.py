"""The commands ``app``, ``demo``, ``fit`` and ``report``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fair_tta.errors import FairTTAError
from fair_tta.lab.cli._console import (
    EXIT_LEFT_OUT,
    errors_as_exit_codes,
    log,
    parse_option,
)
from fair_tta.lab.cli._expand import with_shared_options
from fair_tta.lab.cli._inputs import log_fitted, make_classifier
from fair_tta.lab.cli._methods import FittedMethodOption
from fair_tta.lab.cli._options import (
    DEFAULT_VIEWS,
    EncoderOptions,
    ModelOptions,
    PromptOptions,
    SampleOptions,
    ShowProgress,
    ViewCount,
)

if TYPE_CHECKING:
    from fair_tta.methods._base import Adapter
    from fair_tta.miniature._world import MiniatureTask


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
            metavar="N",
            help="Port on this machine.",
            show_default="the first free one from 7860",
        ),
    ] = None,
    share: Annotated[
        bool,
        typer.Option(
            "--share",
            help="Make a public link through Gradio's servers, open to anyone who has it.",
        ),
    ] = False,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = True,
    views: ViewCount = None,
) -> None:
    """Try, examine and audit a model in a browser, on this machine.

    Nothing is sent elsewhere, except with --share. Uploaded files are kept in a temporary folder
    and deleted when Ctrl-C stops the app.
    """
    with errors_as_exit_codes(context):
        from fair_tta.lab import serve

        def ready(url: str) -> None:
            log(f"{url}  (Ctrl-C stops the app and deletes uploaded files)")
            # Without a connection to its servers Gradio returns the local address
            if share and "127.0.0.1" in url:
                log("No public link could be made: the app runs on this machine only.")
            elif share:
                log("This link is public: anyone who has it can use the app.")

        serve(
            model.model_name,
            port=port,
            share=share,
            open_browser=open_browser,
            views=views or DEFAULT_VIEWS,
            device=model.device,
            dtype=model.dtype,
            ready=ready,
        )


@with_shared_options
def demo_command(
    context: typer.Context,
    *,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="HTML file of the report.")
    ] = Path("demo.html"),
    seeds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of seeds.")
    ] = 1,
    one_view: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Images per seed and task, for the methods that use one view.",
        ),
    ] = 2000,
    pictures: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Images of birds per seed, for the methods that use 64 views and take longer.",
        ),
    ] = 32,
    images: SampleOptions,
) -> None:
    """Run every method on the miniature world, offline, and write a report.

    Every run gives the same figures, except for the cost.
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

        logging.disable_progress_bar()  # of loading weights

        def run_methods(
            tasks: Collection[MiniatureTask],
            methods: Mapping[str, Adapter],
            n_images: int,
            unit: str,
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

        # Methods with 64 views take much longer, so they get fewer images of one task
        with demo.one_thread():
            episodes = run_methods(
                TASKS.values(), demo.ONE_VIEW_METHODS, one_view, "images"
            )
            view_episodes = run_methods(
                [BIRDS], demo.VIEW_METHODS, pictures, "images with 64 views"
            )

        # The page begins with the methods that use one view
        audits = demo.audits_by_task(episodes)
        view_audits = demo.audits_by_task(view_episodes)
        table = demo.demo_table([*audits.items(), *view_audits.items()])
        page = demo.demo_page(episodes, audits, view_audits, table)
        write_atomically(out, page.encode())
        print_rich_table(demo.terminal_table(table))
        print_text(demo.DEMO_LEGEND + "\n")
        print_verdict([(name, audit.document) for name, audit in audits.items()])
        print_text(f"The report is in {out}: open it in a browser.")


def _check_file(out: Path) -> None:
    """Raise an error if the path cannot be that of a file."""
    if not out.parent.is_dir():
        raise FairTTAError(
            f"`out` should be in an existing folder (got {str(out)!r}).",
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
            metavar="DIR", help="Folder of reference images.", show_default=False
        ),
    ] = None,
    prompts: PromptOptions,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")],
    encoder: EncoderOptions,
    progress: ShowProgress = None,
) -> None:
    """Fit a method on reference images without labels and save it to a file.

    Use the file as --adapter 'METHOD:reference=FILE', with the same model and the same names. An
    image that cannot be read is listed and does not stop the others; the exit code is then 4.
    """
    encoder.require_one_source(images)
    with errors_as_exit_codes(context, reference="--images"):
        from fair_tta.lab._terminal import progress_bars
        from fair_tta.lab.runs._reference import check_fittable, fit_on_folder
        from fair_tta.methods._reference import Reference
        from fair_tta.methods._registry import parse_adapter

        # Wrong options are refused before the model is loaded
        _check_file(out)
        if out.is_file() and out.stat().st_size and not Reference._is_in(out):
            raise FairTTAError(
                "`out` should be a new file, or one that `fair-tta fit` has written (got "
                f"{str(out)!r}): choose another name.",
                argument="out",
            )
        method = parse_option("--adapter", parse_adapter, adapter)
        methods = {adapter: method}
        parse_option("--adapter", check_fittable, methods)

        # The classifier is zero-shot until the method is fitted
        classifier = make_classifier(prompts.parse(), encoder, adapter=method)
        reference = images if encoder.stored is None else encoder.stored
        assert reference is not None  # `require_one_source` has seen to that
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
        Path,
        typer.Argument(metavar="AUDIT.JSON", help="File that an audit has written."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="File to write: .html for a page, .md for a block of a model card.",
            show_default="beside the audit, .html",
        ),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Open all sections of the page."),
    ] = False,
) -> None:
    """Write the report of a saved audit.

    A page is printed with all sections, even without --full. To show images in it, repeat `fair-tta
    audit` with --embed-images.
    """
    with errors_as_exit_codes(path="--out"):
        from fair_tta.auditing import Audit
        from fair_tta.lab._terminal import print_text
        from fair_tta.lab.report import write_report

        try:
            saved_audit = Audit.load(audit)
        except FairTTAError as error:
            raise FairTTAError(
                f"{str(audit)!r} was not written by an audit: {error}"
            ) from None
        # The audit itself is kept, even if it is called audit.html
        path = audit.with_suffix(".html") if out is None else out
        if path.resolve() == audit.resolve():
            raise FairTTAError(
                f"`--out` should not be the file of the audit (got {str(path)!r})."
            )
        write_report(saved_audit, path, full=full)
        print_text(f"Written to {path}", wrap=False)
