"""The server: local only, no telemetry, limits on uploads, nothing left when it ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from ipaddress import ip_address
from itertools import count
from pathlib import Path
from threading import Event, current_thread, main_thread
from typing import Any

from fair_tta.errors import FairTTAError, require

MEGABYTE = 2**20


@dataclass(frozen=True)
class UploadLimits:
    """What may be uploaded, and how much may be asked.

    Args:
        file_bytes: of one file.
        files: pictures of one examination or audit.
        total_bytes: of all that lies on the disk for the app at one time.
        names: classes, and values of all attributes together.
        characters: of one field.
    """

    file_bytes: int = 20 * MEGABYTE
    files: int = 1000
    total_bytes: int = 2048 * MEGABYTE
    names: int = 100
    characters: int = 10_000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not isinstance(value, int) or value < 1:
                raise FairTTAError(
                    f"`{field.name}` should be a whole number from 1 on (got {value!r})."
                )

    def check_files(self, paths: Sequence[object]) -> None:
        """Raise if there are none, or too many."""
        if not paths:
            raise FairTTAError("there are no pictures yet: drop some, or take the drawn ones.")
        if len(paths) > self.files:
            raise FairTTAError(
                f"at most {self.files:,} pictures at once (got {len(paths):,}): take a sample, or "
                "use `fair-tta examine` and `fair-tta audit`, which have no such limit."
            )

    def check_text(self, field: str, text: str) -> None:
        """Raise if a field holds more than anybody means."""
        if len(text) > self.characters:
            raise FairTTAError(
                f"`{field}` should have at most {self.characters:,} characters (got {len(text):,})."
            )

    def check_names(self, field: str, count: int) -> None:
        """Raise if there are more names than the app is made for."""
        if count > self.names:
            raise FairTTAError(f"`{field}` should have at most {self.names} names (got {count}).")


OLD = 3600  # seconds


def files_below(folder: Path) -> set[str]:
    """Paths of all files."""
    return {os.path.join(where, name) for where, _, names in os.walk(folder) for name in names}


def sweep_uploads(folder: Path, kept: Collection[str], now: float | None = None) -> None:
    """Delete files that nobody has written or used for an hour, and folders that are empty.

    Args:
        folder: of the uploads.
        kept: files that stay: those of the page itself.
        now: seconds since 1970, by the clock if None.
    """
    for where, _, names in os.walk(folder, topdown=False):
        paths = [os.path.join(where, name) for name in names]
        for path in paths:
            with suppress(OSError):  # just deleted, or still open
                if path not in kept and _is_old(path, now):
                    os.unlink(path)
        with suppress(OSError):
            if where != str(folder) and _is_old(where, now):
                os.rmdir(where)


def mark_used(paths: Iterable[str]) -> None:
    """Files of uploads that somebody is not done with: their hour begins again."""
    for path in paths:
        with suppress(OSError):  # just deleted
            os.utime(path)


def sweep_runs(folder: Path, now: float | None = None) -> None:
    """Delete runs of which no part was written for an hour; one that goes on writes its rows."""
    for run in folder.iterdir():
        parts = [str(run), *(os.path.join(w, n) for w, d, f in os.walk(run) for n in (*d, *f))]
        with suppress(OSError):
            if all(_is_old(path, now) for path in parts):
                shutil.rmtree(run)


def _is_old(path: str, now: float | None) -> bool:
    """A copy has the time of what it is a copy of, so the time when it was made counts too."""
    found = os.lstat(path)
    return max(found.st_mtime, found.st_ctime) < (time.time() if now is None else now) - OLD


Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Refusal = tuple[int, str]

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src 'self' data:; "
    "connect-src 'self'; frame-src 'self' data: blob:; object-src 'none'; base-uri 'self'; "
    "form-action 'none'"
)
"""Nothing comes from another host, and nothing goes there."""

OPEN = re.compile(
    r"/|/(assets|static|svelte)/[^:]*|/config/?|/theme\.css|/favicon\.ico|/manifest\.json"
    r"|/gradio_api/(upload|upload_progress|theme\.css|startup-events|info|app_id)/?"
    r"|/gradio_api/queue/(join|data)|/gradio_api/(cancel|reset)/?"
    r"|/gradio_api/heartbeat/\w+|/gradio_api/file=(?![A-Za-z][A-Za-z0-9+.-]*:/).*",
    re.DOTALL,
)
"""Paths that are answered; a file is none of another host."""

LOCAL = ("127.0.0.1", "localhost", "[::1]")
UPLOADS = "uploads"
"""The part of the app's folder where uploads arrive: on their way as files, then in folders."""

_WITHOUT_FILES, _OF_A_FILE = 2**20, 2**12  # bytes of a request that is no upload: paths and names


class Gate:
    """In front of Gradio's application.

    Args:
        app: Gradio's.
        folder: of the app; its size counts, with that of uploads on their way.
        limits: of uploads.
        hosts: by which names the server may be called; None for all. Pages of other hosts are
            refused, those that send something here as those that lead their own name here (DNS
            rebinding).
        frames: whether another page may show this one in a frame.
    """

    def __init__(
        self,
        app: Application,
        folder: Path,
        limits: UploadLimits,
        hosts: Sequence[str] | None = LOCAL,
        frames: bool = False,
    ) -> None:
        self._app, self._folder, self._limits, self._hosts = app, folder, limits, hosts
        self._policy = POLICY if frames else f"{POLICY}; frame-ancestors 'none'"
        self._uploads = self._came = 0  # how many are on their way, and what came of them, in bytes
        self._stored = 0  # bytes of all else

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
            refusal = self._refusal(scope["path"], headers)
            if refusal is None:
                length = headers.get("content-length", b"")
                size = int(length) if length.isdigit() else 0
                pass_on = self._upload if _is_upload(scope) else self._other
                refusal = await pass_on(size, scope, receive, self._with_policy(send))
            if refusal is not None:
                await _refuse(send, *refusal)

    def _refusal(self, path: str, headers: Mapping[str, bytes]) -> Refusal | None:
        host = headers.get("host", b"").decode("latin-1")
        if self._hosts is not None and re.sub(r":\d+$", "", host) not in self._hosts:
            return 421, "This app answers on this machine only."
        origin = headers.get("origin", b"").decode("latin-1")
        if self._hosts is not None and origin not in ("", f"http://{host}"):
            return 403, "This app answers its own page only."
        if OPEN.fullmatch(path) is None:
            return 404, "There is nothing here."
        return None

    async def _upload(
        self, size: int, scope: Scope, receive: Receive, send: Send
    ) -> Refusal | None:
        """Many at once have no more room than one: what comes is counted for all of them together.

        A size that is only promised takes no room from others.
        """
        on_their_way = used_bytes(self._folder / UPLOADS, deep=False)
        self._stored = used_bytes(self._folder) - min(on_their_way, self._came)
        if size + self._stored + self._came > self._limits.total_bytes:
            return 413, (
                f"No room: all uploads together may have {self._limits.total_bytes >> 20} MB. "
                "Upload fewer pictures, or start the app again."
            )
        came = 0

        def count(length: int) -> bool:
            nonlocal came
            if self._stored + self._came + length > self._limits.total_bytes:
                return False
            came, self._came = came + length, self._came + length
            return True

        self._uploads += 1
        try:
            await self._app(scope, _counted(receive, count), send)
        finally:
            self._uploads, self._came = self._uploads - 1, self._came - came
            self._stored += came
            if not self._uploads:
                remove_rests(self._folder / UPLOADS)
        return None

    async def _other(self, size: int, scope: Scope, receive: Receive, send: Send) -> Refusal | None:
        left = _WITHOUT_FILES + self._limits.files * _OF_A_FILE
        if size > left:
            return 413, "That is more than this page sends."

        def count(length: int) -> bool:
            nonlocal left
            left -= length
            return left >= 0

        await self._app(scope, _counted(receive, count), send)
        return None

    def _with_policy(self, send: Send) -> Send:
        extra = [
            (b"content-security-policy", self._policy.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
        ]

        async def with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        return with_policy


def used_bytes(folder: Path, *, deep: bool = True) -> int:
    """Of all files in a folder, and in its subfolders if `deep`."""
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(where, name)).st_size
            except OSError:  # just deleted
                continue
        if not deep:
            break
    return total


def remove_rests(uploads: Path) -> None:
    """What Gradio leaves of uploads that were cut off; to be called when none is on its way."""
    with suppress(OSError), os.scandir(uploads) as entries:
        for entry in entries:
            with suppress(OSError):  # still open, on Windows
                if entry.is_file(follow_symlinks=False):
                    os.unlink(entry.path)


def _counted(receive: Receive, count: Callable[[int], bool]) -> Receive:
    """A request that does not say its size, or lies, ends where `count` has no room for it."""
    is_over = False

    async def counted() -> Message:
        nonlocal is_over
        message = await receive()
        is_over = is_over or not count(len(message.get("body", b"")))
        return {"type": "http.disconnect"} if is_over else message

    return counted


def _is_upload(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/gradio_api/upload") and scope["method"] == "POST")


async def _refuse(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"),
               (b"content-length", str(len(body)).encode())]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


LOCALHOST = "127.0.0.1"
_PARTS = (UPLOADS, "runs", "examples")
_TICK, _SWEEP_TICKS = 0.5, 120  # seconds, and how many of them are between two sweeps


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

    from fair_tta.lab.app._page import build_interface, is_embedded
    from fair_tta.lab.app._questions import Classifiers

    logging.disable_progress_bar()  # of loading weights
    classifiers = Classifiers(model, views=views, device=device, dtype=dtype, limits=limits)
    with _stoppable() as stop, private_folder() as folder:
        is_local = is_loopback(host) and not share
        blocks = build_interface(classifiers, folder, embedded=is_embedded(model), local=is_local)
        try:
            url = launch(blocks, folder, limits, host, port, share, open_browser)
            of_page = files_below(folder / UPLOADS)
            ready(url)
            for tick in count(1):
                if stop.wait(_TICK):  # a wait without an end cannot be interrupted on Windows
                    break
                if tick % _SWEEP_TICKS == 0:
                    sweep_uploads(folder / UPLOADS, of_page)
                    sweep_runs(folder / "runs")
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
    from fair_tta.lab.app._page import STYLE, theme

    middleware = require("starlette.middleware", "app").Middleware
    gate = middleware(
        Gate,
        folder=folder,
        limits=limits,
        hosts=(*LOCAL, host) if is_loopback(host) and not share else None,
        frames=not is_loopback(host),
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


def is_loopback(host: str) -> bool:
    """Whether only this machine can call a host of this name."""
    try:
        return host.lower() == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:  # another name
        return False


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder that only this user can read, for uploads too; it is deleted at the end."""
    folder = Path(tempfile.mkdtemp(prefix="fair-tta-app-"))
    before = os.environ.get("GRADIO_TEMP_DIR")
    try:
        for part in _PARTS:
            (folder / part).mkdir()
        os.environ["GRADIO_TEMP_DIR"] = str(folder / UPLOADS)
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
