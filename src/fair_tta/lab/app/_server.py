"""The server: local by default, no telemetry, limits on uploads, nothing left when it ends."""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from ipaddress import ip_address
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import TYPE_CHECKING, Any

from fair_tta.errors import FairTTAError, check_count, require

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MEGABYTE = 2**20


@dataclass(frozen=True)
class UploadLimits:
    """Limits on uploads and questions.

    Args:
        file_bytes: of one file.
        files: images of one examination or audit.
        total_bytes: of all files on the app's disk when an upload begins, with that upload.
        names: classes, and values of all attributes together.
        characters: of one field.
        rows: of a file of labels.
        columns: likewise.
        jobs: that wait; more are refused.
    """

    file_bytes: int = 20 * MEGABYTE
    files: int = 1000
    total_bytes: int = 2048 * MEGABYTE
    names: int = 100
    characters: int = 10_000
    rows: int = 10_000
    columns: int = 100
    jobs: int = 20

    def __post_init__(self) -> None:
        for field in fields(self):
            check_count(field.name, getattr(self, field.name))

    def check(self, field: str, **counts: int) -> None:
        """Raise if a field has more ``files``, ``names``, ``rows`` or others than allowed."""
        for name, n in counts.items():
            limit = getattr(self, name)
            if n > limit:
                # Rows are not counted to the end
                or_more = " or more" if name == "rows" else ""
                raise FairTTAError(
                    f"`{field}` should have at most {limit:,} {name} (got {n:,}{or_more}); the "
                    "commands of fair-tta have no such limit.",
                    argument=field,
                )


def read_limits(changes: Mapping[str, int]) -> UploadLimits:
    """Return the limits with these changes, whose names must be those of limits."""
    known = [field.name for field in fields(UploadLimits)]
    for name in changes:
        if name not in known:
            raise FairTTAError(
                f"`limits` should have names of {', '.join(known)} (got {name!r}).",
                argument="limits",
            )
    return UploadLimits(**changes)


POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; frame-src 'self' data: blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'none'"
)
"""Of the page: nothing comes from another host, and nothing goes there."""

_SERVED_PATHS = re.compile(
    r"/|/(assets|static|svelte)/[^:]*|/config/?|/theme\.css|/favicon\.ico|/manifest\.json"
    r"|/gradio_api/(upload|upload_progress|theme\.css|startup-events|info|app_id)/?"
    r"|/gradio_api/queue/(join|data)|/gradio_api/(cancel|reset)/?"
    r"|/gradio_api/heartbeat/\w+|/gradio_api/file=(?![A-Za-z][A-Za-z0-9+.-]*:/).*",
    re.DOTALL,
)
"""Paths that are served; a file is never one of another host."""

LOCAL = ("127.0.0.1", "localhost", "[::1]")
UPLOADS = "uploads"
"""Folder where uploads arrive: as files while they are received, then in folders."""

# Bytes of a request without an upload: its fields, and the path and name of each file
_FIELDS_BYTES = 2**20
_BYTES_PER_FILE = 2**12

# Seconds: a wait without an end cannot be interrupted on Windows
_STOP_POLL_SECONDS = 0.5


class Gate:
    """Middleware in front of Gradio: hosts, origins, paths, sizes, and a content policy.

    Args:
        folder: of the app; its size counts.
        hosts: names under which the server may be called; None for all. Requests of other pages
            are refused, also of those that point their own name here (DNS rebinding).
        frames: whether another page may show this one in a frame.
    """

    def __init__(
        self,
        app: ASGIApp,
        folder: Path,
        limits: UploadLimits,
        hosts: Sequence[str] | None = LOCAL,
        frames: bool = False,
    ) -> None:
        self._app = app
        self._folder = folder
        self._limits = limits
        self._hosts = hosts
        self._policy = POLICY if frames else f"{POLICY}; frame-ancestors 'none'"
        self._n_receiving = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on and delete what is left of uploads that were cut off."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        if scope["type"] != "http":
            return
        headers = {}
        for name, value in scope["headers"]:
            headers[name.decode("latin-1")] = value.decode("latin-1")
        refusal = self._refusal(scope["path"], scope["method"], headers)
        if refusal is not None:
            status, text = refusal
            response = require("starlette.responses", "app").PlainTextResponse
            await response(text, status)(scope, receive, send)
        elif not _is_upload(scope["path"]):
            await self._app(scope, receive, self._with_policy(send))
        else:
            # Files of another upload that is still received must not be deleted
            self._n_receiving += 1
            try:
                await self._app(scope, receive, self._with_policy(send))
            finally:
                self._n_receiving -= 1
                if not self._n_receiving:
                    _remove_partial(self._folder / UPLOADS)

    def _refusal(
        self, path: str, method: str, headers: Mapping[str, str]
    ) -> tuple[int, str] | None:
        """Return the status and the text of a request that is refused, None if it is not."""
        if self._hosts is not None:
            host = headers.get("host", "")
            if re.sub(r":\d+$", "", host) not in self._hosts:
                return 421, "This app answers on this machine only."
            if headers.get("origin", "") not in ("", f"http://{host}"):
                return 403, "This app answers its own page only."
        if _SERVED_PATHS.fullmatch(path) is None:
            return 404, "There is nothing here."
        # What a request promises is what the server receives, so it can be refused beforehand
        length = headers.get("content-length", "")
        if method != "POST" or length == "0":
            return None
        if not length.isdigit():
            return 411, "A request should give its length."
        if not _is_upload(path):
            limit = _FIELDS_BYTES + self._limits.files * _BYTES_PER_FILE
            if int(length) > limit:
                return 413, "That is more than this page sends."
        elif int(length) + used_bytes(self._folder) > self._limits.total_bytes:
            return 413, (
                f"No room: all uploads together may have {self._limits.total_bytes >> 20} MB. "
                "Upload fewer images, or start the app again."
            )
        return None

    def _with_policy(self, send: Send) -> Send:
        """Return `send` with a content policy in the headers of each answer."""
        headers = [
            (b"content-security-policy", self._policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {
                    **message,
                    "headers": [*message.get("headers", []), *headers],
                }
            await send(message)

        return with_policy


def used_bytes(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    total = 0
    for subfolder, _, names in os.walk(folder):
        for name in names:
            # It may have just been deleted
            with suppress(OSError):
                total += os.lstat(os.path.join(subfolder, name)).st_size
    return total


def _remove_partial(uploads: Path) -> None:
    """Delete what Gradio leaves of uploads that were cut off."""
    for path in uploads.glob("*"):
        # On Windows it may still be open
        with suppress(OSError):
            if path.is_file():
                path.unlink()


def _is_upload(path: str) -> bool:
    return path.startswith("/gradio_api/upload")


def serve(
    model: object = "miniature",
    *,
    host: str = LOCAL[0],
    port: int | None = None,
    share: bool = False,
    open_browser: bool = False,
    views: int = 64,
    device: str | None = None,
    dtype: str | None = None,
    limits: Mapping[str, int] | None = None,
    ready: Callable[[str], None] = lambda url: print(
        f"fair-tta app: {url}", flush=True
    ),
) -> None:
    """Serve the app until Ctrl-C, SIGTERM or SIGHUP; then delete everything that was uploaded.

    Args:
        model: as for `FairTPTClassifier`.
        host: where to listen; anything but this machine lets others in.
        port: if None a free one, 7860 or higher.
        share: make a public link through Gradio's servers. Anyone who knows it may use the app.
        open_browser: open the page.
        views: how many views of each image.
        device: for a model of a string, as for `FairTPTClassifier`.
        dtype: likewise.
        limits: what to change of ``{"file_bytes": 20 * 2**20, "files": 1000, "total_bytes": 2**31,
            "names": 100, "characters": 10_000, "rows": 10_000, "columns": 100, "jobs": 20}``: bytes
            of one file, files at once, bytes of all files on the app's disk when an upload begins,
            names of classes and of values, characters of a field, rows and columns of a file of
            labels, and runs that wait.
        ready: receives the address.
    """
    allowed = read_limits(limits or {})
    # Gradio reads it when it is imported
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
    require("gradio", "app")
    from transformers.utils import logging

    from fair_tta.lab.app._page import build_interface, is_embedded_model
    from fair_tta.lab.app._questions import Classifiers

    # Loading weights has one
    logging.disable_progress_bar()
    classifiers = Classifiers(
        model, views=views, device=device, dtype=dtype, limits=allowed
    )
    # The folder is deleted after the server has ended, however it ends
    with _stoppable() as stop, private_folder() as folder:
        is_local = is_loopback(host) and not share
        blocks = build_interface(
            classifiers, folder, embedded=is_embedded_model(model), local=is_local
        )
        try:
            ready(launch(blocks, folder, allowed, host, port, share, open_browser))
            while not stop.wait(_STOP_POLL_SECONDS):
                pass
        finally:
            blocks.close(verbose=False)


def launch(
    blocks: Any,
    folder: Path,
    limits: UploadLimits,
    host: str = LOCAL[0],
    port: int | None = None,
    share: bool = False,
    open_browser: bool = False,
) -> str:
    """Start the server in the background; return its address."""
    # A public link, or another host, is called by names that are not known beforehand
    middleware = require("starlette.middleware", "app").Middleware
    gate = middleware(
        Gate,
        folder=folder,
        limits=limits,
        hosts=(*LOCAL, host) if is_loopback(host) and not share else None,
        frames=not is_loopback(host),
    )
    # Everything that Gradio serves besides the page is switched off
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
            css_paths=[Path(__file__).with_name("app.css")],
        )
    except OSError as error:
        raise FairTTAError(
            f"`port` should be free (got {port}): choose another, or none for any ({error}).",
            argument="port",
        ) from error
    # Else pages of the public link would fetch scripts from another host
    blocks.share = False
    return str(public or local)


def theme() -> Any:
    """Return a theme whose fonts are on the reader's machine: none is fetched."""
    gr = require("gradio", "app")
    # Each list ends with a font that every machine has
    base = gr.themes.Base(
        primary_hue="teal",
        neutral_hue="slate",
        font=["system-ui", "Segoe UI", "Roboto", "DejaVu Sans", "sans-serif"],
        font_mono=["ui-monospace", "Menlo", "DejaVu Sans Mono", "monospace"],
    )
    # Gradio's own colours have too little contrast
    return base.set(
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
        button_primary_background_fill="*primary_700",
        button_primary_background_fill_hover="*primary_800",
        button_primary_text_color="white",
    )


def is_loopback(host: str) -> bool:
    """Return True if only this machine can call a host of this name."""
    try:
        return host.lower() == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@contextmanager
def private_folder() -> Iterator[Path]:
    """Yield a folder that only this user can read, for uploads too; it is deleted at the end."""
    gradio_folder = os.environ.get("GRADIO_TEMP_DIR")
    with tempfile.TemporaryDirectory(
        prefix="fair-tta-app-", ignore_cleanup_errors=True
    ) as name:
        uploads = Path(name, UPLOADS)
        uploads.mkdir()
        os.environ["GRADIO_TEMP_DIR"] = str(uploads)
        try:
            yield Path(name)
        finally:
            del os.environ["GRADIO_TEMP_DIR"]
            if gradio_folder is not None:
                os.environ["GRADIO_TEMP_DIR"] = gradio_folder


@contextmanager
def _stoppable() -> Iterator[Event]:
    """Yield an event that signals set; outside the main thread no signal sets it."""
    # Python handles signals in the main thread only
    stop = Event()
    if current_thread() is not main_thread():
        yield stop
        return
    handlers = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        # Windows has no SIGHUP
        if hasattr(signal, name):
            number = getattr(signal, name)
            handlers[number] = signal.signal(number, lambda *_: stop.set())
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
