"""Addresses that try to take time, memory or a look at the local network."""

from __future__ import annotations

import socket
import threading
import time
import tracemalloc
from contextlib import suppress

import pytest
from internals import fetch_image

from fair_tta.errors import ImageError


def test_the_body_of_a_redirect_is_not_kept() -> None:
    """It may have no end: 7 GB in the default 10 s on this machine."""
    server = socket.create_server(("127.0.0.1", 0))

    def send() -> None:
        with suppress(OSError), server.accept()[0] as line:  # the client has left
            line.recv(2**16)
            line.sendall(b"HTTP/1.1 302 Found\r\nLocation: /a\r\n\r\n")
            for _ in range(500):
                line.sendall(bytes(2**20))

    threading.Thread(target=send, daemon=True).start()
    tracemalloc.start()
    try:
        with pytest.raises(ImageError, match="cannot fetch"):
            fetch_image(
                f"http://127.0.0.1:{server.getsockname()[1]}/", 5.0, private=True
            )
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()
        server.close()


def test_several_addresses_of_a_name_share_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = socket.create_server(("127.0.0.1", 0), backlog=0)
    connections = [socket.socket() for _ in range(4)]  # so that further ones hang
    for connection in connections:
        connection.setblocking(False)
        connection.connect_ex(full.getsockname())
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", full.getsockname())] * 6
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    start = time.monotonic()
    with pytest.raises(ImageError, match="it takes longer than `timeout`"):
        fetch_image("http://many.example/", 0.5, private=True)
    for connection in (full, *connections):
        connection.close()
    assert time.monotonic() - start < 1.5


def test_a_host_that_is_not_public_is_not_called_at_all() -> None:
    """Else the error shows which ports of the local network are open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.3)
        with pytest.raises(ImageError, match="not a public address"):
            fetch_image(f"http://127.0.0.1:{server.getsockname()[1]}/", 1.0)
        with pytest.raises(TimeoutError):
            server.accept()
