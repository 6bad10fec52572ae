"""The small commands: adapters, app, demo, fit, report."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from fair_tta.errors import FairTTAError
from fair_tta.lab.cli import _options as options
from fair_tta.lab.cli._console import LEFT_OUT, exits, log, usage

_NEEDS = {
    "sensitive": "--sensitive",
    "views": "views",
    "prompt_gradient": "prompt gradient",
    "reference": "reference",
    "labels": "its labels",
    "class_labels": "its classes",
    "values": "true values",
    "pixels": "images",
}  # of methods, and what they are called


def adapters_command() -> None:
    """List the methods: what they do, what they need, and their settings with defaults.

    Settings are written after a colon: fair-tpt:lam=10,rate.beta=0.05. A plus sign projects after
    tuning: fair-tpt+orthcali:lam=0. What needs a reference has it from --reference DIR, or from a
    file of `fair-tta fit`: logit-balance:reference=FILE. A user-defined method is written
    my_file.py:MyMethod; the file is run.
    """
    from fair_tta.lab._terminal import show
    from fair_tta.methods._registry import ADAPTERS, describe_settings

    for name, kind in ADAPTERS.items():
        needed = kind().needs
        needs = [what for name, what in _NEEDS.items() if getattr(needed, name)]
        described = [*describe_settings(kind)]
        described += [("reference", "FILE")] * needed.reference
        settings = ", ".join(f"{key}={value}" for key, value in described)
        show(name, "bold")
        for line in (
            inspect.cleandoc(kind.__doc__ or "").splitlines()[0],
            f"Needs: {', '.join(needs) or 'nothing'}.",
            f"Settings: {settings or 'none'}",
        ):
            show(line, indent=4)
    show(
        "Cost, against a plain zero-shot call: about 1.0 times without views; with views as many "
        "times as there are (--views, 64 by default) or less, as they are encoded together. "
        "`fair-tta audit` and `fair-tta demo` report what they measured."
    )


def app_command(
    context: typer.Context,
    model: options.Model = "miniature",
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65535, help="Of this machine.", show_default="a free one from 7860"
        ),
    ] = None,
    share: Annotated[
        bool,
        typer.Option(
            "--share", help="A public link through Gradio's servers: whoever knows it gets in."
        ),
    ] = False,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in a browser.")
    ] = True,
    views: options.ViewCount = 64,
    device: options.Device = None,
    dtype: options.Precision = None,
) -> None:
    """Try, examine and audit in a browser, on this machine; Ctrl-C ends it.

    Nothing is sent anywhere. What is uploaded lies in a temporary folder and is deleted at the end.
    """
    with exits(context):
        from fair_tta.lab import serve

        def ready(url: str) -> None:
            log(f"{url}  (Ctrl-C ends it and deletes what was uploaded)")
            if share and "127.0.0.1" in url:
                log("No public link could be made: the app is on this machine only.")
            elif share:
                log("This link is public: whoever knows it may use the app.")

        serve(
            model,
            port=port,
            share=share,
            open_browser=open_browser,
            views=views,
            device=device,
            dtype=dtype,
            ready=ready,
        )


def demo_command(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="HTML file for the report.")] = Path("demo.html"),
    seeds: Annotated[int, typer.Option(min=1, help="How many, from 0 on.")] = 1,
    one_view: Annotated[
        int, typer.Option(min=1, help="Images for each seed and task, for methods with one view.")
    ] = 2000,
    pictures: Annotated[
        int,
        typer.Option(
            min=1, help="For each seed, of birds, for methods with views: they take longer."
        ),
    ] = 32,
    limit: options.Limit = None,
    sample: options.Sample = None,
) -> None:
    """Run every method on the miniature world, offline, and write a report.

    The same numbers come out each time, but for the cost.
    """
    from fair_tta.lab._terminal import progress_bars, show

    with exits(context), progress_bars(None) as bars:
        _check_file(out)
        from transformers.utils import logging

        from fair_tta._io import write_whole
        from fair_tta.lab import _demo as demo
        from fair_tta.lab.cli._tables import print_verdict
        from fair_tta.miniature import BIRDS
        from fair_tta.miniature._world import TASKS

        logging.disable_progress_bar()  # one bar is enough

        def play(tasks: Any, methods: Any, images: int, unit: str) -> list[demo.Episode]:
            of: Any = {"seeds": range(seeds), "limit": limit, "sample": sample}
            work = demo.run_episodes(tasks, methods, images=images, progress=bars(unit), **of)
            return list(work)

        with demo.one_thread():
            episodes = play(TASKS.values(), demo.ONE_VIEW, one_view, "images")
            few = play([BIRDS], demo.WITH_VIEWS, pictures, "images with 64 views")
        audits, with_views = demo.to_audits(episodes), demo.to_audits(few)
        table = demo.demo_table([*audits.items(), *with_views.items()])
        write_whole(out, demo.to_html(episodes, audits, with_views, table).encode())
        show(demo.to_rich(table))
        show(demo.DEMO_LEGEND + "\n")
        print_verdict([(name, audit.document) for name, audit in audits.items()])
        show(f"The report is in {out}: open it in a browser.")


def _check_file(out: Path) -> None:
    """Before any work: there is a place for the file."""
    if not out.parent.is_dir():
        raise FairTTAError(f"`out` should be in a folder that exists (got {str(out)!r}).")
    if out.is_dir():
        raise FairTTAError(f"`out` should be a file, not a folder (got {str(out)!r}).")


def fit_command(
    context: typer.Context,
    *,
    adapter: Annotated[
        str,
        typer.Option(
            metavar="METHOD",
            help="Method that needs a reference, with its settings: 'logit-balance:strength=1'.",
            autocompletion=options.complete_adapters,
        ),
    ],
    images: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the reference images.", show_default=False),
    ] = None,
    targets: options.TargetsOption,
    out: Annotated[Path, typer.Option(metavar="FILE", help="File to write.")],
    sensitive: options.SensitiveOption = [],  # noqa: B006
    template: options.Template = None,
    model: options.Model = "miniature",
    features: options.Features = None,
    text_features: options.TextFeatures = None,
    scale: options.Scale = None,
    batch_size: options.BatchSize = 16,
    device: options.Device = None,
    dtype: options.Precision = None,
    progress: options.ShowProgress = None,
) -> None:
    """Fit a method on reference images without labels and write it to a file.

    The file is used as --adapter 'METHOD:reference=FILE', with the same model and the same names.
    An image that cannot be read is listed and does not stop the others; the exit code is then 4.
    """
    options.refuse_idle(context)
    with exits(context, reference="--images"):
        from fair_tta.lab._terminal import progress_bars
        from fair_tta.lab.runs._reference import check_fittable, fit_on_folder
        from fair_tta.methods._reference import Reference
        from fair_tta.methods._registry import parse_adapter

        _check_file(out)
        if out.is_file() and out.stat().st_size and not Reference._is_in(out):
            raise FairTTAError(
                f"`out` should be a new file, or one of `fair-tta fit` (got {str(out)!r}, which is "
                "something else): choose another name."
            )
        method = usage("--adapter", parse_adapter, adapter)
        usage("--adapter", check_fittable, {adapter: method})
        classifier = options.make_classifier(context, adapter=method)
        where: Any = options.stored_features(context) or images
        with progress_bars(progress) as bars:
            fitted = fit_on_folder(classifier, {adapter: method}, where, progress=bars("images"))
        (fitted_method,) = fitted.adapters.values()
        classifier.with_adapter(fitted_method).save(out)
        options.log_fitted(fitted)
        log(f"Written: {str(out)!r}.")
    if fitted.left_out:
        raise typer.Exit(LEFT_OUT)


def report_command(
    audit: Annotated[Path, typer.Argument(metavar="AUDIT.JSON", help="What an audit has written.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where to: .html for a page, .md for a block of a model card.",
            show_default="beside the audit, .html",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Open all sections that are folded otherwise.")
    ] = False,
) -> None:
    """Write the report of an audit; to embed images, repeat `fair-tta audit` with --embed-images.

    Printed, a page is complete in either case.
    """
    with exits(path="--out"):
        from fair_tta.auditing import Audit
        from fair_tta.lab._terminal import show
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
        show(f"Written to {path}", wrap=False)
