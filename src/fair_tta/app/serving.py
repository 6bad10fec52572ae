"""The server: on this machine alone, without telemetry, and nothing is left when it ends."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

from fair_tta.app.gate import LOCAL, Gate
from fair_tta.app.limits import UploadLimits
from fair_tta.errors import FairTTAError, require

LOCALHOST = "127.0.0.1"
_PARTS = ("uploads", "runs", "examples")


def serve(
    model: object = "miniature",
    *,
    host: str = LOCALHOST,
    port: int | None = None,
    share: bool = False,
    open_browser: bool = False,
    views: int = 64,
    device: str | None = None,
    dtype: str | None = None,
    limits: UploadLimits = UploadLimits(),
    ready: Callable[[str], None] = lambda url: print(f"fair-tta app: {url}", flush=True),
) -> None:
    """Serve the app until Ctrl-C, SIGTERM or SIGHUP; then delete everything that was uploaded.

    Args:
        model: as for `FairTPTClassifier`.
        host: where to listen; anything but this machine lets others in.
        port: a free one from 7860 on if None.
        share: make a public link through Gradio's servers. Whoever knows it may use the app.
        open_browser: open the page.
        views: how many views of each picture.
        device: for a model of a string, as for `FairTPTClassifier`.
        dtype: likewise.
        limits: of what is uploaded and asked.
        ready: is told the address.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before it is imported
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    require("gradio", "app")
    from transformers.utils import logging

    from fair_tta.app.interface import build_interface, is_embedded
    from fair_tta.app.questions import Classifiers

    logging.disable_progress_bar()  # of loading weights
    classifiers = Classifiers(model, views=views, device=device, dtype=dtype, limits=limits)
    with _stoppable() as stop, private_folder() as folder:
        is_local = host == LOCALHOST and not share
        blocks = build_interface(classifiers, folder, embedded=is_embedded(model), local=is_local)
        try:
            url = launch(blocks, folder, limits, host, port, share, open_browser)
            ready(url)
            stop.wait()
        finally:
            blocks.close(verbose=False)


def launch(
    blocks: Any,
    folder: Path,
    limits: UploadLimits,
    host: str = LOCALHOST,
    port: int | None = None,
    share: bool = False,
    open_browser: bool = False,
) -> str:
    """Start the server in the background; returns the address."""
    from fair_tta.app.interface import STYLE, theme

    middleware = require("starlette.middleware", "app").Middleware
    is_local = host == LOCALHOST and not share
    gate = middleware(
        Gate,
        folder=folder,
        limits=limits,
        hosts=LOCAL if is_local else None,
        frames=host != LOCALHOST,
    )
    try:
        _, local, public = blocks.launch(
            server_name=host,
            server_port=port,
            share=share,
            inbrowser=open_browser,
            inline=False,
            prevent_thread_lock=True,
            quiet=True,
            show_error=False,
            max_file_size=limits.file_bytes,
            allowed_paths=[],
            app_kwargs={"middleware": [gate], "docs_url": None, "redoc_url": None},
            footer_links=[],
            run_history=False,
            enable_monitoring=False,
            ssr_mode=False,
            pwa=False,
            mcp_server=False,
            theme=theme(),
            css=STYLE,
        )
    except OSError as error:
        raise FairTTAError(
            f"`port` should be free (got {port}): choose another, or none for any ({error})."
        ) from error
    blocks.share = False  # or pages for the public link would fetch scripts from another host
    return str(public or local)


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that only this user can read, for uploads too; it is deleted at the end."""
    folder = Path(tempfile.mkdtemp(prefix="fair-tta-app-"))
    before = os.environ.get("GRADIO_TEMP_DIR")
    try:
        for part in _PARTS:
            (folder / part).mkdir()
        os.environ["GRADIO_TEMP_DIR"] = str(folder / "uploads")
        yield folder
    finally:
        if before is None:
            os.environ.pop("GRADIO_TEMP_DIR", None)
        else:
            os.environ["GRADIO_TEMP_DIR"] = before
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _stoppable() -> Iterator[Event]:
    """An event that signals set, in the main thread; elsewhere signals are not ours."""
    stop = Event()
    if current_thread() is not main_thread():
        yield stop
        return
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    wanted = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {one: signal.signal(one, lambda *_: stop.set()) for one in wanted}
    try:
        yield stop
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
