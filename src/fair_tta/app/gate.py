"""What the server answers at all: few addresses, few hosts, small uploads, and a strict policy.

Gradio has many more addresses than the page uses: some fetch other addresses, some change the app.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from fair_tta.app.limits import UploadLimits

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

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


class Gate:
    """In front of Gradio's application.

    Args:
        app: Gradio's.
        folder: of the uploads; its size counts.
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            refusal = self._refusal(scope)
            if refusal is None:
                await self._app(scope, self._counted(scope, receive), self._with_policy(send))
            else:
                await _refuse(send, *refusal)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        headers = {name.decode("latin-1"): value for name, value in scope["headers"]}
        host = headers.get("host", b"").decode("latin-1")
        if self._hosts is not None and re.sub(r":\d+$", "", host) not in self._hosts:
            return 421, "This app answers on this machine only."
        origin = headers.get("origin", b"").decode("latin-1")
        if self._hosts is not None and origin not in ("", f"http://{host}"):
            return 403, "This app answers its own page only."
        if OPEN.fullmatch(scope["path"]) is None:
            return 404, "There is nothing here."
        if not _is_upload(scope):
            return None
        length = headers.get("content-length", b"")
        size = int(length) if length.isdigit() else 0
        if size + used_bytes(self._folder) > self._limits.total_bytes:
            return 413, (
                f"No room: all uploads together may have {self._limits.total_bytes >> 20} MB. "
                "Upload fewer pictures, or start the app again."
            )
        return None

    def _counted(self, scope: Scope, receive: Receive) -> Receive:
        """An upload that does not say its size, or lies, ends where the room does."""
        if not _is_upload(scope):
            return receive
        left = self._limits.total_bytes - used_bytes(self._folder)

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            return {"type": "http.disconnect"} if left < 0 else message

        return counted

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


def _is_upload(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/gradio_api/upload") and scope["method"] == "POST")


async def _refuse(send: Send, status: int, text: str) -> None:
    body = text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"),
               (b"content-length", str(len(body)).encode())]  # fmt: skip
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
