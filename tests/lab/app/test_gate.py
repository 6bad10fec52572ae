"""The gate: few addresses, few hosts, an end to uploads, and a policy on every answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from internals import POLICY, Gate, UploadLimits, used_bytes
from starlette.types import Message, Receive, Scope, Send


async def behind(scope: Scope, receive: Receive, send: Send) -> None:
    """Counts what arrives, and says so."""
    count = 0
    is_open = True
    while is_open and scope["type"] == "http":
        message = await receive()
        count += len(message.get("body", b""))
        is_open = message.get("more_body", False)
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}
    )
    await send({"type": "http.response.body", "body": str(count).encode()})


def response_of(
    gate: Gate,
    path: str,
    *,
    method: str = "GET",
    host: str = "127.0.0.1:7860",
    origin: str | None = None,
    parts: tuple[bytes, ...] = (b"",),
    length: int | None = None,
) -> tuple[int, bytes, dict[bytes, bytes]]:
    sent: list[Message] = []
    pending = [
        {"type": "http.request", "body": part, "more_body": True} for part in parts
    ]
    pending[-1]["more_body"] = False

    async def receive() -> Message:
        return pending.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"host", host.encode())]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    scope: dict[str, Any] = {
        "type": "http",
        "path": path,
        "method": method,
        "headers": headers,
    }
    asyncio.run(gate(scope, receive, send))
    return sent[0]["status"], sent[1]["body"], dict(sent[0]["headers"])


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(behind, tmp_path, UploadLimits(total_bytes=100))


@pytest.mark.parametrize(
    "path",
    ["/", "/assets/index.js", "/config", "/theme.css", "/gradio_api/queue/join",
     "/gradio_api/queue/data", "/gradio_api/file=/some/a b.png", "/gradio_api/heartbeat/abc1"],
)  # fmt: skip
def test_what_the_page_needs_is_answered_with_the_policy(path: str, gate: Gate) -> None:
    status, _, headers = response_of(gate, path)
    assert status == 200
    assert headers[b"content-security-policy"].decode().startswith(POLICY)
    assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert headers[b"a"] == b"b"


@pytest.mark.parametrize(
    "path",
    ["/docs", "/openapi.json", "/monitoring", "/monitoring/summary", "/login", "/assets",
     "/gradio_api/openapi.json", "/gradio_api/proxy=https://example.org", "/gradio_api/vibe-edit",
     "/gradio_api/vibe-code", "/gradio_api/call/answer", "/gradio_api/run/answer",
     "/gradio_api/file=http://example.org/a.png", "/gradio_api/file=file:///etc/passwd",
     "/gradio_api/component_server", "/gradio_api/process_recording",
     "/gradio_api/run-history/connect",
     "/gradio_api/file/etc/passwd", "/gradio_api/custom_component/1/client/component/x"],
)  # fmt: skip
def test_all_else_is_not_there(path: str, gate: Gate) -> None:
    assert response_of(gate, path)[:2] == (404, b"There is nothing here.")


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7860", "127.0.0.1.evil.example", ""]
)
def test_other_hosts_are_refused(host: str, gate: Gate, tmp_path: Path) -> None:
    assert response_of(gate, "/", host=host)[0] == 421
    everybody = Gate(behind, tmp_path, UploadLimits(), hosts=None, frames=True)
    status, _, headers = response_of(everybody, "/", host=host)
    assert status == 200
    assert b"frame-ancestors" not in headers[b"content-security-policy"]
    assert response_of(gate, "/", host="localhost:1")[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:7860"]
)
def test_pages_of_others_cannot_send_anything(origin: str, gate: Gate) -> None:
    refused = response_of(gate, "/gradio_api/upload", method="POST", origin=origin)
    assert refused[:2] == (403, b"This app answers its own page only.")
    assert (
        response_of(gate, "/gradio_api/upload", origin="http://127.0.0.1:7860")[0]
        == 200
    )


def test_uploads_end_where_the_room_does(gate: Gate, tmp_path: Path) -> None:
    upload = "/gradio_api/upload"
    assert (
        response_of(
            gate, upload, method="POST", length=100, parts=(b"x" * 60, b"x" * 40)
        )[0]
        == 200
    )
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"y" * 50)
    assert used_bytes(tmp_path) == 50
    status, text, _ = response_of(gate, upload, method="POST", length=51)
    assert status == 413
    assert text.startswith(b"No room: all uploads together may have 0 MB.")
    assert (
        response_of(gate, upload, method="POST", length=50, parts=(b"x" * 50,))[0]
        == 200
    )
    assert response_of(gate, upload, method="POST", parts=(b"x",))[0] == 411, (
        "no length"
    )


def test_other_requests_are_short(gate: Gate) -> None:
    join = "/gradio_api/queue/join"
    refused = response_of(gate, join, method="POST", length=150 * 2**20)
    assert refused[:2] == (413, b"That is more than this page sends.")
    assert response_of(gate, join, method="POST", parts=(b"x",))[0] == 411
    assert response_of(gate, join, method="POST", length=1, parts=(b"x",))[0] == 200


def test_what_is_left_of_an_upload_goes_when_none_is_received(tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    (uploads / "hash").mkdir(parents=True)

    async def torn(scope: Scope, receive: Receive, send: Send) -> None:
        (uploads / f"tmp{mine._n_receiving}").write_bytes(b"x")
        (uploads / "hash" / "whole.png").write_bytes(b"x")
        if mine._n_receiving == 1:
            with pytest.raises(ConnectionError):
                await mine(dict(scope), receive, send)  # another, in the meantime
            assert {p.name for p in uploads.iterdir()} == {"hash", "tmp1", "tmp2"}
        raise ConnectionError

    mine = Gate(torn, tmp_path, UploadLimits())
    with pytest.raises(ConnectionError):
        response_of(mine, "/gradio_api/upload", method="POST", length=1)
    assert [p.name for p in uploads.iterdir()] == ["hash"]
    assert (uploads / "hash" / "whole.png").is_file()


def test_other_kinds_of_connections() -> None:
    passed_on = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        passed_on.append(scope["type"])

    async def nothing(*_: Any) -> Any:
        return None

    gate = Gate(app, Path("nowhere"), UploadLimits())
    asyncio.run(gate({"type": "lifespan"}, nothing, nothing))
    asyncio.run(gate({"type": "websocket"}, nothing, nothing))
    assert passed_on == ["lifespan"]
