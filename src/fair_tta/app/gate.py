"""What the server answers at all: few addresses, few hosts, small uploads, and a strict policy.

Gradio has many more addresses than the page uses: some fetch other addresses, some change the app.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from fair_tta.app.limits import UploadLimits

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
        self._uploads, self._coming = 0, 0  # how many are on their way, and their bytes

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
        """Its room is taken before it comes, so many at once have no more than one.

        One that does not say its size takes all the room there is.
        """
        room = self._limits.total_bytes - used_bytes(self._folder) - self._coming
        if size > room:
            return 413, (
                f"No room: all uploads together may have {self._limits.total_bytes >> 20} MB. "
                "Upload fewer pictures, or start the app again."
            )
        left = size or room
        self._uploads, self._coming = self._uploads + 1, self._coming + left

        def count(length: int) -> bool:
            nonlocal left
            left, self._coming = left - length, self._coming - length
            return left < 0

        try:
            await self._app(scope, _counted(receive, count), send)
        finally:
            self._uploads, self._coming = self._uploads - 1, self._coming - left
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
            return left < 0

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


def used_bytes(folder: Path) -> int:
    """Of all files in a folder and its subfolders."""
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(where, name)).st_size
            except OSError:  # just deleted
                continue
    return total


def remove_rests(uploads: Path) -> None:
    """What Gradio leaves of uploads that were cut off; to be called when none is on its way."""
    with suppress(OSError), os.scandir(uploads) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_file(follow_symlinks=False):
                    os.unlink(entry.path)


def _counted(receive: Receive, count: Callable[[int], bool]) -> Receive:
    """A request that does not say its size, or lies, ends where `count` says so."""

    async def counted() -> Message:
        message = await receive()
        is_too_long = count(len(message.get("body", b"")))
        return {"type": "http.disconnect"} if is_too_long else message

    return counted


def _is_upload(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/gradio_api/upload") and scope["method"] == "POST")


async def _refuse(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"),
               (b"content-length", str(len(body)).encode())]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
