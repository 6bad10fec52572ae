"""``fair-tta app``: pages in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from fair_tta.cli import options
from fair_tta.cli.console import exits, say


def app_command(
    context: typer.Context,
    model: options.Model = "miniature",
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=1, max=65535, help="Of this machine.", show_default="a free one from 7860"
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
    with exits(names=options.option_names(context)):
        from fair_tta.app import serve

        def ready(url: str) -> None:
            say(f"{url}  (Ctrl-C ends it and deletes what was uploaded)")
            if share and "127.0.0.1" in url:
                say("No public link could be made: the app is on this machine only.")
            elif share:
                say("This link is public: whoever knows it may use the app.")

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
